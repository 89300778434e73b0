"""A Pad of more zeros at one end than at the other becomes padding of the layer that reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.params.padded import PaddedParameter
from mxamp.params.parameter import ArrayParameter
from mxamp.passes import PreparedNode, UnevenPadding
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, named, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import prepare_graph, prepared, targets_that_choose

KINDS = {"depthwise": (16, 16, 16), "few channels": (3, 8, 1), "whole blocks": (16, 24, 1)}
"""Channels, filters and groups."""

WIDTHS = ((0, 1, 0, 1), (1, 0, 1, 0), (1, 2, 1, 2), (2, 1, 0, 1), (0, 0, 0, 2), (3, 0, 1, 1))


def padding(
    kind: str, widths: tuple[int, ...] = (0, 1, 0, 1), *, kernel: int = 3, bias: bool = True, **attrs: Any
) -> tuple[Net, Graph]:
    channels, filters, groups = KINDS[kind]
    net = Net()
    width = {"mode": "constant", "pad_width": (0, 0, 0, 0, *widths), "constant_value": 0}
    padded = net.op("Pad", net.var("x", __dtype__="0"), name="pad", **width)
    read = [net.param("w", filters, channels // groups, kernel, kernel)]
    read += [net.param("b", filters)] if bias else []
    own = {"kernel": (kernel, kernel), "num_filter": filters, "num_group": groups, "no_bias": not bias}
    layer = net.op("Convolution", padded, *read, name="conv", **{**own, "stride": (2, 2), **attrs})
    return net, net.graph(layer)


def inserted(kind: str) -> list[str]:
    return ["conv_padded", "conv_place"] if kind == "whole blocks" else ["w_uneven"]


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attrs", [{}, {"pad": (1, 1)}, {"stride": (1, 1), "kernel": 5}, {"bias": False}])
def test_a_layer_pads_for_itself(
    monkeypatch: pytest.MonkeyPatch, kind: str, widths: tuple[int, ...], attrs: Any
) -> None:
    net, graph = padding(kind, widths, **attrs)
    after, done = prepared(UnevenPadding, graph, net.params, inserted=inserted(kind))
    assert "Pad" not in [node.op for node in after.nodes]
    assert {change.into for change in done.changes} == {"conv"}
    for batch, size in ((1, 9), (2, 12)):
        data = np.random.default_rng(size).normal(size=(batch, KINDS[kind][0], size, size + 3))
        fed = {"x": data.astype(np.float32)}
        (expected,) = outputs(monkeypatch, graph, parameters(net.params), fed)
        for backend in ("NONE", "MKLDNN"):
            (found,) = outputs(monkeypatch, after, done.params, fed, backend)
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kind", "kernel"), [("depthwise", "(4, 4)"), ("whole blocks", "(3, 3)")])
def test_what_the_layer_is(kind: str, kernel: str) -> None:
    net, graph = padding(kind)
    after, done = prepared(UnevenPadding, graph, net.params, inserted=inserted(kind))
    layer = named(after, "conv")
    assert layer.attrs["kernel"] == kernel
    if kind == "depthwise":
        assert layer.attrs["pad"] == "(1, 1)"
        weight = done.params["w_uneven"].values()
        np.testing.assert_array_equal(weight[:, :, 1:, 1:], net.params["w"])
        assert not weight[:, :, 0].any()
        assert not weight[:, :, :, 0].any()
    else:
        moved = named(after, "conv_padded")
        assert (moved.attrs["kernel"], moved.attrs["pad"]) == ("(2, 2)", "(1, 1)")
        np.testing.assert_array_equal(done.params["conv_place"].values()[3, 0], [[0, 0], [0, 1]])


@pytest.mark.parametrize("dilate", [2, 3])
def test_dilations_that_zeros_fit_into(monkeypatch: pytest.MonkeyPatch, dilate: int) -> None:
    net, graph = padding("depthwise", (1, 3, 0, 2), dilate=(dilate, dilate))
    if dilate == 3:
        assert prepared(UnevenPadding, graph, net.params)[0] is graph
        return
    after, done = prepared(UnevenPadding, graph, net.params, inserted=inserted("depthwise"))
    fed = {"x": np.random.default_rng(0).normal(size=(2, 16, 11, 14)).astype(np.float32)}
    (expected,) = outputs(monkeypatch, graph, parameters(net.params), fed)
    (found,) = outputs(monkeypatch, after, done.params, fed, "MKLDNN")
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_layers_that_read_one_image_share_its_zeros() -> None:
    net = Net()
    x = net.var("x", __dtype__="0")
    width = {"mode": "constant", "pad_width": (0, 0, 0, 0, 0, 1, 0, 1)}
    each = {"kernel": (3, 3), "num_filter": 16, "no_bias": True}
    layers = [
        net.op(
            *("Convolution", net.op("Pad", x, name=f"pad{n}", **width), net.param(f"w{n}", 16, 16, 3, 3)),
            name=f"conv{n}",
            **each,
        )
        for n in range(2)
    ]
    after, _ = prepared(
        UnevenPadding, net.graph(*layers), net.params, inserted=["conv0_padded", "conv0_place"]
    )
    assert [node.name for node in after.nodes if node.op == "Convolution"] == [
        "conv0_padded",
        "conv0",
        "conv1",
    ]


def other(**change: Any) -> Graph:
    """Return the graph with another Pad."""
    graph = padding("depthwise")[1]
    nodes = [
        node._replace(attrs={**node.attrs, **change}) if node.name == "pad" else node for node in graph.nodes
    ]
    return Graph(tuple(nodes), graph.heads)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"constant_value": "1"}, id="ones"),
        pytest.param({"mode": "edge"}, id="the border"),
        pytest.param({"pad_width": "(0, 0, 0, 0, 1, 1, 1, 1)"}, id="even"),
        pytest.param({"pad_width": "(0, 0, 0, 1, 0, 1, 0, 1)"}, id="channels"),
        pytest.param({"pad_width": "(0, 0, 0, 0, 0, -1, 0, 1)"}, id="places taken away"),
        pytest.param({"pad_width": "(0, 0, 0, 0, 0, 1)"}, id="three axes"),
    ],
)
def test_other_padding_stays(change: Any) -> None:
    graph = other(**change)
    assert prepared(UnevenPadding, graph, padding("depthwise")[0].params)[0] is graph


def test_what_has_other_readers_or_channels_stays() -> None:
    net, graph = padding("depthwise")
    read_twice = Graph(graph.nodes, (*graph.heads, graph.nodes[graph.heads[0].node].inputs[0]))
    assert prepared(UnevenPadding, read_twice, net.params)[0] is read_twice
    net = Net()
    padded = net.op("Pad", net.var("x", __dtype__="0"), mode="constant", pad_width=(0, 0, 0, 0, 0, 1, 0, 1))
    for channels, groups in ((5, 1), (16, 2)):
        each = {"kernel": (3, 3), "num_filter": 8, "no_bias": True, "num_group": groups}
        graph = net.graph(
            net.op("Convolution", padded, net.param(f"w{groups}", 8, channels // groups, 3, 3), **each)
        )
        assert prepared(UnevenPadding, graph, net.params)[0] is graph


@pytest.mark.parametrize(("kind", "widths"), [("few channels", (3, 4, 3, 4)), ("depthwise", (4, 5, 4, 5))])
def test_what_a_layer_does_not_pad_fast_stays(kind: str, widths: tuple[int, ...]) -> None:
    """Without AVX-512, where explicit_padding would put a Pad there."""
    net, graph = padding(kind, widths, kernel=9)
    for name, changes in (("cpu-bf16-avx2", False), ("cpu-bf16", True)):
        done = prepare_graph(
            graph,
            parameters(net.params),
            Policy.default(BF16),
            [UnevenPadding.step],
            target=Target.builtin(name),
        )
        assert bool(done.record(PreparedNode)) == changes


def test_targets_that_name_it() -> None:
    net, graph = padding("depthwise")
    assert targets_that_choose(UnevenPadding.step, graph, parameters(net.params)) == [
        "cpu-bf16",
        "cpu-bf16-amx",
        "cpu-bf16-intel",
    ]
    target = Target.builtin("cpu-bf16-avx2")
    done = prepare_graph(graph, parameters(net.params), Policy.default(BF16), target=target)
    assert [change.step for change in done.record(PreparedNode)] == [UnevenPadding.step]


def test_a_parameter_goes_on_in_front_of_its_values() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    padded = PaddedParameter(ArrayParameter(values), {0: 1, 1: 3}, 7.0, first={1: 2})
    np.testing.assert_array_equal(
        padded.values(), [[7, 7, 0, 1, 2, 7], [7, 7, 3, 4, 5, 7], [7, 7, 7, 7, 7, 7]]
    )
