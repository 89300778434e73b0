"""Without AVX-512 a Pooling leaves out what a 1x1 layer skips of an image of odd size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import PreparedNode, State
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepare_graph

NARROW = Target.builtin("cpu-bf16-avx2")


def layer(
    net: Net, data: Entry, name: str, channels: int, filters: int, side: int = 1, **attrs: Any
) -> Entry:
    shape = (filters, channels, side, side)
    weight = net.param(f"{name}_weight", *shape)
    net.params[f"{name}_weight"] = np.random.default_rng(1).normal(0, 0.1, shape).astype(np.float32)
    window = f"({side}, {side})"
    return net.op(
        "Convolution", data, weight, name=name, num_filter=filters, kernel=window, no_bias=True, **attrs
    )


def strided(
    side: int = 9,
    channels: int = 16,
    filters: int = 256,
    *,
    image: bool = True,
    layers: int = 1,
    **attrs: Any,
) -> tuple[Net, Graph, int]:
    """Return a network that ends in 1x1 layers of stride 2, and the side of what they write."""
    net = Net()
    data = layer(net, net.var("x"), "first", 8, channels) if image else net.var("x")
    given = {"stride": "(2, 2)", **attrs}
    heads = [layer(net, data, f"skip{number}", channels, filters, **given) for number in range(layers)]
    return net, net.graph(*heads), (side + 1) // 2


def run(
    net: Net, graph: Graph, side: int, after: int, *, channels: int = 8, target: Target = NARROW
) -> State:
    sizes = {"x": (2, channels, side, side), **{key: value.shape for key, value in net.params.items()}}
    shapes = []
    for node in graph.nodes:
        size = side if node.name == "first" else after
        shapes.append((sizes.get(node.name, (2, int(node.attrs.get("num_filter", 0)), size, size)),))
    policy = Policy.default(BF16)
    return prepare_graph(
        graph, parameters(net.params), policy, ("skipped_places",), target=target, shapes=shapes
    )


@pytest.mark.parametrize("side", [9, 15])
def test_a_pooling_leaves_out_what_is_skipped(monkeypatch: pytest.MonkeyPatch, side: int) -> None:
    net, graph, written = strided(side)
    after = run(net, graph, side, written)
    assert operators(after.graph)[1:] == [
        "skip0_left = Pooling(first) {kernel: (1, 1), pool_type: avg, stride: (2, 2)}",
        "skip0 = Convolution(skip0_left, skip0_weight) {kernel: (1, 1), no_bias: True, num_filter: 256}",
    ]
    assert after.shapes is not None
    assert (2, 16, written, written) in [shape for (shape,) in after.shapes]
    (change,) = after.record(PreparedNode)
    assert (change.node, change.into, change.step) == ("skip0", "skip0", "skipped_places")
    for size in (side, side + 1, side + 4):  # and for other images than those that were told
        data = {"x": np.random.default_rng(2).normal(0, 1, (2, 8, size, size)).astype(np.float32)}
        expected, found = (
            outputs(monkeypatch, made, parameters(net.params), data)[0] for made in (graph, after.graph)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    again = run(net, after.graph, side, written)
    assert again.graph is after.graph


def test_values_that_are_no_numbers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A maximum would make a large number of minus infinity."""
    net, graph, written = strided()
    after = run(net, graph, 9, written)
    data = np.random.default_rng(2).normal(0, 1, (2, 8, 9, 9)).astype(np.float32)
    data[0, :, 0, 0], data[0, :, 2, 2], data[1, 0, 4, 4] = np.inf, -np.inf, np.nan
    net.params["first_weight"] = np.abs(net.params["first_weight"])
    net.params["skip0_weight"] = np.abs(net.params["skip0_weight"])
    expected, found = (
        outputs(monkeypatch, made, parameters(net.params), {"x": data})[0] for made in (graph, after.graph)
    )
    assert np.isposinf(expected).any()
    assert np.isneginf(expected).any()
    assert np.isnan(expected).any()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_one_pooling_serves_layers_that_read_one_image() -> None:
    net, graph, written = strided(layers=2)
    after = run(net, graph, 9, written)
    assert [node.op for node in after.graph.nodes].count("Pooling") == 1


@pytest.mark.parametrize(
    ("side", "options"),
    [
        pytest.param(10, {}, id="nothing is left over"),
        pytest.param(9, {"stride": "(1, 1)", "side_after": 9}, id="no stride"),
        pytest.param(9, {"channels": 12}, id="channels of no blocks"),
        pytest.param(9, {"filters": 260}, id="filters of no blocks"),
        pytest.param(9, {"filters": 56}, id="few filters"),
        pytest.param(9, {"image": False, "channels": 8}, id="an image in plain order"),
        pytest.param(9, {"pad": "(1, 1)", "side_after": 6}, id="padding"),
        pytest.param(9, {"layout": "NHWC"}, id="channels last"),
    ],
)
def test_what_is_left_as_it_is(side: int, options: dict[str, Any]) -> None:
    after = options.pop("side_after", (side + 1) // 2)
    net, graph, _ = strided(side, **options)
    assert run(net, graph, side, after).graph is graph


def test_other_targets_do_not_ask_for_it() -> None:
    net, graph, written = strided()
    assert run(net, graph, 9, written, target=Target.builtin("cpu-bf16")).graph is graph
