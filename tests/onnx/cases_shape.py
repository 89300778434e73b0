"""Shapes, parts, order, sequences, matrix products."""

from __future__ import annotations

from typing import Iterator

import numpy as np

from tests.onnx.operators import Case, case

__all__ = ["shape_cases"]

X = (2, 3, 4, 5)
DISTINCT = np.random.default_rng(5).permutation(120).astype(np.float32).reshape(X)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def shape_cases() -> Iterator[Case]:
    yield from moving_cases()
    yield from making_cases()
    yield from indexing_cases()
    yield from sequence_cases()
    yield from product_cases()
    yield from diagonal_cases()


def moving_cases() -> Iterator[Case]:
    for shape in (
        "(0, -1)",
        "(-1, 20)",
        "(0, 0, -3)",
        "(-3, -2)",
        "(0, -4, 3, -1, -2)",
        "(0, -4, 1, 3, 4, 5)",
    ):
        yield case("Reshape", X, shape=shape, tolerance=0)
    yield case("Reshape", X, shape="(-1, 0)", reverse=True, tolerance=0)
    yield case("reshape_like", X, (6, 20), tolerance=0)
    yield case("reshape_like", (2, 20, 1), X, lhs_begin=1, rhs_begin=2, tolerance=0)
    yield case("Flatten", X, tolerance=0)
    yield case("transpose", X, axes="(0, 2, 3, 1)", tolerance=0)
    yield case("transpose", X, tolerance=0)
    yield case("SwapAxis", X, dim1=1, dim2=3, tolerance=0)
    yield case("expand_dims", X, axis=-1, tolerance=0)
    yield case("squeeze", (2, 1, 3, 1), tolerance=0)
    yield case("squeeze", (2, 1, 3, 1), axis="(1,)", tolerance=0)
    yield case("slice", X, begin="(0, 1, None)", end="(None, 3, -1)", tolerance=0)
    yield case("slice", X, begin="(1, None)", end="(None, None)", step="(1, -1)", tolerance=0)
    yield case("slice", X, begin="(0, -1)", end="(2, 0)", step="(None, -1)", tolerance=0)
    yield case("slice_axis", X, axis=-1, begin=1, end="None", tolerance=0)
    yield case("slice_axis", X, axis=2, begin=-3, end=-1, tolerance=0)
    yield case("slice_like", X, (1, 2, 3, 3), tolerance=0)
    yield case("slice_like", X, (9, 9, 2, 3), axes="(2, 3)", tolerance=0)
    yield case("SliceChannel", X, num_outputs=3, outputs=3, tolerance=0)
    yield case("SliceChannel", X, num_outputs=2, axis=2, squeeze_axis=False, outputs=2, tolerance=0)
    yield case("SliceChannel", X, num_outputs=3, squeeze_axis=True, outputs=3, tolerance=0)
    yield case("SliceChannel", X, num_outputs=1, outputs=1, tolerance=0)
    yield case("_split_v2", X, indices="(0, 1, 3)", axis=3, outputs=3, tolerance=0)
    yield case("_split_v2", X, indices="()", sections=3, axis=3, outputs=3, tolerance=0)
    yield case("reverse", X, axis="(1, 3)", tolerance=0)
    yield case("Concat", X, (2, 1, 4, 5), dim=1, num_args=2, tolerance=0)
    yield case("stack", X, X, axis=-1, num_args=2, tolerance=0)
    yield case("tile", X, reps="(2, 1, 1, 3)", tolerance=0)
    yield case("tile", (2, 3), reps="(2, 2, 1)", tolerance=0)
    yield case("tile", X, reps="(2,)", tolerance=0)
    yield case("repeat", X, repeats=3, axis=1, tolerance=0)
    yield case("repeat", (2, 3), repeats=2, tolerance=0)
    yield case("broadcast_axis", (2, 1, 4, 1), axis="(1, 3)", size="(3, 5)", tolerance=0)
    yield case("broadcast_to", (2, 1, 4), shape="(0, 3, 4)", tolerance=0)
    yield case("broadcast_like", (2, 1, 4), (2, 3, 4), tolerance=0)
    yield case("broadcast_like", (1, 3, 4), (5, 2), lhs_axes="(0,)", rhs_axes="(0,)", tolerance=0)
    yield case("depth_to_space", (2, 8, 3, 4), block_size=2, tolerance=0)
    yield case("space_to_depth", (2, 3, 4, 6), block_size=2, tolerance=0)


