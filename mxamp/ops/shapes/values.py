"""Reductions, ordering, indexing, products of matrices, and operators that make values from nothing."""

from __future__ import annotations

import math
from typing import Sequence

from mxamp.ops.shapes.call import MaybeShape, Shape, ShapeCall, UnknownShapeError, rule

_MATRIX = 2


_REDUCTIONS = """
    sum mean prod nansum nanprod max min norm _np_all _np_any _np_max _np_min _np_prod _np_sum _npi_mean
    _npi_norm
"""


@rule(_REDUCTIONS)
def _reduced(call: ShapeCall) -> Shape:
    data, keeps = call.data, call.flag("keepdims")
    given = call.sizes("axis", ())
    axes = call.axes(given, len(data))
    if call.op == "_npi_norm" and call.text("axis") is None and len(data) > _MATRIX:
        raise UnknownShapeError  # MXNet goes over the last two axes, or over all, as another attribute says
    if not given and (call.text("axis") is None or not call.op.startswith("_np")):
        axes = set(range(len(data)))
    elif call.flag("exclude"):
        axes = set(range(len(data))) - axes
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(data) if keeps or axis not in axes)
    return kept or call.scalar()


@rule("moments _npi_var _npi_std")
def _moments(call: ShapeCall) -> list[Shape]:
    data, keeps = call.data, call.flag("keepdims")
    key = "axes" if call.op == "moments" else "axis"
    given = call.sizes(key, ())
    axes = call.axes(given, len(data)) if given or call.text(key) is not None else set(range(len(data)))
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(data) if keeps or axis not in axes)
    return [kept or call.scalar()] * 2


@rule("argmax argmin argmax_channel _npi_argmax _npi_argmin")
def _best(call: ShapeCall) -> Shape:
    data, keeps = call.data, call.flag("keepdims")
    text = "1" if call.op == "argmax_channel" else call.text("axis")
    if text is None:
        return (1,) * len(data) if keeps else call.scalar()
    axis = call.axis(int(text), len(data))
    kept = (*data[:axis], *((1,) if keeps else ()), *data[axis + 1 :])
    return kept or call.scalar()


@rule("_np_cumsum")
def _cumulated(call: ShapeCall) -> Shape:
    return (math.prod(call.data),) if call.text("axis") is None else call.data


@rule("topk")
def _top(call: ShapeCall) -> Sequence[MaybeShape]:
    data, kind = call.data, call.text("ret_typ", "indices")
    if kind == "mask":
        return [data]
    count = call.integer("k", 1)
    if "axis" in call.attrs and call.text("axis") is None:
        whole = math.prod(data)
        return [(count if count > 0 else whole,)] * 2
    axis = call.axis(call.integer("axis", -1), len(data))
    if count > data[axis]:
        call.refuse(f"it picks {count} of {data[axis]}")
    return [(*data[:axis], count if count > 0 else data[axis], *data[axis + 1 :])] * 2


@rule("sort argsort")
def _sorted(call: ShapeCall) -> Sequence[MaybeShape]:
    flat = "axis" in call.attrs and call.text("axis") is None
    return [(math.prod(call.data),) if flat else call.data] * 2


# ---------------------------------------------------------------------- indexing


@rule("take")
def _take(call: ShapeCall) -> Shape:
    data, indices = call.data, call.shape(1)
    axis = call.axis(call.integer("axis", 0), len(data))
    return (*data[:axis], *indices, *data[axis + 1 :])


@rule("batch_take")
def _batch_take(call: ShapeCall) -> Shape:
    rows, indices = call.data[:-1], call.shape(1)
    if math.prod(rows) != math.prod(indices):
        call.refuse(f"it takes {indices} out of the rows {rows}")
    return indices


@rule("pick")
def _pick(call: ShapeCall) -> Shape:
    data = call.data
    if "axis" in call.attrs and call.text("axis") is None:
        return (1,) * len(data) if call.flag("keepdims") else call.scalar()
    axis = call.axis(call.integer("axis", -1), len(data))
    without = (*data[:axis], *data[axis + 1 :]) or call.scalar()
    kept = (*data[:axis], 1, *data[axis + 1 :])
    has_axis = len(call.inputs) > 1 and call.inputs[1] is not None and len(call.shape(1)) == len(data)
    call.expect(1, kept if has_axis else without, "index")
    return kept if call.flag("keepdims") else without


@rule("gather_nd")
def _gather(call: ShapeCall) -> Shape:
    data, indices = call.data, call.shape(1)
    if indices[0] > len(data):
        call.refuse(f"it indexes {indices[0]} axes of {data}")
    return (*indices[1:], *data[indices[0] :]) or call.scalar()


@rule("one_hot")
def _one_hot(call: ShapeCall) -> Shape:
    return (*call.data, call.integer("depth"))


