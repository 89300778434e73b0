"""Matrix products and interleaved self-attention."""

from __future__ import annotations

import math

from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tensor import Tensor, product


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
    left_sizes, right_sizes = call.lengths(left), call.lengths(right)
    flat_left = call.reshape_to(left, [-1, left_sizes[-1]])
    flat_right = call.reshape_to(right, [right_sizes[0], -1])
    return call.reshape_to(
        call.emit("MatMul", flat_left, flat_right), [*left_sizes[:-1], *right_sizes[1:]] or [1]
    )


@mapping("_linalg_gemm2", "MatMul, Transpose, Mul")
def _gemm2(call: Call) -> Written:
    return _product(call, *call.inputs)


@mapping("_linalg_gemm", "MatMul, Transpose, Mul, Add")
def _gemm(call: Call) -> Written:
    first, second, third = call.inputs
    result, factor = _product(call, first, second), call.number("beta", 1.0)
    added = third if factor == 1 else call.emit("Mul", third, call.scalar(factor, third))
    return call.emit("Add", result, added)


def _product(call: Call, first: Tensor, second: Tensor) -> Tensor:
    """Return alpha times the product of two matrices, whose rows are along ``axis``, the last but one."""
    rank = call.rank(first)
    if call.axis(first, call.integer("axis", -2)) != rank - 2:
        call.refuse("rows along another axis than the last but one have no mapping.")
    first = _swapped(call, first) if call.flag("transpose_a") else first
    second = _swapped(call, second) if call.flag("transpose_b") else second
    factor, result = call.number("alpha", 1.0), call.emit("MatMul", first, second)
    return result if factor == 1 else call.emit("Mul", result, call.scalar(factor, result))


@mapping("_linalg_syrk", "MatMul, Transpose, Mul")
def _syrk(call: Call) -> Written:
    data, turned = call.data, _swapped(call, call.data)
    result = call.emit("MatMul", *((turned, data) if call.flag("transpose") else (data, turned)))
    factor = call.number("alpha", 1.0)
    return result if factor == 1 else call.emit("Mul", result, call.scalar(factor, result))


@mapping("_linalg_det", "Det")
def _determinant(call: Call) -> Written:
    return call.emit("Det", call.data)


@mapping("_npi_einsum", "Einsum")
def _einsum(call: Call) -> Written:
    return call.emit("Einsum", *call.inputs, equation=str(call.text("subscripts")).replace(" ", ""))


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
    length, samples, _ = call.lengths(data)
    heads = call.integer("heads")
    size = call.size(data, 2) // (heads * count)
    parts = call.reshape_to(data, [length, samples, heads, count, size])
    parts = call.transpose(parts, [3, 1, 2, 0, 4])
    found = call.split(parts, [1] * count, 0) if count > 1 else (parts,)
    return [call.reshape_to(part, [product(samples, heads), length, size]) for part in found]


def _scores(call: Call, queries: Tensor, keys: Tensor) -> Tensor:
    factor = 1 / math.sqrt(call.size(queries, 2))
    scaled = call.emit("Mul", queries, call.scalar(factor, queries))
    return call.emit("MatMul", scaled, call.transpose(keys, [0, 2, 1]))


def _weighted(call: Call, weights: Tensor, values: Tensor) -> Tensor:
    heads = call.integer("heads")
    weighted = call.emit("MatMul", weights, values)
    _, length, _ = call.lengths(weighted)
    size = call.size(weighted, 2)
    apart = call.reshape_to(weighted, [-1, heads, length, size])
    return call.reshape(call.transpose(apart, [2, 0, 1, 3]), [0, 0, heads * size])


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
