"""Where MXNet keeps images in blocks of eight channels, passes fill up and look for those."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from mxamp.graph import Graph
from mxamp.ops.attributes import integers
from mxamp.passes import PreparedNode, State
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, named, parameters
from tests.passes.preparing import prepare_graph

WIDE, NARROW = "cpu-bf16", "cpu-bf16-avx2"
SIDE = 16


def layer(net: Net, channels: int, filters: int, window: int = 3) -> Any:
    weight = net.param("weight", filters, channels, window, window)
    return net.op(
        "Convolution", net.var("x"), weight, name="conv", num_filter=filters, no_bias=True,
        kernel=f"({window}, {window})", pad=f"({window // 2}, {window // 2})",
    )  # fmt: skip


def prepared_for(name: str, net: Net, graph: Graph, step: str, channels: int) -> State:
    """Run one pass for a built-in target on a network that reads images of so many channels."""
    sizes = {"x": (1, channels, SIDE, SIDE), **{key: value.shape for key, value in net.params.items()}}
    shapes = [
        (sizes.get(node.name, (1, *(int(node.attrs.get("num_filter", 0)) or channels,), SIDE, SIDE)),)
        for node in graph.nodes
    ]
    target = Target.builtin(name)
    return prepare_graph(
        graph, parameters(net.params), Policy.default(BF16), [step], target=target, shapes=shapes
    )


def changed(state: State) -> bool:
    return any(change.into is not None for change in state.record(PreparedNode))


@pytest.mark.parametrize(
    ("filters", "wide", "narrow"),
    [
        pytest.param(20, 32, 24, id="up to the next block"),
        pytest.param(24, 32, 24, id="whole blocks of eight"),
        pytest.param(32, 32, 32, id="whole blocks of both"),
        pytest.param(3, 16, 8, id="few"),
    ],
)
def test_channels_fill_up_blocks(filters: int, wide: int, narrow: int) -> None:
    net = Net()
    relu = net.op("Activation", layer(net, 64, filters), act_type="relu")
    graph = net.graph(relu)
    for name, padded in ((WIDE, wide), (NARROW, narrow)):
        after = prepared_for(name, net, graph, "pad_channels", 64).graph
        assert named(after, "conv").attrs["num_filter"] == str(padded)


@pytest.mark.parametrize(
    ("channels", "filters", "window", "pays"),
    [
        pytest.param(3, 10, 3, True, id="an image, however much they grow"),
        pytest.param(7, 12, 5, True, id="fewer than a block"),
        pytest.param(3, 12, 9, False, id="a wide window over few"),
        pytest.param(12, 20, 3, False, id="no whole blocks"),
        pytest.param(64, 20, 9, True, id="a wide window over blocks"),
        pytest.param(64, 20, 1, False, id="products of few places"),
    ],
)
def test_what_gains_by_blocks_of_eight(channels: int, filters: int, window: int, pays: bool) -> None:
    net = Net()
    graph = net.graph(layer(net, channels, filters, window))
    assert changed(prepared_for(NARROW, net, graph, "pad_channels", channels)) is pays


FILTER_BANK = {"kernel": "(1, 256)", "stride": "(1, 2)"}


@pytest.mark.parametrize(
    ("channels", "filters", "shape", "attrs", "pays"),
    [
        pytest.param(1, 1, (1, 44098), FILTER_BANK, True, id="a filter bank"),
        pytest.param(1, 20, (1, 44098), FILTER_BANK, False, id="more filters"),
        pytest.param(1, 3, (56, 56), {"kernel": "(9, 9)", "pad": "(3, 3)"}, True, id="an image"),
        pytest.param(1, 3, (64, 64), {"kernel": "(9, 9)", "pad": "(4, 4)"}, True, id="padded by a Pad"),
        pytest.param(1, 3, (16, 16), {"kernel": "(9, 9)", "pad": "(4, 4)"}, False, id="too small for one"),
        pytest.param(1, 3, (56, 56), {"kernel": "(11, 11)", "stride": "(4, 4)"}, False, id="strides"),
        pytest.param(1, 100, (56, 300), {"kernel": "(3, 300)"}, False, id="sentences"),
        pytest.param(1, 204, (187, 96), {"kernel": "(7, 38)", "pad": "(3, 0)"}, True, id="a spectrogram"),
        pytest.param(1, 204, (187, 96), {"kernel": "(7, 38)", "stride": "(1, 2)"}, False, id="by two places"),
        pytest.param(1, 204, (187, 96), {"kernel": "(7, 96)"}, False, id="one column"),
        pytest.param(1, 51, (187, 96), {"kernel": "(129, 1)", "pad": "(64, 0)"}, True, id="a Pad"),
        pytest.param(1, 20, (24, 24), {"kernel": "(9, 9)", "pad": "(3, 3)"}, False, id="few products"),
    ],
)
def test_wide_windows_over_few_channels(
    channels: int, filters: int, shape: tuple[int, int], attrs: dict[str, str], pays: bool
) -> None:
    """Some need more memory than oneDNN's matrix product may have, and blocks move by one place fast."""
    net, numbers = Net(), {name: integers(value) or () for name, value in attrs.items()}
    weight = net.param("weight", filters, channels, *numbers["kernel"])
    conv = net.op("Convolution", net.var("x"), weight, name="conv", num_filter=filters, no_bias=True, **attrs)
    places = [
        (size + 2 * pad - window) // stride + 1
        for size, window, pad, stride in zip(
            shape, numbers["kernel"], numbers.get("pad", (0, 0)), numbers.get("stride", (1, 1))
        )
    ]
    shapes = [((1, channels, *shape),), (net.params["weight"].shape,), ((1, filters, *places),)]
    done = prepare_graph(
        net.graph(conv),
        parameters(net.params),
        Policy.default(BF16),
        ["pad_channels"],
        target=Target.builtin(NARROW),
        shapes=shapes,
    )
    assert changed(done) is pays