@rule("_contrib_boolean_mask")
def _boolean_mask(call: ShapeCall) -> Shape:
    raise UnknownShapeError  # as many as are marked


@rule("_unravel_index")
def _unravel_index(call: ShapeCall) -> Shape:
    return (len(call.sizes("shape")), *call.data)


@rule("_ravel_multi_index")
def _ravel_multi_index(call: ShapeCall) -> Shape:
    return call.data[1:] or call.scalar()


@rule("SequenceLast")
def _sequence_last(call: ShapeCall) -> Shape:
    axis = call.integer("axis", 0)
    return (*call.data[:axis], *call.data[axis + 1 :])


# ---------------------------------------------------------------------- products of matrices


@rule("dot")
def _dot(call: ShapeCall) -> Shape:
    one, other = call.data, call.shape(1)
    left, summed = (one[1:], one[0]) if call.flag("transpose_a") else (one[:-1], one[-1])
    right, also = (other[:-1], other[-1]) if call.flag("transpose_b") else (other[1:], other[0])
    if len(one) == len(other) == 1:
        left, right, summed, also = (), (), one[0], other[0]
    _fits(call, summed, also)
    return (*left, *right) or call.scalar()


def _fits(call: ShapeCall, one: int, other: int) -> None:
    if one != other:
        call.refuse(f"it multiplies {call.data} by {call.shape(1)}")


@rule("_np_dot")
def _numpy_dot(call: ShapeCall) -> Shape:
    one, other = call.data, call.shape(1)
    if not one or not other:
        return one or other
    _fits(call, one[-1], other[-2 if len(other) > 1 else 0])
    return (*one[:-1], *other[:-2], *other[-1:][: len(other) - 1])


@rule("batch_dot")
def _batch_dot(call: ShapeCall) -> Shape:
    one, other = call.data, call.shape(1)
    if len(one) != len(other) or len(one) < 3 or one[:-2] != other[:-2]:
        call.refuse(f"it multiplies {one} by {other}")
    rows, summed = one[-2:][::-1] if call.flag("transpose_a") else one[-2:]
    also, columns = other[-2:][::-1] if call.flag("transpose_b") else other[-2:]
    _fits(call, summed, also)
    return (*one[:-2], rows, columns)


@rule("_npi_einsum")
def _einsum(call: ShapeCall) -> Shape:
    read, arrow, written = str(call.text("subscripts", "")).replace(" ", "").partition("->")
    if not arrow or "." in read:
        raise UnknownShapeError
    sizes: dict[str, int] = {}
    terms = read.split(",")
    if len(terms) != len(call.inputs):
        call.refuse(f"its subscripts name {len(terms)} tensors, and it reads {len(call.inputs)}")
    for term, shape in zip(terms, call.shapes):
        if len(term) != len(shape):
            call.refuse(f"{term} has {len(term)} axes, and the tensor {shape}")
        for letter, size in zip(term, shape):
            known = sizes.setdefault(letter, size)
            if size not in (known, 1) and known != 1:
                call.refuse(f"{letter} is {known} and {size}")
            sizes[letter] = max(known, size)
    return tuple(sizes[letter] for letter in written)


@rule("_npi_tensordot_int_axes _npi_tensordot")
def _tensordot(call: ShapeCall) -> Shape:
    one, other = call.data, call.shape(1)
    if call.op == "_npi_tensordot":
        left = [call.axis(axis, len(one)) for axis in call.sizes("a_axes_summed", ())]
        right = [call.axis(axis, len(other)) for axis in call.sizes("b_axes_summed", ())]
    else:
        count = call.integer("axes", 2)
        left, right = list(range(len(one) - count, len(one))), list(range(count))
    if [one[axis] for axis in left] != [other[axis] for axis in right]:
        call.refuse(f"it multiplies {one} by {other} along the axes {tuple(left)} and {tuple(right)}")
    kept = [size for axis, size in enumerate(one) if axis not in left]
    return (*kept, *(size for axis, size in enumerate(other) if axis not in right))


@rule("_linalg_trmm _linalg_trsm")
def _by_triangle(call: ShapeCall) -> Shape:
    return call.shape(1)


@rule("_linalg_syrk")
def _by_its_transpose(call: ShapeCall) -> Shape:
    data = call.data
    return (*data[:-2], *(data[-1:] if call.flag("transpose") else data[-2:-1]) * 2)


@rule("_linalg_det")
def _determinant(call: ShapeCall) -> Shape:
    return call.data[:-2] or call.scalar()


