"""Where nobody gives shapes, costs are weighed for those that such a network usually has."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

import mxamp
from mxamp.conversion.assumed_shapes import assume_shapes
from mxamp.dtypes import DType
from mxamp.report.model import Report
from mxamp.runtime.symbol import graph_from_symbol
from mxamp.targets import resolve_target
from tools.networks.build import build_network
from tools.networks.catalogue import find_network

AMX = "cpu-bf16-amx"


def arrays(sym: Any, **known: tuple[int, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    shapes, _, aux_shapes = sym.infer_shape(**known)
    random = np.random.RandomState(0)
    args = {
        name: mx.nd.array(random.uniform(-0.2, 0.2, shape))
        for name, shape in zip(sym.list_arguments(), shapes)
        if name not in known
    }
    return args, {name: mx.nd.ones(shape) for name, shape in zip(sym.list_auxiliary_states(), aux_shapes)}


def conv(x: Any, filters: int, name: str, /, stride: Any = 2, **attrs: Any) -> Any:
    pads = {
        "kernel": (3, 3),
        "pad": (1, 1),
        "stride": stride if isinstance(stride, tuple) else (stride, stride),
        "no_bias": True,
        **attrs,
    }
    return mx.sym.Convolution(x, num_filter=filters, name=name, **pads)


def over_sequence(x: Any, name: str, kernel: int, **attrs: Any) -> Any:
    return mx.sym.Convolution(x, num_filter=8, kernel=(kernel,), no_bias=True, name=name, **attrs)


def classifier(*, flattens: bool, strides: int = 5) -> Any:
    """Halves the image so many times, and then pools all, or flattens what is left."""
    x = mx.sym.var("data")
    for number in range(strides):
        x = mx.sym.Activation(conv(x, 64, f"conv{number}"), act_type="relu", name=f"relu{number}")
    if not flattens:
        x = mx.sym.Pooling(x, global_pool=True, kernel=(1, 1), pool_type="avg", name="pool")
    return mx.sym.FullyConnected(x, num_hidden=4, no_bias=True, name="fc")


def alternating(blocks: int = 300) -> Any:
    """Tiny layers with FP32 operators between them: casts cost more than all else."""
    x = mx.sym.var("data")
    for block in range(blocks):
        x = mx.sym.FullyConnected(x, num_hidden=8, no_bias=True, name=f"layer{block}")
        x = mx.sym.exp(x, name=f"exp{block}")
    return x


def assumed(sym: Any, args: Any, auxs: Any) -> Any:
    found = assume_shapes(
        graph_from_symbol(sym), {name: value.shape for name, value in {**args, **auxs}.items()}, ["data"]
    )
    return None if found is None else found.inputs["data"]


@pytest.mark.parametrize("side", [32, 96, 224, 299])
def test_a_layer_that_flattens_tells_the_side_of_the_image(side: int) -> None:
    sym = classifier(flattens=True)
    assert assumed(sym, *arrays(sym, data=(1, 3, side, side))) == (1, 3, side, side)


@pytest.mark.parametrize("height", [32, 48])
def test_where_only_heights_are_told_images_have_the_usual_width(height: int) -> None:
    """As lines of text: an image of 32 by 32 would be eight steps of a recurrent layer."""
    x = conv(conv(mx.sym.var("data"), 8, "conv0"), 8, "conv1")
    steps = mx.sym.reshape(mx.sym.transpose(x, axes=(3, 0, 1, 2)), shape=(0, 0, -1))
    sym = mx.sym.FullyConnected(steps, num_hidden=5, flatten=False, name="fc")
    assert assumed(sym, *arrays(sym, data=(1, 1, height, 100))) == (1, 1, height, 224)


@pytest.mark.parametrize(("strides", "side"), [(5, 224), (3, 32)])
def test_before_a_global_pooling_the_strides_tell_large_images_from_small(strides: int, side: int) -> None:
    sym = classifier(flattens=False, strides=strides)
    assert assumed(sym, *arrays(sym, data=(1, 1, 64, 64))) == (1, 1, side, side)


def test_indices_are_a_sequence_and_channels_may_come_last() -> None:
    words = mx.sym.Embedding(mx.sym.var("data"), input_dim=50, output_dim=8, name="words")
    sym = mx.sym.FullyConnected(words, num_hidden=4, flatten=False, name="fc")
    assert assumed(sym, *arrays(sym, data=(2, 6))) == (1, 128)
    clips = mx.sym.Convolution(
        mx.sym.var("data"), num_filter=4, kernel=(1, 16, 16), stride=(1, 16, 16), no_bias=True, name="conv"
    )
    assert assumed(clips, *arrays(clips, data=(1, 3, 8, 64, 64))) == (1, 3, 32, 224, 224)


@pytest.mark.parametrize(
    ("axis", "squeezes"), [(0, True), (1, True), (2, True), (-1, True), (0, False), (1, False), (-1, False)]
)
def test_a_network_unrolled_over_steps_is_cut_into_what_its_layers_read(axis: int, squeezes: bool) -> None:
    shape = [2, 3]
    shape.insert(axis if axis >= 0 else 2, 5)
    steps = mx.sym.SliceChannel(
        mx.sym.var("data"), num_outputs=5, axis=axis, squeeze_axis=squeezes, name="steps"
    )
    sym = mx.sym.Group(
        [mx.sym.FullyConnected(steps[step], num_hidden=4, name=f"fc{step}") for step in range(5)]
    )
    found = assumed(sym, *arrays(sym, data=tuple(shape)))
    cut = sym.get_internals()["steps_output0"]
    _, (expected,), _ = cut.infer_shape(data=found)
    _, (real,), _ = cut.infer_shape(data=tuple(shape))
    assert math.prod(expected[1:]) == math.prod(real[1:])


def channels_last() -> Any:
    """Return a classifier that takes images with their channels last, as models of Keras' do."""
    x = mx.sym.transpose(mx.sym.var("data"), axes=(0, 3, 1, 2))
    for number in range(5):
        x = conv(x, 64, f"conv{number}")
    x = mx.sym.Pooling(x, global_pool=True, kernel=(1, 1), pool_type="avg")
    return mx.sym.FullyConnected(x, num_hidden=4, no_bias=True, name="fc")


