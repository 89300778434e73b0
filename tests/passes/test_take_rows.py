"""Without AVX-512 what is taken between other axes is taken along the first, whatever is fed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.passes import PreparedNode, TakeRows
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import CPUS, operators, prepare_graph, prepared, targets_that_choose

NARROW = Target.builtin("cpu-bf16-avx2")
STEP = TakeRows.step
SHAPE = (2, 12, 20, 30)


def taking(
    axis: int = 1, count: int = 12, *, dtype: str = "0", times: int = 1, **attrs: Any
) -> tuple[Net, Graph]:
    net = Net()
    x = net.var("x", __dtype__=dtype)
    indices = net.param("indices", count)
    net.params["indices"] = np.random.default_rng(4).permutation(count).astype(np.float32)
    taken = [net.op("take", x, indices, name=f"y{n}", axis=axis, **attrs) for n in range(times)]
    return net, net.graph(*taken)


def shapes_of(axis: int = 1, shape: tuple[int, ...] = SHAPE, count: int = 12) -> list[Any]:
    written = list(shape)
    written[axis] = count
    return [(shape,), ((count,),), (tuple(written),)]


@pytest.mark.parametrize("axis", [1, -3])
def test_what_is_taken_is_turned(axis: int) -> None:
    net, graph = taking(axis, mode="wrap")
    inserted = ["y0_first", "y0_rows"]
    after, done = prepared(TakeRows, graph, net.params, inserted=inserted, shapes=shapes_of())
    assert operators(after) == [
        "y0_first = transpose(x) {axes: (1, 0, 2, 3)}",
        "y0_rows = take(y0_first, indices) {axis: 0, mode: wrap}",
        "y0 = transpose(y0_rows) {axes: (1, 0, 2, 3)}",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("y0", "y0")]


def test_what_is_taken_from_twice_is_turned_once() -> None:
    net, graph = taking(times=2)
    shapes = [*shapes_of(), (SHAPE,)]
    inserted = ["y0_first", "y0_rows", "y1_rows"]
    after, _ = prepared(TakeRows, graph, net.params, inserted=inserted, shapes=shapes)
    assert len(operators(after)) == 5


@pytest.mark.parametrize(
    ("axis", "shape", "count"),
    [
        pytest.param(0, (12, 2, 20, 30), 12, id="the first axis"),
        pytest.param(2, (2, 200, 12), 12, id="the last axis"),
        pytest.param(1, (2, 12, 5, 5, 12), 12, id="five axes"),
        pytest.param(1, (2, 12, 10, 10), 12, id="few values"),
        pytest.param(1, (2, 100, 20, 30), 12, id="few of many"),
    ],
)
def test_shapes_that_stay(axis: int, shape: tuple[int, ...], count: int) -> None:
    net, graph = taking(axis, count)
    assert prepared(TakeRows, graph, net.params, shapes=shapes_of(axis, shape, count))[0] is graph


@pytest.mark.parametrize("case", ["no shapes", "float16", "any dtype", "rule", "another target", "table"])
def test_refuses(case: str) -> None:
    net, graph = taking(dtype={"float16": "2", "any dtype": "-1"}.get(case, "0"))
    policy = Policy.default(BF16).excluding(names=["y0"]) if case == "rule" else None
    target = replace(Target.builtin("cpu-bf16"), rewrites=()) if case == "another target" else None
    shapes = None if case == "no shapes" else shapes_of()
    if case == "table":  # of indices
        net.params["indices"] = net.params["indices"].reshape(3, 4)
        shapes = [(SHAPE,), ((3, 4),), ((2, 3, 4, 20, 30),)]
    assert prepared(TakeRows, graph, net.params, policy, target=target, shapes=shapes)[0] is graph


@pytest.mark.parametrize(
    ("axis", "shape"), [(1, SHAPE), (1, (3, 12, 200)), (2, (3, 4, 12, 50)), (-2, (1, 12, 500))]
)
@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_mxnet_takes_the_same_in_every_call(
    monkeypatch: pytest.MonkeyPatch, axis: int, shape: tuple[int, ...], mode: str
) -> None:
    """Also where there are fewer than the indices say, and some are counted from the end."""
    pytest.importorskip("mxnet", reason="graphs are executed")
    from mxamp.runtime.shapes import infer_shapes

    net, graph = taking(axis, mode=mode)
    net.params["indices"][:3] = (-1, 40, -30)
    given = parameters(net.params)
    known = shapes_of(axis, shape)
    done = prepare_graph(graph, given, Policy.default(BF16), [STEP], target=NARROW, shapes=known)
    assert [change.step for change in done.record(PreparedNode)] == [STEP]
    assert list(done.shapes or ()) == list(infer_shapes(done.graph, {"x": shape}, given))
    for length in (12, 5, 17):
        other = list(shape)
        other[axis] = length
        for batch in (shape[0], 4):
            data = {"x": on_edges(batch, *other[1:])}
            (expected,) = outputs(monkeypatch, graph, given, data)
            (found,) = outputs(monkeypatch, done.graph, done.params, data, "MKLDNN")
            np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))


def test_it_is_for_cpus() -> None:
    net, graph = taking()
    assert targets_that_choose(STEP, graph, parameters(net.params), shapes_of()) == CPUS
