"""Operators that move values about: reshaping, joining, cutting, repeating."""

from __future__ import annotations

import math
from typing import Sequence

from mxamp.ops.attributes import all_integers
from mxamp.ops.shapes.call import UNKNOWN, MaybeShape, Shape, ShapeCall, merged, rule


@rule("Reshape")
def _reshape(call: ShapeCall) -> Shape:
    data, spec = call.data, call.sizes("shape", ())
    if not spec:
        return _reshape_by_target(call, data)
    if call.flag("reverse"):
        return _reshaped(call, data[::-1], spec[::-1])[::-1]
    return _reshaped(call, data, spec)


def _reshaped(call: ShapeCall, data: Shape, spec: Sequence[int]) -> Shape:
    """Follow the codes of MXNet's Reshape (InferReshapeShape in matrix_op-inl.h).

    0 keeps a size, -1 is what is left, -2 all that remain, -3 joins two, -4 splits one.
    """
    sizes: list[int] = []
    read = 0
    codes = iter(range(len(spec)))
    left = None
    for number in codes:
        code = spec[number]
        if code == 0:
            sizes.append(data[read])
            read += 1
        elif code == -1:
            if left is not None:
                call.refuse(f"its shape {tuple(spec)} leaves two sizes open")
            left = len(sizes)
            if left != number:  # MXNet takes the number of the code for that of the axis
                call.refuse(
                    f"{data} cannot be reshaped to {tuple(spec)}: MXNet takes no -1 behind -2, -3 or -4"
                )
            sizes.append(1)
            read += 1
        elif code == -2:
            sizes += data[read:]
            read = len(data)
        elif code == -3:
            sizes.append(data[read] * data[read + 1])
            read += 2
        elif code == -4:
            sizes += _split_axis(call, data[read], spec[number + 1], spec[number + 2])
            read += 1
            next(codes)
            next(codes)
        else:
            sizes.append(code)
            read += 1
    return _of_as_many(call, data, sizes, left)


def _split_axis(call: ShapeCall, size: int, first: int, second: int) -> tuple[int, int]:
    if first == second == -1:
        call.refuse("it does not say how an axis is split")
    if first == -1:
        first = size // second
    elif second == -1:
        second = size // first
    if first * second != size:
        call.refuse(f"an axis of size {size} cannot be split into {first} and {second}")
    return first, second


def _of_as_many(call: ShapeCall, data: Shape, sizes: list[int], left: int | None) -> Shape:
    """Return a shape of as many values as there are, with the size that was left open."""
    whole, rest = math.prod(data), math.prod(sizes)
    if left is not None:
        if not rest or whole % rest:
            call.refuse(f"{data} cannot be reshaped to {_shown(sizes, left)}")
        sizes[left] = whole // rest
    elif whole != rest:
        call.refuse(f"{data} cannot be reshaped to {tuple(sizes)}")
    return tuple(sizes)


def _shown(sizes: Sequence[int], left: int) -> tuple[int, ...]:
    return (*sizes[:left], -1, *sizes[left + 1 :])


def _reshape_by_target(call: ShapeCall, data: Shape) -> Shape:
    """Follow the attribute of older models: one 0 is what is left."""
    sizes = list(call.sizes("target_shape"))
    if call.flag("keep_highest"):
        sizes[0] = data[0]
    left = next((axis for axis, size in enumerate(sizes) if size == 0), None)
    if left is not None:
        sizes[left] = 1
    return _of_as_many(call, data, sizes, left)


@rule("_np_reshape")
def _numpy_reshape(call: ShapeCall) -> Shape:
    sizes = list(call.sizes("newshape", ()))
    left = sizes.index(-1) if -1 in sizes else None
    if left is not None:
        sizes[left] = 1
    return _of_as_many(call, call.data, sizes, left)


