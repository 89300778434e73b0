"""A small network, its candidates, and a stand-in for the processes that measure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Mapping

import numpy as np

from mxamp.conversion import Options, Source
from mxamp.graph import Graph
from mxamp.measuring.process import ProcessError
from mxamp.model import Model, load
from mxamp.policy import Policy
from mxamp.profile.cache import MeasurementCache
from mxamp.profile.candidate import Candidates
from mxamp.profile.measuring import Measuring
from mxamp.profile.settings import Profiling
from mxamp.targets import Target
from tests.building import BF16, Net, capable, dtypes_of, parameters

SHAPE = (1, 4, 5, 5)


def three_layers() -> tuple[Graph, Mapping[str, Any]]:
    """Return data -> conv0 -> exp (RED) -> conv1 -> relu."""
    net = Net()
    first = net.conv(net.var("data"), "conv0")
    second = net.conv(net.op("exp", first, name="exp"), "conv1")
    return net.graph(net.op("Activation", second, name="relu", act_type="relu")), net.params


def candidates_of(
    folder: Path, graph: Graph, params: Mapping[str, Any], target: Target | None = None, **options: Any
) -> Candidates:
    """Return what makes candidates of a graph whose tensors all have one shape."""
    shapes = [
        (params[node.name].shape if node.name in params else SHAPE,) * node.num_outputs
        for node in graph.nodes
    ]
    source = Source(graph, parameters(params), {}, shapes=shapes)
    chosen = Options(Policy.default(BF16), target or capable(BF16), prepare=(), **options)
    return Candidates(source, chosen, folder)


Time = Callable[[str, bool], float]
"""What a node takes, given its operator and whether it is low."""


class FakeProcesses:
    """Does what the processes do, with times that a test chose.

    Parameters
    ----------
    time
        Microseconds of a node.
    seconds
        What the race says of each model, from its number of low layers and its casts; by default the sum of
        its nodes.
    fails
        Whether a run of these models fails.
    """

    def __init__(
        self,
        time: Time,
        *,
        seconds: Callable[[Model], float] | None = None,
        fails: Callable[[str, list[Model]], bool] = lambda program, models: False,
    ) -> None:
        self._time, self._seconds, self._fails = time, seconds, fails
        self.runs: list[str] = []
        self.jobs: list[Mapping[str, Any]] = []

    def __call__(
        self, program: str, job: Mapping[str, Any], folder: Path, *, timeout: float, environment: Any = None
    ) -> Any:
        json.dumps(job)
        what = program.rpartition(".")[2]
        self.runs.append(what)
        self.jobs.append(job)
        models = [load(prefix) for prefix in job["models"]]
        if self._fails(what, models):
            raise ProcessError("the process was ended by signal 11")
        if what == "node_times":
            return [{"microseconds": self._nodes(model), "fused": {}, "rounds": 5} for model in models]
        totals = [
            sum(self._nodes(model).values()) / 1e6 if self._seconds is None else self._seconds(model)
            for model in models
        ]
        return {"seconds": [[total] * 10 for total in totals], "rounds": [4, 3, 3]}

    def _nodes(self, model: Model) -> dict[str, float]:
        return {
            node.name: self._time(node.op, is_low(model, node.name))
            for node in model.graph.nodes
            if not node.is_variable
        }


def is_low(model: Model, name: str) -> bool:
    """Return whether a node of a candidate hands on low precision."""
    return BF16 in dtypes_of(model)[name]


def measuring_with(
    folder: Path, processes: Any, *, cache: Path | None = None, settings: Profiling | None = None
) -> Measuring:
    """Return what measures with stand-ins."""
    return Measuring(
        folder,
        {"data": np.zeros(SHAPE, np.float32)},
        device="cpu(0)",
        machine={"cpu": "of a test"},
        cache=MeasurementCache(cache),
        settings=settings or Profiling(),
        run_program=processes,
    )
