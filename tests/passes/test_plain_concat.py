"""Plain images are put together as rows of planes, of which the copies are long."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import PlainConcat, PreparedNode
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, named, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import CPUS, operators, prepare_graph, prepared, targets_that_choose

STEP = PlainConcat.step


class Halves(Net):
    """Two halves of a layer's channels, put together the other way round."""

    def __init__(self, *, batch: int = 1, side: int = 24) -> None:
        super().__init__()
        self.batch, self.side = batch, side
        self.x = self.var("x")
        weight = self.param("layer_weight", 20, 4, 1, 1)
        options = {"num_filter": 20, "kernel": "(1, 1)", "no_bias": True}
        self.layer = self.op("Convolution", self.x, weight, name="layer", **options)

    def half(self, first: int, last: int) -> Entry:
        return self.op("slice_axis", self.layer, name=f"half{first}", axis=1, begin=first, end=last)

    def narrow(self) -> Entry:
        weight = self.param("narrow_weight", 8, 4, 1, 1)
        options = {"num_filter": 8, "kernel": "(1, 1)", "no_bias": True}
        return self.op("Convolution", self.x, weight, name="narrow", **options)

    def joined(self, *parts: Entry, **attrs: Any) -> Graph:
        return self.graph(
            self.op("Concat", *parts, name="both", **{"dim": 1, "num_args": len(parts), **attrs})
        )

    def shapes(self, graph: Graph) -> list[Any]:
        channels = {
            "x": 4,
            "layer": 20,
            "both": 20,
            "half0": 8,
            "half8": 12,
            "narrow": 8,
            "sum": 8,
            "grouped": 20,
            "twice": 20,
        }
        return [
            (self.params[node.name].shape if node.name in self.params else self.image(channels[node.name]),)
            for node in graph.nodes
        ]

    def image(self, channels: int) -> tuple[int, ...]:
        return (self.batch, channels, self.side, self.side)


def swapped(net: Halves, **attrs: Any) -> Graph:
    return net.joined(net.half(8, 20), net.half(0, 8), **attrs)


def test_it_is_put_together_with_three_axes() -> None:
    net = Halves()
    graph = swapped(net)
    inserted = ["both_rows0", "both_rows1", "both_rows"]
    after, done = prepared(PlainConcat, graph, net.params, inserted=inserted, shapes=net.shapes(graph))
    assert operators(after)[3:] == [
        "both_rows0 = Reshape(half8) {shape: (0, 0, -1)}",
        "both_rows1 = Reshape(half0) {shape: (0, 0, -1)}",
        "both_rows = Concat(both_rows0, both_rows1) {dim: 1, num_args: 2}",
        "both = reshape_like(both_rows, half8) {lhs_begin: 2, lhs_end: 3, rhs_begin: 2, rhs_end: 4}",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("both", "both")]


def test_layers_whose_filters_fill_no_block_write_plain_images() -> None:
    net = Halves()
    both = net.op("elemwise_add", net.layer, net.layer, name="twice")
    graph = net.joined(net.half(0, 8), both)
    after, _ = prepared(
        PlainConcat,
        graph,
        net.params,
        inserted=["both_rows0", "both_rows1", "both_rows"],
        shapes=net.shapes(graph),
    )
    assert named(after, "both").op == "reshape_like"


@pytest.mark.parametrize(
    "case",
    [
        *("a batch", "small", "another axis", "one part", "of a layer", "of a layer in groups"),
        *("summed with a layer", "written over", "no shapes", "rule", "zeros", "may be empty"),
    ],
)
def test_refuses(case: str) -> None:
    net = Halves(batch=2 if case == "a batch" else 1, side=8 if case == "small" else 24)
    first = net.half(8, 20)
    if case == "one part":
        graph = net.joined(first)
    elif case == "of a layer":
        graph = net.joined(first, net.narrow())
    elif case == "of a layer in groups":
        weight = net.param("grouped_weight", 20, 2, 1, 1)
        options = {"num_filter": 20, "num_group": 2, "kernel": "(1, 1)", "no_bias": True}
        graph = net.joined(first, net.op("Convolution", net.x, weight, name="grouped", **options))
    elif case == "summed with a layer":
        graph = net.joined(first, net.op("elemwise_add", net.half(0, 8), net.narrow(), name="sum"))
    elif case == "zeros":
        graph = net.joined(first, net.op("_zeros", name="half0", shape="(0, 8, 0, 0)"))
    elif case == "may be empty":
        upper = net.op("UpSampling", net.x, name="half0", scale=1, sample_type="nearest")
        graph = net.joined(net.op("UpSampling", net.x, name="half8", scale=1, sample_type="nearest"), upper)
        graph = Graph(graph.nodes, graph.heads, {**graph.attrs, "is_np_shape": ["int", 1]})
    elif case == "written over":
        graph = net.joined(first, net.op("sigmoid", net.layer, name="half0"))
    else:
        graph = net.joined(first, net.half(0, 8), **({"dim": 2} if case == "another axis" else {}))
    policy = Policy.default(BF16).excluding(names=["both"]) if case == "rule" else None
    shapes = None if case == "no shapes" else net.shapes(graph)
    assert prepared(PlainConcat, graph, net.params, policy, shapes=shapes)[0] is graph


@pytest.mark.parametrize(("first", "rest", "is_rows"), [(1, 19, False), (2, 18, True), (19, 1, True)])
def test_what_begins_with_one_channel_stays(first: int, rest: int, is_rows: bool) -> None:
    net = Halves()
    parts = [
        net.op("slice_axis", net.layer, name=name, axis=1, begin=begin, end=end)
        for name, begin, end in (("head", 0, first), ("tail", first, 20))
    ]
    graph = net.joined(*parts)
    wide = {"x": 4, "layer": 20, "both": 20, "head": first, "tail": rest}
    shapes = [
        (net.params[node.name].shape if node.name in net.params else net.image(wide[node.name]),)
        for node in graph.nodes
    ]
    inserted = ["both_rows0", "both_rows1", "both_rows"]
    after, _ = prepared(PlainConcat, graph, net.params, inserted=inserted, shapes=shapes)
    assert (named(after, "both").op == "reshape_like") == is_rows


def test_what_is_certainly_no_image_stays() -> None:
    net = Halves()
    parts = [net.var("x1"), net.var("x2")]
    graph = net.joined(*parts)
    shapes = [
        (net.params[node.name].shape if node.name in net.params else net.image(10),) for node in graph.nodes
    ]
    assert prepared(PlainConcat, graph, net.params, shapes=shapes)[0] is graph


@pytest.mark.parametrize("batch", [1, 3])
def test_every_batch_has_the_same_bits(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    net = Halves()
    graph, given = swapped(net), parameters(net.params)
    done = prepare_graph(
        graph,
        given,
        Policy.default(BF16),
        [STEP],
        target=Target.builtin("cpu-bf16"),
        shapes=net.shapes(graph),
    )
    assert {change.step for change in done.record(PreparedNode)} == {STEP}
    assert done.shapes is not None
    assert done.shapes[done.graph.nodes.index(named(done.graph, "both"))] == (net.image(20),)
    data = {"x": np.random.default_rng(1).normal(size=(batch, 4, 24, 24)).astype(np.float32)}
    (expected,) = outputs(monkeypatch, graph, given, data, "MKLDNN")
    (found,) = outputs(monkeypatch, done.graph, done.params, data, "MKLDNN")
    np.testing.assert_array_equal(found, expected)


def test_targets_choose() -> None:
    net = Halves()
    graph = swapped(net)
    assert targets_that_choose(STEP, graph, parameters(net.params), net.shapes(graph)) == CPUS