def test_there_are_no_pieces_of_matrix_products() -> None:
    """100 filters of 300 channels become 128 with AVX-512; of no whole blocks, plain order is read anyway."""
    net = Net()
    pooled = net.op("Pooling", layer(net, 300, 100), global_pool=True, kernel="(1, 1)")
    graph = net.graph(
        net.op("FullyConnected", pooled, net.param("dense", 4, 100), num_hidden=4, no_bias=True)
    )
    assert changed(prepared_for(WIDE, net, graph, "pad_channels", 300))
    assert not changed(prepared_for(NARROW, net, graph, "pad_channels", 300))


def prelu(net: Net, image: Any, channels: int) -> Any:
    return net.op("LeakyReLU", image, net.param("gamma", channels), act_type="prelu")


def hard_swish(net: Net, image: Any, channels: int) -> Any:
    gate = net.op("hard_sigmoid", image, alpha=1 / 6, beta=0.5)
    return net.op("elemwise_mul", image, gate)


def upsampling(net: Net, image: Any, channels: int) -> Any:
    return net.op("UpSampling", image, scale=2, sample_type="nearest")


@pytest.mark.parametrize(
    ("step", "make"),
    [("prelu", prelu), ("hard_swish", hard_swish), ("nearest_upsampling", upsampling)],
    ids=["prelu", "hard_swish", "nearest_upsampling"],
)
def test_depthwise_layers_have_whole_blocks(step: str, make: Callable[[Net, Any, int], Any]) -> None:
    found = {}
    for channels in (12, 24, 32):
        net = Net()
        graph = net.graph(make(net, layer(net, 16, channels), channels))
        found[channels] = [changed(prepared_for(name, net, graph, step, 16)) for name in (WIDE, NARROW)]
    assert found == {12: [False, False], 24: [False, True], 32: [True, True]}


@pytest.mark.parametrize(("behind_a_layer", "pays"), [(False, False), (True, True)])
def test_a_head_of_1x1_pays_where_it_reads_blocks(behind_a_layer: bool, pays: bool) -> None:
    """Of plain planes MXNet's matrix product takes 0.08 ms (64 to 1, 112 x 112), and padded 0.5."""
    net = Net()
    source = net.var("x")
    if behind_a_layer:
        wide = net.param("wide", 64, 64, 3, 3)
        attrs = {"num_filter": 64, "no_bias": True, "kernel": "(3, 3)", "pad": "(1, 1)"}
        source = net.op("Convolution", source, wide, name="before", **attrs)
    weight = net.param("weight", 12, 64, 1, 1)
    head = net.op("Convolution", source, weight, name="conv", num_filter=12, no_bias=True, kernel="(1, 1)")
    graph = net.graph(net.op("Activation", head, act_type="relu"))
    sizes = {"x": (1, 64, 56, 56), "wide": (64, 64, 3, 3), "weight": (12, 64, 1, 1)}
    shapes = [
        (sizes.get(node.name, (1, 64 if node.name == "before" else 12, 56, 56)),) for node in graph.nodes
    ]
    target = Target.builtin(NARROW)
    done = prepare_graph(
        graph, parameters(net.params), Policy.default(BF16), ["pad_channels"], target=target, shapes=shapes
    )
    assert changed(done) == pays
