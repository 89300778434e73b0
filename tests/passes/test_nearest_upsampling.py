"""Repeated pixels are a Deconvolution with ones, bit for bit but for the sign of zeros."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.graph import Entry
from mxamp.passes import PreparedNode, RewriteNearestUpsampling
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import operators, prepare_graph, prepared

ONES = ["up_ones"]


def network(channels: int = 16) -> tuple[Net, Entry]:
    """Return a depthwise layer that hands its data on as it is."""
    net = Net()
    weight = net.param("weight", channels, 1, 1, 1, value=1.0)
    attrs = {"num_filter": channels, "num_group": channels, "kernel": "(1, 1)", "no_bias": True}
    return net, net.op("Convolution", net.var("data"), weight, name="layer", **attrs)


def upsampled(net: Net, data: Entry, scale: int = 2, kind: str = "nearest") -> Entry:
    return net.op("UpSampling", data, name="up", scale=scale, sample_type=kind, num_args=1)


def repeated(
    net: Net, data: Entry, first: tuple[int, int] = (2, -1), then: tuple[int, int] = (2, -2)
) -> Entry:
    inner = net.op("repeat", data, name="inner", repeats=first[0], axis=first[1])
    return net.op("repeat", inner, name="up", repeats=then[0], axis=then[1])


def test_upsampling_becomes_a_deconvolution() -> None:
    net, x = network()
    after, done = prepared(
        RewriteNearestUpsampling, net.graph(upsampled(net, x, 4)), net.params, inserted=ONES
    )
    assert operators(after)[-1] == (
        "up = Deconvolution(layer, up_ones) {kernel: (4, 4), no_bias: True, num_filter: 16, num_group: 16, "
        "stride: (4, 4)}"
    )
    np.testing.assert_array_equal(done.params["up_ones"].values(), np.ones((16, 1, 4, 4), np.float32))


@pytest.mark.parametrize(
    ("first", "then", "kernel"),
    [((2, -1), (3, -2), "(3, 2)"), ((3, 2), (2, 3), "(3, 2)"), ((2, -2), (2, -1), "(2, 2)")],
)
def test_two_repeats_become_one_deconvolution(
    first: tuple[int, int], then: tuple[int, int], kernel: str
) -> None:
    net, x = network()
    graph = net.graph(repeated(net, x, first, then))
    after, done = prepared(RewriteNearestUpsampling, graph, net.params, inserted=ONES)
    assert f"{{kernel: {kernel}," in operators(after)[-1]
    assert [(change.node, change.into) for change in done.changes] == [("inner", "up"), ("up", "up")]


def test_equal_ones_are_stored_once() -> None:
    net, x = network()
    again = net.op("UpSampling", x, name="again", scale=2, sample_type="nearest", num_args=1)
    graph = net.graph(upsampled(net, x), again)
    _, done = prepared(RewriteNearestUpsampling, graph, net.params, inserted=["again_ones"])
    assert set(done.params) == {"weight", "again_ones"}


@pytest.mark.parametrize(
    "case",
    [
        *("24 channels", "bilinear", "of nothing", "sixteen times", "one axis twice", "over channels"),
        *("read between", "no image", "rule"),
    ],
)
def test_refuses(case: str) -> None:
    policy = None
    net, x = network(24 if case == "24 channels" else 16)
    if case in ("one axis twice", "over channels", "read between"):
        first = (2, 1) if case == "over channels" else (2, -1)
        heads = [repeated(net, x, first, (2, -1) if case == "one axis twice" else (2, -2))]
        if case == "read between":
            heads.append(Entry(heads[0].node - 1))
    else:
        if case == "no image":
            net, x = Net(), Entry(0)
            net.var("data")
        scale = {"of nothing": 1, "sixteen times": 16}.get(case, 2)
        heads = [upsampled(net, x, scale, "bilinear" if case == "bilinear" else "nearest")]
    if case == "rule":
        policy = Policy.default(BF16).excluding(names=["up"])
    graph = net.graph(*heads)
    assert prepared(RewriteNearestUpsampling, graph, net.params, policy)[0] is graph


@pytest.mark.parametrize("spelling", ["UpSampling", "repeat"])
@pytest.mark.parametrize("size", [1, 7])
def test_mxnet_computes_the_same_values(monkeypatch: pytest.MonkeyPatch, spelling: str, size: int) -> None:
    net, x = network(32)
    graph = net.graph(
        upsampled(net, x, 3) if spelling == "UpSampling" else repeated(net, x, (3, -1), (3, -2))
    )
    given = parameters(net.params)
    done = prepare_graph(graph, given, Policy.default(BF16), target=Target.builtin("cpu-bf16"))
    assert {change.step for change in done.record(PreparedNode)} == {"nearest_upsampling"}
    data = {"data": on_edges(2, 32, size, size + 1)}
    (expected,) = outputs(monkeypatch, graph, given, data)
    for backend in ("NONE", "MKLDNN"):
        (found,) = outputs(monkeypatch, done.graph, done.params, data, backend)
        np.testing.assert_array_equal(found, expected)
