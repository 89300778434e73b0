"""Without AVX-512 an image is padded before a layer that is slow where it pads for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import PreparedNode, State
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, named, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepare_graph

NARROW = Target.builtin("cpu-bf16-avx2")
STEPS = ("padding", "explicit_padding")


def layer(
    net: Net, data: Entry, name: str, channels: int = 3, filters: int = 16, kernel: int = 11, **attrs: Any
) -> Entry:
    shape = (filters, channels // int(attrs.get("num_group", 1)), kernel, kernel)
    weight = net.param(f"{name}_weight", *shape)
    net.params[f"{name}_weight"] = np.random.default_rng(1).normal(0, 0.1, shape).astype(np.float32)
    window = f"({kernel}, {kernel})"
    return net.op(
        "Convolution", data, weight, name=name, num_filter=filters, kernel=window, no_bias=True, **attrs
    )


def run(net: Net, graph: Graph, *, channels: int = 3, target: Target = NARROW) -> State:
    sizes = {"x": (1, channels, 48, 48), **{key: value.shape for key, value in net.params.items()}}
    shapes = [
        (sizes.get(node.name, (1, int(node.attrs.get("num_filter", channels)), 48, 48)),)
        for node in graph.nodes
    ]
    return prepare_graph(
        graph, parameters(net.params), Policy.default(BF16), STEPS, target=target, shapes=shapes
    )


def test_the_image_is_padded_before(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    graph = net.graph(layer(net, net.var("x"), "conv", pad="(5, 5)"))
    after = run(net, graph)
    assert operators(after.graph) == [
        "conv_padded = Pad(x) {constant_value: 0, mode: constant, pad_width: (0, 0, 0, 0, 5, 5, 5, 5)}",
        "conv = Convolution(conv_padded, conv_weight) {kernel: (11, 11), no_bias: True, num_filter: 16}",
    ]
    assert after.shapes is not None
    assert (1, 3, 58, 58) in [shape for (shape,) in after.shapes]
    (change,) = after.record(PreparedNode)
    assert (change.node, change.into, change.step) == ("conv", "conv", "explicit_padding")
    data = {"x": np.random.default_rng(2).normal(0, 1, (1, 3, 48, 48)).astype(np.float32)}
    expected, found = (
        outputs(monkeypatch, made, parameters(net.params), data)[0] for made in (graph, after.graph)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    again = prepare_graph(
        after.graph, after.params, Policy.default(BF16), STEPS, target=NARROW, shapes=after.shapes
    )
    assert again.graph is after.graph


def test_one_pad_serves_layers_that_read_one_image() -> None:
    net = Net()
    image = net.var("x")
    after = run(net, net.graph(*[layer(net, image, f"conv{n}", pad="(4, 4)", kernel=9) for n in range(2)]))
    assert [node.op for node in after.graph.nodes].count("Pad") == 1


@pytest.mark.parametrize(
    ("options", "pads"),
    [
        pytest.param({"kernel": 7, "pad": "(3, 3)"}, False, id="little padding"),
        pytest.param({"kernel": 9, "pad": "(2, 2)"}, False, id="a long window"),
        pytest.param({"kernel": 9, "pad": "(2, 2)", "stride": "(2, 2)"}, True, id="that skips places"),
        pytest.param({"kernel": 9, "pad": "(4, 4)", "filters": 12}, False, id="filters of no blocks"),
        pytest.param({"kernel": 3, "pad": "(4, 4)", "dilate": "(4, 4)", "channels": 64}, True, id="dilated"),
        pytest.param({"kernel": 3, "pad": "(4, 4)", "dilate": "(4, 4)"}, False, id="few multiply-adds"),
        pytest.param({"kernel": 9}, False, id="no padding"),
        pytest.param({"kernel": 9, "pad": "(4, 4)", "channels": 16, "num_group": 16}, False, id="depthwise"),
        pytest.param({"pad": "(5, 5)", "channels": 16, "num_group": 16}, True, id="depthwise, five places"),
    ],
)
def test_what_kernels_cannot_pad(options: dict[str, Any], pads: bool) -> None:
    for name in ("cpu-bf16-avx2", "cpu-bf16"):
        net = Net()
        graph = net.graph(layer(net, net.var("x"), "conv", **options))
        after = run(net, graph, channels=options.get("channels", 3), target=Target.builtin(name))
        has_pad = any(node.op == "Pad" for node in after.graph.nodes)
        assert has_pad is (pads and name == "cpu-bf16-avx2")


@pytest.mark.parametrize(("width", "folds"), [(2, True), (4, False)])
def test_a_pad_of_the_users_is_not_folded_where_it_would_be_put_back(width: int, folds: bool) -> None:
    net = Net()
    widths = f"(0, 0, 0, 0, {', '.join([str(width)] * 4)})"
    padded = net.op("Pad", net.var("x"), name="padded", mode="constant", pad_width=widths)
    after = run(net, net.graph(layer(net, padded, "conv", kernel=9)))
    assert any(node.op == "Pad" for node in after.graph.nodes) is not folds
    assert ("pad" in named(after.graph, "conv").attrs) is folds
