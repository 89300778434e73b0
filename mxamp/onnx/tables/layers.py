"""Convolutions, dense layers, resampling."""

from __future__ import annotations

import math
from typing import Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tensor import Tensor

_LAYOUTS = ("NCW", "NCHW", "NCDHW")


def check_layout(call: Call) -> None:
    """Refuse a node whose channels do not come first."""
    layout = call.text("layout")
    if layout is not None and layout not in _LAYOUTS:
        call.refuse(f"its layout is {layout}, and ONNX's layers have channels first.")


def _bias(call: Call, number: int) -> Tensor | None:
    return call.inputs[number] if len(call.inputs) > number else None


@mapping("Convolution Convolution_v1", "Conv")
def _convolution(call: Call) -> Written:
    check_layout(call)
    kernel = call.sizes("kernel")
    ones, pad = [1] * len(kernel), list(call.sizes("pad", [0] * len(kernel)))
    return call.emit(
        *("Conv", call.data, call.inputs[1], _bias(call, 2)),
        kernel_shape=list(kernel),
        strides=list(call.sizes("stride", ones)),
        dilations=list(call.sizes("dilate", ones)),
        pads=[*pad, *pad],
        group=call.integer("num_group", 1),
    )


@mapping("Deconvolution", "ConvTranspose")
def _deconvolution(call: Call) -> Written:
    check_layout(call)
    kernel = call.sizes("kernel")
    ones, zeros = [1] * len(kernel), [0] * len(kernel)
    if any(call.sizes("target_shape", zeros)):
        call.refuse("its target_shape has no mapping, for MXNet's CPU cannot run it to compare with.")
    pad = list(call.sizes("pad", zeros))
    return call.emit(
        *("ConvTranspose", call.data, call.inputs[1], _bias(call, 2)),
        kernel_shape=list(kernel),
        strides=list(call.sizes("stride", ones)),
        dilations=list(call.sizes("dilate", ones)),
        pads=[*pad, *pad],
        output_padding=list(call.sizes("adj", zeros)),
        group=call.integer("num_group", 1),
    )


@mapping("FullyConnected", "Gemm after Flatten; MatMul where flatten=False")
def _fully_connected(call: Call) -> Written:
    data, weight, bias = call.data, call.inputs[1], _bias(call, 2)
    rank = call.rank(data)
    if rank == 2 or call.flag("flatten", True):
        if rank != 2:
            data = call.emit("Flatten", data, axis=1)
        return call.emit("Gemm", data, weight, bias, transB=1)
    product = call.emit("MatMul", data, call.transpose(weight, [1, 0]))
    return product if bias is None else call.emit("Add", product, bias)


@mapping("_contrib_BilinearResize2D", "Resize, linear")
def _bilinear_resize(call: Call) -> Written:
    data = call.data
    height, width = call.size(data, 2), call.size(data, 3)
    target = [_resized(call, size, name) for size, name in ((height, "height"), (width, "width"))]
    if call.text("mode", "size") == "like":
        target = [call.size(call.inputs[1], 2), call.size(call.inputs[1], 3)]
    return _resize(call, data, target, "linear", call.flag("align_corners", True))


def _resized(call: Call, size: int, name: str) -> int:
    """Return a side after resizing: BilinearSampleOpInferShape in bilinear_resize-inl.h."""
    mode = call.text("mode", "size")
    scale = call.number(f"scale_{name}", 0)
    is_odd = size % 2
    if mode == "odd_scale":
        return int((size - 1) * scale) + 1 if is_odd else int(size * scale)
    if mode in ("to_even_down", "to_odd_up"):
        return size - is_odd if mode == "to_even_down" else size + 1 - is_odd
    if mode in ("to_even_up", "to_odd_down"):
        return size + is_odd if mode == "to_even_up" else size - 1 + is_odd
    return int(size * scale) if scale else call.integer(name, 1)


def _resize(call: Call, data: Tensor, target: Sequence[int], mode: str, align_corners: bool) -> Tensor:
    """Resize the two last axes of four to a size."""
    sizes = [*call.lengths(data)[:2], *target]
    transformation = "align_corners" if align_corners else "half_pixel"
    resized = call.emit(
        *("Resize", data, None, None, call.size_values(sizes)),
        mode=mode,
        coordinate_transformation_mode=transformation,
    )
    return call.state_sizes(resized, sizes)


