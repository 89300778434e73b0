"""Pooling reads plain planes where channels were put together of parts that fill no blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import PlainForPooling
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, named, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import prepare_graph, prepared, targets_that_choose

SIDE = 12


class Parts(Net):
    """Two layers whose channels are put together, and a pooling behind."""

    def __init__(self, side: int = SIDE) -> None:
        super().__init__()
        self.shapes: list[Any] = []
        self.side = side
        self.x = self.var("x")
        self.note(16)

    def note(self, channels: int) -> None:
        """Give all that was added since a shape: parameters theirs, and operators that of images."""
        for node in self.nodes[len(self.shapes) :]:
            own = self.params[node.name].shape if node.name in self.params else None
            self.shapes.append((own or (2, channels, self.side, self.side),))

    def layer(self, filters: int, name: str) -> Entry:
        weight = self.param(f"{name}_weight", filters, 16, 1, 1)
        options = {"num_filter": filters, "kernel": "(1, 1)", "no_bias": True}
        made = self.op("Convolution", self.x, weight, name=name, **options)
        self.note(filters)
        return made

    def joined(self, *filters: int) -> Entry:
        parts = [self.layer(count, f"part{number}") for number, count in enumerate(filters)]
        both = self.op("Concat", *parts, name="both", dim=1, num_args=len(parts))
        self.note(sum(filters))
        return both

    def pooled(self, entry: Entry, channels: int, **attrs: Any) -> Graph:
        given = {"kernel": "(3, 3)", "stride": "(2, 2)", "pad": "(1, 1)", "pool_type": "avg", **attrs}
        pool = self.op("Pooling", entry, name="pool", **given)
        self.note(channels)
        return self.graph(pool)


@pytest.mark.parametrize("behind", [(), ("relu",), ("sum", "relu")])
def test_a_pooling_behind_small_parts_reads_plain_planes(behind: tuple[str, ...]) -> None:
    net = Parts()
    value = net.joined(24, 40)
    for what in behind:
        if what == "sum":
            value = net.op("elemwise_add", net.layer(64, "beside"), value, name="sum")
        else:
            value = net.op("Activation", value, name="relu", act_type="relu")
        net.note(64)
    graph = net.pooled(value, 64)
    after, done = prepared(PlainForPooling, graph, net.params, inserted=["pool_plain"], shapes=net.shapes)
    assert named(after, "pool_plain").attrs == {"shape": "(0, 0, 0, -1)"}
    assert [(change.node, change.into) for change in done.changes] == [("pool", "pool")]


def test_global_pooling_of_few_images_reads_plain_planes_behind_a_part_of_half_a_block() -> None:
    net = Parts()
    graph = net.pooled(net.joined(16, 8), 24, global_pool=True)
    after, done = prepared(PlainForPooling, graph, net.params, inserted=["pool_plain"], shapes=net.shapes)
    assert named(after, "pool_plain").attrs == {"shape": "(0, 0, 0, -1)"}
    assert len(done.changes) == 1
    many = [
        shapes if node.name in net.params else ((8, *shapes[0][1:]),)
        for node, shapes in zip(graph.nodes, net.shapes)
    ]
    assert prepared(PlainForPooling, graph, net.params, shapes=many)[0] is graph


@pytest.mark.parametrize(
    "case",
    ["whole blocks", "global", "channels last", "a layer between", "large planes", "no shapes", "rule"],
)
def test_refuses(case: str) -> None:
    net = Parts(side=128 if case == "large planes" else SIDE)
    value = net.joined(*((32, 48) if case == "whole blocks" else (24, 40)))
    if case == "a layer between":
        net.x = value
        weight = net.param("after_weight", 24, 64, 1, 1)
        value = net.op(
            "Convolution", value, weight, name="after", num_filter=24, kernel="(1, 1)", no_bias=True
        )
        net.note(24)
    attrs = {"global": {"global_pool": True}, "channels last": {"layout": "NHWC"}}.get(case, {})
    graph = net.pooled(value, 64, **attrs)
    policy = Policy.default(BF16).excluding(names=["pool"]) if case == "rule" else None
    shapes = None if case == "no shapes" else net.shapes
    assert prepared(PlainForPooling, graph, net.params, policy, shapes=shapes)[0] is graph


def grouped(
    filters: int, groups: int, *, channels: int | None = None, behind: str = "relu", **attrs: Any
) -> tuple[Net, Graph, list[Any]]:
    """Return a grouped layer of images, an activation, and a pooling."""
    net = Net()
    read = channels or filters
    weight = net.param("weight", filters, read // groups, 3, 3)
    options = {"num_filter": filters, "num_group": groups, "kernel": "(3, 3)", "pad": "(1, 1)"}
    value = net.op("Convolution", net.var("x"), weight, name="layer", no_bias=True, **options)
    value = net.op("Activation", value, name="relu", act_type="relu") if behind == "relu" else value
    value = net.op("exp", value, name="exp") if behind == "exp" else value
    given = {"kernel": "(1, 1)", "pool_type": "avg", **attrs}
    graph = net.graph(net.op("Pooling", value, name="pool", **given))
    shapes = [
        (net.params[node.name].shape,)
        if node.name in net.params
        else ((1, read if node.name == "x" else filters, SIDE, SIDE),)
        for node in graph.nodes
    ]
    return net, graph, shapes


@pytest.mark.parametrize(
    ("filters", "groups", "channels", "is_slow"),
    [
        (64, 16, 64, True),
        (48, 4, 48, True),  # twelve have a factor of four
        (64, 16, 128, True),  # of eight channels, and four filters
        (64, 8, 64, False),  # in float32 there is a kernel for eight
        (64, 4, 64, False),
        (64, 32, 64, False),  # two fill no block: plain order as it is
        (64, 64, 64, False),
        (64, 1, 64, False),
    ],
)
def test_groups_of_few_channels_are_read_in_plain_order(
    filters: int, groups: int, channels: int, is_slow: bool
) -> None:
    for attrs in ({"global_pool": True}, {}):
        net, graph, shapes = grouped(filters, groups, channels=channels, **attrs)
        inserted = ["pool_plain"] if is_slow else []
        after, _ = prepared(PlainForPooling, graph, net.params, inserted=inserted, shapes=shapes)
        assert (after is not graph) is is_slow


def test_what_reads_plain_order_needs_no_reshape() -> None:
    net, graph, shapes = grouped(64, 16, behind="exp", global_pool=True)
    assert prepared(PlainForPooling, graph, net.params, shapes=shapes)[0] is graph
    net, graph, shapes = grouped(64, 16, layout="NHWC")
    assert prepared(PlainForPooling, graph, net.params, shapes=shapes)[0] is graph


@pytest.mark.parametrize("groups", [8, 16])
def test_mxnet_pools_groups_to_the_same_bits(monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    net, graph, shapes = grouped(64, groups, kernel="(3, 3)", pool_type="max", pad="(1, 1)")
    given = parameters(net.params)
    target = Target.builtin("cpu-bf16")
    done = prepare_graph(
        graph, given, Policy.default(BF16), ["plain_for_pooling"], target=target, shapes=shapes
    )
    x = np.random.default_rng(groups).normal(size=(2, 64, SIDE, SIDE)).astype(np.float32)
    (expected,) = outputs(monkeypatch, graph, given, {"x": x}, "MKLDNN")
    (found,) = outputs(monkeypatch, done.graph, given, {"x": x}, "MKLDNN")
    np.testing.assert_array_equal(found, expected)


def test_mxnet_computes_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Parts()
    graph, target = net.pooled(net.joined(24, 40), 64), Target.builtin("cpu-bf16")
    given = parameters(net.params)
    policy = Policy.default(BF16)
    done = prepare_graph(graph, given, policy, ["plain_for_pooling"], target=target, shapes=net.shapes)
    assert "pool_plain" in {node.name for node in done.graph.nodes}
    for batch in (1, 3):
        x = np.random.default_rng(batch).normal(size=(batch, 16, SIDE + batch, SIDE)).astype(np.float32)
        (expected,) = outputs(monkeypatch, graph, given, {"x": x}, "MKLDNN")
        (found,) = outputs(monkeypatch, done.graph, given, {"x": x}, "MKLDNN")
        np.testing.assert_array_equal(found, expected)


def test_it_runs_for_cpus() -> None:
    net = Parts()
    graph = net.pooled(net.joined(24, 40), 64)
    found = targets_that_choose("plain_for_pooling", graph, parameters(net.params), net.shapes)
    assert found == ["cpu-bf16", "cpu-bf16-amx", "cpu-bf16-intel"]
