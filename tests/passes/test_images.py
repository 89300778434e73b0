"""What is certainly an image, a sequence or a volume is known of every operator that keeps axes."""

from __future__ import annotations

from typing import Callable

import pytest

from mxamp.graph import Entry
from mxamp.passes.images import ImageOrigins, axes_of_places
from tests.building import Net, named, parameters

Network = Callable[[Net, Entry], Entry]


class Layers(Net):
    """A layer of images, and something of unknown rank."""

    def __init__(self, kernel: str = "(3, 3)") -> None:
        super().__init__()
        weight = self.param("layer_weight", 12, 4, 3, 3)
        x = self.var("x")
        self.layer = self.op(
            "Convolution", x, weight, name="layer", num_filter=12, kernel=kernel, no_bias=True
        )
        self.unknown = self.var("unknown")

    @property
    def gray(self) -> Entry:
        weight = self.param("gray_weight", 1, 12, 1, 1)
        return self.op("Convolution", self.layer, weight, num_filter=1, kernel="(1, 1)", no_bias=True)

    @property
    def pooled(self) -> Entry:
        return self.op("Pooling", self.layer, kernel="(1, 1)", global_pool=True)

    def places(self, last: Entry) -> int | None:
        graph = self.graph(last)
        position = graph.nodes.index(named(graph, "last"))
        return axes_of_places(graph, parameters(self.params)).get(position)


def rows(net: Net, *parts: Entry) -> Entry:
    planes = [net.op("Reshape", part, shape="(0, 0, -1)") for part in parts]
    return net.op("Concat", *planes, dim=1, num_args=len(planes))


def mean(net: Layers) -> Entry:
    """Return the mean that a BatchNorm hands on, one value a channel."""
    statistics = [net.param(f"statistic{number}", 12) for number in range(4)]
    return Entry(net.op("BatchNorm", net.layer, *statistics, outputs=3, output_mean_var=True).node, 1)

    @property
    def gray(self) -> Entry:
        weight = self.param("gray_weight", 1, 12, 1, 1)
        return self.op("Convolution", self.layer, weight, num_filter=1, kernel="(1, 1)", no_bias=True)


def embedded(net: Layers, *axes: int) -> Entry:
    """Return what a dense layer makes of anything, with axes added."""
    made = net.op("FullyConnected", net.unknown, net.param("time_weight", 12, 5), num_hidden=12, no_bias=True)
    made = net.op("Activation", made, act_type="relu")
    for axis in axes:
        made = net.op("expand_dims", made, axis=axis)
    return made


PADDED = "(0, 0, 0, 0, 0, 1, 0, 1)"
BACK = {"lhs_begin": 2, "lhs_end": 3, "rhs_begin": 2, "rhs_end": 4}

KEEP: dict[str, Callable[[Layers], Entry]] = {
    "relu": lambda net: net.op("Activation", net.layer, name="last", act_type="relu"),
    "cut": lambda net: net.op("SliceChannel", net.layer, name="last", num_outputs=3),
    "cut out": lambda net: net.op("slice", net.layer, name="last", begin="(0, 2)", end="(None, 4)"),
    "joined first": lambda net: net.op("Concat", net.layer, net.unknown, name="last", dim=1, num_args=2),
    "joined last": lambda net: net.op("Concat", net.unknown, net.layer, name="last", dim=1, num_args=2),
    "joined of parts": lambda net: net.op(
        "Concat",
        net.unknown,
        Entry(net.op("SliceChannel", net.layer, num_outputs=3, outputs=3).node, 2),
        name="last",
        dim=1,
        num_args=2,
    ),
    "summed": lambda net: net.op("elemwise_add", net.unknown, net.layer, name="last"),
    "averaged": lambda net: net.op("mean", net.layer, name="last", axis="(2, 3)", keepdims=True),
    "padded": lambda net: net.op("Pad", net.layer, name="last", mode="constant", pad_width=PADDED),
    "brought into plain order": lambda net: net.op("Reshape", net.layer, name="last", shape="(0, 0, 0, 0)"),
    "scaled by images": lambda net: net.op("broadcast_mul", net.layer, net.pooled, name="last"),
    "scaled by a parameter": lambda net: net.op(
        "broadcast_mul", net.param("slopes", 1, 12, 1, 1), net.layer, name="last"
    ),
    "shifted by a dense layer": lambda net: net.op(
        "broadcast_add", net.layer, embedded(net, 2, 3), name="last"
    ),
    "shifted by what is said to have four axes": lambda net: net.op(
        "broadcast_add", net.op("Reshape", net.unknown, shape="(0, -1, 1, 1)"), net.layer, name="last"
    ),
    "shaped like an image": lambda net: net.op("reshape_like", net.unknown, net.layer, name="last"),
    "put together as rows": lambda net: net.op(
        "reshape_like", rows(net, net.layer, net.layer), net.layer, name="last", **BACK
    ),
}

KEEP["resized"] = lambda net: net.op("_contrib_BilinearResize2D", net.unknown, name="last", height=9, width=8)
KEEP["of blocks"] = lambda net: net.op("depth_to_space", net.unknown, name="last", block_size=2)

