"""Race models in this process, or in one of their own, where a crash of MXNet's does no harm."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from mxamp.compare.inputs import as_model, counted, prepare_inputs
from mxamp.errors import DataError
from mxamp.graph.graph import Graph
from mxamp.graph.symbol_writer import write_symbol
from mxamp.measuring.race import Race, TimedRun, race_is_clear, run_by_turns
from mxamp.model import Model
from mxamp.params.parameter import Parameter
from mxamp.params.stream import stream_params

RACE_PROGRAM = "mxamp.compare.race_process"
"""Races models that lie in files."""


def race(
    models: Sequence[Any],
    data: Any = None,
    *,
    rounds: int = 100,
    warmup: int = 3,
    seconds: float = math.inf,
    at_least: int = 1,
    ctx: Any = None,
    labels: Sequence[str] | None = None,
    seed: int = 0,
    is_clear: Callable[[Race], bool] | None = race_is_clear,
    bind: Callable[[Model, str], TimedRun] | None = None,
) -> Race:
    """Time several models by turns, fused as deployed, all samples in one batch.

    Parameters
    ----------
    models
        :class:`mxamp.Model` or ``(sym, args, auxs)``. All of them are held on the device at once.
    data
        Input name -> array, or one array for models with one input.
    rounds, warmup, seconds, at_least, seed, is_clear
        See :func:`~mxamp.measuring.race.run_by_turns`. Binding the models is not counted.
    ctx
        ``"cpu"`` (the default), ``"gpu(0)"``, or an ``mx.Context``.
    labels
        What messages call the models.
    bind
        Prepares a model, given its label, and returns what runs it once and returns the seconds that took.
        By default :func:`bind_for_timing`.

    Returns
    -------
    Race
        Times of the forward pass alone: inputs are on the device before, outputs stay there.

    Raises
    ------
    DataError
        When there is no model, a count is below 1, or data and models do not fit together.
    DeviceError, OperatorError
        When a model cannot run there.
    """
    if not models:
        raise DataError("There is no model to time.")
    if rounds < 1 or warmup < 0:
        raise DataError(f"rounds must be at least 1 and warmup at least 0, not {rounds} and {warmup}.")
    counted(rounds, "The number of rounds")
    names = list(labels) if labels is not None else [f"model {number + 1}" for number in range(len(models))]
    if bind is None:
        bind = bind_for_timing(data, ctx)
    timed = [bind(as_model(model, name), name) for model, name in zip(models, names)]
    return run_by_turns(
        timed,
        rounds=rounds,
        warmup=warmup,
        seconds=seconds,
        at_least=at_least,
        seed=seed,
        is_clear=is_clear,
    )


def bind_for_timing(data: Any, ctx: Any = None) -> Callable[[Model, str], TimedRun]:
    """Return what binds a model on a device for some data and returns what runs it once, timed.

    Parameters
    ----------
    data
        See :func:`race`.
    ctx
        See :func:`race`.
    """
    from mxamp.runtime.executor import BoundModel

    def bind(model: Model, label: str) -> TimedRun:
        # A model keeps the NDArrays that were made for it. This one does not outlive the binding, which has
        # copies of its own.
        passing = Model(model.graph, model.arg_params, model.aux_params)
        return timed(BoundModel(passing, ctx=ctx, label=label), prepare_inputs(passing, data).arrays)

    return bind


def timed(bound: Any, arrays: Mapping[str, Any]) -> TimedRun:
    """Return what runs a :class:`~mxamp.runtime.executor.BoundModel` once on some data, timed."""
    bound.run(arrays)

    def run() -> float:
        start = time.perf_counter()
        bound.forward()
        return time.perf_counter() - start

    return run


def write_for_race(
    prefix: Path, graph: Graph, args: Mapping[str, Parameter], auxs: Mapping[str, Parameter]
) -> str:
    """Write a model where :data:`RACE_PROGRAM` reads it, unsynced: it is gone soon. Return the prefix."""
    Path(f"{prefix}-symbol.json").write_text(write_symbol(graph), "utf-8")
    with open(f"{prefix}-0000.params", "wb") as file:
        stream_params(file, args, auxs, numpy_shapes=graph.has_numpy_shapes)
    return str(prefix)
