"""What is computed at conversion is what MXNet computes, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.ops import FACTS
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
    *[(name, [A], {}) for name in ("abs", "negative", "sqrt", "square")],
]


def values(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return numbers of all sizes, among them the special ones."""
    draw = np.random.default_rng(seed)
    bits = draw.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)
    ordinary = draw.normal(0, 2, shape).astype(np.float32)
    special = draw.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42], np.float32), shape)
    return np.where(draw.random(shape) < 0.3, special, np.where(draw.random(shape) < 0.5, bits, ordinary))


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"), CASES, ids=lambda case: case if isinstance(case, str) else ""
)
def test_the_bits_are_those_of_mxnet(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, str]) -> None:
    mx = pytest.importorskip("mxnet", reason="MXNet computes the same")
    from mxamp.graph import Entry, Graph, Node
    from mxamp.runtime.symbol import symbol_from_graph

    assert FACTS.canonical(op) == op
    inputs = [Node("null", f"in{number}") for number in range(len(shapes))]
    node = Node(op, "out", attrs, tuple(Entry(number) for number in range(len(shapes))))
    graph = Graph((*inputs, node), (Entry(len(shapes)),), {"mxnet_version": ["int", 10901]})
    for seed in range(8):
        arrays = [values(shape, 10 * seed + number) for number, shape in enumerate(shapes)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
            bound = symbol_from_graph(graph).bind(
                mx.cpu(), {f"in{number}": mx.nd.array(array) for number, array in enumerate(arrays)}
            )
            expected = bound.forward()[0].asnumpy()
        found = evaluate(op, arrays, attrs)
        assert found is not None
        assert found.dtype == np.float32
        assert found.shape == expected.shape == evaluated_shape(op, shapes, attrs)
        # Which NaN a NaN is, is not determined.
        same = (found.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(found) & np.isnan(expected))
        assert same.all()


def test_every_operator_is_compared_with_mxnet() -> None:
    assert {op for op, _, _ in CASES} == EVALUATED
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
