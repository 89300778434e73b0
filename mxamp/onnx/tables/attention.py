"""Matrix products and interleaved self-attention."""

from __future__ import annotations

import math

from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tensor import Tensor


def _swapped(call: Call, tensor: Tensor) -> Tensor:
    """Return a tensor with its last two axes swapped."""
    rank = call.rank(tensor)
    return call.transpose(tensor, [*range(rank - 2), rank - 1, rank - 2])


@mapping("batch_dot", "MatMul, Transpose")
def _batch_dot(call: Call) -> Written:
    left, right = call.inputs
    left = _swapped(call, left) if call.flag("transpose_a") else left
    return call.emit("MatMul", left, _swapped(call, right) if call.flag("transpose_b") else right)


@mapping("dot", "MatMul; Reshape and Transpose beyond two axes")
def _dot(call: Call) -> Written:
    left, right = call.inputs
    # It contracts the last axis of the first with the first axis of the second; transposing turns all axes
    # of a matrix, and of more axes it moves the first one behind the others.
    if call.flag("transpose_a"):
        left = call.transpose(left, [*range(1, call.rank(left)), 0])
    if call.flag("transpose_b"):
        rank = call.rank(right)
        right = call.transpose(right, [rank - 1, *range(rank - 1)])
    left_shape, right_shape = call.shape(left), call.shape(right)
    flat_left = call.reshape(left, [-1, left_shape[-1]])
    flat_right = call.reshape(right, [right_shape[0], -1])
    return call.reshape(
        call.emit("MatMul", flat_left, flat_right), [*left_shape[:-1], *right_shape[1:]] or [1]
    )


@mapping("_npi_matmul _np_dot", "MatMul")
def _matmul(call: Call) -> Written:
    if call.node.op == "_np_dot" and max(map(call.rank, call.inputs)) > 2:
        call.refuse("dot of more than two axes has no mapping.")
    if not call.rank(call.data) or not call.rank(call.inputs[1]):
        return call.emit("Mul", *call.inputs)
    return call.emit("MatMul", *call.inputs)


@mapping("_contrib_div_sqrt_dim", "Div")
def _div_sqrt_dim(call: Call) -> Written:
    size = call.size(call.data, call.rank(call.data) - 1)
    return call.emit("Div", call.data, call.scalar(math.sqrt(size), call.data))


def _parts(call: Call, data: Tensor, count: int) -> list[Tensor]:
    """Return queries, keys and values (or some of them), each of the shape (samples * heads, length, size).

    Interleaved they are of the shape (length, samples, heads * count * size).
    """
    length, samples, width = call.shape(data)
    heads = call.integer("heads")
    size = width // (heads * count)
    parts = call.reshape(data, [length, samples, heads, count, size])
    parts = call.transpose(parts, [3, 1, 2, 0, 4])
    found = call.split(parts, [1] * count, 0) if count > 1 else (parts,)
    return [call.reshape(part, [samples * heads, length, size]) for part in found]


def _scores(call: Call, queries: Tensor, keys: Tensor) -> Tensor:
    factor = 1 / math.sqrt(call.size(queries, 2))
    scaled = call.emit("Mul", queries, call.scalar(factor, queries))
    return call.emit("MatMul", scaled, call.transpose(keys, [0, 2, 1]))


def _weighted(call: Call, weights: Tensor, values: Tensor) -> Tensor:
    heads = call.integer("heads")
    product = call.emit("MatMul", weights, values)
    together, length, size = call.shape(product)
    samples = together // heads
    apart = call.reshape(product, [samples, heads, length, size])
    return call.reshape(call.transpose(apart, [2, 0, 1, 3]), [length, samples, heads * size])


@mapping("_contrib_interleaved_matmul_selfatt_qk", "Reshape, Transpose, Split, MatMul")
def _self_scores(call: Call) -> Written:
    queries, keys, _ = _parts(call, call.data, 3)
    return _scores(call, queries, keys)


@mapping("_contrib_interleaved_matmul_selfatt_valatt", "Reshape, Transpose, Split, MatMul")
def _self_values(call: Call) -> Written:
    return _weighted(call, call.inputs[1], _parts(call, call.data, 3)[2])


@mapping("_contrib_interleaved_matmul_encdec_qk", "Reshape, Transpose, Split, MatMul")
def _encoder_scores(call: Call) -> Written:
    return _scores(call, _parts(call, call.data, 1)[0], _parts(call, call.inputs[1], 2)[0])


@mapping("_contrib_interleaved_matmul_encdec_valatt", "Reshape, Transpose, Split, MatMul")
def _encoder_values(call: Call) -> Written:
    return _weighted(call, call.inputs[1], _parts(call, call.data, 2)[1])