def making_cases() -> Iterator[Case]:
    yield case("shape_array", X, tolerance=0)
    yield case("size_array", X, tolerance=0)
    yield case("zeros_like", X, tolerance=0)
    yield case("ones_like", X, tolerance=0)
    yield case("_arange", start=2, stop=7, step=1.5)
    yield case("_arange", start=4, stop="None", repeat=2, dtype="int32", tolerance=0)
    yield case("_linspace", start=1, stop=3, num=5, endpoint=False)
    yield case("_eye", N=3, M=5, k=1, tolerance=0)
    yield case("_zeros", shape="(2, 3)", dtype="int32", tolerance=0)
    yield case("_ones", shape="(2, 3)", tolerance=0)
    yield case("_full", shape="(2, 3)", value=1.25, tolerance=0)
    yield case("_contrib_arange_like", X, axis=2, start=1, step=0.5)
    yield case("_contrib_MultiBoxPrior", (1, 3, 4, 5), sizes="(0.2, 0.5)", ratios="(1, 2, 0.5)")
    yield case(
        *("_contrib_MultiBoxPrior", (1, 3, 4, 5)),
        sizes="(0.9,)",
        ratios="(1, 3)",
        clip=True,
        steps="(0.3, 0.2)",
        offsets="(0.4, 0.6)",
    )


def indexing_cases() -> Iterator[Case]:
    yield case("take", X, floats(0, 2, 5, -1), axis=1, tolerance=0)
    yield case("take", X, floats(0, 2, 5, -1), axis=1, mode="wrap", tolerance=0)
    yield case("Embedding", floats(0, 3, 9, 1), (4, 3), input_dim=4, output_dim=3, tolerance=0)
    yield case("pick", (3, 4), floats(0, 3, 7), tolerance=0)
    yield case("pick", (4,), floats(2), axis=0, tolerance=0)
    yield case("pick", (3, 4), floats(0, 3, 1)[:, None], axis=1, keepdims=True, tolerance=0)
    yield case("batch_take", (3, 4), np.array([0, 3, 1], np.int32), tolerance=0)
    yield case("gather_nd", X, floats(0, 1, 1, 2, 0, 1).reshape(2, 3), tolerance=0)
    yield case("one_hot", floats(0, 2, 5, -1), depth=4, on_value=2, off_value=-1, tolerance=0)
    yield case("_contrib_boolean_mask", (4, 3), floats(0, 2, 0, 1), tolerance=0)
    yield case("_contrib_index_copy", (5, 3), np.array([3, 0], np.int64), (2, 3), tolerance=0)
    yield case("_contrib_index_array", (2, 3, 4), tolerance=0)
    yield case("_contrib_index_array", (2, 3, 4), axes="(2, 0)", tolerance=0)
    yield case("_unravel_index", floats(0, 7, 59, 23), shape="(3, 4, 5)", tolerance=0)
    yield case("_unravel_index", np.array([0, 3], np.int64), shape="(4,)", tolerance=0)
    yield case("_ravel_multi_index", floats(0, 2, 1, 3, 4, 0).reshape(3, 2), shape="(3, 4, 5)", tolerance=0)
    for kind, outputs in (("both", 2), ("indices", 1), ("value", 1), ("mask", 1)):
        yield case("topk", DISTINCT, k=3, axis=2, ret_typ=kind, outputs=outputs, tolerance=0)
    yield case("topk", DISTINCT, k=2, is_ascend=True, ret_typ="both", dtype="int32", outputs=2, tolerance=0)
    yield case("sort", DISTINCT, axis=1, tolerance=0)
    yield case("sort", DISTINCT, axis=1, is_ascend=False, tolerance=0)
    yield case("argsort", DISTINCT, axis=-1, tolerance=0)
    yield case("argsort", DISTINCT, axis=1, is_ascend=False, dtype="int32", tolerance=0)
    yield case("argmax_channel", DISTINCT[:, :, 0, 0], tolerance=0)
    for op in ("argmax", "argmin"):
        yield case(op, DISTINCT, axis=1, tolerance=0)
        yield case(op, DISTINCT, axis=1, keepdims=True, tolerance=0)
        yield case(op, DISTINCT, tolerance=0)
        yield case(op, DISTINCT[0, 0, 0], axis=0, tolerance=0)