@rule("_npx_reshape")
def _numpy_extension_reshape(call: ShapeCall) -> Shape:
    """Follow other codes: -2 keeps a size, -3 drops one, -4 keeps all, -5 joins two, -6 splits one."""
    data, spec = call.data, call.sizes("newshape")
    is_reversed = call.flag("reverse")
    if is_reversed:
        data, spec = data[::-1], spec[::-1]
    sizes: list[int] = []
    read = 0
    left = None
    codes = iter(range(len(spec)))
    for number in codes:
        code = spec[number]
        if code == -1:
            left = len(sizes)
            sizes.append(1)
        elif code == -2:
            sizes.append(data[read])
        elif code == -3:
            if data[read] != 1:
                call.refuse(f"an axis of size {data[read]} cannot be dropped")
        elif code == -4:
            sizes += data[read:]
            read = len(data) - 1
        elif code == -5:
            sizes.append(data[read] * data[read + 1])
            read += 1
        elif code == -6:
            sizes += _split_axis(call, data[read], spec[number + 1], spec[number + 2])
            next(codes)
            next(codes)
        else:
            sizes.append(code)
        read += 1
    shape = _of_as_many(call, data, sizes, left)
    return shape[::-1] if is_reversed else shape


@rule("reshape_like")
def _reshape_like(call: ShapeCall) -> Shape:
    data, like = call.data, call.shape(1)
    begin, end = _part(call, "lhs", len(data))
    first, last = _part(call, "rhs", len(like))
    return _of_as_many(call, data, [*data[:begin], *like[first:last], *data[end:]], None)


def _part(call: ShapeCall, side: str, rank: int) -> tuple[int, int]:
    begin, end = call.integer(f"{side}_begin", 0), call.integer(f"{side}_end", rank)
    return begin + rank * (begin < 0), end + rank * (end < 0)


@rule("Flatten")
def _flatten(call: ShapeCall) -> Shape:
    return (call.data[0], math.prod(call.data[1:]))


@rule("expand_dims")
def _expand_dims(call: ShapeCall) -> Shape:
    data = call.data
    axis = call.axis(call.integer("axis"), len(data) + 1)
    return (*data[:axis], 1, *data[axis:])


@rule("squeeze _np_squeeze")
def _squeeze(call: ShapeCall) -> Shape:
    data = call.data
    if call.text("axis") is None:
        gone = {axis for axis, size in enumerate(data) if size == 1}
    else:
        gone = call.axes(call.sizes("axis", ()), len(data))
        if any(data[axis] != 1 for axis in gone):
            call.refuse(f"of {data} it drops the axes {sorted(gone)}, which are not all of size 1")
    kept = tuple(size for axis, size in enumerate(data) if axis not in gone)
    return kept or call.scalar()


@rule("transpose _np_transpose")
def _transpose(call: ShapeCall) -> Shape:
    data = call.data
    axes = [call.axis(axis, len(data)) for axis in call.sizes("axes", range(len(data))[::-1])]
    if sorted(axes) != list(range(len(data))):
        call.refuse(f"its axes {tuple(axes)} are not those of {data}")
    return tuple(data[axis] for axis in axes)


@rule("SwapAxis")
def _swap_axes(call: ShapeCall) -> Shape:
    sizes = list(call.data)
    one, other = (call.axis(call.integer(key, 0), len(sizes)) for key in ("dim1", "dim2"))
    sizes[one], sizes[other] = sizes[other], sizes[one]
    return tuple(sizes)


@rule("_np_moveaxis")
def _move_axes(call: ShapeCall) -> Shape:
    data = call.data
    source, target = (
        [call.axis(axis, len(data)) for axis in call.sizes(key)] for key in ("source", "destination")
    )
    order = [axis for axis in range(len(data)) if axis not in source]
    for place, axis in sorted(zip(target, source)):
        order.insert(place, axis)
    return tuple(data[axis] for axis in order)


# ---------------------------------------------------------------------- parts


@rule("slice")
def _slice(call: ShapeCall) -> Shape:
    data = call.data
    begins, ends, steps = (call.optional_sizes(key) for key in ("begin", "end", "step"))
    if len(begins) != len(ends) or len(begins) > len(data):
        call.refuse(f"it cuts {data} from {begins} to {ends}")
    sizes = list(data)
    for axis, (begin, end) in enumerate(zip(begins, ends)):
        step = (steps[axis] if axis < len(steps) else None) or 1
        sizes[axis] = len(range(data[axis])[slice(begin, end, step)])
    return tuple(sizes)


@rule("slice_axis")
def _slice_axis(call: ShapeCall) -> Shape:
    data = call.data
    axis = call.axis(call.integer("axis"), len(data))
    size = data[axis]
    begin, end = call.integer("begin"), call.integer("end", size)
    begin, end = begin + size * (begin < 0), end + size * (end < 0)
    if not 0 <= begin < end <= size:
        call.refuse(f"an axis of size {size} has no part from {begin} to {end}")
    return (*data[:axis], end - begin, *data[axis + 1 :])


