"""Functions of NumPy mode that MXNet's own operators have no counterpart to."""

from __future__ import annotations

import math
from typing import Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.onnx.call import LAST, Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tables.layers import padded
from mxamp.onnx.tensor import Tensor
from mxamp.ops.attributes import all_integers
from mxamp.ops.promotion import promoted


def _joined(call: Call, tensors: Sequence[Tensor], axis: int) -> Tensor:
    return call.emit("Concat", *tensors, axis=axis) if len(tensors) > 1 else tensors[0]


@mapping("_npi_vstack _npi_column_stack", "Unsqueeze, Concat")
def _rows_or_columns(call: Call) -> Written:
    axis = int(call.node.op == "_npi_column_stack")
    matrices = [call.unsqueeze(each, axis) if call.rank(each) == 1 else each for each in call.inputs]
    return _joined(call, matrices, axis)


@mapping("_npi_hstack", "Concat")
def _side_by_side(call: Call) -> Written:
    return _joined(call, call.inputs, min(1, call.rank(call.data) - 1))


@mapping("_npi_dstack", "Unsqueeze, Concat")
def _in_depth(call: Call) -> Written:
    missing: dict[int, tuple[int, ...]] = {1: (0, 2), 2: (2,)}
    images = [
        call.unsqueeze(each, *missing[call.rank(each)]) if call.rank(each) in missing else each
        for each in call.inputs
    ]
    return _joined(call, images, 2)


@mapping("_npi_pad", "Pad")
def _pad(call: Call) -> Written:
    mode = str(call.text("mode", "constant"))
    if mode not in ("constant", "edge", "reflect"):
        call.refuse(f"padding with mode={mode!r} has no mapping.")
    if mode == "reflect" and call.text("reflect_type", "even") != "even":
        call.refuse("padding with reflect_type='odd' has no mapping.")
    return padded(call, all_integers(str(call.text("pad_width"))))


@mapping("_np_roll", "Slice, Concat")
def _roll(call: Call) -> Written:
    shifts = call.sizes("shift")
    if call.text("axis") is None:
        lengths = call.lengths(call.data)
        flat = call.reshape(call.data, [-1])
        return call.reshape_to(_rolled(call, flat, 0, sum(shifts)), lengths)
    data, axes = call.data, call.sizes("axis")
    for axis, shift in zip(axes, shifts if len(shifts) > 1 else shifts * len(axes)):
        data = _rolled(call, data, call.axis(data, axis), shift)
    return data


def _rolled(call: Call, data: Tensor, axis: int, shift: int) -> Tensor:
    size = call.size(data, axis)
    last = shift % size if size else 0
    if not last:
        return data
    parts = call.slice(data, [-last], [LAST], [axis]), call.slice(data, [0], [-last], [axis])
    return call.emit("Concat", *parts, axis=axis)


@mapping("_npi_tril", "Where with a constant mask")
def _lower_triangle(call: Call) -> Written:
    rank = call.rank(call.data)
    if rank < 2:
        call.refuse("a triangle of one axis has no mapping.")
    rows, columns = (call.size(call.data, axis) for axis in (rank - 2, rank - 1))
    mask = call.array(np.tri(rows, columns, call.integer("k", 0)), DType.BOOL)
    return call.emit("Where", mask, call.data, call.scalar(0, call.data))


@mapping("_npi_diff", "Slice, Sub")
def _differences(call: Call) -> Written:
    data = call.data
    axis = call.axis(data, call.integer("axis", -1))
    for _ in range(call.integer("n", 1)):
        data = call.emit("Sub", call.slice(data, [1], [LAST], [axis]), call.slice(data, [0], [-1], [axis]))
    return data


@mapping("_npi_tensordot_int_axes _npi_tensordot", "Transpose, Reshape, MatMul")
def _tensordot(call: Call) -> Written:
    one, other = call.inputs
    if call.node.op == "_npi_tensordot":
        left = [call.axis(one, axis) for axis in call.sizes("a_axes_summed", ())]
        right = [call.axis(other, axis) for axis in call.sizes("b_axes_summed", ())]
    else:
        count = call.integer("axes", 2)
        left, right = list(range(call.rank(one)))[call.rank(one) - count :], list(range(count))
    rows = [axis for axis in range(call.rank(one)) if axis not in left]
    columns = [axis for axis in range(call.rank(other)) if axis not in right]
    summed = math.prod([call.size(other, axis) for axis in right])
    sizes, others = call.lengths(one), call.lengths(other)
    first = call.reshape(call.transpose(one, [*rows, *left]), [-1, summed])
    second = call.reshape(call.transpose(other, [*right, *columns]), [summed, -1])
    return call.reshape_to(
        call.emit("MatMul", first, second),
        [*(sizes[axis] for axis in rows), *(others[axis] for axis in columns)],
    )


