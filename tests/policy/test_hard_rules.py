"""A user may ask for low precision; where the result would be wrong, the wish is refused with the reason."""

from __future__ import annotations

import numpy as np

import mxamp
from mxamp.graph import Entry, Graph, Node


def dense(op: str = "FullyConnected", outputs: int = 1) -> Graph:
    return Graph(
        (
            Node("null", "data"),
            Node("null", "fc_weight"),
            Node(op, "fc", {"num_hidden": "4", "no_bias": "True"}, (Entry(0), Entry(1)), num_outputs=outputs),
        ),
        tuple(Entry(2, index) for index in range(outputs)),
    )


def test_user_green_does_not_store_infinity() -> None:
    weight = np.full((4, 3), 1e5, np.float32)
    model = mxamp.convert_model(
        dense(), {"fc_weight": weight}, {}, "float16", color=lambda node: mxamp.Color.GREEN
    )
    assert model.report is not None
    node = model.report.node("fc")
    assert (node.color, node.compute) == ("red", "float32")
    assert "1e+05" in node.reason
    assert "although green was asked for" in node.reason
    assert model.arg_params["fc_weight"].dtype is mxamp.DType.FLOAT32


def test_user_green_on_ordinary_weights_is_obeyed() -> None:
    weight = np.ones((4, 3), np.float32)
    model = mxamp.convert_model(
        dense(), {"fc_weight": weight}, {}, "float16", color=lambda node: mxamp.Color.GREEN
    )
    assert model.report is not None
    assert model.report.node("fc").compute == "float16"


def test_user_green_does_not_rename_an_output() -> None:
    graph = Graph(
        (
            Node("null", "data"),
            Node("SliceChannel", "split", {"num_outputs": "2"}, (Entry(0),), num_outputs=2),
        ),
        (Entry(1, 0), Entry(1, 1)),
    )
    model = mxamp.convert_model(graph, {}, {}, "float16", color=lambda node: mxamp.Color.GREEN)
    assert model.report is not None
    assert list(model.report.outputs) == ["split_output0", "split_output1"]
    assert model.report.node("split").compute == "float32"


def test_user_green_on_an_unknown_operator_keeps_it_float32() -> None:
    with np.testing.suppress_warnings() as warnings:
        warnings.filter(mxamp.MxampWarning)
        model = mxamp.convert_model(
            dense("MyDense"),
            {"fc_weight": np.ones((4, 3), np.float32)},
            {},
            "float16",
            color=lambda node: mxamp.Color.GREEN,
        )
    assert model.report is not None
    assert model.report.node("fc").color == "red"
