"""Sums and means along the last axis are products, whatever is fed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.passes import PreparedNode, RewriteLastAxisSum
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepare_graph, prepared

SHAPE = (2, 300, 6, 8)
PARTS = ["y_terms", "y_ones"]


def summed(dtype: str = "0", op: str = "sum", **attrs: Any) -> Graph:
    net = Net()
    return net.graph(net.op(op, net.var("x", __dtype__=dtype), name="y", **{"axis": 3, **attrs}))


def shapes_of(shape: tuple[int, ...] = SHAPE, *, keepdims: bool = False) -> list[Any]:
    return [(shape,), ((*shape[:-1], 1) if keepdims else shape[:-1],)]


def test_a_sum_becomes_a_product() -> None:
    after, done = prepared(RewriteLastAxisSum, summed(), shapes=shapes_of(), inserted=PARTS)
    assert operators(after) == [
        "y_terms = _contrib_arange_like(x) {axis: -1}",
        "y_ones = ones_like(y_terms)",
        "y = dot(x, y_ones)",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("y", "y")]


def test_a_mean_multiplies_by_shares() -> None:
    inserted = [*PARTS, "y_count", "y_shares"]
    after, _ = prepared(RewriteLastAxisSum, summed(op="mean"), shapes=shapes_of(), inserted=inserted)
    assert operators(after)[2:] == [
        "y_count = dot(y_ones, y_ones)",
        "y_shares = broadcast_div(y_ones, y_count)",
        "y = dot(x, y_shares)",
    ]


@pytest.mark.parametrize(
    "case", ["another axis", "excluded", "few values", "many terms", "no shapes", "float16", "rule"]
)
def test_refuses(case: str) -> None:
    graph, shapes, policy = summed(), shapes_of(), None
    if case == "another axis":
        graph = summed(axis=1)
    elif case == "excluded":
        graph = summed(exclude=True)
    elif case == "few values":
        shapes = shapes_of((1, 10, 6, 8))
    elif case == "many terms":
        shapes = shapes_of((2, 3, 4, 2000))
    elif case == "no shapes":
        shapes = None
    elif case == "float16":
        graph = summed("2")
    else:
        policy = Policy.default(BF16).excluding(names=["y"])
    assert prepared(RewriteLastAxisSum, graph, policy=policy, shapes=shapes)[0] is graph


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("shape", [SHAPE, (1, 2, 3, 5), (3, 70, 10, 33)])
def test_mxnet_computes_the_same_but_for_rounding(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], keepdims: bool, op: str
) -> None:
    graph, target = summed(op=op, keepdims=keepdims), Target.builtin("cpu-bf16")
    done = prepare_graph(graph, {}, Policy.default(BF16), target=target, shapes=shapes_of(keepdims=keepdims))
    assert [change.step for change in done.record(PreparedNode)] == ["last_axis_sum"]
    x = np.random.default_rng(0).normal(0, 3, shape).astype(np.float32)
    x[0, 0, 0, 0], x[0, 0, 1, 1], x[0, 1, 0, 2] = np.inf, -np.inf, np.nan
    x[0, 1, 1, :2] = np.inf, -np.inf
    (expected,) = outputs(monkeypatch, graph, {}, {"x": x})
    (found,) = outputs(monkeypatch, done.graph, {}, {"x": x}, "MKLDNN")
    assert found.shape == expected.shape
    with np.errstate(invalid="ignore"):
        magnitude = getattr(np.abs(x), op)(axis=3, keepdims=keepdims)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    terms = shape[-1] + (op == "mean")  # its share is rounded as well
    assert (np.abs(found - expected)[finite] <= terms * 2.0**-24 * magnitude[finite]).all()


def test_other_targets_keep_it() -> None:
    graph, target = summed(), Target.builtin("cuda-fp16")
    done = prepare_graph(graph, {}, Policy.default(target.dtype), target=target, shapes=shapes_of())
    assert done.graph is graph
