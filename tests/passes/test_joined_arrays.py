"""Arrays that are joined to images fill a block of channels, with zeros that nobody sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import PadJoinedArrays, PreparedNode
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, named, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import prepare_graph, prepared

NARROW = Target.builtin("cpu-bf16-avx2")
SIDE = 6


class Located(Net):
    """An image of 16 channels, and where each of its places lies."""

    def __init__(self, channels: int = 1, *, first: bool = False, images: int = 16, side: int = SIDE) -> None:
        super().__init__()
        self.total = images + channels
        self.image = self.var("x")
        self.places = self.param("places", 1, channels, side, side)
        both = (self.places, self.image) if first else (self.image, self.places)
        self.joined = self.op("Concat", *both, name="joined", dim=1, num_args=2)

    def layer(self, data: Entry, name: str = "layer", **attrs: Any) -> Entry:
        groups = int(attrs.get("num_group", 1))
        weight = self.param(f"{name}_weight", 8, self.total // groups, 3, 3)
        given = {"num_filter": 8, "kernel": "(3, 3)", "pad": "(1, 1)", "no_bias": True, **attrs}
        return self.op("Convolution", data, weight, name=name, **given)

    def done(self, *heads: Entry, **options: Any) -> tuple[Graph, Any]:
        return prepared(PadJoinedArrays, self.graph(*heads), self.params, target=NARROW, **options)


@pytest.mark.parametrize("first", [False, True], ids=["behind", "in front"])
@pytest.mark.parametrize("channels", [1, 3, 9])
def test_zeros_change_nothing(monkeypatch: pytest.MonkeyPatch, channels: int, first: bool) -> None:
    net = Located(channels, first=first)
    layers = [net.layer(net.joined, "one"), net.layer(net.joined, "other")]
    after, done = net.done(*layers, inserted=["places_padded"])
    whole = -(-channels // 8) * 8
    assert done.params["places_padded"].shape == (1, whole, SIDE, SIDE)
    assert done.params["one_weight"].shape == done.params["other_weight"].shape == (8, 16 + whole, 3, 3)
    kept = slice(whole - channels, None) if first else slice(None, 16 + channels)
    assert np.array_equal(done.params["one_weight"].numpy()[:, kept], net.params["one_weight"])
    data = {"x": np.random.default_rng(1).normal(size=(1, 16, SIDE, SIDE)).astype(np.float32)}
    expected = outputs(monkeypatch, net.graph(*layers), parameters(net.params), data)
    for found, before in zip(outputs(monkeypatch, after, done.params, data), expected):
        np.testing.assert_allclose(found, before, rtol=1e-5, atol=1e-5)


def test_what_others_read_of_the_array_stays_as_it_is() -> None:
    net = Located()
    scaled = net.op("broadcast_mul", net.layer(net.joined), net.places, name="scaled")
    after, done = net.done(scaled, inserted=["places_padded"])
    assert "places" in after.variables
    assert done.params["places_padded"].shape == (1, 8, SIDE, SIDE)
    assert [after.nodes[entry.node].name for entry in named(after, "joined").inputs] == ["x", "places_padded"]
    assert [after.nodes[entry.node].name for entry in named(after, "scaled").inputs] == ["layer", "places"]


def refused(case: str) -> tuple[Located, tuple[Entry, ...]]:
    """Return a network that is left alone."""
    if case == "whole blocks":
        net = Located(8)
    elif case == "no whole blocks beside it":
        net = Located(images=12)
    else:
        net = Located()
    if case == "read by others":
        return net, (net.layer(net.joined), net.op("exp", net.joined))
    if case == "an output":
        return net, (net.layer(net.joined), net.joined)
    if case == "groups":
        net = Located(16)
        return net, (net.layer(net.joined, num_group=2),)
    if case == "weight with other readers":
        layer = net.layer(net.joined)
        weight = Entry(
            next(i for i, node in enumerate(net.graph(layer).nodes) if node.name == "layer_weight")
        )
        return net, (layer, net.op("exp", weight))
    if case == "in the middle":
        joined = net.op("Concat", net.image, net.places, net.var("z"), dim=1, num_args=3)
        return net, (net.layer(joined),)
    if case == "along rows":
        return net, (net.layer(net.op("Concat", net.image, net.places, dim=2, num_args=2)),)
    return net, (net.layer(net.joined),)


@pytest.mark.parametrize(
    "case",
    [
        *("whole blocks", "no whole blocks beside it", "read by others", "an output", "groups"),
        *("weight with other readers", "in the middle", "along rows", "rule"),
    ],
)
def test_refuses(case: str) -> None:
    net, heads = refused(case)
    policy = Policy.default(BF16).excluding(names=["joined"]) if case == "rule" else None
    graph = net.graph(*heads)
    assert prepared(PadJoinedArrays, graph, net.params, policy, target=NARROW)[0] is graph


@pytest.mark.parametrize(("side", "pads"), [(500, True), (520, False)])
def test_a_large_array_stays_as_small_as_it_is(side: int, pads: bool) -> None:
    net = Located(side=side)
    graph = net.graph(net.layer(net.joined))
    after, _ = prepared(PadJoinedArrays, graph, net.params, target=NARROW, inserted=["places_padded"])
    assert (after is not graph) is pads


@pytest.mark.parametrize(("name", "pads"), [("cpu-bf16-avx2", True), ("cpu-bf16", False)])
def test_targets_choose(name: str, pads: bool) -> None:
    net = Located()
    graph = net.graph(net.layer(net.joined))
    target = Target.builtin(name)
    done = prepare_graph(graph, parameters(net.params), Policy.default(BF16), target=target)
    assert any(change.step == PadJoinedArrays.step for change in done.record(PreparedNode)) is pads
