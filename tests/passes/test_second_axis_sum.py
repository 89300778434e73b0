"""Sums and means along the second axis are products with ones, whatever is fed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.passes import PreparedNode, RewriteSecondAxisSum
from mxamp.passes.state import State
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepare_graph, prepared

SHAPE = (2, 300, 6, 8)
PARTS = ["y_rows", "y_column", "y_ones", "y_product"]


def summed(dtype: str = "0", op: str = "sum", **attrs: Any) -> Graph:
    net = Net()
    return net.graph(net.op(op, net.var("x", __dtype__=dtype), name="y", **{"axis": 1, **attrs}))


def shapes_of(shape: tuple[int, ...] = SHAPE, *, keepdims: bool = False, axis: int = 1) -> list[Any]:
    return [(shape,), ((*shape[:axis], *((1,) if keepdims else ()), *shape[axis + 1 :]),)]


@pytest.mark.parametrize(("op", "axis"), [("sum", 1), ("sum_axis", 1), ("sum", -3)])
def test_a_sum_becomes_a_product(op: str, axis: int) -> None:
    graph = summed(op=op, axis=axis)
    after, done = prepared(RewriteSecondAxisSum, graph, shapes=shapes_of(), inserted=PARTS)
    assert operators(after) == [
        "y_rows = Reshape(x) {shape: (0, 0, -1)}",
        "y_column = slice_axis(y_rows) {axis: 2, begin: 0, end: 1}",
        "y_ones = ones_like(y_column)",
        "y_product = batch_dot(y_rows, y_ones) {transpose_a: True}",
        "y = reshape_like(y_product, x) {lhs_begin: 1, rhs_begin: 2}",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("y", "y")]


def test_a_mean_divides_by_the_number_of_terms() -> None:
    inserted = [*PARTS, "y_count", "y_mean"]
    after, _ = prepared(RewriteSecondAxisSum, summed(op="mean"), shapes=shapes_of(), inserted=inserted)
    assert operators(after)[3:] == [
        "y_product = batch_dot(y_rows, y_ones) {transpose_a: True}",
        "y_count = batch_dot(y_ones, y_ones) {transpose_a: True}",
        "y_mean = broadcast_div(y_product, y_count)",
        "y = reshape_like(y_mean, x) {lhs_begin: 1, rhs_begin: 2}",
    ]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [2, -2])
def test_along_the_third_axis_those_before_are_one(axis: int, keepdims: bool) -> None:
    graph, shapes = summed(axis=axis, keepdims=keepdims), shapes_of(keepdims=keepdims, axis=2)
    inserted = [*PARTS, "y_like", *([] if keepdims else ["y_kept"])]
    after, _ = prepared(RewriteSecondAxisSum, graph, shapes=shapes, inserted=inserted)
    lines = operators(after)
    assert lines[0] == "y_rows = Reshape(x) {shape: (-3, 0, -1)}"
    assert lines[4] == "y_like = slice_axis(x) {axis: 2, begin: 0, end: 1}"
    if keepdims:
        assert lines[5:] == ["y = reshape_like(y_product, y_like)"]
    else:
        assert lines[5:] == [
            "y_kept = reshape_like(y_product, y_like)",
            "y = Reshape(y_kept) {shape: (0, 0, -3, -2)}",
        ]
    state = prepare_graph(
        graph, {}, Policy.default(BF16), target=Target.builtin("cpu-bf16"), shapes=shapes_of(axis=2)
    )
    assert state.shapes is not None
    found = {node.name: shape for node, shape in zip(state.graph.nodes, state.shapes)}
    assert found["y_rows"] == ((600, 6, 8),)
    assert found["y_product"] == ((600, 8, 1),)
    assert found["y_like"] == ((2, 300, 1, 8),)


@pytest.mark.parametrize(
    "case",
    [
        *("last axis", "first axis", "two axes", "excluded", "few values", "many terms", "no shapes"),
        *("float16", "rule", "third of three", "third of an uncertain number"),
    ],
)
def test_refuses(case: str) -> None:
    graph, shapes, policy = summed(), shapes_of(), None
    if case == "last axis":
        shapes = [((30, 300),), ((30,),)]
    elif case == "first axis":
        graph = summed(axis=0)
    elif case == "two axes":
        graph = summed(axis=(1, 2))
    elif case == "excluded":
        graph = summed(exclude=True)
    elif case == "few values":
        shapes = shapes_of((1, 10, 6, 8))
    elif case == "many terms":
        shapes = shapes_of((2, 5000, 4))
    elif case == "no shapes":
        shapes = None
    elif case == "float16":
        graph = summed("2")
    elif case == "third of three":
        graph, shapes = summed(axis=2), shapes_of((2, 300, 8), axis=2)
    elif case == "third of an uncertain number":
        graph, usual = summed(axis=2, keepdims=True), shapes_of(axis=2, keepdims=True)
        start = State.of(graph, {}, Policy.default(BF16), Target.builtin("cpu-bf16"))
        assert (
            RewriteSecondAxisSum().run(replace(start, assumed_shapes=usual, are_axes_certain=False)) is None
        )
        return
    else:
        policy = Policy.default(BF16).excluding(names=["y"])
    assert prepared(RewriteSecondAxisSum, graph, policy=policy, shapes=shapes)[0] is graph


@pytest.mark.parametrize("says", [True, False])
def test_assumed_shapes_hold_behind_a_reshape_that_says_how_many_axes_there_are(says: bool) -> None:
    """However many the input has."""
    net = Net()
    data = net.var("x", __dtype__="0")
    rows = net.op("Reshape", data, shape="(-1, 300, 8)") if says else net.op("exp", data)
    graph = net.graph(net.op("sum", net.op("reciprocal", rows), name="y", axis=1))
    usual = [((2, 300, 8),)] * 3 + [((2, 8),)]
    start = State.of(graph, {}, Policy.default(BF16), Target.builtin("cpu-bf16"))
    done = RewriteSecondAxisSum().run(replace(start, assumed_shapes=usual, are_axes_certain=False))
    assert (done is not None) == says


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        (SHAPE, 1),
        ((1, 1152, 10, 16), 1),
        ((3, 70, 33), 1),
        ((1, 2, 3, 5, 4), 1),
        ((2, 24, 56, 48), 2),
        ((1, 3, 70, 33), 2),
    ],
)
def test_mxnet_computes_the_same_but_for_rounding(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], axis: int, keepdims: bool, op: str
) -> None:
    graph, target = summed(op=op, keepdims=keepdims, axis=axis), Target.builtin("cpu-bf16")
    shapes = shapes_of(keepdims=keepdims, axis=axis)
    done = prepare_graph(graph, {}, Policy.default(BF16), target=target, shapes=shapes)
    assert [change.step for change in done.record(PreparedNode)] == ["second_axis_sum"]
    x = np.random.default_rng(0).normal(0, 3, shape).astype(np.float32)
    rows = x.reshape(-1, shape[axis], math.prod(shape[axis + 1 :]))  # of the same memory
    rows[0, 0, 0], rows[0, 0, 1], rows[0, 1, 2] = np.inf, -np.inf, np.nan
    rows[0, :2, 3] = np.inf, -np.inf
    (expected,) = outputs(monkeypatch, graph, {}, {"x": x})
    (found,) = outputs(monkeypatch, done.graph, {}, {"x": x}, "MKLDNN")
    assert found.shape == expected.shape
    finite = np.isfinite(expected)
    assert (~finite).sum() == 4
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    with np.errstate(invalid="ignore"):  # opposite infinities
        exact = getattr(x, op)(axis=axis, keepdims=keepdims, dtype=np.float64)
        magnitude = getattr(np.abs(x), op)(axis=axis, keepdims=keepdims, dtype=np.float64)
    off = (found[finite] - exact[finite]) / magnitude[finite]
    assert (np.abs(off) <= shape[axis] * 2.0**-24).all()
    # Rounding to nearest has no side: what is off in the mean is less than half a unit in the last place.
    assert abs(off.mean()) < 2.0**-25


def test_with_kept_axes_their_number_need_not_be_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sequence of rows was assumed; two axes, and five, may come."""
    graph, target = summed(keepdims=True), Target.builtin("cpu-bf16")
    done = prepare_graph(graph, {}, Policy.default(BF16), target=target, shapes=shapes_of(keepdims=True))
    for shape in ((4, 9), (2, 3, 4, 5, 6)):
        x = np.random.default_rng(1).normal(0, 3, shape).astype(np.float32)
        (found,) = outputs(monkeypatch, done.graph, {}, {"x": x}, "MKLDNN")
        np.testing.assert_allclose(found, x.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_other_targets_keep_it() -> None:
    graph, target = summed(), Target.builtin("cuda-fp16")
    done = prepare_graph(graph, {}, Policy.default(target.dtype), target=target, shapes=shapes_of())
    assert done.graph is graph


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [3, 4, -2])
def test_along_later_axes_those_before_are_joined(
    monkeypatch: pytest.MonkeyPatch, op: str, keepdims: bool, axis: int
) -> None:
    shape = (2, 3, 4, 5, 6, 7)
    graph = summed(op=op, axis=axis, keepdims=keepdims)
    state = prepare_graph(
        graph,
        {},
        Policy.default(BF16),
        [RewriteSecondAxisSum.step],
        target=Target.builtin("cpu-bf16"),
        shapes=shapes_of(shape, keepdims=keepdims, axis=axis % len(shape)),
    )
    assert [change.step for change in state.record(PreparedNode)] == ["second_axis_sum"]
    for other in (shape, (1, 1, 2, 3, 9, 2)):
        values = {"x": np.random.default_rng(0).standard_normal(other).astype(np.float32)}
        (expected,) = outputs(monkeypatch, graph, {}, values)
        (found,) = outputs(monkeypatch, state.graph, {}, values, "MKLDNN")
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)
