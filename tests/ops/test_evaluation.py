"""What is computed at conversion is what MXNet computes, bit for bit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.ops.evaluation import EVALUATED, KEEPS_ORDER, evaluate, evaluated_shape

A, B = (2, 3, 4), (2, 1, 4)

CASES = [
    ("Reshape", [A], {"shape": "(-1,)"}),
    ("Reshape", [A], {"shape": "-1"}),
    ("Reshape", [A], {"shape": "(0, 0, -1)"}),
    ("Reshape", [A], {"shape": "(-3, -2)"}),
    ("Reshape", [A], {"shape": "(0, -3)"}),
    ("Reshape", [A], {"shape": "(-4, 1, -1, -2)"}),
    ("Reshape", [A], {"shape": "(0, -4, -1, 3, 0)"}),
    ("Reshape", [A], {"shape": "(-2, 1, 1)"}),
    ("Reshape", [A], {"shape": "(6, -1)"}),
    ("Reshape", [A], {"shape": "(-1, 0)", "reverse": "True"}),
    ("Reshape", [(10, 5, 4)], {"shape": "(-1, 0)", "reverse": "True"}),
    ("Flatten", [A], {}),
    ("expand_dims", [A], {"axis": "1"}),
    ("expand_dims", [A], {"axis": "-1"}),
    ("transpose", [A], {}),
    ("transpose", [A], {"axes": "(1, 0, 2)"}),
    ("SwapAxis", [A], {"dim1": "0", "dim2": "2"}),
    ("slice_axis", [A], {"axis": "1", "begin": "1", "end": "None"}),
    ("slice_axis", [A], {"axis": "-1", "begin": "0", "end": "-1"}),
    ("slice", [A], {"begin": "(0, 1)", "end": "(1, 3)"}),
    ("slice", [A], {"begin": "(None, -2)", "end": "(None, None)", "step": "()"}),
    ("broadcast_to", [B], {"shape": "(0, 5, 0)"}),
    ("broadcast_axis", [B], {"axis": "1", "size": "3"}),
    ("tile", [A], {"reps": "(2,)"}),
    ("tile", [A], {"reps": "(2, 1, 1, 3)"}),
    ("Concat", [A, B], {"dim": "1", "num_args": "2"}),
    ("Concat", [A, A], {"num_args": "2"}),
    ("Concat", [A, A], {"dim": "-1", "num_args": "2"}),
    ("_rnn_param_concat", [(6,), (3,), (9,)], {"dim": "0", "num_args": "3"}),
    ("_copy", [A], {}),
    ("BlockGrad", [A], {}),
    ("_ones", [], {"shape": "(2, 3)", "dtype": "float32"}),
    ("_zeros", [], {"shape": "(2, 3)"}),
    ("_full", [], {"shape": "(2, 3)", "value": "0.1"}),
    *[
        (f"{kind}_{name}", [A, A if kind == "elemwise" else B], {})
        for kind in ("elemwise", "broadcast")
        for name in ("add", "sub", "mul", "div")
    ],
    *[
        (f"_{name}_scalar", [A], {"scalar": scalar})
        for name in ("plus", "minus", "rminus", "mul", "div", "rdiv")
        for scalar in ("3.3", "-0.0", "1e-3")
    ],
    *[(name, [A], {}) for name in ("abs", "negative", "rsqrt", "sqrt", "square")],
    ("add_n", [A, A], {"num_args": "2"}),
]


SUMS: list[tuple[str, list[tuple[int, ...]], dict[str, str]]] = [
    ("sum", [A], {}),
    ("sum", [A], {"axis": "(1, 2)", "keepdims": "True"}),
    ("sum", [A], {"axis": "-1"}),
    ("sum", [A], {"axis": "0", "exclude": "True"}),
    ("mean", [A], {"axis": "(0, 2)"}),
    ("mean", [A], {"axis": "None", "keepdims": "True"}),
    ("norm", [A], {}),
    ("norm", [A], {"axis": "1", "keepdims": "True"}),
    ("norm", [A], {"ord": "2", "axis": "(0, 1)"}),
    ("dot", [(3, 40), (40, 2)], {}),
    ("dot", [(40, 3), (2, 40)], {"transpose_a": "True", "transpose_b": "True"}),
    ("L2Normalization", [(6, 40)], {}),
    ("L2Normalization", [(2, 3, 4, 5)], {"mode": "channel", "eps": "1e-3"}),
    ("L2Normalization", [(2, 3, 4, 5)], {"mode": "spatial"}),
]


def values(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return numbers of all sizes, among them the special ones."""
    draw = np.random.default_rng(seed)
    bits = draw.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)
    ordinary = draw.normal(0, 2, shape).astype(np.float32)
    special = draw.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42], np.float32), shape)
    return np.where(draw.random(shape) < 0.3, special, np.where(draw.random(shape) < 0.5, bits, ordinary))


