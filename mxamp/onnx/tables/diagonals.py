"""Diagonals of matrices, taken out and put in."""

from __future__ import annotations

import numpy as np

from mxamp.dtypes import DType
from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tensor import Tensor

_MATRIX = 2


def _diagonal(call: Call, data: Tensor, offset: int, first: int, second: int) -> Tensor:
    """Return a diagonal over two axes as the last axis, behind all others."""
    rank, sizes = call.rank(data), call.lengths(data)
    axes = [call.axis(data, axis) for axis in (first, second)]
    rows, columns = (call.size(data, axis) for axis in axes)
    others = [axis for axis in range(rank) if axis not in axes]
    places = np.diagonal(np.arange(rows * columns).reshape(rows, columns), offset)
    if not places.size:
        call.refuse(f"the diagonal {offset} of a matrix of {rows} x {columns} is empty.")
    turned = call.transpose(data, [*others, *axes])
    flat = call.reshape_to(turned, [*(sizes[axis] for axis in others), rows * columns])
    return call.emit("Gather", flat, call.indices(places), axis=rank - _MATRIX)


def _matrices(call: Call, data: Tensor, offset: int) -> Tensor:
    """Return matrices of zeros but for a diagonal, which the last axis holds."""
    rank = call.rank(data)
    terms = call.size(data, rank - 1)
    size = terms + abs(offset)
    # The place of each value; beside the diagonal any will do.
    places = np.zeros((size, size), np.int64)
    mask = np.eye(size, k=offset, dtype=np.bool_)
    places[mask] = np.arange(terms)
    values = call.emit("Gather", data, call.indices(places), axis=rank - 1)
    return call.emit("Where", call.array(mask, DType.BOOL), values, call.scalar(0, data))


@mapping("diag _np_diag", "Transpose, Reshape, Gather; Gather and Where with a constant mask of one axis")
def _diag(call: Call) -> Written:
    offset = call.integer("k", 0)
    if call.rank(call.data) < _MATRIX:
        return _matrices(call, call.data, offset)
    return _diagonal(call, call.data, offset, call.integer("axis1", 0), call.integer("axis2", 1))


@mapping("_np_diagflat", "Reshape, Gather, Where with a constant mask")
def _diagflat(call: Call) -> Written:
    return _matrices(call, call.reshape(call.data, [-1]), call.integer("k", 0))


@mapping("_np_diagonal", "Transpose, Reshape, Gather")
def _numpy_diagonal(call: Call) -> Written:
    axes = call.integer("axis1", 0), call.integer("axis2", 1)
    return _diagonal(call, call.data, call.integer("offset", 0), *axes)


@mapping("_np_trace", "Transpose, Reshape, Gather, ReduceSum")
def _trace(call: Call) -> Written:
    axes = call.integer("axis1", 0), call.integer("axis2", 1)
    terms = _diagonal(call, call.data, call.integer("offset", 0), *axes)
    return call.reduce("ReduceSum", terms, [call.rank(terms) - 1], keepdims=False)


@mapping("_linalg_extractdiag", "Reshape, Gather")
def _extracted(call: Call) -> Written:
    return _diagonal(call, call.data, call.integer("offset", 0), -2, -1)


@mapping("_linalg_makediag", "Gather, Where with a constant mask")
def _made(call: Call) -> Written:
    return _matrices(call, call.data, call.integer("offset", 0))