@rule("_npi_diff")
def _differences(call: ShapeCall) -> Shape:
    data = call.data
    axis = call.axis(call.integer("axis", -1), len(data))
    return (*data[:axis], max(0, data[axis] - call.integer("n", 1)), *data[axis + 1 :])


@rule("slice_like")
def _slice_like(call: ShapeCall) -> Shape:
    data, like = call.data, call.shape(1)
    sizes = list(data)
    for given in call.sizes("axes", range(len(like))):
        axis = call.axis(given, len(data))
        if axis >= len(like) or like[axis] > data[axis]:
            call.refuse(f"{data} cannot be cut to {like} along the axis {axis}")
        sizes[axis] = like[axis]
    return tuple(sizes)


@rule("SliceChannel", partial=True)
def _slice_channel(call: ShapeCall) -> Sequence[MaybeShape]:
    data, parts = call.data, call.integer("num_outputs")
    axis = call.axis(call.integer("axis", 1), len(data))
    size = data[axis]
    if parts < 1 or (size != UNKNOWN and size % parts):
        call.refuse(f"an axis of size {size} cannot be divided into {parts} parts")
    part = size if size == UNKNOWN else size // parts
    if call.flag("squeeze_axis"):
        if part not in (1, UNKNOWN):
            call.refuse(f"its parts are {part} wide along the axis {axis}, and it drops that axis")
        return [(*data[:axis], *data[axis + 1 :])] * parts
    return [(*data[:axis], part, *data[axis + 1 :])] * parts


def split_edges(size: int, sections: int, indices: Sequence[int]) -> Sequence[int]:
    """Return where an axis is cut, its ends included.

    Parameters
    ----------
    size
        How long it is.
    sections
        In how many parts; the first are one longer where they cannot be equal (GetSplitIndices in
        matrix_op-inl.h). 0 where indices say it.
    indices
        Where each part begins.
    """
    if not sections:
        return [*indices, size]
    each, more = divmod(size, sections)
    return [number * each + min(number, more) for number in range(sections + 1)]


@rule("_split_v2 _npi_hsplit _npi_dsplit")
def _split_v2(call: ShapeCall) -> Sequence[MaybeShape]:
    data = call.data
    written = call.integer("axis", 1)
    if call.op == "_npi_hsplit":
        written = min(1, len(data) - 1)
    elif call.op == "_npi_dsplit":
        written = 2
    axis = call.axis(written, len(data))
    edges = split_edges(data[axis], call.integer("sections", 0), call.sizes("indices", (0,)))
    drops = call.flag("squeeze_axis")
    return [
        (*data[:axis], *(() if drops else (stop - start,)), *data[axis + 1 :])
        for start, stop in zip(edges, edges[1:])
    ]


# ---------------------------------------------------------------------- joining and repeating


@rule("Concat _npi_concatenate _rnn_param_concat")
def _concat(call: ShapeCall) -> Shape:
    shapes = call.shapes
    key, default = ("axis", 0) if call.op == "_npi_concatenate" else ("dim", 1)
    if call.op == "_npi_concatenate" and call.attrs.get("axis") == "None":
        return (sum(map(math.prod, shapes)),)
    return _joined(call, shapes, call.integer(key, default))


def _joined(call: ShapeCall, shapes: Sequence[Shape], along: int) -> Shape:
    first = shapes[0]
    axis = call.axis(along, len(first))
    beside = (*first[:axis], UNKNOWN, *first[axis + 1 :])
    for number, shape in enumerate(shapes):
        if merged(shape, beside) is None:
            call.refuse(f"input {number} has the shape {shape}, and {beside} is wanted")
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


@rule("_npi_vstack _npi_hstack _npi_dstack _npi_column_stack")
def _numpy_stacks(call: ShapeCall) -> Shape:
    """Join as NumPy does, which gives what has few axes more of them first."""
    shapes, axis = call.shapes, {"_npi_vstack": 0, "_npi_dstack": 2}.get(call.op, 1)
    if call.op == "_npi_hstack":
        axis = min(axis, len(shapes[0]) - 1)
    elif call.op == "_npi_column_stack":
        shapes = [(*shape, 1)[: max(2, len(shape))] for shape in shapes]
    else:
        shapes = [(1, *shape) if len(shape) == 1 else shape for shape in shapes]
        shapes = [(*shape, 1)[: max(axis + 1, len(shape))] for shape in shapes]
    return _joined(call, shapes, axis)


