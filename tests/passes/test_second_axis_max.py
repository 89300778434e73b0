"""A maximum along the second axis is Pooling of channels last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.passes import PreparedNode, RewriteSecondAxisMax
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepare_graph, prepared, targets_that_choose

SHAPE = (2, 20, 6, 50)
PARTS = ["y_lines", "y_pooled", "y_rows"]


def largest(op: str = "max", dtype: str = "0", of: str = "relu", **attrs: Any) -> Graph:
    net = Net()
    x = net.op("transpose", net.op(of, net.var("x", __dtype__=dtype), name="made"), name="moved", axes=())
    return net.graph(net.op(op, x, name="y", **{"axis": 1, **attrs}))


def shapes_of(shape: tuple[int, ...] = SHAPE, *, keepdims: bool = False) -> list[Any]:
    kept = (1,) if keepdims else ()
    return [(shape[::-1],), (shape[::-1],), (shape,), ((shape[0], *kept, *shape[2:]),)]


@pytest.mark.parametrize(("op", "axis"), [("max", 1), ("max_axis", "(1,)"), ("max", -3)])
def test_a_maximum_becomes_pooling(op: str, axis: Any) -> None:
    graph = largest(op, axis=axis)
    after, done = prepared(RewriteSecondAxisMax, graph, shapes=shapes_of(), inserted=PARTS)
    assert operators(after)[2:] == [
        "y_lines = Reshape(moved) {shape: (0, 0, 1, -1)}",
        "y_pooled = Pooling(y_lines) {global_pool: True, kernel: (1, 1), layout: NHWC, pool_type: max}",
        "y_rows = Reshape(y_pooled) {shape: (0, -1)}",
        "y = reshape_like(y_rows, moved) {lhs_begin: 1, lhs_end: 2, rhs_begin: 2, rhs_end: 4}",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("y", "y")]


@pytest.mark.parametrize(
    "case",
    [
        "last axis",
        "two axes",
        "two dimensions",
        "excluded",
        "few values",
        "no shapes",
        "mask",
        "float16",
        "rule",
    ],
)
def test_refuses(case: str) -> None:
    attrs: dict[str, Any] = {
        "last axis": {"axis": 3},
        "two axes": {"axis": (1, 2)},
        "excluded": {"exclude": True},
        "mask": {"of": "log"},
        "float16": {"dtype": "2"},
    }.get(case, {})
    graph = largest(**attrs)
    shape = {"few values": (2, 4, 5, 6), "two dimensions": (400, 300)}.get(case, SHAPE)
    shapes = None if case == "no shapes" else shapes_of(shape)
    policy = Policy.default(BF16).excluding(names=["y"]) if case == "rule" else None
    assert prepared(RewriteSecondAxisMax, graph, policy=policy, shapes=shapes)[0] is graph


@pytest.mark.parametrize("op", ["broadcast_add", "elemwise_mul", "Concat"])
@pytest.mark.parametrize("other", ["tanh", "_copy"])
def test_a_mask_may_be_any_term(op: str, other: str) -> None:
    """What is added to scores, or stands beside them, is looked at as they are."""
    net = Net()
    x = net.var("x", __dtype__="0")
    terms = [net.op("relu", x, name="made"), net.op(other, net.var("mask", __dtype__="0"), name="other")]
    attrs = {"dim": 2} if op == "Concat" else {}
    graph = net.graph(net.op("max", net.op(op, *terms, name="both", **attrs), name="y", axis=1))
    both = (*SHAPE[:2], 12, 50) if op == "Concat" else SHAPE
    shapes: list[Any] = [(SHAPE,)] * 4 + [(both,), ((both[0], *both[2:]),)]
    inserted = PARTS if other == "tanh" else ()
    after, _ = prepared(RewriteSecondAxisMax, graph, shapes=shapes, inserted=inserted)
    assert (after is graph) == (other == "_copy")


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("shape", [SHAPE, (1, 64, 28, 28), (3, 1, 1, 7), (8, 130, 3, 5)])
def test_mxnet_finds_the_same(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], keepdims: bool
) -> None:
    graph, target = largest(keepdims=keepdims), Target.builtin("cpu-bf16")
    shapes = shapes_of(keepdims=keepdims)
    done = prepare_graph(graph, {}, Policy.default(BF16), ["second_axis_max"], target=target, shapes=shapes)
    assert [change.step for change in done.record(PreparedNode)] == ["second_axis_max"]
    x = np.random.default_rng(0).normal(0, 3, shape[::-1]).astype(np.float32)
    x[0, 0, :, 0] = np.inf
    (expected,) = outputs(monkeypatch, graph, {}, {"x": x}, "MKLDNN")
    (found,) = outputs(monkeypatch, done.graph, {}, {"x": x}, "MKLDNN")
    np.testing.assert_array_equal(found, expected)


def test_targets_of_cpus_name_it() -> None:
    found = targets_that_choose("second_axis_max", largest(), {}, shapes_of())
    assert found == ["cpu-bf16", "cpu-bf16-amx", "cpu-bf16-intel"]