LOSE: dict[str, Callable[[Layers], Entry]] = {
    "squeezed": lambda net: net.op("SliceChannel", net.layer, name="last", num_outputs=12, squeeze_axis=True),
    "scaled by an unknown": lambda net: net.op("broadcast_mul", net.layer, net.unknown, name="last"),
    "scaled by a parameter of more axes": lambda net: net.op(
        "broadcast_mul", net.layer, net.param("slopes", 1, 1, 12, 1, 1), name="last"
    ),
    "two parameters": lambda net: net.op(
        "broadcast_mul", net.param("slopes", 1, 12, 1, 1), net.param("more", 1, 12, 1, 1), name="last"
    ),
    "shifted by more axes": lambda net: net.op(
        "broadcast_add", net.layer, embedded(net, 2, 3, 4), name="last"
    ),
    "shifted by what is left of any": lambda net: net.op(
        "broadcast_add", net.layer, net.op("Reshape", net.unknown, shape="(0, -2, 1)"), name="last"
    ),
    "averaged away": lambda net: net.op("mean", net.layer, name="last", axis="(2, 3)"),
    "reshaped": lambda net: net.op("Reshape", net.layer, name="last", shape="(0, 0, -1)"),
    "flat": lambda net: net.op("Flatten", net.layer, name="last"),
    "second output": lambda net: net.op("elemwise_add", net.unknown, mean(net), name="last"),
    "rows of unknown rank": lambda net: net.op("reshape_like", net.unknown, net.layer, name="last", **BACK),
    "shaped like an unknown": lambda net: net.op("reshape_like", net.layer, net.unknown, name="last"),
    "like an unknown": lambda net: net.op(
        "reshape_like", rows(net, net.layer, net.layer), net.unknown, name="last", **BACK
    ),
    "other axes": lambda net: net.op(
        "reshape_like", rows(net, net.layer), net.layer, name="last", **{**BACK, "rhs_begin": 3}
    ),
}


@pytest.mark.parametrize("case", KEEP)
def test_axes_are_kept(case: str) -> None:
    net = Layers()
    assert net.places(KEEP[case](net)) == 2


@pytest.mark.parametrize("case", LOSE)
def test_axes_are_not_certain(case: str) -> None:
    net = Layers()
    assert net.places(LOSE[case](net)) is None


@pytest.mark.parametrize(("kernel", "axes"), [("(3,)", 1), ("(3, 3)", 2), ("(3, 3, 3)", 3)])
def test_layers_tell_axes(kernel: str, axes: int) -> None:
    net = Layers(kernel)
    assert net.places(net.op("SliceChannel", net.layer, name="last", num_outputs=2)) == axes


KEEP_CHANNELS: dict[str, Callable[[Layers], Entry]] = {
    "resized": lambda net: net.op("_contrib_BilinearResize2D", net.layer, name="last", height=9, width=8),
    "resized and added": lambda net: net.op(
        "broadcast_add",
        net.op("_contrib_BilinearResize2D", net.layer, height=9, width=8),
        net.unknown,
        name="last",
    ),
    "places padded": KEEP["padded"],
    "plain order": KEEP["brought into plain order"],
    "fewer rows": lambda net: net.op("slice_axis", net.layer, name="last", axis=2, begin=0, end=3),
    "fewer columns": lambda net: net.op("slice_axis", net.layer, name="last", axis=-1, begin=0, end=3),
    "repeated": lambda net: net.op("UpSampling", net.layer, name="last", scale=2, sample_type="nearest"),
    "averaged over places": KEEP["averaged"],
    "averaged over columns": lambda net: net.op("mean", net.layer, name="last", axis=-1, keepdims=True),
    "averaged": lambda net: net.op(
        "_contrib_AdaptiveAvgPooling2D", net.layer, name="last", output_size="(2, 2)"
    ),
    "the second of a sum": KEEP["summed"],
    "scaled": KEEP["scaled by images"],
    "shaped like it": KEEP["shaped like an image"],
    "scaled by one channel": lambda net: net.op("broadcast_mul", net.gray, net.layer, name="last"),
}

LOSE_CHANNELS: dict[str, Callable[[Layers], Entry]] = {
    "channels padded": lambda net: net.op(
        "Pad", net.layer, name="last", mode="constant", pad_width="(0, 0, 0, 4, 0, 0, 0, 0)"
    ),
    "fewer channels": lambda net: net.op("slice_axis", net.layer, name="last", axis=1, begin=0, end=3),
    "perhaps fewer channels": lambda net: net.op(
        "slice_axis", net.layer, name="last", axis=-3, begin=0, end=3
    ),
    "averaged over channels": lambda net: net.op("mean", net.layer, name="last", axis=1, keepdims=True),
    "averaged over all but places": lambda net: net.op(
        "mean", net.layer, name="last", axis="(2, 3)", keepdims=True, exclude=True
    ),
    "two put together": lambda net: net.op(
        "UpSampling", net.layer, net.unknown, name="last", scale=2, sample_type="nearest", num_args=2
    ),
    "one, perhaps for many": lambda net: net.op("broadcast_mul", net.unknown, net.gray, name="last"),
    "shaped like something else": LOSE["shaped like an unknown"],
    "joined": KEEP["joined first"],
    "reshaped": LOSE["reshaped"],
}


def channels_of_last(case: Callable[[Layers], Entry]) -> int | None:
    net = Layers()
    graph = net.graph(case(net))
    return ImageOrigins(graph).channels_of(Entry(graph.nodes.index(named(graph, "last"))))


@pytest.mark.parametrize("case", KEEP_CHANNELS)
def test_channels_are_kept(case: str) -> None:
    assert channels_of_last(KEEP_CHANNELS[case]) == 12


@pytest.mark.parametrize("case", LOSE_CHANNELS)
def test_channels_are_not_certain(case: str) -> None:
    assert channels_of_last(LOSE_CHANNELS[case]) is None
