"""Reshaping, slicing, joining, broadcasting, and what only makes numbers."""

from __future__ import annotations

import math
from typing import Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.onnx.batch import BATCH_AXIS, BATCH_TIMES
from mxamp.onnx.call import LAST, Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tensor import OpenSize, Size, product
from mxamp.ops.shapes.moves import split_edges


@mapping("Reshape", "Reshape; codes -2, -3, -4 resolved")
def _reshape(call: Call) -> Written:
    spec = list(call.sizes("shape", ()))
    if not spec:
        call.refuse("it has no shape; target_shape, which older models use, has no mapping.")
    shape = call.lengths(call.data)
    if call.flag("reverse"):
        target = _reshaped(call, shape[::-1], spec[::-1], is_reverse=True)[::-1]
        return call.reshape_to(call.data, target)
    return call.reshape_to(call.data, _reshaped(call, shape, spec))


def _reshaped(call: Call, shape: Sequence[Size], spec: Sequence[int], is_reverse: bool = False) -> list[Size]:
    """Return the sizes that MXNet's codes mean; -1 is kept.

    InferReshapeShape in src/operator/tensor/matrix_op-inl.h.
    """
    sizes: list[Size] = []
    read = 0  # the axis of the input that the next code reads
    codes = iter(range(len(spec)))
    for number in codes:
        code = spec[number]
        if code == 0:
            sizes.append(shape[read])
            read += 1
        elif code == -1:
            sizes.append(-1)
            read += 1
        elif code == -2:
            sizes += shape[read:]
            read = len(shape)
        elif code == -3:
            sizes.append(product(shape[read], shape[read + 1]))
            read += 2
        elif code == -4:
            if is_reverse or number + 2 >= len(spec):
                call.refuse(f"its shape {tuple(spec)} splits an axis and does not say how.")
            sizes += _split_axis(call, shape[read], spec[number + 1], spec[number + 2])
            read += 1
            next(codes)
            next(codes)
        else:
            sizes.append(code)
            read += 1
    return sizes


def _split_axis(call: Call, size: Size, first: int, second: int) -> list[Size]:
    if not isinstance(size, int) or -1 not in (first, second):
        return [first, second]
    known = second if first == -1 else first
    if known <= 0 or size % known:
        call.refuse(f"an axis of size {size} cannot be split into {first} and {second}.")
    other = size // known
    return [other, second] if first == -1 else [first, other]


@mapping("_np_reshape", "Reshape")
def _numpy_reshape(call: Call) -> Written:
    return call.reshape(call.data, call.sizes("newshape", ()))


@mapping("_npx_reshape", "Reshape; codes -2 to -6 resolved")
def _numpy_extension_reshape(call: Call) -> Written:
    shape, spec = call.lengths(call.data), call.sizes("newshape")
    if call.flag("reverse"):
        call.refuse("with reverse=True it has no mapping.")
    sizes: list[Size] = []
    read = 0
    codes = iter(range(len(spec)))
    for number in codes:
        code = spec[number]
        if code == -2:  # this size
            sizes.append(shape[read])
        elif code == -3:  # an axis of size 1 goes
            pass
        elif code == -4:  # all that remain
            sizes += shape[read:]
            read = len(shape) - 1
        elif code == -5:  # two as one
            sizes.append(product(shape[read], shape[read + 1]))
            read += 1
        elif code == -6:  # one as two
            sizes += _split_axis(call, shape[read], spec[number + 1], spec[number + 2])
            next(codes)
            next(codes)
        else:
            sizes.append(code)
        read += 1
    return call.reshape_to(call.data, sizes)


@mapping("reshape_like", "Reshape")
def _reshape_like(call: Call) -> Written:
    left, right = call.lengths(call.data), call.lengths(call.inputs[1])
    sizes = right
    if any(call.text(key) is not None for key in ("lhs_begin", "lhs_end", "rhs_begin", "rhs_end")):
        begin = call.integer("lhs_begin", 0) % len(left)
        end = _end(call, "lhs_end", len(left))
        other = right[call.integer("rhs_begin", 0) : _end(call, "rhs_end", len(right))]
        sizes = [*left[:begin], *other, *left[end:]]
    return call.reshape_to(call.data, sizes)


def _end(call: Call, key: str, rank: int) -> int:
    end = call.integer(key, rank)
    return end + rank if end < 0 else end


