"""A sum over an axis of length two becomes an addition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.passes import RewriteShortSums
from mxamp.policy import Policy
from tests.building import BF16, Net
from tests.passes.preparing import operators, prepared


def network(shape: str = "(0, 2, 2, 0, 0)", *, dtype: str = "float32", **attrs: Any) -> Graph:
    net = Net()
    data = net.var("data")
    if dtype != "float32":
        data = net.op("Cast", data, dtype=dtype)
    options = {"shape": shape, "reverse": attrs.pop("reverse", False)}
    halves = net.op("Reshape", data, name="halves", **options)
    return net.graph(net.op("sum", halves, name="total", **{"axis": "1", **attrs}))


def attention(first: str = "(0, 2, 2, 0, 0)", second: str = "(0, 2, -1, 1, 1)") -> Graph:
    """Return split attention's product and sum."""
    net = Net()
    features = net.op("Reshape", net.var("data"), name="features", shape=first)
    weights = net.op("Reshape", net.var("weights"), name="weighting", shape=second)
    product = net.op("broadcast_mul", weights, features, name="product")
    return net.graph(net.op("sum", product, name="total", axis="1"))


def test_two_terms_are_added() -> None:
    after, done = prepared(RewriteShortSums, network(), inserted=["total_terms"])
    assert operators(after)[1:] == [
        "total_terms = SliceChannel(halves) {axis: 1, num_outputs: 2, squeeze_axis: True}",
        "total = elemwise_add(total_terms, total_terms[1])",
    ]
    assert [(change.node, change.op, change.into) for change in done.changes] == [("total", "sum", "total")]


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(attention(), id="both of length two"),
        pytest.param(attention(second="(0, 1, -1, 1, 1)"), id="one broadcast"),
        pytest.param(attention(first="(0, 1, 2, 0, 0)"), id="the other broadcast"),
        pytest.param(network("(2, -1)", axis="0"), id="another axis"),
    ],
)
def test_products_and_other_axes(graph: Graph) -> None:
    after, done = prepared(RewriteShortSums, graph, inserted=["total_terms"])
    assert after is not graph
    assert done.changes


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(network("(0, 3, 2, 0, 0)"), id="three terms"),
        pytest.param(network("(0, -1, 2, 0, 0)"), id="unknown length"),
        pytest.param(network("(0, 0, 2, 0, 0)"), id="the length that is there"),
        pytest.param(network("(-2, 2)"), id="all axes and one"),
        pytest.param(network("(0, -4, 2, -1, 0, 0)"), id="a split axis"),
        pytest.param(network("(0, 2)", axis="2"), id="no such axis"),
        pytest.param(network("(2,)", axis="0"), id="a vector, whose sum has one axis"),
        pytest.param(network(reverse=True), id="counted from the end"),
        pytest.param(network(axis="(1, 2)"), id="two axes"),
        pytest.param(network(axis="()"), id="all axes"),
        pytest.param(network(axis="-4"), id="a negative axis"),
        pytest.param(network(keepdims=True), id="keepdims"),
        pytest.param(network(exclude=True), id="exclude"),
        pytest.param(network(dtype="float16"), id="float16"),
        pytest.param(network(dtype="int32"), id="integers"),
        pytest.param(attention(second="(0, 1, -1, 1)"), id="factors of different rank"),
        pytest.param(attention(first="(0, 1, 2, 0, 0)", second="(0, 1, -1, 1, 1)"), id="a product of ones"),
        pytest.param(attention(second="(0, -1, 2, 1, 1)"), id="a factor of unknown length"),
    ],
)
def test_refuses(graph: Graph) -> None:
    after, _ = prepared(RewriteShortSums, graph)
    assert after is graph


def test_a_sum_of_something_else_stays() -> None:
    net = Net()
    graph = net.graph(net.op("sum", net.var("data"), name="total", axis="1"))
    assert prepared(RewriteShortSums, graph)[0] is graph


def test_what_a_rule_of_the_users_picks_stays() -> None:
    graph = network()
    policy = Policy.default(BF16).excluding(operators=["sum"])
    assert prepared(RewriteShortSums, graph, policy=policy)[0] is graph


@pytest.mark.parametrize("graph", [network(), attention()], ids=["sum", "attention"])
def test_mxnet_computes_the_same_bits(graph: Graph) -> None:
    pytest.importorskip("mxnet", reason="runs the model")
    from mxamp.model import Model
    from mxamp.runtime.executor import run_outputs

    rng = np.random.default_rng(4)
    shapes = {"data": (3, 1, 4, 5, 7), "weights": (3, 4)}
    data = {}
    for name in graph.variables:
        magnitudes = 10.0 ** rng.integers(-6, 6, shapes[name])
        data[name] = (rng.uniform(-1, 1, shapes[name]) * magnitudes).astype(np.float32)
    after, _ = prepared(RewriteShortSums, graph, inserted=["total_terms"])
    (expected,), (found,) = (run_outputs(Model.of(each, {}, {}), data) for each in (graph, after))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("op", ["add_n", "ElementWiseSum"])
def test_add_n_of_two_becomes_an_addition(op: str) -> None:
    net = Net()
    terms = [net.conv(net.var(name), f"{name}_conv") for name in ("one", "other")]
    graph = net.graph(net.op(op, *terms, name="total", num_args=2, __mark__="here"))
    after, done = prepared(RewriteShortSums, graph, net.params)
    node = after.nodes[-1]
    assert (node.op, node.name, dict(node.attrs)) == ("elemwise_add", "total", {"__mark__": "here"})
    assert node.inputs == graph.nodes[-1].inputs
    assert [(change.node, change.op, change.into) for change in done.changes] == [("total", op, "total")]


@pytest.mark.parametrize("count", [1, 3])
def test_add_n_of_other_than_two_stays(count: int) -> None:
    net = Net()
    terms = [net.var(f"term{number}") for number in range(count)]
    graph = net.graph(net.op("add_n", *terms, name="total", num_args=count))
    assert prepared(RewriteShortSums, graph)[0] is graph


def test_mxnet_adds_two_to_the_same_bits() -> None:
    pytest.importorskip("mxnet", reason="both graphs are executed")
    from mxamp.model import Model
    from mxamp.runtime.executor import run_outputs

    net = Net()
    graph = net.graph(net.op("add_n", net.var("one"), net.var("other"), name="total", num_args=2))
    after, _ = prepared(RewriteShortSums, graph)
    draw = np.random.default_rng(2)
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-42], np.float32)
    data = {}
    for name in ("one", "other"):
        values = draw.normal(0, 1, (5, 40)).astype(np.float32)
        data[name] = np.where(draw.random((5, 40)) < 0.3, draw.choice(special, (5, 40)), values)
    (expected,), (found,) = (run_outputs(Model.of(each, {}, {}), data) for each in (graph, after))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(expected[expected == 0]))
