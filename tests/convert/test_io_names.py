"""Outputs asked for in low precision keep their names, or stay float32."""

from __future__ import annotations

import numpy as np
import pytest

import mxamp
from mxamp.errors import PolicyError
from mxamp.graph import Entry, Graph, Node
from mxamp.graph.output_names import output_names


def split_network() -> Graph:
    nodes = (
        Node("null", "data"),
        Node("SliceChannel", "split", {"num_outputs": "2"}, (Entry(0),), num_outputs=2),
        Node("Activation", "relu", {"act_type": "relu"}, (Entry(0),)),
    )
    return Graph(nodes, (Entry(1, 0), Entry(1, 1), Entry(2)))


def test_outputs_that_no_cast_can_name_stay_float32_with_a_warning() -> None:
    graph = split_network()
    with pytest.warns(mxamp.MxampWarning, match="'split_output0' cannot be bfloat16"):
        model = mxamp.convert_model(graph, {}, {}, "bfloat16", io_dtype="low")
    assert output_names(model.graph) == output_names(graph)
    assert model.report is not None
    assert dict(model.report.outputs) == {
        "split_output0": "float32",
        "split_output1": "float32",
        "relu_output": "bfloat16",
    }


def test_asking_for_one_of_them_by_name_is_an_error() -> None:
    with pytest.raises(PolicyError, match=r"'split_output1' cannot be bfloat16.*Leave it float32"):
        mxamp.convert_model(split_network(), {}, {}, "bfloat16", io_dtype={"split_output1": "low"})


def test_io_dtype_takes_what_target_dtype_takes() -> None:
    graph = Graph(
        (Node("null", "data"), Node("Activation", "relu", {"act_type": "relu"}, (Entry(0),))), (Entry(1),)
    )
    for spelling in ("low", "float16", np.float16, np.dtype("float16"), mxamp.DType.FLOAT16):
        model = mxamp.convert_model(graph, {}, {}, "float16", io_dtype=spelling)  # type: ignore[arg-type]
        assert model.report is not None
        assert dict(model.report.outputs) == {"relu_output": "float16"}
        assert dict(model.report.inputs) == {"data": "float16"}
