"""Pooling: what a window covers, beyond the padding too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tables.elementwise import cube_root
from mxamp.onnx.tables.layers import check_layout
from mxamp.onnx.tensor import Tensor

_CHANNELS_LAST = ("NWC", "NHWC", "NDHWC")


@dataclass(frozen=True)
class _Windows:
    """The windows along one axis.

    Attributes
    ----------
    size
        Of the axis.
    width, stride, pad
        Of the windows; the padding is the same at both ends.
    count
        How many there are, as MXNet counts them (PoolingShape in src/operator/nn/pooling.cc).
    """

    size: int
    width: int
    stride: int
    pad: int
    count: int

    @property
    def beyond(self) -> int:
        """How far the last one reaches beyond the padding; negative where it ends before."""
        return (self.count - 1) * self.stride + self.width - self.size - 2 * self.pad

    @property
    def after(self) -> int:
        """How many places behind the axis the last one covers."""
        return max(0, self.pad + self.beyond)

    @property
    def has_one_outside(self) -> bool:
        """Whether the last one begins in the padding behind the axis, or beyond it: ONNX leaves it out."""
        return (self.count - 1) * self.stride >= self.size + self.pad

    def covered(self, pad: int) -> list[int]:
        """Return how many places each one covers of the axis and so much padding at both ends."""
        starts = [number * self.stride - self.pad for number in range(self.count)]
        return [max(0, min(start + self.width, self.size + pad) - max(start, -pad)) for start in starts]


@mapping("Pooling Pooling_v1", "MaxPool, AveragePool, or over all places at once; lp as sums of powers")
def _pooling(call: Call) -> Written:
    if call.text("layout") not in _CHANNELS_LAST:
        check_layout(call)
        return _pooled(call, call.data)
    rank = call.rank(call.data)
    first = call.transpose(call.data, [0, rank - 1, *range(1, rank - 1)])
    return call.transpose(_pooled(call, first), [0, *range(2, rank), 1])


def _pooled(call: Call, data: Tensor) -> Tensor:
    kind = str(call.text("pool_type", "max"))
    if kind != "lp":
        return _pooled_as(call, data, kind)
    # Powers keep their signs (lp_pool in src/operator/nn/pool_utils.h), which LpPool and ReduceL1 do not. In
    # float32, for squares overflow early.
    power = call.integer("p_value", 2)
    wide = call.cast(data, DType.FLOAT32)
    powers = wide
    for _ in range(power - 1):
        powers = call.emit("Mul", powers, wide)
    found = _pooled_as(call, powers, "sum")
    if power > 1:
        found = call.emit("Sqrt", found) if power == 2 else cube_root(call, found)
    return call.cast(found, data.dtype)


def _pooled_as(call: Call, data: Tensor, kind: str) -> Tensor:
    if call.flag("global_pool"):
        if kind == "sum":
            return call.reduce("ReduceSum", data, list(range(2, call.rank(data))), keepdims=True)
        return call.emit("GlobalMaxPool" if kind == "max" else "GlobalAveragePool", data)
    convention = call.text("pooling_convention", "valid")
    if convention == "same":
        call.refuse("its pooling_convention 'same' has no equal in ONNX.")
    is_full = convention == "full"
    if kind == "max" and call.gaps.max_pool_of_opset_22 and call.opset >= 22:
        return _max_of_slices(call, data, _windows(call, data, is_full=is_full))
    if is_full:
        windows = _windows(call, data, is_full=True)
        # Where a window is cut off ONNX divides by what is left of it, and none of its begins behind the
        # padding.
        is_cut = any(each.beyond > 0 for each in windows) and kind == "sum"
        if is_cut or any(each.has_one_outside for each in windows):
            return _over_padded(call, data, kind, windows)
    pad = list(call.sizes("pad", [0] * len(call.sizes("kernel"))))
    return _emitted(call, data, kind, pads=[*pad, *pad], ceil_mode=int(is_full))


def _windows(call: Call, data: Tensor, *, is_full: bool) -> list[_Windows]:
    kernel = call.sizes("kernel")
    strides, pads = call.sizes("stride", [1] * len(kernel)), call.sizes("pad", [0] * len(kernel))
    windows = []
    for axis, (width, stride, pad) in enumerate(zip(kernel, strides, pads), start=2):
        size = call.size(data, axis)
        room = size + 2 * pad - width
        count = 1 + (-(-room // stride) if is_full else room // stride)
        windows.append(_Windows(size, width, stride, pad, count))
    return windows


def _emitted(call: Call, data: Tensor, kind: str, **how: Any) -> Tensor:
    kernel = call.sizes("kernel")
    how["kernel_shape"], how["strides"] = list(kernel), list(call.sizes("stride", [1] * len(kernel)))
    if kind == "max":
        return call.emit("MaxPool", data, **how)
    counted = kind == "sum" or call.flag("count_include_pad", True)
    mean = call.emit("AveragePool", data, count_include_pad=int(counted), **how)
    return mean if kind == "avg" else call.emit("Mul", mean, call.scalar(math.prod(kernel), mean))


def _over_padded(call: Call, data: Tensor, kind: str, windows: Sequence[_Windows]) -> Tensor:
    """Pool what is padded to where the last windows end, of which none is cut off."""
    low = data.dtype
    # Padded in float32: on CPUs ONNX Runtime has no Pad for less.
    wide = call.cast(data, DType.FLOAT32)
    padded = _padded(call, wide, windows, _lowest(low) if kind == "max" else 0)
    pooled = _emitted(call, call.cast(padded, low), kind)
    if kind == "avg":
        # MXNet divides by the places within the padding, or by those of the image alone. The mean of none is
        # 0, as oneDNN has it; where MXNet's own code runs, over volumes, it is NaN.
        counted = call.flag("count_include_pad", True)
        shares = np.full([1, 1], float(math.prod(each.width for each in windows)))
        for each in windows:
            covered = np.array(each.covered(each.pad if counted else 0), np.float64)
            shares = shares[..., None] * np.divide(1, covered, out=np.zeros_like(covered), where=covered > 0)
        pooled = call.emit("Mul", pooled, call.array(shares, low))
    return pooled


def _lowest(dtype: DType) -> float:
    """Return the maximum of nothing, as MXNet and ONNX Runtime begin to look for one."""
    return -dtype.max_finite


def _padded(call: Call, data: Tensor, windows: Sequence[_Windows], value: float) -> Tensor:
    """Pad data to where the last windows end; of bfloat16 as float32."""
    starts, ends = [0, 0], [0, 0]
    for each in windows:
        starts.append(each.pad)
        ends.append(each.after)
    if not any(starts + ends):
        return data
    if data.dtype == DType.BFLOAT16:  # in which ONNX Runtime has no Pad on CUDA
        data = call.cast(data, DType.FLOAT32)
    return call.emit("Pad", data, call.indices([*starts, *ends]), call.scalar(value, data))


def _max_of_slices(call: Call, data: Tensor, windows: Sequence[_Windows]) -> Tensor:
    """Write max pooling axis by axis: the maximum of what is at each place of the windows."""
    low = data.dtype
    data = _padded(call, data, windows, _lowest(low))
    for axis, each in enumerate(windows, start=2):
        reach = (each.count - 1) * each.stride + 1
        places = [
            call.slice(data, [place], [place + reach], [axis], [each.stride]) for place in range(each.width)
        ]
        data = call.emit("Max", *places)
    return call.cast(data, low)


@mapping("_contrib_AdaptiveAvgPooling2D", "GlobalAveragePool; two MatMul with averaging matrices")
def _adaptive_average(call: Call) -> Written:
    sizes = call.sizes("output_size", [1])
    height, width = sizes if len(sizes) == 2 else (sizes[0], sizes[0])
    if (height, width) == (1, 1):
        return call.emit("GlobalAveragePool", call.data)
    left = _averaging(call.size(call.data, 2), height)
    right = _averaging(call.size(call.data, 3), width).T
    rows = call.emit("MatMul", call.array(left, call.data.dtype), call.data)
    return call.emit("MatMul", rows, call.array(right, call.data.dtype))


def _averaging(size: int, parts: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the matrix of means of windows from floor(i * size / parts) to ceil((i + 1) * size / parts).

    The windows overlap where ``parts`` does not divide ``size`` (START_IND and END_IND in
    src/operator/contrib/adaptive_avg_pooling-inl.h).
    """
    matrix = np.zeros((parts, size))
    for part in range(parts):
        start, stop = part * size // parts, -(-(part + 1) * size // parts)
        matrix[part, start:stop] = 1 / (stop - start)
    return matrix