def sequence_cases() -> Iterator[Case]:
    lengths = floats(1, 4, 2)
    for axis, shape in ((0, (5, 3, 2)), (1, (3, 5, 2))):
        yield case(
            *("SequenceMask", shape, lengths), use_sequence_length=True, axis=axis, value=-7, tolerance=0
        )
        yield case("SequenceLast", shape, lengths, use_sequence_length=True, axis=axis, tolerance=0)
    yield case("SequenceMask", (5, 3, 2), tolerance=0)
    yield case("SequenceLast", (5, 3, 2), tolerance=0)
    yield case("SequenceReverse", (5, 3, 2), lengths, use_sequence_length=True, tolerance=0)
    yield case("SequenceReverse", (5, 3, 2), tolerance=0)


def product_cases() -> Iterator[Case]:
    yield case("batch_dot", (3, 2, 4), (3, 4, 5))
    yield case("batch_dot", (3, 4, 2), (3, 5, 4), transpose_a=True, transpose_b=True)
    yield case("dot", (2, 4), (4, 5))
    yield case("dot", (4,), (4,))
    yield case("dot", (4, 2), (5, 4), transpose_a=True, transpose_b=True)
    yield case("dot", (2, 3, 4), (4, 5))
    yield case("_contrib_div_sqrt_dim", X)
    qkv = (5, 2, 3 * 2 * 4)
    yield case("_contrib_interleaved_matmul_selfatt_qk", qkv, heads=2)
    yield case("_contrib_interleaved_matmul_selfatt_valatt", qkv, (4, 5, 5), heads=2)
    yield case("_contrib_interleaved_matmul_encdec_qk", (6, 2, 8), (5, 2, 16), heads=2)
    yield case("_contrib_interleaved_matmul_encdec_valatt", (5, 2, 16), (4, 6, 5), heads=2)
    for mode, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
        for layers, directions in ((1, 1), (2, 2)):
            size, inputs = 5, 3
            rows = gates * size
            count = rows * (inputs + size + 2) * directions
            count += (layers - 1) * directions * rows * (directions * size + size + 2)
            packed = np.random.default_rng(6).uniform(-0.5, 0.5, count).astype(np.float32)
            states = [(layers * directions, 2, size)] * (2 if mode == "lstm" else 1)
            yield case(
                *("RNN", (4, 2, inputs), packed, *states),
                parameters=(1,),
                mode=mode,
                state_size=size,
                num_layers=layers,
                bidirectional=directions == 2,
                state_outputs=True,
                outputs=3 if mode == "lstm" else 2,
                tolerance=2e-6,
            )
    yield case("_linalg_gemm2", (3, 2, 4), (3, 4, 5), alpha=0.5)
    yield case("_linalg_gemm2", (3, 4, 2), (3, 5, 4), transpose_a=True, transpose_b=True)
    yield case("_linalg_gemm", (2, 4), (4, 5), (2, 5), beta=-2)
    yield case("_npi_einsum", (3, 2, 4), (3, 4, 5), subscripts="bij, bjk->bik", num_args=2, numpy=True)
    yield case("scatter_nd", (3, 4), np.array([[1, 0, 2], [0, 3, 1]], np.float32), shape="(3, 5, 4)")
    yield case("_linalg_syrk", (2, 3, 4), alpha=0.5)
    yield case("_linalg_syrk", (2, 3, 4), transpose=True)
    yield case("_linalg_det", (2, 3, 3))
    yield case("_linalg_det", (3, 3))


def diagonal_cases() -> Iterator[Case]:
    for offset in (-1, 0, 2):
        yield case("diag", X, k=offset, tolerance=0)
        yield case("diag", X, k=offset, axis1=3, axis2=1, tolerance=0)
        yield case("diag", floats(1, np.inf, -2), k=offset, tolerance=0)
        yield case("_linalg_extractdiag", (2, 4, 4), offset=offset, tolerance=0)
        yield case("_linalg_makediag", (2, 3), offset=offset, tolerance=0)
