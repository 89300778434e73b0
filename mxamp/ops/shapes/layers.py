"""Layers: what multiplies by weights, pools, normalizes and resizes images."""

from __future__ import annotations

import math
from typing import Sequence

from mxamp.ops.shapes.call import UNKNOWN, MaybeShape, Shape, ShapeCall, demand, rule

_CHANNELS_LAST = ("NWC", "NHWC", "NDHWC")


def _space(call: ShapeCall, number: int, rank: int) -> tuple[int, int, slice]:
    """Return where the batch, the channels and the space of images are."""
    if call.text("layout") in _CHANNELS_LAST:
        return 0, rank - 1, slice(1, rank - 1)
    return 0, 1, slice(2, rank)


def _kernel(call: ShapeCall) -> tuple[Shape, Shape, Shape, Shape]:
    """Return kernel, stride, padding, and the kernel with its holes."""
    kernel = call.sizes("kernel")
    count = len(kernel)
    stride, dilate = call.sizes("stride", (1,) * count), call.sizes("dilate", (1,) * count)
    padding = call.sizes("pad", (0,) * count)
    if not len(stride) == len(dilate) == len(padding) == count or min(stride) < 1 or min(dilate) < 1:
        call.refuse(f"its kernel is {kernel}, its stride {stride}, its padding {padding}")
    return kernel, stride, padding, tuple(1 + hole * (k - 1) for hole, k in zip(dilate, kernel))