@mapping("Flatten", "Flatten")
def _flatten(call: Call) -> Written:
    return call.emit("Flatten", call.data, axis=1)


@mapping("transpose _np_transpose", "Transpose")
def _transpose(call: Call) -> Written:
    rank = call.rank(call.data)
    axes = call.sizes("axes", range(rank)[::-1])
    return call.transpose(call.data, [axis % rank for axis in axes])


@mapping("SwapAxis", "Transpose")
def _swap_axes(call: Call) -> Written:
    order = list(range(call.rank(call.data)))
    first, second = (call.axis(call.data, call.integer(key, 0)) for key in ("dim1", "dim2"))
    order[first], order[second] = second, first
    return call.transpose(call.data, order)


@mapping("_np_moveaxis", "Transpose")
def _move_axes(call: Call) -> Written:
    rank = call.rank(call.data)
    source = [axis % rank for axis in call.sizes("source")]
    destination = [axis % rank for axis in call.sizes("destination")]
    order = [axis for axis in range(rank) if axis not in source]
    for place, axis in sorted(zip(destination, source)):
        order.insert(place, axis)
    return call.transpose(call.data, order)


@mapping("expand_dims", "Unsqueeze")
def _expand_dims(call: Call) -> Written:
    return call.unsqueeze(call.data, call.integer("axis"))


@mapping("squeeze _np_squeeze", "Squeeze")
def _squeeze(call: Call) -> Written:
    if call.text("axis") is not None:
        return call.squeeze(call.data, *[call.axis(call.data, axis) for axis in call.sizes("axis")])
    return call.squeeze(call.data, *[axis for axis, size in enumerate(call.shape(call.data)) if size == 1])


# ---------------------------------------------------------------------- parts


@mapping("slice", "Slice")
def _slice(call: Call) -> Written:
    begin, end, step = (call.optional_sizes(key) for key in ("begin", "end", "step"))
    axes = range(len(begin))
    steps = [(step[axis] if axis < len(step) else None) or 1 for axis in axes]
    starts = [_or(begin[axis], 0 if steps[axis] > 0 else LAST) for axis in axes]
    ends = [_or(end[axis], LAST if steps[axis] > 0 else -LAST) for axis in axes]
    return call.slice(call.data, starts, ends, axes, steps if any(s != 1 for s in steps) else None)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


@mapping("slice_axis", "Slice")
def _slice_axis(call: Call) -> Written:
    end = LAST if call.text("end") is None else call.integer("end")
    return call.slice(call.data, [call.integer("begin")], [end], [call.axis(call.data, call.integer("axis"))])


@mapping("slice_like", "Slice")
def _slice_like(call: Call) -> Written:
    like = call.inputs[1]
    own, others = call.lengths(call.data), call.lengths(like)
    axes = [call.axis(call.data, axis) for axis in call.sizes("axes", range(len(others)))]
    cut = [axis for axis in axes if not call.are_equal(own[axis], others[axis])]
    if not cut:
        return call.data
    ends = [others[axis] for axis in cut]
    sliced = call.emit(
        *("Slice", call.data, call.indices([0] * len(cut)), call.size_values(ends), call.indices(cut))
    )
    return call.state_sizes(sliced, [others[axis] if axis in cut else size for axis, size in enumerate(own)])


@mapping("SliceChannel", "Split, Squeeze")
def _slice_channel(call: Call) -> Written:
    parts, axis = call.integer("num_outputs"), call.axis(call.data, call.integer("axis", 1))
    size = call.size(call.data, axis) // parts
    split = call.split(call.data, [size] * parts, axis) if parts > 1 else (call.data,)
    return tuple(call.squeeze(part, axis) for part in split) if call.flag("squeeze_axis") else split


@mapping("_split_v2", "Split, Squeeze")
def _split_v2(call: Call) -> Written:
    return _split(call, call.axis(call.data, call.integer("axis", 1)))


@mapping("_npi_hsplit _npi_dsplit", "Split")
def _split_columns(call: Call) -> Written:
    is_row = call.rank(call.data) == 1
    return _split(call, 0 if is_row else 1 if call.node.op == "_npi_hsplit" else 2)


def _split(call: Call, axis: int) -> Written:
    size, sections = call.size(call.data, axis), call.integer("sections", 0)
    edges = split_edges(size, sections, call.sizes("indices", (0,)))
    split = call.split(call.data, [stop - start for start, stop in zip(edges, edges[1:])], axis)
    return tuple(call.squeeze(part, axis) for part in split) if call.flag("squeeze_axis") else split


