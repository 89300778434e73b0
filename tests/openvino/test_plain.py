"""A converted model without its casts, and what was decided of it. Needs no OpenVINO."""

from __future__ import annotations

from typing import Any

import pytest

from mxamp.decisions import LowPrecision
from mxamp.dtypes import DType
from mxamp.graph import Graph
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.openvino.plain import plain_model
from mxamp.policy import Policy
from tests.building import Net, convert, parameters


def converted(**options: Any) -> Any:
    net = Net()
    hidden = net.conv(net.var("data"), "conv0")
    graph = net.graph(net.conv(net.op("exp", hidden, name="exp0"), "conv1"))
    return convert(graph, net.params, DType.BFLOAT16, **options)


def params_of(model: Any) -> dict[str, Any]:
    return {**model.arg_params, **model.aux_params}


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes if not node.is_variable]


@pytest.mark.parametrize("cast_op", ["amp_cast", "Cast"])
def test_casts_go_and_what_computed_in_float32_is_remembered(cast_op: str) -> None:
    model = converted(cast_op=cast_op)
    assert cast_op in ops(model.graph)
    plain = plain_model(model.graph, params_of(model))
    assert ops(plain.graph) == ["Convolution", "exp", "Convolution"]
    assert (plain.low, plain.kept) == (DType.BFLOAT16, {"exp0"})


def test_everything_is_float32_and_rounded_as_it_was() -> None:
    model = converted()
    plain = plain_model(model.graph, params_of(model))
    dtypes = variable_dtypes(plain.graph, {name: value.dtype for name, value in plain.params.items()})
    assert {dtype for entries in infer_dtypes(plain.graph, dtypes) for dtype in entries} == {DType.FLOAT32}
    for name, value in plain.params.items():
        assert (value.numpy() == params_of(model)[name].numpy().astype("float32")).all()


def test_a_float32_model_keeps_everything_and_marks_nothing() -> None:
    net = Net()
    graph = net.graph(net.conv(net.var("data"), "conv0"))
    plain = plain_model(graph, parameters(net.params))
    assert (plain.graph.nodes, plain.low, plain.kept) == (graph.nodes, None, frozenset())


def test_a_hard_sigmoid_is_written_out() -> None:
    net = Net()
    graph = net.graph(net.op("hard_sigmoid", net.var("data"), name="gate", alpha=0.25, beta=0.5))
    plain = plain_model(graph, {}).graph
    assert ops(plain) == ["_plus_scalar", "clip", "_mul_scalar"]
    attrs = [node.attrs for node in plain.nodes if not node.is_variable]
    assert attrs == [{"scalar": "2.0"}, {"a_min": "0.0", "a_max": "4.0"}, {"scalar": "0.25"}]
    assert plain.nodes[plain.heads[0].node].name == "gate"


def test_a_dense_layer_that_is_kept_is_a_convolution_whose_nodes_are_all_marked() -> None:
    net = Net()
    hidden = net.conv(net.var("data"), "conv0")
    graph = net.graph(net.fc(hidden, "dense0"))
    model = convert(
        graph, net.params, DType.BFLOAT16, policy=Policy.default(DType.BFLOAT16).excluding(names=["dense0"])
    )
    plain = plain_model(model.graph, params_of(model))
    assert ops(plain.graph) == ["Convolution", "Reshape", "Reshape", "Convolution", "Reshape"]
    written = {node.name for node in plain.graph.nodes if not node.is_variable} - {"conv0"}
    assert (plain.kept, plain.marked) == ({"dense0"}, written)
    assert plain.graph.nodes[plain.graph.heads[0].node].name == "dense0"


def test_a_dense_layer_that_is_low_stays_one() -> None:
    net = Net()
    graph = net.graph(net.fc(net.conv(net.var("data"), "conv0"), "dense0"))
    model = convert(graph, net.params, DType.BFLOAT16, low_precision=LowPrecision.REQUIRED)
    plain = plain_model(model.graph, params_of(model))
    assert ops(plain.graph) == ["Convolution", "FullyConnected"]
    assert plain.marked == frozenset()
