"""Gathering, ordering, and what works along sequences."""

from __future__ import annotations

import math

import numpy as np

from mxamp.dtypes import DType
from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tables.normalization import positions_before
from mxamp.onnx.tensor import Tensor


def _indices(call: Call, indices: Tensor, count: int, default: str = "clip") -> Tensor:
    """Return indices as int64, clipped or wrapped as the node's mode says."""
    mode = call.text("mode", default)
    if mode == "wrap":
        return call.emit("Mod", call.cast(indices, DType.INT64), call.indices(count))
    if mode == "clip":
        return call.bounded_indices(indices, count)
    return call.cast(indices, DType.INT64)


@mapping("take", "Gather after Clip or Mod")
def _take(call: Call) -> Written:
    axis = call.axis(call.data, call.integer("axis", 0))
    return call.emit(
        "Gather", call.data, _indices(call, call.inputs[1], call.size(call.data, axis)), axis=axis
    )


@mapping("Embedding _contrib_SparseEmbedding", "Gather after Clip")
def _embedding(call: Call) -> Written:
    weight = call.inputs[1]
    return call.emit("Gather", weight, call.bounded_indices(call.data, call.size(weight, 0)), axis=0)


@mapping("pick batch_take", "GatherElements after Clip or Mod")
def _pick(call: Call) -> Written:
    data, index = call.inputs
    is_batch_take = call.node.op == "batch_take"
    if not is_batch_take and call.text("axis", "-1") is None:
        call.refuse("without an axis it has no mapping.")
    axis = 1 if is_batch_take else call.axis(data, call.integer("axis", -1))
    if call.rank(index) < call.rank(data):
        index = call.unsqueeze(index, axis)
    found = call.emit("GatherElements", data, _indices(call, index, call.size(data, axis)), axis=axis)
    return found if call.flag("keepdims") else call.squeeze(found, axis)


@mapping("gather_nd", "GatherND after Transpose")
def _gather_nd(call: Call) -> Written:
    # MXNet's indices are along the first axis, ONNX's along the last.
    indices = call.cast(call.inputs[1], DType.INT64)
    rank = call.rank(indices)
    return call.emit("GatherND", call.data, call.transpose(indices, [*range(1, rank), 0]))


@mapping("one_hot", "Where(Equal(index, 0, 1, 2 ...))")
def _one_hot(call: Call) -> Written:
    # OneHot counts negative indices from the end; MXNet sets nothing for them.
    dtype, depth = call.dtype(default=DType.FLOAT32), call.integer("depth")
    indices = call.unsqueeze(call.cast(call.data, DType.INT64), call.rank(call.data))
    hit = call.emit("Equal", indices, call.indices(np.arange(depth)))
    on, off = (
        call.array(call.number(key, default), dtype) for key, default in (("on_value", 1), ("off_value", 0))
    )
    return call.emit("Where", hit, on, off)


@mapping("_contrib_index_copy", "ScatterND")
def _index_copy(call: Call) -> Written:
    data, indices, rows = call.inputs
    return call.emit("ScatterND", data, call.unsqueeze(call.cast(indices, DType.INT64), 1), rows)


@mapping("_contrib_boolean_mask", "Compress")
def _boolean_mask(call: Call) -> Written:
    mask = call.inputs[1]
    axis = call.axis(call.data, call.integer("axis", 0))
    return call.emit("Compress", call.data, call.cast(mask, DType.BOOL), axis=axis)


@mapping("_contrib_index_array", "a constant")
def _index_array(call: Call) -> Written:
    shape = call.shape(call.data)
    axes = [call.axis(call.data, axis) for axis in call.sizes("axes", range(len(shape)))]
    places = np.moveaxis(np.indices(shape), 0, -1)
    return call.array(places[..., axes], DType.INT64)


@mapping("_unravel_index", "Div, Mod, Concat")
def _unravel_index(call: Call) -> Written:
    places, sizes = call.cast(call.data, DType.INT64), call.sizes("shape")
    along = []
    for axis, size in enumerate(sizes):
        stride = math.prod(sizes[axis + 1 :])
        place = call.emit("Div", places, call.indices(stride)) if stride > 1 else places
        along.append(call.emit("Mod", place, call.indices(size)) if axis else place)
    rows = [call.unsqueeze(place, 0) for place in along]
    return call.cast(call.emit("Concat", *rows, axis=0) if len(rows) > 1 else rows[0], call.data.dtype)


@mapping("_ravel_multi_index", "Mul, ReduceSum")
def _ravel_multi_index(call: Call) -> Written:
    places, sizes = call.cast(call.data, DType.INT64), call.sizes("shape")
    strides = np.array([math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))])
    strides = strides.reshape([-1, *[1] * (call.rank(places) - 1)])
    moved = call.emit("Mul", places, call.indices(strides))
    return call.cast(call.reduce("ReduceSum", moved, [0], keepdims=False), call.data.dtype)


# ---------------------------------------------------------------------- ordering