@rule(
    "Convolution Convolution_v1 _contrib_DeformableConvolution _contrib_ModulatedDeformableConvolution",
    partial=True,
)
def _convolution(call: ShapeCall) -> Shape:
    kernel, stride, padding, wide = _kernel(call)
    data = call.rank(0, len(kernel) + 2)
    filters, groups = call.integer("num_filter"), call.integer("num_group", 1)
    _, channel, space = _space(call, 0, len(data))
    is_known = data[channel] != UNKNOWN
    if groups < 1 or filters % groups or (is_known and data[channel] % groups):
        call.refuse(f"{data[channel]} and {filters} channels cannot be divided into {groups} groups")
    sizes = []
    for size, pad, k, step in zip(data[space], padding, wide, stride):
        if size != UNKNOWN and k > size + 2 * pad:
            call.refuse(f"its kernel exceeds the input: {k} is more than {size} with the padding {pad}")
        sizes.append(UNKNOWN if size == UNKNOWN else (size + 2 * pad - k) // step + 1)
    weight = {"_contrib_DeformableConvolution": 2, "_contrib_ModulatedDeformableConvolution": 3}
    per_filter = data[channel] // groups
    last = channel != 1
    if is_known:
        call.expect(
            weight.get(call.op, 1),
            (filters, *kernel, per_filter) if last else (filters, per_filter, *kernel),
            "weight",
        )
    return (data[0], *sizes, filters) if last else (data[0], filters, *sizes)


@rule("im2col")
def _im2col(call: ShapeCall) -> Shape:
    kernel, stride, padding, wide = _kernel(call)
    data = call.rank(0, len(kernel) + 2)
    steps = [(size + 2 * pad - k) // step + 1 for size, pad, k, step in zip(data[2:], padding, wide, stride)]
    if min(steps) < 1:
        call.refuse(f"its kernel {kernel} exceeds the input {data}")
    return (data[0], data[1] * math.prod(kernel), math.prod(steps))


@rule("col2im")
def _col2im(call: ShapeCall) -> Shape:
    kernel, _, _, _ = _kernel(call)
    data = call.rank(0, 3)
    return (data[0], data[1] // math.prod(kernel), *call.sizes("output_size"))


@demand("Convolution Convolution_v1")
def _convolution_input(call: ShapeCall, outputs: Sequence[MaybeShape]) -> Sequence[MaybeShape]:
    """Tell the batch that a state begins with, of a recurrent cell of images, by what it is added to."""
    data, output = call.inputs[0], outputs[0]
    return [None if data is None or output is None else (output[0], *data[1:])]


@rule("Deconvolution")
def _deconvolution(call: ShapeCall) -> Shape:
    kernel, stride, padding, wide = _kernel(call)
    data = call.rank(0, len(kernel) + 2)
    filters, groups = call.integer("num_filter"), call.integer("num_group", 1)
    _, channel, space = _space(call, 0, len(data))
    whole = [step * (size - 1) + k for size, step, k in zip(data[space], stride, wide)]
    target, adjust = (call.sizes(key, (0,) * len(kernel)) for key in ("target_shape", "adj"))
    if any(target):
        if len(target) != len(kernel) or any(size > most for size, most in zip(target, whole)):
            call.refuse(f"its target_shape {target} is more than {tuple(whole)}")
        sizes: Sequence[int] = target
        adjust = tuple((most - size) % 2 for size, most in zip(target, whole))
    else:
        sizes = [size - 2 * pad + more for size, pad, more in zip(whole, padding, adjust)]
    if any(more >= step for more, step in zip(adjust, stride)) or min(sizes) < -1:
        call.refuse(f"it adds {adjust} with the stride {stride} and the padding {padding}")
    if channel == 1:
        if groups < 1 or filters % groups:
            call.refuse(f"{filters} channels cannot be divided into {groups} groups")
        call.expect(1, (data[1], filters // groups, *kernel), "weight")
        return (data[0], filters, *sizes)
    return (data[0], *sizes, filters)


@rule("FullyConnected", partial=True)
def _fully_connected(call: ShapeCall) -> Shape:
    data, hidden = call.data, call.integer("num_hidden")
    flattens = call.flag("flatten", True)
    read = data[1:] if flattens else data[-1:]
    if UNKNOWN not in read:
        call.expect(1, (hidden, math.prod(read)), "weight")
    return (data[0], hidden) if flattens else (*data[:-1], hidden)


@demand("FullyConnected")
def _fully_connected_input(call: ShapeCall, outputs: Sequence[MaybeShape]) -> Sequence[MaybeShape]:
    data, output = call.inputs[0], outputs[0]
    if data is None or output is None:
        return [None]
    return [(output[0], *data[1:]) if call.flag("flatten", True) else (*output[:-1], data[-1])]


@rule("Pooling Pooling_v1")
def _pooling(call: ShapeCall) -> Shape:
    data = call.rank(0, 3, 4, 5)
    _, channel, space = _space(call, 0, len(data))
    before, how = data[space], call.text("pooling_convention", "valid")
    if how == "same":
        call.refuse(
            "MXNet 1.9.1 has the pooling convention 'same' for one axis alone, and refuses that as well"
        )
    if call.flag("global_pool"):
        sizes: Sequence[int] = [1] * len(before)
    else:
        kernel, stride, padding, _ = _kernel(call)
        if len(kernel) != len(before):
            call.refuse(f"its kernel {kernel} has not the axes of an image of {before}")
        sizes = [_pooled(call, how, *each) for each in zip(before, kernel, stride, padding)]
    return (data[0], data[1], *sizes) if channel == 1 else (data[0], *sizes, data[-1])


def _pooled(call: ShapeCall, how: str | None, size: int, kernel: int, step: int, pad: int) -> int:
    if kernel > size + 2 * pad:
        call.refuse(f"its kernel exceeds the input: {kernel} is more than {size} with the padding {pad}")
    left = size + 2 * pad - kernel
    return 1 + (-(-left // step) if how == "full" else left // step)


@rule("BatchNorm BatchNorm_v1 _contrib_SyncBatchNorm _contrib_BatchNormWithReLU")
def _batch_norm(call: ShapeCall) -> Sequence[MaybeShape]:
    data = call.data
    # BatchNorm_v1 and SyncBatchNorm have no axis.
    axis = call.axis(call.integer("axis", 1), len(data))
    for number, what in enumerate(("gamma", "beta", "running mean", "running variance"), 1):
        call.expect(number, (data[axis],), what)
    return [data, (data[axis],), (data[axis],)]


@rule("LayerNorm")
def _layer_norm(call: ShapeCall) -> Sequence[MaybeShape]:
    data = call.data
    axis = call.axis(call.integer("axis", -1), len(data))
    call.expect(1, (data[axis],), "gamma")
    call.expect(2, (data[axis],), "beta")
    moments = (*data[:axis], 1, *data[axis + 1 :])
    return [data, moments, moments]


@rule("InstanceNorm")
def _instance_norm(call: ShapeCall) -> Sequence[MaybeShape]:
    data = call.data
    call.expect(1, data[1:2], "gamma")
    call.expect(2, data[1:2], "beta")
    return [data, data[:2], data[:2]]


@rule("GroupNorm")
def _group_norm(call: ShapeCall) -> Sequence[MaybeShape]:
    data = call.data
    groups = call.integer("num_groups", 1)
    if groups < 1 or data[1] % groups:
        call.refuse(f"{data[1]} channels cannot be divided into {groups} groups")
    return [data, (data[0], groups), (data[0], groups)]


@rule("Embedding _contrib_SparseEmbedding")
def _embedding(call: ShapeCall) -> Shape:
    call.expect(1, (call.integer("input_dim"), call.integer("output_dim")), "weight")
    return (*call.data, call.integer("output_dim"))


@rule("Pad")
def _pad(call: ShapeCall) -> Shape:
    data, widths = call.data, call.sizes("pad_width")
    if len(widths) != 2 * len(data):
        call.refuse(f"its pad_width {widths} is not of {len(data)} axes")
    return tuple(size + widths[2 * axis] + widths[2 * axis + 1] for axis, size in enumerate(data))


@rule("UpSampling")
def _up_sampling(call: ShapeCall) -> Shape:
    data, scale = call.rank(0, 4), call.integer("scale")
    sizes = (data[2] * scale, data[3] * scale)
    if call.text("sample_type") == "bilinear":
        return (*data[:2], *sizes)
    channels = data[1]
    if call.text("multi_input_mode", "concat") == "concat":
        channels = sum(shape[1] for shape in call.shapes)
    return (data[0], channels, *sizes)


@rule("_contrib_AdaptiveAvgPooling2D")
def _adaptive_pooling(call: ShapeCall) -> Shape:
    data, sizes = call.rank(0, 4), call.sizes("output_size", (1,))
    return (*data[:2], sizes[0], sizes[-1])


@rule("_contrib_BilinearResize2D")
def _bilinear_resize(call: ShapeCall) -> Shape:
    data = call.rank(0, 4)
    mode = call.text("mode", "size")
    if mode == "like":
        return (*data[:2], *call.rank(1, 4)[2:])
    if mode == "size":
        scales = call.number("scale_height", 0.0), call.number("scale_width", 0.0)
        if call.text("scale_height") is None:
            return (*data[:2], call.integer("height", 1), call.integer("width", 1))
        return (*data[:2], int(scales[0] * data[2]), int(scales[1] * data[3]))
    if mode == "odd_scale":
        scales = call.number("scale_height", 1.0), call.number("scale_width", 1.0)
        return (*data[:2], *(_odd_scaled(size, scale) for size, scale in zip(data[2:], scales)))
    change = _PARITIES.get(mode or "")
    if change is None:
        call.refuse(f"its mode {mode!r} is none of MXNet's")
    parity, step = change
    return (*data[:2], *(size if size % 2 == parity else size + step for size in data[2:]))


def _odd_scaled(size: int, scale: float) -> int:
    return int(size * scale) if size % 2 == 0 else int((size - 1) * scale) + 1


_PARITIES = {
    "to_even_down": (0, -1),
    "to_even_up": (0, 1),
    "to_odd_down": (1, -1),
    "to_odd_up": (1, 1),
}


@rule("Crop")
def _crop(call: ShapeCall) -> Shape:
    data = call.rank(0, 4)
    if len(call.inputs) > 1:
        return (*data[:2], *call.rank(1, 4)[2:])
    return (*data[:2], *call.sizes("h_w"))


@rule("Correlation")
def _correlation(call: ShapeCall) -> Shape:
    batch, _, *sides = call.rank(0, 4)
    call.expect(1, call.data, "second image")
    displaced = call.integer("max_displacement", 1)
    border = displaced + (call.integer("kernel_size", 1) - 1) // 2
    step, padded = call.integer("stride1", 1), [size + 2 * call.integer("pad_size", 0) for size in sides]
    channels = (2 * (displaced // call.integer("stride2", 1)) + 1) ** 2
    return (batch, channels, *(-(-(size - 2 * border) // step) for size in padded))


@rule("RNN")
def _recurrent(call: ShapeCall) -> Sequence[MaybeShape]:
    length, batch, width = call.rank(0, 3)
    hidden, directions = call.integer("state_size"), 2 if call.flag("bidirectional") else 1
    layers = call.integer("num_layers") * directions
    seen = call.integer("projection_size", hidden)
    gates = {"lstm": 4, "gru": 3}.get(call.text("mode") or "", 1) * hidden * directions
    later = call.integer("num_layers") - 1
    count = gates * (width + seen + 2 + later * (seen * (directions + 1) + 2))
    if call.text("projection_size") is not None:
        count += seen * hidden * layers
    call.expect(1, (count,), "vector of all weights")
    call.expect(2, (layers, batch, seen), "state")
    if call.text("mode") == "lstm":  # of the others it is how long the sequences are
        call.expect(3, (layers, batch, hidden), "state of the cells")
    return [(length, batch, directions * seen), (layers, batch, seen), (layers, batch, hidden)]


@demand("RNN")
def _recurrent_states(call: ShapeCall, outputs: Sequence[MaybeShape]) -> Sequence[MaybeShape]:
    data = call.inputs[0]
    if data is None or len(data) != 3:
        return [None]
    hidden, directions = call.integer("state_size"), 2 if call.flag("bidirectional") else 1
    layers, seen = call.integer("num_layers") * directions, call.integer("projection_size", hidden)
    cells = (layers, data[1], hidden) if call.text("mode") == "lstm" else None
    return [None, None, (layers, data[1], seen), cells][: len(call.inputs)]


@rule("_image_to_tensor")
def _image_to_tensor(call: ShapeCall) -> Shape:
    data = call.rank(0, 3, 4)
    return (*data[:-3], data[-1], *data[-3:-1])


@rule("BilinearSampler")
def _bilinear_sampler(call: ShapeCall) -> Shape:
    data, grid = call.rank(0, 4), call.rank(1, 4)
    call.expect(1, (data[0], 2, *grid[2:]), "grid")
    return (*data[:2], *grid[2:])


@rule("GridGenerator")
def _grid_generator(call: ShapeCall) -> Shape:
    if call.text("transform_type") == "affine":
        return (call.data[0], 2, *call.sizes("target_shape"))
    return call.rank(0, 4)


@rule("SpatialTransformer")
def _spatial_transformer(call: ShapeCall) -> Shape:
    return (*call.rank(0, 4)[:2], *call.sizes("target_shape"))