@rule("_contrib_fft _contrib_ifft")
def _spectrum(call: ShapeCall) -> Shape:
    """Follow MXNet, where a complex number is two values side by side."""
    *batch, size = call.rank(0, 2, 4)
    return (*batch, 2 * size if call.op == "_contrib_fft" else size // 2)


@rule("_linalg_gemm2 _linalg_gemm")
def _gemm2(call: ShapeCall) -> Shape:
    one, other = call.data, call.shape(1)
    if len(one) != len(other) or len(one) < 2:
        raise UnknownShapeError  # MXNet does not refuse it before it is run
    last = len(one) - 1
    row = call.axis(call.integer("axis", -2), len(one))
    if row == last or any(one[axis] != other[axis] for axis in range(last) if axis != row):
        call.refuse(f"it multiplies {one} by {other} along the axes {row} and {last}")
    rows, summed = (one[last], one[row]) if call.flag("transpose_a") else (one[row], one[last])
    also, columns = (other[last], other[row]) if call.flag("transpose_b") else (other[row], other[last])
    _fits(call, summed, also)
    return (*one[:row], rows, *one[row + 1 : last], columns)


@rule("_npi_matmul")
def _matmul(call: ShapeCall) -> Shape:
    one, other = call.data, call.shape(1)
    if not one or not other:
        call.refuse("it multiplies by a scalar")
    left, right = (one if len(one) > 1 else (1, *one)), (other if len(other) > 1 else (*other, 1))
    _fits(call, left[-1], right[-2])
    batch = _broadcast(call, left[:-2], right[:-2])
    rows, columns = left[-2:-1] if len(one) > 1 else (), right[-1:] if len(other) > 1 else ()
    return (*batch, *rows, *columns)


def _broadcast(call: ShapeCall, one: Shape, other: Shape) -> Shape:
    rank = max(len(one), len(other))
    one, other = ((1,) * (rank - len(each)) + each for each in (one, other))
    if any(a != b and 1 not in (a, b) for a, b in zip(one, other)):
        call.refuse(f"it multiplies {call.data} by {call.shape(1)}")
    return tuple(b if a == 1 else a for a, b in zip(one, other))


@rule("_contrib_interleaved_matmul_selfatt_qk")
def _self_attention_scores(call: ShapeCall) -> Shape:
    length, batch, _ = call.rank(0, 3)
    return (batch * call.integer("heads"), length, length)


@rule("_contrib_interleaved_matmul_selfatt_valatt")
def _self_attention_values(call: ShapeCall) -> Shape:
    length, batch, width = call.rank(0, 3)
    return (length, batch, width // 3)


@rule("_contrib_interleaved_matmul_encdec_qk")
def _attention_scores(call: ShapeCall) -> Shape:
    (length, batch, _), (other, _, _) = call.rank(0, 3), call.rank(1, 3)
    return (batch * call.integer("heads"), length, other)


@rule("_contrib_interleaved_matmul_encdec_valatt")
def _attention_values(call: ShapeCall) -> Shape:
    (_, batch, width), (_, length, _) = call.rank(0, 3), call.rank(1, 3)
    return (length, batch, width // 2)


# ---------------------------------------------------------------------- values from nothing


@rule("_zeros _zeros_without_dtype _ones _full _npi_zeros _npi_ones")
def _filled(call: ShapeCall) -> Shape:
    sizes = call.sizes("shape", ())
    if not sizes and not call.numpy:
        raise UnknownShapeError
    return call.made(sizes)


@rule("_arange _npi_arange")
def _range(call: ShapeCall) -> Shape:
    if call.flag("infer_range"):
        raise UnknownShapeError
    start, stop = call.number("start", 0.0), call.text("stop")
    first, last = (start, float(stop)) if stop is not None else (0.0, start)
    count = math.ceil((last - first) / call.number("step", 1.0)) * call.integer("repeat", 1)
    return (max(0, count),)


@rule("_linspace")
def _linear(call: ShapeCall) -> Shape:
    return (call.integer("num"),)


@rule("_contrib_arange_like")
def _range_like(call: ShapeCall) -> Shape:
    data = call.data
    return data if call.text("axis") is None else (data[call.axis(call.integer("axis"), len(data))],)


@rule("_eye _npi_eye")
def _eye(call: ShapeCall) -> Shape:
    rows = call.integer("N")
    columns = call.integer("M", rows)
    return (rows, columns if columns or call.op.startswith("_np") else rows)


@rule("_npi_identity")
def _identity(call: ShapeCall) -> Shape:
    return call.made(call.sizes("shape"))


@rule("_contrib_index_array")
def _index_array(call: ShapeCall) -> Shape:
    data = call.data
    return (*data, len(call.sizes("axes", range(len(data)))))


@rule("shape_array")
def _shape_array(call: ShapeCall) -> Shape:
    return (len(call.data),)


@rule("size_array")
def _size_array(call: ShapeCall) -> Shape:
    return (1,)