def _along(call: Call) -> tuple[Tensor, int]:
    """Return the data and the axis along which it is ordered; flat where it is ordered as a whole."""
    if call.node.attrs.get("axis", "-1") == "None":
        return call.reshape(call.data, [-1]), 0
    return call.data, call.axis(call.data, call.integer("axis", -1))


def _ordered(call: Call, data: Tensor, axis: int, count: int, ascending: bool) -> tuple[Tensor, ...]:
    return call.emit_several(
        *("TopK", data, call.indices([count])), outputs=2, axis=axis, largest=int(not ascending), sorted=1
    )


@mapping("topk", "TopK")
def _topk(call: Call) -> Written:
    data, axis = _along(call)
    size = call.size(data, axis)
    count = call.integer("k", 1)
    count = min(count, size) if count > 0 else size
    values, indices = _ordered(call, data, axis, count, call.flag("is_ascend"))
    kind = call.text("ret_typ", "indices")
    if kind == "value":
        return values
    if kind == "mask":
        marks = call.emit("Expand", call.scalar(1, data), call.emit("Shape", indices))
        zeros = call.emit("Expand", call.scalar(0, data), call.emit("Shape", data))
        return call.emit("ScatterElements", zeros, indices, marks, axis=axis)
    indices = call.cast(indices, call.dtype(default=DType.FLOAT32))
    return (values, indices) if kind == "both" else indices


@mapping("sort", "TopK")
def _sort(call: Call) -> Written:
    data, axis = _along(call)
    return _ordered(call, data, axis, call.size(data, axis), call.flag("is_ascend", True))[0]


@mapping("argsort", "TopK, Cast")
def _argsort(call: Call) -> Written:
    data, axis = _along(call)
    indices = _ordered(call, data, axis, call.size(data, axis), call.flag("is_ascend", True))[1]
    return call.cast(indices, call.dtype(default=DType.FLOAT32))


@mapping("scatter_nd", "Expand of zero, Transpose, ScatterND")
def _scatter_nd(call: Call) -> Written:
    # Which of two values for one place is kept is said by neither.
    data, indices = call.data, call.cast(call.inputs[1], DType.INT64)
    rank = call.rank(indices)
    zeros = call.emit("Expand", call.scalar(0, data), call.indices(call.sizes("shape")))
    return call.emit("ScatterND", zeros, call.transpose(indices, [*range(1, rank), 0]), data)


@mapping("argmax argmin argmax_channel _npi_argmax _npi_argmin", "ArgMax, ArgMin, Cast")
def _argmax(call: Call) -> Written:
    op = "ArgMin" if "argmin" in call.node.op else "ArgMax"
    is_numpy = call.node.op.startswith("_np")
    data, text = call.data, call.text("axis")
    if call.node.op == "argmax_channel":
        text = "1"
    keepdims = call.flag("keepdims")
    if text is None:
        if keepdims:
            call.refuse("without an axis and with keepdims=True it has no mapping.")
        found = call.emit(op, call.reshape(data, [-1]), axis=0, keepdims=int(not is_numpy))
    else:
        found = call.emit(op, data, axis=call.axis(data, int(text)), keepdims=int(keepdims))
    return found if is_numpy else call.cast(found, data.dtype)


# ---------------------------------------------------------------------- sequences


def _lengths(call: Call) -> Tensor | None:
    return call.inputs[1] if call.flag("use_sequence_length") and len(call.inputs) > 1 else None


@mapping("SequenceMask", "Where(position < length)")
def _sequence_mask(call: Call) -> Written:
    lengths = _lengths(call)
    if lengths is None:
        return call.data
    data, axis = call.data, call.integer("axis", 0)
    rank = call.rank(data)
    # Lengths are one a sample, and the samples are along the other of the first two axes.
    shape = [1] * (rank - 1)
    shape[0] = -1
    inside = positions_before(call, call.reshape(lengths, shape), call.size(data, axis), axis, rank)
    return call.emit("Where", inside, data, call.scalar(call.number("value", 0), data))


@mapping("SequenceLast", "GatherND of the last positions")
def _sequence_last(call: Call) -> Written:
    axis, data, lengths = call.integer("axis", 0), call.data, _lengths(call)
    if lengths is None:
        return call.emit("Gather", data, call.indices(-1), axis=axis)
    rank, samples = call.rank(data), call.size(data, 1 - axis)
    order = [1, 0, *range(2, rank)] if axis == 0 else list(range(rank))
    last = call.emit("Sub", call.cast(lengths, DType.INT64), call.indices(1))
    places = [call.indices(np.arange(samples)[:, None]), call.unsqueeze(last, 1)]
    return call.emit("GatherND", call.transpose(data, order), call.emit("Concat", *places, axis=1))


@mapping("SequenceReverse", "ReverseSequence, Slice with step -1")
def _sequence_reverse(call: Call) -> Written:
    lengths = _lengths(call)
    if lengths is None:
        return call.slice(call.data, [2**63 - 1], [-(2**63) + 1], [0], [-1])
    return call.emit(
        *("ReverseSequence", call.data, call.cast(lengths, DType.INT64)), batch_axis=1, time_axis=0
    )