# ---------------------------------------------------------------------- value by value


def _wide(call: Call) -> Tensor:
    """Return data of which every runtime tells what is no number."""
    return call.cast(call.data, DType.FLOAT32) if call.data.dtype.is_low_precision else call.data


def _promoted(call: Call) -> list[Tensor]:
    dtype = promoted([tensor.dtype for tensor in call.inputs])
    return [call.cast(tensor, dtype if dtype.is_float else DType.FLOAT32) for tensor in call.inputs]


@mapping("_npi_hypot", "Sqrt(a * a + b * b)")
def _hypotenuse(call: Call) -> Written:
    squares = [call.emit("Mul", side, side) for side in _promoted(call)]
    return call.emit("Sqrt", call.emit("Add", *squares))


@mapping("_npi_arctan2", "Atan(y / x), in the right quadrant; NaN where both are infinite")
def _angle(call: Call) -> Written:
    y, x = _promoted(call)
    zero, whole = call.scalar(0.0, y), call.scalar(math.pi, y)
    # The angle of a zero is that zero, whose sign says on which side of the axis it lies.
    slope = call.emit("Where", call.emit("Equal", y, zero), y, call.emit("Div", y, x))
    angle = call.emit("Atan", slope)
    above, below = call.emit("Add", angle, whole), call.emit("Sub", angle, whole)
    turned = call.emit("Where", _is_negative(call, y), below, above)
    return call.emit("Where", _is_negative(call, x), turned, angle)


def _is_negative(call: Call, data: Tensor) -> Tensor:
    """Return where the sign is set, that of a zero as well."""
    zero = call.scalar(0.0, data)
    return call.emit(
        "Or", call.emit("Less", data, zero), call.emit("Less", call.emit("Reciprocal", data), zero)
    )


@mapping("_npi_copysign", "x where neither is below zero or both are, -x elsewhere")
def _with_sign(call: Call) -> Written:
    data, signs = _promoted(call)
    zero = call.scalar(0.0, data)
    above, below = (
        call.emit("And", *(call.emit(op, each, zero) for each in (data, signs)))
        for op in ("GreaterOrEqual", "Less")
    )
    return call.emit("Where", call.emit("Or", above, below), data, call.emit("Neg", data))


@mapping("_np_any _np_all", "Cast, ReduceMax, ReduceMin")
def _any_or_all(call: Call) -> Written:
    truth = call.cast(call.cast(call.data, DType.BOOL), DType.INT32)
    op = "ReduceMax" if call.node.op == "_np_any" else "ReduceMin"
    axes = None if call.text("axis") is None else [call.axis(truth, axis) for axis in call.sizes("axis")]
    return call.cast(call.reduce(op, truth, axes, keepdims=call.flag("keepdims")), DType.BOOL)


@mapping("_npi_identity", "a constant")
def _identity(call: Call) -> Written:
    return call.array(np.eye(call.sizes("shape")[0]), call.dtype(default=DType.FLOAT32))


@mapping("_npi_isnan", "IsNaN")
def _is_nan(call: Call) -> Written:
    return call.emit("IsNaN", _wide(call))


@mapping("_npi_isinf _npi_isposinf _npi_isneginf", "IsInf")
def _is_infinite(call: Call) -> Written:
    is_above, is_below = call.node.op != "_npi_isneginf", call.node.op != "_npi_isposinf"
    return call.emit("IsInf", _wide(call), detect_positive=int(is_above), detect_negative=int(is_below))


@mapping("_npi_isfinite", "IsNaN, IsInf")
def _is_finite(call: Call) -> Written:
    data = _wide(call)
    return call.emit("Not", call.emit("Or", call.emit("IsNaN", data), call.emit("IsInf", data)))


@mapping("_npi_nan_to_num", "IsNaN, IsInf, Where")
def _numbers_for_nan(call: Call) -> Written:
    data, wide, most = call.data, _wide(call), call.data.dtype.max_finite
    kinds = (
        (call.emit("IsNaN", wide), "nan", 0.0),
        (call.emit("IsInf", wide, detect_negative=0), "posinf", most),
        (call.emit("IsInf", wide, detect_positive=0), "neginf", -most),
    )
    for mask, key, default in kinds:
        number = default if call.text(key) is None else call.number(key)
        data = call.emit("Where", mask, call.scalar(number, data), data)
    return data
