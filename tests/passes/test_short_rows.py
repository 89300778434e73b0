"""Without AVX-512 slices of short rows are cut by the operator that has a kernel, whatever is fed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.passes import PreparedNode, SliceShortRows
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import operators, prepare_graph, prepared, targets_that_choose

NARROW = Target.builtin("cpu-bf16-avx2")
SHAPE = (1, 20, 100, 1)


def cut(axis: int = 2, begin: Any = 10, end: Any = 80, *, dtype: str = "0") -> Graph:
    net = Net()
    x = net.var("x", __dtype__=dtype)
    return net.graph(net.op("slice_axis", x, name="y", axis=axis, begin=begin, end=end))


def shapes_of(axis: int = 2, shape: tuple[int, ...] = SHAPE, left: int = 70) -> list[Any]:
    written = list(shape)
    written[axis] = left
    return [(shape,), (tuple(written),)]


@pytest.mark.parametrize(
    ("axis", "begin", "end", "expected"),
    [
        (2, 10, 80, "{begin: (None, None, 10,), end: (None, None, 80,)}"),
        (-2, -90, -20, "{begin: (None, None, -90,), end: (None, None, -20,)}"),
        (2, 30, "None", "{begin: (None, None, 30,), end: (None, None, None,)}"),
    ],
)
def test_short_rows_are_sliced(axis: int, begin: int, end: Any, expected: str) -> None:
    graph = cut(axis, begin, end)
    after, done = prepared(SliceShortRows, graph, shapes=shapes_of())
    assert operators(after) == [f"y = slice(x) {expected}"]
    assert [(change.node, change.into) for change in done.changes] == [("y", "y")]


@pytest.mark.parametrize(
    ("axis", "shape", "left"),
    [
        pytest.param(1, (600, 100, 2, 3), 70, id="the second axis"),
        pytest.param(3, (1, 20, 100, 100), 70, id="the last axis"),
        pytest.param(2, (1, 20, 100, 65), 70, id="long rows"),
        pytest.param(2, (1, 14, 100, 1), 70, id="few rows"),
        pytest.param(1, (20, 100, 1), 70, id="three axes"),
        pytest.param(2, (1, 20, 100, 1, 1), 70, id="five axes"),
    ],
)
def test_shapes_that_stay(axis: int, shape: tuple[int, ...], left: int) -> None:
    graph = cut(axis)
    assert prepared(SliceShortRows, graph, shapes=shapes_of(axis, shape, left))[0] is graph


@pytest.mark.parametrize("case", ["no shapes", "float16", "any dtype", "rule", "another target"])
def test_refuses(case: str) -> None:
    graph = cut(dtype={"float16": "2", "any dtype": "-1"}.get(case, "0"))
    policy = Policy.default(BF16).excluding(names=["y"]) if case == "rule" else None
    target = Target.builtin("cpu-bf16") if case == "another target" else None
    shapes = None if case == "no shapes" else shapes_of()
    assert prepared(SliceShortRows, graph, policy=policy, target=target, shapes=shapes)[0] is graph


@pytest.mark.parametrize("shape", [SHAPE, (3, 5, 90, 1), (2, 4, 120, 7), (1, 2, 99, 70)])
@pytest.mark.parametrize(("axis", "begin", "end"), [(2, 10, 80), (-2, -89, -20), (2, 30, "None"), (2, 0, -1)])
def test_mxnet_cuts_the_same_in_every_call(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], axis: int, begin: int, end: Any
) -> None:
    graph = cut(axis, begin, end)
    done = prepare_graph(graph, {}, Policy.default(BF16), ["short_rows"], target=NARROW, shapes=shapes_of())
    assert [change.step for change in done.record(PreparedNode)] == ["short_rows"]
    x = on_edges(*shape)
    (expected,) = outputs(monkeypatch, graph, {}, {"x": x})
    (found,) = outputs(monkeypatch, done.graph, {}, {"x": x}, "MKLDNN")
    np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))


def test_targets_that_compute_in_float32_ask_for_it() -> None:
    assert targets_that_choose("short_rows", cut(), {}, shapes_of()) == ["cpu-bf16-intel"]
    for name in ("cpu-bf16-emulated", "cpu-bf16-avx2"):
        assert "short_rows" in Target.builtin(name).rewrites
