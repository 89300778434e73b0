"""Channels are cut in plain order, for MXNet's slice raises where it would cut a block of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.passes import PreparedNode, SliceChannels
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepare_graph, prepared, targets_that_choose

SHAPE = (2, 4, 9, 11)


def cut(begin: Any, end: Any, *, op: str = "slice", filters: int = 20, **attrs: Any) -> tuple[Net, Graph]:
    net = Net()
    layer = net.conv(net.var("x", __dtype__="0"), "layer", filters)
    return net, net.graph(net.op(op, layer, name="y", begin=begin, end=end, **attrs))


@pytest.mark.parametrize("dtype", ["7", "6", ""], ids=["booleans", "integers", "unsaid"])
def test_what_no_layer_writes_stays(dtype: str) -> None:
    """MXNet has no slice_axis of booleans, and what a model is fed with may be such."""
    net = Net()
    data = net.var("x", **({"__dtype__": dtype} if dtype else {}))
    graph = net.graph(net.op("slice", data, name="y", begin="(None, 1)", end="(None, 3)"))
    state = prepare_graph(graph, {}, Policy.default(BF16), [SliceChannels.step])
    assert [node.op for node in state.graph.nodes] == ["null", "slice"]


CHANNELS: dict[str, tuple[Any, Any, list[str]]] = {
    "the first": ("(None, 0)", "(None, 3)", ["y = slice_axis(layer) {axis: 1, begin: 0, end: 3}"]),
    "the last": ("(None, -7)", "(None, None)", ["y = slice_axis(layer) {axis: 1, begin: -7, end: None}"]),
    "no begin": (
        "(None, None, None, None)",
        "(None, 5, None, None)",
        ["y = slice_axis(layer) {axis: 1, begin: 0, end: 5}"],
    ),
    "all of some places": (
        "(None, 0, 3)",
        "(None, 20, 7)",
        ["y = slice(layer) {begin: (None, None, 3), end: (None, None, 7)}"],
    ),
    "of some places": (
        "(None, 2, 3, None)",
        "(None, 18, None, 7)",
        [
            "y_channels = slice_axis(layer) {axis: 1, begin: 2, end: 18}",
            "y = slice(y_channels) {begin: (None, None, 3, None), end: (None, None, None, 7)}",
        ],
    ),
}


@pytest.mark.parametrize("case", CHANNELS)
def test_channels_are_cut_by_themselves(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    begin, end, expected = CHANNELS[case]
    net, graph = cut(begin, end)
    after, done = prepared(SliceChannels, graph, net.params, inserted=["y_channels"])
    assert operators(after)[1:] == expected
    assert [(change.node, change.into) for change in done.changes] == [("y", "y")]
    data = {"x": np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)}
    (found,) = outputs(monkeypatch, after, done.params, data)
    (before,) = outputs(monkeypatch, graph, parameters(net.params), data)
    np.testing.assert_array_equal(found, before)


@pytest.mark.parametrize(
    ("begin", "end", "attrs"),
    [
        pytest.param("(None, None, 2)", "(None, None, 5)", {}, id="places"),
        pytest.param("(None, 16)", "(None, 32)", {}, id="whole blocks"),
        pytest.param("(None, 0)", "(None, None)", {}, id="all"),
        pytest.param("(None, 0)", "(None, 20)", {}, id="as many as there are"),
        pytest.param("(1,)", "(2,)", {}, id="of the batch"),
        pytest.param("(None, 1)", "(None, 9)", {"step": "(None, 2)"}, id="steps"),
        pytest.param("(None, 9)", "(None, None)", {"step": "(1, -1)"}, id="backwards"),
    ],
)
def test_others_stay(begin: str, end: str, attrs: Any) -> None:
    net, graph = cut(begin, end, **attrs)
    assert prepared(SliceChannels, graph, net.params)[0] is graph


@pytest.mark.parametrize("target", ["cpu-bf16", "cpu-bf16-avx2"])
@pytest.mark.parametrize("filters", [20, 24, 32])
def test_what_a_pass_brings_into_blocks_is_cut(
    monkeypatch: pytest.MonkeyPatch, target: str, filters: int
) -> None:
    """Whole blocks MXNet does not cut by itself: it raises, or the process ends."""
    net = Net()
    layer = net.conv(net.var("x", __dtype__="0"), "layer", filters)
    pooled = net.op("Pooling", layer, kernel=(3, 3), pool_type="max", pad=(1, 1))
    graph = net.graph(net.op("slice", pooled, name="y", begin="(None, 3)", end="(None, 17)"))
    given = parameters(net.params)
    shapes = [((2, 4, 40, 40),), ((filters, 4, 1, 1),), *[((2, filters, 40, 40),)] * 2, ((2, 14, 40, 40),)]
    done = prepare_graph(graph, given, Policy.default(BF16), target=Target.builtin(target), shapes=shapes)
    assert SliceChannels.step in {change.step for change in done.record(PreparedNode)}
    data = {"x": np.random.default_rng(0).normal(size=(2, 4, 40, 40)).astype(np.float32)}
    (found,) = outputs(monkeypatch, done.graph, done.params, data, "MKLDNN")
    whole = Graph(graph.nodes[:-1], ((len(graph.nodes) - 2, 0),))  # type: ignore[arg-type]
    (pooled_values,) = outputs(monkeypatch, whole, given, data)
    np.testing.assert_allclose(found, pooled_values[:, 3:17], rtol=1e-5, atol=1e-5)


def test_targets() -> None:
    net, graph = cut("(None, 0)", "(None, 3)")
    named = targets_that_choose(SliceChannels.step, graph, parameters(net.params))
    assert named == ["cpu-bf16", "cpu-bf16-amx", "cpu-bf16-intel"]
