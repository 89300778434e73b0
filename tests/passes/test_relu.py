"""relu becomes Activation behind what can be fused with it, and nowhere else."""

from __future__ import annotations

from typing import Callable

import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import RewriteRelu
from mxamp.policy import Policy
from tests.building import BF16, Net
from tests.passes.preparing import operators, prepared

LAYERS: dict[str, Callable[[Net, Entry], Entry]] = {
    "Convolution": lambda net, x: net.conv(x, "layer"),
    "FullyConnected": lambda net, x: net.fc(x, "layer"),
    "BatchNorm": lambda net, x: net.bn(x, "layer"),
    "elemwise_add": lambda net, x: net.op("elemwise_add", x, x, name="layer"),
}


def network(layer: Callable[[Net, Entry], Entry], *, reader: bool = False, head: bool = False) -> Graph:
    net = Net()
    value = layer(net, net.var("data", __dtype__="0"))
    last = net.op("relu", value, name="relu")
    if reader:
        last = net.op("elemwise_mul", last, value, name="product")
    return net.graph(last, value) if head else net.graph(last)


@pytest.mark.parametrize("op", LAYERS)
def test_relu_behind_a_layer_is_an_activation(op: str) -> None:
    after, done = prepared(RewriteRelu, network(LAYERS[op]))
    assert operators(after)[-1] == "relu = Activation(layer) {act_type: relu}"
    assert [(change.node, change.op, change.into) for change in done.changes] == [("relu", "relu", "relu")]


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(network(lambda net, x: net.op("exp", x, name="layer")), id="no layer"),
        pytest.param(network(LAYERS["Convolution"], reader=True), id="the layer has another reader"),
        pytest.param(network(LAYERS["Convolution"], head=True), id="the layer is an output"),
        pytest.param(
            network(lambda net, x: net.op("Cast", net.conv(x), dtype="int32", name="layer")), id="integers"
        ),
        pytest.param(
            network(lambda net, _: net.op("elemwise_add", *[net.var(name) for name in "ab"], name="layer")),
            id="a sum of any dtype",
        ),
    ],
)
def test_refuses(graph: Graph) -> None:
    after, _ = prepared(RewriteRelu, graph)
    assert after is graph


@pytest.mark.parametrize(("values", "stays"), [(1 << 11, True), (1 << 12, False)])
def test_a_short_sum_that_is_fused_with_nothing_keeps_it(values: int, stays: bool) -> None:
    graph = network(LAYERS["elemwise_add"])
    after, _ = prepared(RewriteRelu, graph, shapes=[((values // 4, 4),)] * len(graph.nodes))
    assert (after is graph) == stays


def sequence_layer(net: Net, x: Entry) -> Entry:
    weight = net.param("weight", 4, 4, 3)
    return net.op("Convolution", x, weight, name="layer", kernel="(3,)", num_filter=4, no_bias=True)


@pytest.mark.parametrize(("places", "stays"), [(1 << 8, True), (1 << 10, False)])
def test_a_layer_over_sequences_is_fused_with_nothing(places: int, stays: bool) -> None:
    graph = network(sequence_layer)
    known = [((4, 4, 3) if node.name == "weight" else (1, 4, places),) for node in graph.nodes]
    after, _ = prepared(RewriteRelu, graph, shapes=known)
    assert (after is graph) == stays


def test_a_short_sum_behind_a_layer_is_fused_with_it() -> None:
    graph = network(lambda net, x: net.op("elemwise_add", net.conv(x), net.conv(x), name="layer"))
    known = [((4, 4, 1, 1) if node.name.endswith("weight") else (1, 4, 2, 2),) for node in graph.nodes]
    after, _ = prepared(RewriteRelu, graph, shapes=known)
    assert operators(after)[-1] == "relu = Activation(layer) {act_type: relu}"


@pytest.mark.parametrize("op", ["BatchNorm", "elemwise_add"])
def test_what_may_be_empty_stays(op: str) -> None:
    graph = network(LAYERS[op])
    numpy = Graph(graph.nodes, graph.heads, {**graph.attrs, "is_np_shape": ["int", 1]})
    assert prepared(RewriteRelu, numpy)[0] is numpy


def test_what_a_rule_of_the_users_picks_stays() -> None:
    graph = network(LAYERS["Convolution"])
    after, _ = prepared(RewriteRelu, graph, policy=Policy.default(BF16).excluding(operators=["relu"]))
    assert after is graph