@mapping("UpSampling", "Resize, nearest; ConvTranspose where sample_type=bilinear")
def _up_sampling(call: Call) -> Written:
    scale = call.integer("scale")
    if call.text("sample_type") == "bilinear":
        # A Deconvolution with a weight (UpSamplingBilinear in src/operator/nn/upsampling-inl.h).
        pad = math.ceil((scale - 1) / 2)
        return call.emit(
            *("ConvTranspose", call.data, call.inputs[1]),
            kernel_shape=[2 * scale - scale % 2] * 2,
            strides=[scale, scale],
            pads=[pad] * 4,
            group=call.integer("num_filter"),
        )
    if len(call.inputs) == 1:
        return _nearest(call, call.data, scale)
    height = call.size(call.data, 2) * scale
    scaled = [_nearest(call, tensor, height // call.size(tensor, 2)) for tensor in call.inputs]
    if call.text("multi_input_mode", "concat") == "sum":
        return call.emit("Sum", *scaled)
    return call.emit("Concat", *scaled, axis=1)


def _nearest(call: Call, data: Tensor, scale: int) -> Tensor:
    return call.emit(
        *("Resize", data, None, call.array([1, 1, scale, scale], DType.FLOAT32)),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@mapping("Pad", "Pad")
def _pad(call: Call) -> Written:
    return padded(call, call.sizes("pad_width"))


def padded(call: Call, widths: Sequence[int]) -> Tensor:
    """Return data with places before and behind each axis, by turns, in the order of the axes."""
    mode = call.text("mode", "constant")
    value = call.scalar(call.number("constant_value", 0), call.data) if mode == "constant" else None
    return call.emit("Pad", call.data, call.indices([*widths[0::2], *widths[1::2]]), value, mode=mode)


@mapping("Crop", "Slice")
def _crop(call: Call) -> Written:
    height, width = call.size(call.data, 2), call.size(call.data, 3)
    wanted = call.sizes("h_w", [0, 0])
    if len(call.inputs) > 1:
        wanted = (call.size(call.inputs[1], 2), call.size(call.inputs[1], 3))
    top, left = call.sizes("offset", [0, 0])
    if call.flag("center_crop"):
        top, left = (height - wanted[0]) // 2, (width - wanted[1]) // 2
    return call.slice(call.data, [top, left], [top + wanted[0], left + wanted[1]], [2, 3])


@mapping("_contrib_DeformableConvolution", "DeformConv with a mask for what lies outside", opset=19)
def _deformable(call: Call) -> Written:
    """Write a layer that reads 0 at each position outside the image, however near.

    DeformConv, like MXNet's modulated layer, interpolates with zeros there instead, within one pixel of the
    border. (``deformable_im2col_bilinear`` in src/operator/contrib/nn/deformable_im2col.h)
    """
    data, offset = call.data, call.inputs[1]
    kernel, groups = call.sizes("kernel"), call.integer("num_deformable_group", 1)
    stride, pad, dilate = (
        call.sizes(key, (value, value)) for key, value in (("stride", 1), ("pad", 0), ("dilate", 1))
    )
    out = [call.size(offset, axis) for axis in (2, 3)]
    base = np.zeros((groups, *kernel, 2, *out))
    for axis in (0, 1):
        taps = np.arange(kernel[axis]) * dilate[axis]
        starts = np.arange(out[axis]) * stride[axis] - pad[axis]
        places = taps[:, None] + starts  # (kernel, out)
        if axis == 0:
            base[:, :, :, 0] = places[None, :, None, :, None]
        else:
            base[:, :, :, 1] = places[None, None, :, None, :]
    count = groups * kernel[0] * kernel[1]
    fixed = call.array(base.reshape(1, 2 * count, *out), offset.dtype)
    sizes = np.array([call.size(data, axis) for axis in (2, 3)] * count).reshape(1, -1, 1, 1)
    where = call.emit("Add", offset, fixed)
    inside = call.emit(
        "And",
        call.emit("GreaterOrEqual", where, call.scalar(0, where)),
        call.emit("Less", where, call.array(sizes, offset.dtype)),
    )
    apart = call.reshape(call.cast(inside, data.dtype), [0, count, 2, *out])
    mask = call.reduce("ReduceMin", apart, [2], keepdims=False)
    nearest = call.emit("Max", where, call.scalar(0, where))
    nearest = call.emit("Min", nearest, call.array(sizes - 1, offset.dtype))
    moved = call.emit("Sub", nearest, fixed)
    return _deform(call, moved, mask, call.inputs[2], _bias(call, 3))


@mapping("_contrib_ModulatedDeformableConvolution", "DeformConv with a mask", opset=19)
def _modulated_deformable(call: Call) -> Written:
    return _deform(call, call.inputs[1], call.inputs[2], call.inputs[3], _bias(call, 4))


def _deform(call: Call, offset: Tensor, mask: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    kernel = call.sizes("kernel")
    pad = list(call.sizes("pad", [0, 0]))
    return call.emit(
        *("DeformConv", call.data, weight, offset, bias, mask),
        kernel_shape=list(kernel),
        strides=list(call.sizes("stride", [1, 1])),
        dilations=list(call.sizes("dilate", [1, 1])),
        pads=[*pad, *pad],
        group=call.integer("num_group", 1),
        offset_group=call.integer("num_deformable_group", 1),
    )