@mapping("reverse _npi_flip", "Slice with step -1")
def _reverse(call: Call) -> Written:
    axes = [call.axis(call.data, axis) for axis in call.sizes("axis", range(call.rank(call.data)))]
    return call.slice(call.data, [LAST] * len(axes), [-LAST] * len(axes), axes, [-1] * len(axes))


# ---------------------------------------------------------------------- joining and repeating


@mapping("Concat", "Concat")
def _concat(call: Call) -> Written:
    if len(call.inputs) == 1:
        return call.data
    return call.emit("Concat", *call.inputs, axis=call.axis(call.data, call.integer("dim", 1)))


@mapping("_npi_concatenate _rnn_param_concat", "Concat")
def _numpy_concatenate(call: Call) -> Written:
    axis = call.text("axis") if call.node.op == "_npi_concatenate" else call.text("dim", "0")
    if axis is None:
        flat = [call.reshape(tensor, [-1]) for tensor in call.inputs]
        return call.emit("Concat", *flat, axis=0)
    return call.emit("Concat", *call.inputs, axis=call.axis(call.data, int(axis)))


@mapping("stack _npi_stack", "Unsqueeze, Concat")
def _stack(call: Call) -> Written:
    axis = call.integer("axis", 0) % (call.rank(call.data) + 1)
    return call.emit("Concat", *(call.unsqueeze(tensor, axis) for tensor in call.inputs), axis=axis)


@mapping("tile", "Tile")
def _tile(call: Call) -> Written:
    counts, rank, data = list(call.sizes("reps")), call.rank(call.data), call.data
    if len(counts) > rank:
        data = call.unsqueeze(data, *range(len(counts) - rank))
    counts = [1] * (rank - len(counts)) + counts
    return call.emit("Tile", data, call.indices(counts)) if any(count != 1 for count in counts) else data


@mapping("repeat", "Unsqueeze, Tile, Reshape")
def _repeat(call: Call) -> Written:
    times, data, text = call.integer("repeats"), call.data, call.text("axis")
    if text is None:
        data = call.reshape(data, [-1])
    axis = call.axis(data, 0 if text is None else int(text))
    rank = call.rank(data)
    counts = [1] * (rank + 1)
    counts[axis + 1] = times
    tiled = call.emit("Tile", call.unsqueeze(data, axis + 1), call.indices(counts))
    assert data.shape is not None
    if axis == 0 and data.shape[0] is None:
        return call.reshape(tiled, [-1, *(call.size(data, number) for number in range(1, rank))])
    sizes = [0 if size is None else size for size in data.shape]
    sizes[axis] = call.size(data, axis) * times
    return call.reshape(tiled, sizes)


@mapping("broadcast_axis", "Expand")
def _broadcast_axis(call: Call) -> Written:
    target = [1] * call.rank(call.data)
    for axis, size in zip(call.sizes("axis", ()), call.sizes("size", ())):
        target[axis] = size
    return call.emit("Expand", call.data, call.indices(target))


@mapping("broadcast_to _npi_broadcast_to", "Expand")
def _broadcast_to(call: Call) -> Written:
    target = [1 if size <= 0 else size for size in call.sizes("shape", ())]  # 0 keeps the size
    return call.emit("Expand", call.data, call.indices(target))


@mapping("broadcast_like", "Expand")
def _broadcast_like(call: Call) -> Written:
    others, rank = call.lengths(call.inputs[1]), call.rank(call.data)
    if call.text("lhs_axes") is None:
        return call.expand(call.data, others)
    target: list[Size] = [1] * rank
    for left, right in zip(call.sizes("lhs_axes"), call.sizes("rhs_axes")):
        target[left] = others[right]
    return call.expand(call.data, target)


@mapping("depth_to_space", "DepthToSpace")
def _depth_to_space(call: Call) -> Written:
    return call.emit("DepthToSpace", call.data, blocksize=call.integer("block_size"), mode="DCR")


@mapping("space_to_depth", "SpaceToDepth")
def _space_to_depth(call: Call) -> Written:
    return call.emit("SpaceToDepth", call.data, blocksize=call.integer("block_size"))


# ---------------------------------------------------------------------- shapes and constants as values


@mapping("shape_array", "a constant; Shape where a size is not known")
def _shape_array(call: Call) -> Written:
    shape = call.data.shape
    if shape is None or None in shape:
        return call.emit("Shape", call.data)
    return call.indices(shape)


