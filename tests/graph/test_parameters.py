"""Which variables are parameters, what shapes they have, and what their layers cost."""

from __future__ import annotations

from typing import Any

import pytest

from mxamp.graph import Entry
from mxamp.graph.multiply_adds import multiply_adds
from mxamp.graph.parameters import auxiliary_names, expected_shapes, parameter_names
from tests.building import Net


def test_weights_are_parameters_and_data_is_not() -> None:
    net = Net()
    graph = net.graph(net.bn(net.conv(net.var("data"), "conv"), "bn"))
    assert set(parameter_names(graph)) == {
        "conv_weight",
        *(f"bn_{part}" for part in ("gamma", "beta", "moving_mean", "moving_var")),
    }
    place = parameter_names(graph)["conv_weight"]
    assert place is not None
    assert (place[0].name, place[1]) == ("conv", 1)
    assert auxiliary_names(graph) == {"bn_moving_mean", "bn_moving_var"}


def test_a_variable_with_an_initialiser_is_a_parameter() -> None:
    net = Net()
    total = net.op("elemwise_add", net.var("x"), net.var("anchors", __init__='["zeros", {}]'))
    assert parameter_names(net.graph(total)) == {"anchors": None}


def test_a_computed_weight_is_no_parameter() -> None:
    net = Net()
    weight = net.op("_mul_scalar", net.var("w"), scalar=2)
    graph = net.graph(net.op("FullyConnected", net.var("x"), weight, num_hidden=3, no_bias=True))
    assert parameter_names(graph) == {}


@pytest.mark.parametrize(
    ("op", "attrs", "shapes"),
    [
        ("Convolution", {"num_filter": 8, "kernel": "(3, 3)"}, {"w": (8, 0, 3, 3), "b": (8,)}),
        ("Convolution", {"num_filter": 8, "kernel": "[3, 1]"}, {"w": (8, 0, 3, 1), "b": (8,)}),
        ("Convolution", {"num_filter": 8, "kernel": "(3,)"}, {"w": (8, 0, 3), "b": (8,)}),
        ("Convolution", {"num_filter": 8, "kernel": "(3, 3)", "layout": "NHWC"}, {}),
        (
            *("Deconvolution", {"num_filter": 8, "kernel": "(2, 2)", "num_group": 4}),
            {"w": (0, 2, 2, 2), "b": (8,)},
        ),
        ("FullyConnected", {"num_hidden": 10}, {"w": (10, 0), "b": (10,)}),
        ("Embedding", {"input_dim": 100, "output_dim": 7}, {"w": (100, 7)}),
        ("FullyConnected", {}, {}),
        ("Convolution", {"num_filter": "eight", "kernel": "(3, 3)"}, {}),
    ],
)
def test_attributes_tell_the_shapes_of_weights(op: str, attrs: Any, shapes: Any) -> None:
    net = Net()
    inputs = [net.var(name) for name in ("x", "w", "b")]
    graph = net.graph(net.op(op, *inputs, **attrs))
    assert {name: shape for name, (shape, _) in expected_shapes(graph).items()} == shapes


def test_a_variable_tells_its_own_shape() -> None:
    net = Net()
    net.var("x", __shape__="(0, 3, 224, 224)")
    assert expected_shapes(net.graph(Entry(0))) == {"x": ((0, 3, 224, 224), net.nodes[0])}


@pytest.mark.parametrize(
    ("op", "attrs", "shapes", "expected"),
    [
        ("Convolution", {}, [(2, 3, 8, 8), (16, 3, 3, 3), (2, 16, 6, 6)], 2 * 16 * 6 * 6 * 3 * 3 * 3),
        ("Convolution", {"num_group": 3}, [(1, 3, 8, 8), (3, 1, 3, 3), (1, 3, 6, 6)], 3 * 6 * 6 * 3 * 3),
        ("Deconvolution", {}, [(2, 3, 8, 8), (3, 16, 2, 2), (2, 16, 16, 16)], 2 * 3 * 8 * 8 * 16 * 2 * 2),
        ("FullyConnected", {}, [(5, 7), (11, 7), (5, 11)], 5 * 7 * 11),
        ("dot", {}, [(5, 7), (7, 11), (5, 11)], 5 * 7 * 11),
        ("dot", {"transpose_a": "True"}, [(7, 5), (7, 11), (5, 11)], 5 * 7 * 11),
        ("batch_dot", {}, [(3, 5, 7), (3, 7, 11), (3, 5, 11)], 3 * 5 * 7 * 11),
        ("batch_dot", {"transpose_a": "True"}, [(3, 7, 5), (3, 7, 11), (3, 5, 11)], 3 * 5 * 7 * 11),
        ("elemwise_add", {}, [(5, 7), (5, 7), (5, 7)], None),
        ("FullyConnected", {}, [(5, 7), None, (5, 11)], None),
        ("FullyConnected", {}, [(5, 7), (11, 7), None], None),
    ],
)
def test_multiply_adds_are_counted_by_the_definition_of_the_operator(
    op: str, attrs: Any, shapes: Any, expected: int | None
) -> None:
    net = Net()
    graph = net.graph(net.op(op, net.var("x"), net.var("w"), **attrs))
    assert multiply_adds(graph, 2, [(shape,) for shape in shapes]) == expected