def test_axes_that_are_moved_before_the_first_layer_are_moved_back() -> None:
    sym = channels_last()
    assert assumed(sym, *arrays(sym, data=(1, 64, 64, 3))) == (1, 224, 224, 3)
    swapped = mx.sym.SwapAxis(mx.sym.var("data"), dim1=1, dim2=2)
    rows = mx.sym.Convolution(swapped, num_filter=4, kernel=(3,), no_bias=True, name="conv")
    assert assumed(rows, *arrays(rows, data=(1, 16, 40))) == (1, 128, 40)
    image = mx.sym.squeeze(mx.sym.var("data"), axis=2)
    squeezed = mx.sym.Convolution(image, num_filter=4, kernel=(3,), no_bias=True, name="conv")
    assert assumed(squeezed, *arrays(squeezed, data=(1, 40, 1, 16))) == (1, 40, 1, 128)


@pytest.mark.parametrize("length", [100, 1024])
def test_a_layer_that_flattens_tells_the_length_of_a_sequence(length: int) -> None:
    """As of sound that is made a column before layers of images read it."""
    x = mx.sym.expand_dims(mx.sym.expand_dims(mx.sym.var("data"), axis=1), axis=3)
    x = mx.sym.Convolution(x, num_filter=8, kernel=(4, 1), stride=(4, 1), no_bias=True, name="conv")
    sym = mx.sym.FullyConnected(x, num_hidden=4, no_bias=True, name="fc")
    assert assumed(sym, *arrays(sym, data=(1, length))) == (1, length)


@pytest.mark.parametrize("batch", [-1, 0])
def test_a_reshape_tells_the_length_of_a_sentence(batch: int) -> None:
    words = mx.sym.Embedding(mx.sym.var("data"), input_dim=50, output_dim=8, name="words")
    image = mx.sym.reshape(words, shape=(batch, 1, 56, 8))
    sym = mx.sym.Convolution(image, num_filter=4, kernel=(3, 8), no_bias=True, name="conv")
    assert assumed(sym, *arrays(sym, data=(2, 56))) == (1, 56)


@pytest.mark.parametrize(("layers", "side"), [(9, 224), (2, None)])
def test_a_network_that_keeps_images_as_they_come_is_fed_with_usual_ones(
    layers: int, side: int | None
) -> None:
    x = mx.sym.var("data")
    for number in range(layers):
        x = conv(x, 8, f"conv{number}", stride=1)
    expected = None if side is None else (1, 3, side, side)
    assert assumed(x, *arrays(x, data=(1, 3, 40, 40))) == expected


def steps_of_a_spectrum(reader: str) -> Any:
    """Layers over a spectrum, and a layer that reads what they make of each moment."""
    x = conv(conv(mx.sym.var("data"), 8, "conv0"), 8, "conv1")
    steps = mx.sym.reshape(mx.sym.transpose(x, axes=(2, 0, 1, 3)), shape=(0, 0, -1), name="steps")
    if reader == "dense":
        return mx.sym.FullyConnected(steps, num_hidden=5, flatten=False, no_bias=True, name="fc")
    weights = mx.sym.var("weights")
    if reader == "joined":
        first = mx.sym.var("first", shape=(3 * 16, 8 * 41))
        rest = mx.sym.var("rest", shape=(3 * 16 * (16 + 2),))
        weights = mx.sym.Concat(mx.sym.reshape(first, shape=(-1,)), rest, dim=0)
    attrs = {"state_size": 16, "num_layers": 2 if reader == "two layers" else 1, "mode": "gru"}
    return mx.sym.RNN(steps, weights, mx.sym.var("state"), bidirectional=reader == "two layers", **attrs)


@pytest.mark.parametrize("reader", ["dense", "one vector", "two layers", "joined"])
def test_a_layer_that_reads_rows_tells_one_side(reader: str) -> None:
    """Of a spectrum the frequencies, or so many of which strides leave as many; any moments fit."""
    sym = steps_of_a_spectrum(reader)
    directions = 4 if reader == "two layers" else 1
    known = {} if reader == "dense" else {"state": (directions, 1, 16)}
    args, auxs = arrays(sym, data=(1, 1, 50, 161), **known)
    shapes = {name: value.shape for name, value in {**args, **auxs}.items()}
    found = assume_shapes(graph_from_symbol(sym), shapes, ["data", *known])
    assert found is not None
    assert found.inputs["data"] == (1, 1, 224, 164)


