"""Diagonals of matrices, taken out and put in."""

from __future__ import annotations

import math

from mxamp.ops.shapes.call import Shape, ShapeCall, UnknownShapeError, rule

_MATRIX = 2


def _length(call: ShapeCall, rows: int, columns: int, offset: int) -> int:
    """Return how long a diagonal is; without NumPy's meaning of sizes none has an unknown length."""
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    if not length and not call.numpy:
        raise UnknownShapeError
    return length


def _diagonal(call: ShapeCall, offset: int) -> tuple[Shape, int]:
    """Return the axes beside two, and how long the diagonal over these is."""
    data = call.data
    first, second = (
        call.axis(call.integer(key, number), len(data)) for number, key in enumerate(("axis1", "axis2"))
    )
    if first == second:
        call.refuse(f"it takes the diagonal over the axis {first} and itself")
    others = tuple(size for axis, size in enumerate(data) if axis not in (first, second))
    return others, _length(call, data[first], data[second], offset)


def _filled(terms: int, offset: int) -> Shape:
    return (terms + abs(offset),) * 2


@rule("diag _np_diag")
def _diag(call: ShapeCall) -> Shape:
    data = call.rank(0, 1, 2) if call.op == "_np_diag" else call.data
    offset = call.integer("k", 0)
    if len(data) == 1:
        return _filled(data[0], offset)
    others, length = _diagonal(call, offset)
    return (*others, length)


@rule("_np_diagflat")
def _diagflat(call: ShapeCall) -> Shape:
    return _filled(math.prod(call.data), call.integer("k", 0))


@rule("_np_diagonal")
def _numpy_diagonal(call: ShapeCall) -> Shape:
    others, length = _diagonal(call, call.integer("offset", 0))
    return (*others, length)


@rule("_np_trace")
def _trace(call: ShapeCall) -> Shape:
    return _diagonal(call, call.integer("offset", 0))[0] or call.scalar()


@rule("_linalg_extractdiag")
def _extracted(call: ShapeCall) -> Shape:
    data = call.data
    if len(data) < _MATRIX or data[-2] != data[-1]:
        call.refuse(f"it takes the diagonal of square matrices, and not of {data}")
    return (*data[:-2], _length(call, data[-2], data[-1], call.integer("offset", 0)))


@rule("_linalg_makediag")
def _made(call: ShapeCall) -> Shape:
    return (*call.data[:-1], *_filled(call.data[-1], call.integer("offset", 0)))