@rule("stack _npi_stack")
def _stack(call: ShapeCall) -> Shape:
    shapes = call.shapes
    if len(set(shapes)) > 1:
        call.refuse(f"it stacks the shapes {' and '.join(str(each) for each in sorted(set(shapes)))}")
    axis = call.axis(call.integer("axis", 0), len(shapes[0]) + 1)
    return (*shapes[0][:axis], len(shapes), *shapes[0][axis:])


@rule("_npi_pad")
def _numpy_pad(call: ShapeCall) -> Shape:
    data, widths = call.data, all_integers(str(call.text("pad_width", "")))
    if len(widths) != 2 * len(data):
        call.refuse(f"it pads {len(widths) // 2} axes of {data}")
    return tuple(before + size + behind for before, size, behind in zip(widths[::2], data, widths[1::2]))


@rule("tile")
def _tile(call: ShapeCall) -> Shape:
    data, times = call.data, call.sizes("reps", ())
    rank = max(len(data), len(times))
    data, times = ((1,) * (rank - len(each)) + each for each in (data, times))
    return tuple(size * count for size, count in zip(data, times))


@rule("repeat")
def _repeat(call: ShapeCall) -> Shape:
    data, times = call.data, call.integer("repeats")
    if call.text("axis") is None:
        return (times * math.prod(data),)
    axis = call.axis(call.integer("axis"), len(data))
    return (*data[:axis], times * data[axis], *data[axis + 1 :])


@rule("broadcast_axis")
def _broadcast_axis(call: ShapeCall) -> Shape:
    sizes = list(call.data)
    for given, size in zip(call.sizes("axis", ()), call.sizes("size", ())):
        axis = call.axis(given, len(sizes))
        if sizes[axis] != 1:
            call.refuse(f"the axis {axis} of {call.data} is not of size 1")
        sizes[axis] = size
    return tuple(sizes)


@rule("broadcast_to")
def _broadcast_to(call: ShapeCall) -> Shape:
    data, sizes = call.data, call.sizes("shape", ())
    if len(sizes) != len(data):
        call.refuse(f"{data} cannot be broadcast to {sizes}")
    return _broadcast(call, data, [own if size == 0 else size for own, size in zip(data, sizes)])


@rule("_npi_broadcast_to")
def _numpy_broadcast_to(call: ShapeCall) -> Shape:
    data, sizes = call.data, call.sizes("shape", ())
    own = (1,) * (len(sizes) - len(data)) + data
    return _broadcast(call, own, [size if wanted == -2 else wanted for size, wanted in zip(own, sizes)])


@rule("broadcast_like")
def _broadcast_like(call: ShapeCall) -> Shape:
    data, like = call.data, call.shape(1)
    if call.text("lhs_axes") is None:
        return _broadcast(call, data, like)
    sizes = list(data)
    for left, right in zip(call.sizes("lhs_axes"), call.sizes("rhs_axes")):
        sizes[call.axis(left, len(data))] = like[call.axis(right, len(like))]
    return _broadcast(call, data, sizes)


def _broadcast(call: ShapeCall, data: Shape, sizes: Sequence[int]) -> Shape:
    if len(data) != len(sizes) or any(own not in (1, size) for own, size in zip(data, sizes)):
        call.refuse(f"{data} cannot be broadcast to {tuple(sizes)}")
    return tuple(sizes)


@rule("depth_to_space")
def _depth_to_space(call: ShapeCall) -> Shape:
    (batch, channels, height, width), block = call.rank(0, 4), call.integer("block_size")
    if channels % block**2:
        call.refuse(f"{channels} channels cannot be divided into blocks of {block} by {block}")
    return (batch, channels // block**2, height * block, width * block)


@rule("space_to_depth")
def _space_to_depth(call: ShapeCall) -> Shape:
    (batch, channels, height, width), block = call.rank(0, 4), call.integer("block_size")
    if height % block or width % block:
        call.refuse(f"{height} by {width} cannot be divided into blocks of {block} by {block}")
    return (batch, channels * block**2, height // block, width // block)


@rule("scatter_nd")
def _scatter_nd(call: ShapeCall) -> Shape:
    return call.made(call.sizes("shape"))