@pytest.mark.parametrize("sides", [(416, 416), (192, 320), (64, 352)])
@pytest.mark.parametrize("together", ["broadcast_add", "Concat"])
def test_what_is_put_together_with_resized_images_tells_the_sides(
    together: str, sides: tuple[int, int]
) -> None:
    """As of networks that were read from ONNX, which were exported for images of one size."""
    height, width = (side // 4 for side in sides)
    large = conv(conv(mx.sym.var("data"), 8, "conv0"), 8, "conv1")
    small = conv(conv(large, 8, "conv2"), 8, "conv3")
    resized = mx.sym.contrib.BilinearResize2D(small, height=height, width=width)
    sym = conv(getattr(mx.sym, together)(large, resized), 8, "conv4")
    assert assumed(sym, *arrays(sym, data=(1, 3, *sides))) == (1, 3, *sides)


@pytest.mark.parametrize("together", ["Concat", "broadcast_add"])
@pytest.mark.parametrize("layers", [0, 2])
def test_arrays_of_places_tell_the_sides(layers: int, together: str) -> None:
    """As where an image is given how far up each place lies, which is no channel of the input."""
    sides = (128, 256)
    places = mx.sym.var("places", shape=(1, 1, *(side >> layers for side in sides)))
    x = mx.sym.var("data")
    for number in range(layers):
        x = conv(x, 8, f"before{number}")
    x = conv(getattr(mx.sym, together)(x, places), 8, "conv0")
    sym = mx.sym.Pooling(conv(x, 8, "conv1"), global_pool=True, kernel=(1, 1), pool_type="avg", name="pool")
    shapes, _, _ = sym.infer_shape(data=(1, 3, *sides))
    args = {name: mx.nd.ones(shape) for name, shape in zip(sym.list_arguments(), shapes) if name != "data"}
    assert assumed(sym, args, {}) == (1, 3, *sides)


def test_sides_that_strides_leave_over_are_tried() -> None:
    """An array says 36 rows, which strides leave of more sides than fit the other layers."""
    x = conv(conv(mx.sym.var("data"), 8, "conv0", pad=(0, 0)), 8, "conv1", pad=(0, 0))
    zeros = mx.sym.var("zeros", shape=(1, 2, 36, 36))
    x = conv(mx.sym.Concat(x, zeros), 8, "conv2")
    sym = mx.sym.FullyConnected(x, num_hidden=3, no_bias=True, name="fc")
    shapes, _, _ = sym.infer_shape(data=(1, 3, 149, 149))
    args = {name: mx.nd.ones(shape) for name, shape in zip(sym.list_arguments(), shapes) if name != "data"}
    found = assumed(sym, args, {})
    assert found is not None
    assert sym.infer_shape(data=found)[1] == sym.infer_shape(data=(1, 3, 149, 149))[1]


@pytest.mark.parametrize("said", [{}, {"projection_size": None}], ids=["unsaid", "as Gluon says it"])
def test_a_recurrent_layer_tells_what_it_reads(said: dict[str, Any]) -> None:
    steps = mx.sym.transpose(mx.sym.var("data"), axes=(1, 0, 2))
    states = [mx.sym.var(name) for name in ("state", "cell")]
    sym = mx.sym.RNN(
        steps, mx.sym.var("vector"), *states, mode="lstm", state_size=16, num_layers=2, name="rnn", **said
    )
    args, _ = arrays(sym, data=(1, 100, 40))
    assert assumed(sym, args, {}) == (1, 128, 40)


@pytest.mark.parametrize(("cut", "length"), [(5000, 16384), (1000, 4096), (40, 128)])
def test_what_cuts_long_sequences_is_fed_with_such(cut: int, length: int) -> None:
    layer = over_sequence(mx.sym.var("data"), "conv", kernel=3)
    sym = over_sequence(mx.sym.slice_axis(layer, axis=2, begin=cut, end=-cut), "last", kernel=3)
    assert assumed(sym, *arrays(sym, data=(1, 4, 11000))) == (1, 4, length)


@pytest.mark.parametrize("channels", [(1, 2), (-1, None), (-3, -2)])
def test_a_layer_that_reads_a_channel_twice_tells_how_many_there_are(
    channels: tuple[int, int | None],
) -> None:
    """As a conversion leaves layers of an odd number of channels."""
    data = mx.sym.var("data")
    begin, end = channels
    again = mx.sym.Concat(mx.sym.slice_axis(data, axis=1, begin=begin, end=end), data, dim=1)
    x = mx.sym.Pooling(conv(again, 8, "conv"), global_pool=True, pool_type="avg", kernel=(1, 1))
    sym = mx.sym.FullyConnected(x, num_hidden=5, name="fc")
    found = assumed(sym, *arrays(sym, data=(1, 3, 64, 64)))
    assert found is not None
    assert found[:2] == (1, 3)


def test_a_norm_of_rows_tells_the_length_of_a_sequence() -> None:
    layer = over_sequence(mx.sym.var("data"), "conv", kernel=5, stride=(3,))
    norm = mx.sym.LayerNorm(layer, mx.sym.var("scale"), mx.sym.var("shift"), axis=-1)
    sym = over_sequence(norm, "last", kernel=3)
    found = assumed(sym, *arrays(sym, data=(1, 1, 251)))
    assert found is not None
    assert sym.infer_shape(data=found)[1] == sym.infer_shape(data=(1, 1, 251))[1]


@pytest.mark.parametrize("frames", [32, 16, 8])
def test_a_layer_that_flattens_tells_how_many_images_a_clip_has(frames: int) -> None:
    """As C3D reads 16 of 112 x 112."""
    x = mx.sym.var("data")
    for number in range(3):
        x = conv(x, 8, f"conv{number}", kernel=(3, 3, 3), pad=(1, 1, 1), stride=(2, 2, 2))
    sym = mx.sym.FullyConnected(x, num_hidden=4, no_bias=True, name="fc")
    assert assumed(sym, *arrays(sym, data=(1, 3, frames, 112, 112))) == (1, 3, frames, 112, 112)


@pytest.mark.parametrize(("returns", "side"), [("image", 224), ("classes", 32)])
def test_what_restores_images_is_fed_with_usual_ones_though_it_pools_large_features(
    returns: str, side: int
) -> None:
    x = conv(mx.sym.var("data"), 16, "first", stride=1)
    for number in range(8):
        pooled = mx.sym.Pooling(x, global_pool=True, kernel=(1, 1), pool_type="avg")
        gates = conv(pooled, 16, f"gates{number}", kernel=(1, 1), pad=(0, 0), stride=1)
        x = conv(mx.sym.broadcast_mul(x, gates), 16, f"conv{number}", stride=1)
    pooled = mx.sym.Pooling(x, global_pool=True, kernel=(1, 1), pool_type="avg")
    sym = conv(x, 3, "last", stride=1) if returns == "image" else pooled
    assert assumed(sym, *arrays(sym, data=(1, 3, 64, 64))) == (1, 3, side, side)


def test_places_that_are_taken_by_turns_tell_the_channels_of_the_image() -> None:
    """As the first layer of YOLOv5 and YOLOX reads them."""
    data = mx.sym.var("data")
    turns = [(row, column) for column in (0, 1) for row in (0, 1)]
    parts = [
        mx.sym.slice(data, begin=(None, None, *turn), end=(None,) * 4, step=(None, None, 2, 2))
        for turn in turns
    ]
    x = mx.sym.concat(*parts, dim=1)
    for number in range(4):
        x = conv(x, 8, f"conv{number}")
    x = mx.sym.Pooling(x, global_pool=True, kernel=(1, 1), pool_type="avg")
    assert assumed(x, *arrays(x, data=(1, 3, 64, 64))) == (1, 3, 224, 224)
    halves = [
        mx.sym.slice(data, begin=(None, 0), end=(None, 6)),
        mx.sym.slice(data, begin=(0, 6), end=(1, 12)),
    ]
    sym = conv(mx.sym.concat(*halves, dim=1), 8, "conv", stride=16)
    assert assumed(sym, *arrays(sym, data=(1, 12, 64, 64))) == (1, 12, 224, 224)


@pytest.mark.parametrize("length", [50, 1500])
def test_arrays_of_places_tell_the_length_of_a_sequence(length: int) -> None:
    """As where each part of a sound lies, of which the second layer leaves half."""
    x = over_sequence(mx.sym.var("data"), "conv0", kernel=3, pad=(1,))
    x = over_sequence(x, "conv1", kernel=3, pad=(1,), stride=(2,))
    places = mx.sym.expand_dims(mx.sym.var("places", shape=(length, 8)), axis=0)
    sym = mx.sym.broadcast_add(mx.sym.transpose(x, axes=(0, 2, 1)), places)
    found = assumed(sym, *arrays(sym, data=(1, 4, 2 * length)))
    assert found is not None
    assert found[-1] in (2 * length, 2 * length - 1)


@pytest.mark.parametrize("length", [48, 300])
def test_arrays_that_words_concern_each_other_by_tell_the_length_of_a_sentence(length: int) -> None:
    words = mx.sym.Embedding(mx.sym.var("data"), input_dim=50, output_dim=8, name="words")
    scaled = mx.sym.broadcast_mul(words, mx.sym.var("scales", shape=(1, 1, 8)))
    scores = mx.sym.batch_dot(scaled, scaled, transpose_b=True)
    by = mx.sym.expand_dims(mx.sym.var("by", shape=(length, length)), axis=0)
    sym = mx.sym.softmax(mx.sym.broadcast_add(scores, by))
    assert assumed(sym, *arrays(sym, data=(1, length))) == (1, length)


@pytest.mark.parametrize("side", [92, 124, 300])
@pytest.mark.parametrize("joins", ["broadcast_add", "broadcast_sub", "Concat"])
def test_what_is_cut_out_tells_the_side_of_what_it_is_put_together_with(joins: str, side: int) -> None:
    """As U-Nets that pad nothing cut the borders off what they made before."""
    bare = {"pad": (0, 0), "stride": (1, 1)}
    x = conv(mx.sym.var("data"), 8, "conv0", **bare)
    small = conv(conv(x, 8, "down", kernel=(2, 2), pad=(0, 0)), 8, "conv1", **bare)
    large = mx.sym.Deconvolution(small, num_filter=8, kernel=(2, 2), stride=(2, 2), no_bias=True, name="up")
    kept = side - 2 - 4
    for axis in (2, 3):
        x = mx.sym.slice_axis(x, axis=axis, begin=2, end=2 + kept)
    sym = conv(getattr(mx.sym, joins)(x, large), 8, "last", **bare)
    assert assumed(sym, *arrays(sym, data=(1, 3, side, side))) == (1, 3, side, side)


@pytest.mark.parametrize("side", [32, 64, 96])
def test_a_reshape_to_rows_of_whole_images_tells_the_side(side: int) -> None:
    x = conv(conv(mx.sym.var("data"), 8, "conv0"), 8, "conv1")
    last = mx.sym.transpose(x, axes=(0, 2, 3, 1))
    rows = mx.sym.reshape(last, shape=(-1, 8 * (side // 4) ** 2))
    sym = mx.sym.FullyConnected(rows, num_hidden=5, flatten=False, name="fc")
    assert assumed(sym, *arrays(sym, data=(1, 3, side, side))) == (1, 3, side, side)


@pytest.mark.parametrize(("height", "width"), [(48, 320), (32, 160)])
@pytest.mark.parametrize("first", ["batch", "steps"])
def test_a_reshape_of_a_lines_steps_tells_its_width(first: str, height: int, width: int) -> None:
    """As of readers that were read from ONNX, for lines of one size."""
    x = conv(conv(mx.sym.var("data"), 8, "conv0"), 8, "conv1")
    x = mx.sym.squeeze(conv(x, 8, "conv2", stride=1, kernel=(height // 4, 1), pad=(0, 0)), axis=2)
    steps = mx.sym.transpose(x, axes=(0, 2, 1) if first == "batch" else (2, 0, 1))
    rows = mx.sym.FullyConnected(steps, num_hidden=6, flatten=False, name="fc0")
    shape = (0, width // 4, 2, 3) if first == "batch" else (width // 4, 1, 2, 3)
    sym = mx.sym.FullyConnected(mx.sym.reshape(rows, shape=shape), num_hidden=5, flatten=False, name="fc1")
    assert assumed(sym, *arrays(sym, data=(1, 1, height, width))) == (1, 1, height, width)


def test_a_reshape_of_the_input_tells_what_it_holds() -> None:
    """As of sound and of pixels in rows; how many axes it has nobody says."""
    image = mx.sym.reshape(mx.sym.var("data"), shape=(-1, 1, 28, 24))
    sym = mx.sym.FullyConnected(conv(image, 8, "conv0"), num_hidden=5, name="fc")
    args, auxs = arrays(sym, data=(3, 28 * 24))
    assert assumed(sym, args, auxs) == (1, 1, 28, 24)
    found = assume_shapes(
        graph_from_symbol(sym), {name: value.shape for name, value in args.items()}, ["data"]
    )
    assert found is not None
    assert not found.have_certain_axes


def test_what_is_broadcast_to_a_shape_has_it() -> None:
    """As the states of a network over frames, which are zeros of one place at first."""
    state = mx.sym.broadcast_to(mx.sym.var("state"), shape=(1, 8, 32, 32))
    x = conv(conv(mx.sym.var("data"), 8, "conv0"), 8, "conv1")
    sym = conv(mx.sym.Concat(x, state), 8, "conv2")
    args, _ = arrays(sym, data=(1, 3, 128, 128), state=(1, 8, 32, 32))
    shapes = {name: value.shape for name, value in args.items()}
    found = assume_shapes(graph_from_symbol(sym), shapes, ["data", "state"])
    assert found is not None
    assert found.inputs == {"data": (1, 3, 128, 128), "state": (1, 8, 32, 32)}


def test_rows_of_places_tell_no_side() -> None:
    x = conv(conv(mx.sym.var("data"), 8, "conv0", 4), 8, "conv1", 4)
    rows = mx.sym.reshape(mx.sym.transpose(x, axes=(0, 2, 3, 1)), shape=(-1, 4))
    assert assumed(rows, *arrays(rows, data=(1, 3, 100, 100))) == (1, 3, 224, 224)


def test_what_is_scored_has_as_many_axes_as_layers_say() -> None:
    """A recommender's score adds what a dense layer makes of flattened embeddings, and so is a column."""
    indices = mx.sym.var("data")
    words = mx.sym.Embedding(indices, input_dim=50, output_dim=8, name="words")
    once = mx.sym.sum(mx.sym.Embedding(indices, input_dim=50, output_dim=1, name="once"), axis=1)
    sym = mx.sym.FullyConnected(words, num_hidden=1, no_bias=True, name="fc")
    scored = mx.sym.elemwise_add(sym, once)
    args, auxs = arrays(scored, data=(2, 39))
    shapes = {name: value.shape for name, value in {**args, **auxs}.items()}
    found = assume_shapes(graph_from_symbol(scored), shapes, ["data"])
    assert found is not None
    assert (found.inputs["data"], found.have_certain_axes) == ((1, 39), True)
    alone = assume_shapes(graph_from_symbol(sym), shapes, ["data"])  # which may flatten any number of axes
    assert alone is not None
    assert (alone.inputs["data"], alone.have_certain_axes) == ((1, 39), False)


def test_what_ranks_is_a_detector_and_what_classifies_draws_nothing() -> None:
    """CenterNet takes the highest of its peaks; HRNet's classifiers make features larger on their way."""
    x = conv(mx.sym.var("data"), 16, "conv", stride=16)
    drawn = mx.sym.Deconvolution(x, kernel=(2, 2), stride=(2, 2), num_filter=4, name="up")
    ranked = mx.sym.topk(mx.sym.Reshape(drawn, shape=(0, -1), name="flat"), k=3, name="top")
    assert assumed(ranked, *arrays(ranked, data=(1, 3, 64, 64))) == (1, 3, 512, 512)
    for number in range(4):
        x = conv(x, 16, f"conv{number}")
    up = mx.sym.UpSampling(x, scale=2, sample_type="nearest", name="up")
    pool = mx.sym.Pooling(up, global_pool=True, kernel=(1, 1), pool_type="avg", name="pool")
    sym = mx.sym.FullyConnected(pool, num_hidden=4, name="fc")
    assert assumed(sym, *arrays(sym, data=(1, 3, 64, 64))) == (1, 3, 224, 224)


@pytest.mark.parametrize("cast", ["amp_cast", "Cast"])
def test_the_same_layer_tells_a_shape_with_casts_before_it(cast: str) -> None:
    """A squeeze-and-excite block before a Deconvolution, which alone would be where a generator begins."""

    def block(is_cast: bool) -> Any:
        data = mx.sym.var("data")
        read = getattr(mx.sym, cast)(data, dtype="float32", name="read") if is_cast else data
        pooled = mx.sym.Pooling(read, global_pool=True, kernel=(1, 1), pool_type="avg", name="pool")
        gate = mx.sym.Convolution(pooled, num_filter=8, kernel=(1, 1), no_bias=True, name="gate")
        gated = mx.sym.broadcast_mul(data, gate, name="gated")
        return mx.sym.Deconvolution(gated, num_filter=3, kernel=(3, 3), pad=(1, 1), no_bias=True, name="up")

    found = [assumed(sym, *arrays(sym, data=(1, 8, 5, 5))) for sym in map(block, (False, True))]
    assert found[0] == found[1]
    assert found[0][2] > 1


def test_where_nothing_tells_nothing_is_assumed() -> None:
    """Every side fits a Convolution alone, and none is more usual than another."""
    sym = conv(mx.sym.var("data"), 8, "conv", stride=1)
    model = mxamp.convert_model(sym, *arrays(sym, data=(1, 3, 8, 8)), "bfloat16", target=AMX)
    assert model.report.assumed_shapes == {}
    assert model.report.low_nodes == 1
    no_layer = mx.sym.exp(mx.sym.var("data"), name="exp")
    assert assumed(no_layer, {}, {}) is None


def test_casts_that_do_not_pay_are_not_put_in() -> None:
    sym = alternating()
    args, auxs = arrays(sym, data=(1, 8))
    with pytest.warns(mxamp.MxampWarning, match="as estimated for assumed shapes"):
        model = mxamp.convert_model(sym, args, auxs, "bfloat16", target=AMX)
    assert model.report.assumed_shapes == {"data": (1, 8)}
    assert model.report.low_nodes == 0
    assert not model.report.casts
    required = mxamp.convert_model(sym, args, auxs, "bfloat16", target=AMX, low_precision="required")
    assert required.report.low_nodes == 300
    assert required.report.assumed_shapes == {}


def test_costs_that_nobody_measured_are_not_weighed_by_guesses() -> None:
    sym = alternating(3)
    target = "cuda-fp16-sm75"
    assert not resolve_target(target, DType.FLOAT16).cost.is_measured
    model = mxamp.convert_model(sym, *arrays(sym, data=(1, 8)), "float16", target=target)
    assert model.report.assumed_shapes == {}


def test_every_front_door_assumes_the_same(tmp_path: Path) -> None:
    sym = classifier(flattens=True)
    args, auxs = arrays(sym, data=(1, 3, 96, 96))
    models = [mxamp.convert_model(sym, args, auxs, "bfloat16", target=AMX)]
    mx.model.save_checkpoint(str(tmp_path / "net"), 0, sym, args, auxs)
    loaded = mxamp.load(str(tmp_path / "net"))
    models.append(
        mxamp.convert_model(loaded.graph, loaded.arg_params, loaded.aux_params, "bfloat16", target=AMX)
    )
    block = mx.gluon.SymbolBlock(sym, [mx.sym.var("data")])
    for name, value in block.collect_params().items():
        value.shape = args[name].shape
        value.initialize()
        value.set_data(args[name])
    models.append(mxamp.convert_block(block, "bfloat16", target=AMX))
    assert [model.report.assumed_shapes for model in models] == [{"data": (1, 3, 96, 96)}] * 3
    assert len({tuple(node.compute for node in model.report.nodes) for model in models}) == 1


def test_only_costs_rest_on_what_was_assumed() -> None:
    """Nobody said that these are the shapes, so neither report nor color function takes them for that."""
    sym = classifier(flattens=False)
    seen = []

    def color(node: Any) -> None:
        seen.extend(
            shape for name, shape in zip(node.input_names, node.input_shapes) if "_weight" not in name
        )

    given = arrays(sym, data=(1, 3, 64, 64))
    report = mxamp.convert_model(sym, *given, "bfloat16", target=AMX, color=color).report
    assert report.assumed_shapes == {"data": (1, 3, 224, 224)}
    assert set(seen) == {None}
    assert report.low_multiply_add_share is None
    assert report.time is None
    assert "assumed shapes: data (1, 3, 224, 224)" in str(report).replace("\n  ", " ")
    assert Report.from_json(report.to_json()) == report
    known = mxamp.convert_model(
        sym, *given, "bfloat16", target=AMX, input_shapes={"data": (1, 3, 64, 64)}
    ).report
    assert known.assumed_shapes == {}


def _sums(*, of_images: bool) -> Any:
    """Sum up along the axis that is the last, if the input has four axes or three, as is to be assumed."""
    x = mx.sym.var("data")
    if of_images:
        x = mx.sym.Activation(conv(x, 64, "conv"), act_type="relu", name="relu")
        total = mx.sym.sum(x, axis=3, name="total")
        x = conv(x, 8, "conv1", stride=16)
    else:
        x = mx.sym.FullyConnected(x, num_hidden=256, no_bias=True, flatten=False, name="fc0")
        total = mx.sym.sum(x, axis=2, name="total")
    layer = mx.sym.FullyConnected(x, num_hidden=4, no_bias=True, flatten=of_images, name="fc")
    return mx.sym.Group([layer, total])


def test_the_graph_is_prepared_by_assumed_shapes_where_their_axes_are_certain() -> None:
    sym = _sums(of_images=True)
    model = mxamp.convert_model(sym, *arrays(sym, data=(1, 3, 224, 224)), "bfloat16", target="cpu-bf16")
    assert "last_axis_sum" in {change.step for change in model.report.preparations}
    assert model.report.assumed_shapes == {"data": (1, 3, 224, 224)}
    assert model.report.time is None
    assert model.report.low_multiply_add_share is None
    assert Report.from_json(model.report.to_json()) == model.report


def test_a_fully_connected_does_not_tell_how_many_axes_its_data_have() -> None:
    """A sequence (1, 128, 256) is assumed; (2, 3, 8, 256) may come, and then axis 2 is not the last."""
    sym = _sums(of_images=False)
    args, auxs = arrays(sym, data=(1, 128, 256))
    model = mxamp.convert_model(sym, args, auxs, "bfloat16", target="cpu-bf16")
    assert assumed(sym, args, auxs) == (1, 128, 256)
    assert "last_axis_sum" not in {change.step for change in model.report.preparations}
    known = mxamp.convert_model(
        sym, args, auxs, "bfloat16", target="cpu-bf16", input_shapes={"data": (1, 128, 256)}
    )
    assert "last_axis_sum" in {change.step for change in known.report.preparations}
    values = mx.nd.ones((2, 3, 8, 256))
    sums = [
        one.bind(mx.cpu(), {**given, "data": values}, grad_req="null").forward()[1].asnumpy()
        for one, given in ((sym, args), (model.sym, model.args))
    ]
    assert sums[1].shape == (2, 3, 256)
    assert np.linalg.norm(sums[1] - sums[0]) < 2e-2 * np.linalg.norm(sums[0])


@pytest.mark.parametrize(
    ("attrs", "is_product"),
    [({"axis": -1}, True), ({"axis": 2}, False), ({"axis": -1, "keepdims": True}, True)],
    ids=["last", "third", "last, kept"],
)
def test_a_sum_along_the_last_of_any_number_of_axes_is_a_product(
    attrs: dict[str, Any], is_product: bool
) -> None:
    """(1, 128) words are assumed; they may come without a batch, and then axis 2 is not there."""
    rows = mx.sym.Embedding(mx.sym.var("words"), mx.sym.var("w"), input_dim=50, output_dim=32)
    sym, args = mx.sym.sum(rows, name="y", **attrs), {"w": mx.nd.random.normal(shape=(50, 32))}
    model = mxamp.convert_model(sym, args, {}, "bfloat16", target="cpu-bf16")
    assert ("last_axis_sum" in {change.step for change in model.report.preparations}) is is_product
    for shape in [(7,), (2, 3), (2, 3, 4)][attrs["axis"] == 2 :]:
        words = mx.nd.array(np.random.default_rng(1).integers(0, 50, shape))
        expected, found = (
            one.bind(mx.cpu(), {**given, "words": words}, grad_req="null").forward()[0].asnumpy()
            for one, given in ((sym, args), (model.sym, model.args))
        )
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=0.3)


def test_what_is_broadcast_may_come_with_fewer_axes() -> None:
    """The mean of a batch of images makes a batch of a single image."""
    data = mx.sym.var("data")
    image = mx.sym.broadcast_sub(data, mx.sym.var("mean"), name="centred")
    args, _ = arrays(conv(data, 8, "conv", stride=16), data=(1, 3, 224, 224))
    shapes = {"mean": (1, 3, 1, 1), **{name: value.shape for name, value in args.items()}}
    found = assume_shapes(graph_from_symbol(conv(image, 8, "conv", stride=16)), shapes, ["data"])
    assert found is not None
    assert not found.have_certain_axes
    direct = assume_shapes(graph_from_symbol(conv(data, 8, "conv", stride=16)), shapes, ["data"])
    assert direct is not None
    assert direct.have_certain_axes
    (made,) = image.bind(
        mx.cpu(), {"data": mx.nd.ones((3, 8, 8)), "mean": mx.nd.ones((1, 3, 1, 1))}
    ).forward()
    assert made.shape == (1, 3, 8, 8)


@pytest.mark.parametrize(("axes", "is_certain"), [(1, True), (0, False), (2, False)])
def test_indices_have_the_axes_that_a_convolution_behind_their_embedding_takes(
    axes: int, is_certain: bool
) -> None:
    words = mx.sym.Embedding(mx.sym.var("data"), input_dim=20, output_dim=8, name="words")
    for _ in range(axes):
        words = mx.sym.expand_dims(words, axis=1)
    shapes = {"words_weight": (20, 8), "conv_weight": (4, 1, 3, 8), "conv_bias": (4,)}
    layer = mx.sym.Convolution(words, kernel=(3, 8), num_filter=4, name="conv")
    found = assume_shapes(graph_from_symbol(layer), shapes, ["data"])
    assert (found is not None and found.have_certain_axes) is is_certain


def test_without_mxnet_the_same_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    sym = alternating()
    args, _ = arrays(sym, data=(1, 8))
    graph, params = graph_from_symbol(sym), {name: value.asnumpy() for name, value in args.items()}
    monkeypatch.setitem(sys.modules, "mxnet", None)
    with pytest.warns(mxamp.MxampWarning, match="as estimated for assumed shapes"):
        model = mxamp.convert_model(graph, params, {}, "bfloat16", target=AMX)
    assert model.report.assumed_shapes == {"data": (1, 8)}
    assert model.report.low_nodes == 0


def test_of_a_short_forward_pass_only_whether_anything_gains_is_weighed() -> None:
    """What is most of it then depends on how large a batch is, and nobody said."""
    sym = alternating(12)
    with pytest.warns(mxamp.MxampWarning, match="as estimated for assumed shapes"):
        model = mxamp.convert_model(sym, *arrays(sym, data=(1, 8)), "bfloat16", target=AMX)
    assert model.report.assumed_shapes == {"data": (1, 8)}
    assert model.report.low_nodes == 0
    gains = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2048, no_bias=True, name="fc")
    gains = mx.sym.FullyConnected(gains, num_hidden=8, no_bias=True, name="small")
    model = mxamp.convert_model(gains, *arrays(gains, data=(1, 256)), "bfloat16", target=AMX)
    assert model.report.assumed_shapes == {}
    assert [node.compute for node in model.report.nodes] == ["bfloat16"] * 2


def test_a_short_network_that_hardly_gains_stays_float32_and_one_that_takes_no_time_does_as_told() -> None:
    """Estimates of a few microseconds are no reason to put casts in; less than a call takes nobody sees."""
    model = build_network(find_network("perceptron"))
    given = (model.graph, model.arg_params, model.aux_params, "bfloat16")
    with pytest.warns(mxamp.MxampWarning, match="as estimated for assumed shapes"):
        short = mxamp.convert_model(*given, target="cpu-bf16")
    assert short.report.low_nodes == 0
    assert short.report.assumed_shapes == {"data": (1, 784)}
    assert mxamp.convert_model(*given, target="cpu-bf16", low_precision="required").report.low_nodes > 0
    sym = alternating(1)
    tiny = mxamp.convert_model(sym, *arrays(sym, data=(1, 8)), "bfloat16", target="cpu-bf16")
    assert tiny.report.low_nodes > 0
    assert tiny.report.assumed_shapes == {}


def _many_forms() -> Any:
    """Something to do for most passes that prepare a graph."""
    x = mx.sym.Pad(mx.sym.var("data"), mode="constant", pad_width=(0, 0, 0, 0, 1, 1, 1, 1), name="pad")
    x = conv(x, 16, "conv0", pad=(0, 0))
    x = mx.sym.LeakyReLU(x, mx.sym.var("slope"), act_type="prelu", name="prelu")
    x = conv(mx.sym.BatchNorm(x, fix_gamma=False, name="norm"), 10, "conv1")
    x = mx.sym.relu(conv(mx.sym.Dropout(x, name="drop"), 32, "conv2"), name="relu")
    with mx.name.NameManager():
        x = x * (mx.sym.clip(x + 3, 0, 6) / 6)
    x = mx.sym.add_n(x, conv(x, 32, "conv3", stride=1), name="sum")
    x = conv(x, 16, "conv4")
    x = mx.sym.contrib.AdaptiveAvgPooling2D(x, output_size=1, name="pool")
    return mx.sym.FullyConnected(x, num_hidden=4, no_bias=True, name="fc")


def test_the_model_is_right_for_other_shapes() -> None:
    """A graph with something to do for most passes; only costs know what was assumed."""
    sym = _many_forms()
    args, auxs = arrays(sym, data=(1, 3, 64, 64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("mxamp.decisions.short_passes"), "SHORT", 0.0)
        model = mxamp.convert_model(sym, args, auxs, "bfloat16", target=AMX)
    assert model.report.assumed_shapes
    assert len({change.step for change in model.report.preparations}) > 4
    image = np.random.RandomState(1).uniform(-1, 1, (2, 3, 72, 48)).astype(np.float32)
    results = []
    for one, values in ((sym, (args, auxs)), (model.sym, tuple(model)[1:])):
        executor = one.bind(
            mx.cpu(), {**values[0], "data": mx.nd.array(image)}, aux_states=values[1], grad_req="null"
        )
        results.append(executor.forward()[0].asnumpy())
    assert np.linalg.norm(results[1] - results[0]) < 2e-2 * np.linalg.norm(results[0])


@pytest.mark.parametrize(
    "name", ["lenet", "capsules", "captcha_lstm", "bert_base", "faster_rcnn_symbols", "u_net"]
)
def test_a_network_converts_as_it_does_with_the_shapes_that_were_assumed(name: str) -> None:
    network = find_network(name)
    model = build_network(network)
    given = (model.graph, model.arg_params, model.aux_params)
    report = mxamp.convert_model(*given, "bfloat16", target=AMX).report
    if name == "lenet":  # a tenth of a millisecond, which is prepared by them but not placed
        assert report.assumed_shapes == {"data": (1, 1, 28, 28)}
        assert "The graph was prepared for assumed shapes: data" in str(report)
        return
    known = mxamp.convert_model(*given, "bfloat16", target=AMX, input_shapes=report.assumed_shapes).report
    assert [node.compute for node in report.nodes] == [node.compute for node in known.nodes]
    assert report.preparations == known.preparations