def computed_by_mxnet(op: str, arrays: list[np.ndarray], attrs: dict[str, str]) -> np.ndarray:
    mx = pytest.importorskip("mxnet", reason="MXNet computes the same")
    from mxamp.graph import Entry, Graph, Node
    from mxamp.runtime.symbol import symbol_from_graph

    assert FACTS.canonical(op) == op
    inputs = [Node("null", f"in{number}") for number in range(len(arrays))]
    node = Node(op, "out", attrs, tuple(Entry(number) for number in range(len(arrays))))
    graph = Graph((*inputs, node), (Entry(len(arrays)),), {"mxnet_version": ["int", 10901]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
        bound = symbol_from_graph(graph).bind(
            mx.cpu(), {f"in{number}": mx.nd.array(array) for number, array in enumerate(arrays)}
        )
        return np.asarray(bound.forward()[0].asnumpy())


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"), CASES, ids=lambda case: case if isinstance(case, str) else ""
)
def test_the_bits_are_those_of_mxnet(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, str]) -> None:
    for seed in range(8):
        arrays = [values(shape, 10 * seed + number) for number, shape in enumerate(shapes)]
        expected = computed_by_mxnet(op, arrays, attrs)
        found = evaluate(op, arrays, attrs)
        assert found is not None
        assert found.dtype == np.float32
        assert found.shape == expected.shape == evaluated_shape(op, shapes, attrs)
        # Which NaN a NaN is, is not determined.
        same = (found.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(found) & np.isnan(expected))
        assert same.all()


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"), SUMS, ids=lambda case: case if isinstance(case, str) else ""
)
def test_sums_are_nearer_than_those_of_mxnet(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, str]
) -> None:
    """Against exact sums: ours are the nearest float32, or the one beside it for roots and products."""
    errors = []
    for seed in range(20):
        draw = np.random.default_rng(seed)
        arrays = [draw.normal(0.3, 2, shape).astype(np.float32) for shape in shapes]
        expected, found = computed_by_mxnet(op, arrays, attrs), evaluate(op, arrays, attrs)
        assert found is not None
        assert found.dtype == np.float32
        assert found.shape == expected.shape == evaluated_shape(op, shapes, attrs)
        np.testing.assert_allclose(found, expected, rtol=3e-6, atol=3e-6)
        exact = evaluate(op, arrays, attrs) if op == "L2Normalization" else exactly(op, arrays, attrs)
        assert exact is not None
        errors.append([np.abs(one.astype(np.float64) - exact).max() for one in (found, expected)])
        np.testing.assert_allclose(found, exact, rtol=2.0**-24 * 1.01, atol=1e-12)
    ours, theirs = np.mean(errors, axis=0)
    assert ours <= theirs or op == "L2Normalization"


def exactly(op: str, arrays: list[np.ndarray], attrs: dict[str, str]) -> np.ndarray:
    """Return what a sum, a mean, a norm or a product is, in float64, by fsum."""
    if op == "dot":
        first, second = (
            array.T if attrs.get(key) == "True" else array
            for array, key in zip(arrays, ("transpose_a", "transpose_b"))
        )
        return np.array(
            [
                [math.fsum(float(a) * float(b) for a, b in zip(row, column)) for column in second.T]
                for row in first
            ]
        )
    (data,) = arrays
    text = attrs.get("axis", "()")
    axes = tuple(axis % data.ndim for axis in integers(text if text != "None" else "()") or ())
    if attrs.get("exclude") == "True":
        axes = tuple(axis for axis in range(data.ndim) if axis not in axes)
    axes = axes or tuple(range(data.ndim))
    rest = [axis for axis in range(data.ndim) if axis not in axes]
    rows = data.transpose([*rest, *axes]).reshape([data.shape[axis] for axis in rest] + [-1])
    count = rows.shape[-1]
    sums = np.apply_along_axis(
        lambda row: math.fsum(float(one) ** (2 if op == "norm" else 1) for one in row), -1, rows
    )
    found = np.sqrt(sums) if op == "norm" else sums / count if op == "mean" else sums
    if attrs.get("keepdims") == "True":
        return np.asarray(found).reshape(
            [1 if axis in axes else size for axis, size in enumerate(data.shape)]
        )
    return np.atleast_1d(found)


def test_every_operator_is_compared_with_mxnet() -> None:
    assert {op for op, _, _ in (*CASES, *SUMS)} == EVALUATED
    assert KEEPS_ORDER < EVALUATED


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"),
    [
        ("exp", [A], {}),
        ("Reshape", [A], {}),
        ("Reshape", [A], {"shape": "(5, -1)"}),
        ("Reshape", [A], {"shape": "oops"}),
        # MXNet takes the number of the code for that of the axis.
        ("Reshape", [(2, 1, 2, 1)], {"shape": "(0, -4, -1, 1, -1, 1, 1)"}),
        ("Reshape", [(2, 3, 1)], {"shape": "(-2, -1)"}),
        ("slice_axis", [A], {"axis": "1", "begin": "2", "end": "9"}),
        ("slice", [A], {"begin": "(0,)", "end": "(1,)", "step": "(2,)"}),
        ("elemwise_add", [A, B], {}),
        ("add_n", [A, B], {"num_args": "2"}),
        ("add_n", [A] * 3, {"num_args": "3"}),
        ("broadcast_add", [A, (4,)], {}),
        ("broadcast_to", [B], {"shape": "(5, 0)"}),
        ("Concat", [A, (2, 3)], {"num_args": "2"}),
        ("_zeros", [], {"shape": "(2, 0, 32)"}),
        ("_mul_scalar", [A], {"scalar": "three"}),
    ],
)
def test_what_is_not_understood_is_not_computed(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, str]
) -> None:
    assert evaluate(op, [values(shape, 1) for shape in shapes], attrs) is None


def test_arithmetic_is_on_float32_alone_and_what_moves_values_on_all() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert evaluate("elemwise_add", [array, array], {}) is None
    moved = evaluate("transpose", [array], {})
    assert moved is not None
    assert moved.dtype == np.int32
