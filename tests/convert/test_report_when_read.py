"""The report of a conversion is built when it is first read, from what does not keep the FP32 model alive."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import mxamp
import mxamp.conversion.run
from mxamp.graph import VARIABLE, Entry, Graph, Node
from mxamp.params.parameter import ArrayParameter


def network() -> tuple[Graph, dict[str, Any], dict[str, Any]]:
    nodes = (
        Node(VARIABLE, "data"),
        Node(VARIABLE, "conv_weight"),
        Node(
            "Convolution",
            "conv",
            {"num_filter": "4", "kernel": "(1, 1)", "no_bias": "True"},
            (Entry(0), Entry(1)),
        ),
        *(Node(VARIABLE, f"bn_{name}") for name in ("gamma", "beta", "moving_mean", "moving_var")),
        Node("BatchNorm", "bn", {"fix_gamma": "False"}, tuple(map(Entry, (2, 3, 4, 5, 6)))),
        Node("Activation", "relu", {"act_type": "relu"}, (Entry(7),)),
    )
    args = {
        "conv_weight": np.ones((4, 3, 1, 1), np.float32),
        "bn_gamma": np.ones(4, np.float32),
        "bn_beta": np.zeros(4, np.float32),
    }
    auxs = {"bn_moving_mean": np.zeros(4, np.float32), "bn_moving_var": np.ones(4, np.float32)}
    return Graph(nodes, (Entry(8),)), args, auxs


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    build = mxamp.conversion.run.build_report

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(1)
        return build(*args, **options)

    monkeypatch.setattr(mxamp.conversion.run, "build_report", counted)
    return calls


def test_the_report_is_built_once_when_it_is_read(built: list[int]) -> None:
    model = mxamp.convert_model(*network(), "bfloat16")
    assert not built
    assert model.report is model.report
    assert built == [1]
    assert model.report.nodes[0].compute == "bfloat16"


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_a_copy_has_the_report_though_nobody_has_read_it(duplicate: Any) -> None:
    model = mxamp.convert_model(*network(), "bfloat16")
    assert duplicate(model).report == model.report


def test_a_report_that_was_not_read_keeps_no_fp32_weight_alive() -> None:
    graph, args, auxs = network()
    weights = {name: ArrayParameter(values) for name, values in {**args, **auxs}.items()}
    alive = {name: weakref.ref(parameter) for name, parameter in weights.items()}
    model = mxamp.convert_model(
        graph, {name: weights[name] for name in args}, {name: weights[name] for name in auxs}, "bfloat16"
    )
    weights.clear()
    gc.collect()
    assert [name for name, parameter in alive.items() if parameter() is not None] == []
    assert {parameter.name for parameter in model.report.parameters} == {*args, *auxs}


def test_a_model_without_a_report_says_so() -> None:
    assert mxamp.Model.of(*network()).report is None