@mapping("size_array", "a constant; Size where a size is not known")
def _size_array(call: Call) -> Written:
    shape = call.data.shape
    if shape is None or None in shape:
        return call.reshape(call.emit("Size", call.data), [1])
    return call.indices([math.prod(call.shape(call.data))])


@mapping("zeros_like ones_like _npi_full_like", "Expand of a constant")
def _like(call: Call) -> Written:
    value = {"zeros_like": 0.0, "ones_like": 1.0}.get(call.node.op)
    number = call.number("fill_value") if value is None else value
    constant = call.array(number, call.dtype())
    shape = call.data.shape
    if shape is not None and None not in shape:
        return call.emit("Expand", constant, call.indices(shape))
    expanded = call.emit("Expand", constant, call.emit("Shape", call.data))
    return expanded if shape is None else call.state_shape(expanded, shape)


@mapping("_zeros _zeros_without_dtype _ones _full _npi_zeros _npi_ones", "Expand of a constant")
def _filled(call: Call) -> Written:
    name = call.node.op
    value = call.number("value") if name == "_full" else float("ones" in name)
    constant = call.array(value, call.dtype(default=DType.FLOAT32))
    shape = call.sizes("shape", ())
    if call.inputs:  # what has the batch (:mod:`mxamp.onnx.batch`)
        axis, times = call.integer(BATCH_AXIS), call.sizes(BATCH_TIMES)
        open_sizes = [OpenSize(call.data, (axis,), each) for each in times]
        return call.expand(constant, [size or other for size, other in zip(shape, open_sizes)])
    if not name.startswith("_np") and 0 in shape:
        call.refuse(
            f"its shape {shape} is not known: 0 is what follows from what reads it, which fixed shapes alone "
            "tell, without --dynamic-batch (dynamic_batch=False)."
        )
    return call.emit("Expand", constant, call.indices(shape))


@mapping("_arange _npi_arange", "a constant")
def _arange(call: Call) -> Written:
    start, stop = call.number("start", 0), call.text("stop")
    if call.flag("infer_range"):
        call.refuse("with infer_range=True its length comes from what reads it.")
    low, high = (0.0, start) if stop is None else (start, float(stop))
    step, dtype = call.number("step", 1), call.dtype(default=DType.FLOAT32)
    count = max(0, math.ceil((high - low) / step))
    values = low + step * np.arange(count)
    return call.array(np.repeat(values, call.integer("repeat", 1)), dtype)


@mapping("_linspace", "a constant")
def _linspace(call: Call) -> Written:
    ends = (call.number("start"), call.number("stop"), call.integer("num"))
    values = np.linspace(*ends, endpoint=call.flag("endpoint", True))
    return call.array(values, call.dtype(default=DType.FLOAT32))


@mapping("_eye _npi_eye", "a constant")
def _eye(call: Call) -> Written:
    rows = call.integer("N")
    values = np.eye(rows, call.integer("M", 0) or rows, call.integer("k", 0))
    return call.array(values, call.dtype(default=DType.FLOAT32))


@mapping("_contrib_arange_like", "a constant; Range where a size is not known")
def _arange_like(call: Call) -> Written:
    lengths, axis, repeat = call.lengths(call.data), call.text("axis"), call.integer("repeat", 1)
    target = lengths if axis is None else [lengths[call.axis(call.data, int(axis))]]
    start, step = call.number("start", 0), call.number("step", 1)
    numbers = [size for size in target if isinstance(size, int)]
    if len(numbers) == len(target):
        steps = np.arange(math.prod(numbers)) // repeat
        return call.array((start + step * steps).reshape(numbers), call.data.dtype)
    dtype, count = call.data.dtype, call.indices([1])
    for size in target:
        count = call.emit("Mul", count, call.size_values([size]))
    first, every = (call.array(number, DType.INT64) for number in (0, 1))
    places = call.emit("Range", first, call.reshape(count, []), every)
    if repeat > 1:
        places = call.emit("Div", places, call.array(repeat, DType.INT64))
    values = call.cast(places, DType.FLOAT32)
    values = call.emit("Mul", values, call.array(step, DType.FLOAT32))
    values = call.cast(call.emit("Add", values, call.array(start, DType.FLOAT32)), dtype)
    return call.reshape_to(values, target) if len(target) > 1 else call.state_sizes(values, target)
