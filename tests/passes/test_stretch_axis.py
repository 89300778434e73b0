"""Values are repeated along an axis by the operator that does so fastest, and are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import StretchAxis
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import CPUS, operators, prepare_graph, prepared, targets_that_choose


def repeated(
    lengths: tuple[int, ...], place: int, op: str, *, is_certain: bool = True, dtype: str = "0", **attrs: Any
) -> tuple[Graph, list[Any]]:
    """Return values of which an axis is one, of an expand_dims where that is certain, repeated."""
    net = Net()
    x: Entry = net.var("x", __dtype__=dtype)
    shapes: list[Any] = [(lengths,)]
    if is_certain:
        shapes = [((*lengths[:place], *lengths[place + 1 :]),), (lengths,)]
        x = net.op("expand_dims", x, name="column", axis=place)
    graph = net.graph(net.op(op, x, name="y", **attrs))
    return graph, shapes


def in_full(shapes: list[Any], axis: int, size: int) -> list[Any]:
    (shape,) = shapes[-1]
    return [*shapes, ((*shape[:axis], size, *shape[axis + 1 :]),)]


STRETCHED = "broadcast_axis(column)"

CASES: list[tuple[tuple[int, ...], int, str, dict[str, Any], str]] = [
    ((4, 64, 1), 2, "broadcast_axis", {"axis": 2, "size": 40}, "tile(column) {reps: (40,)}"),
    ((4, 64, 1), 2, "broadcast_axis", {"axis": "(2,)", "size": "(40,)"}, "tile(column) {reps: (40,)}"),
    ((4, 1, 64), 1, "tile", {"reps": "(1, 40, 1)"}, f"{STRETCHED} {{axis: 1, size: 40}}"),
    ((4, 1, 64), 1, "tile", {"reps": "(40, 1)"}, f"{STRETCHED} {{axis: 1, size: 40}}"),
    (
        (4, 1, 8, 8),
        1,
        "broadcast_to",
        {"shape": "(0, 40, 0, 0)"},
        f"{STRETCHED} {{axis: 1, size: 40}}",
    ),
    ((1, 64), 0, "repeat", {"repeats": 80, "axis": 0}, f"{STRETCHED} {{axis: 0, size: 80}}"),
    ((4, 1, 64), 1, "repeat", {"repeats": 40, "axis": -2}, f"{STRETCHED} {{axis: 1, size: 40}}"),
]


@pytest.mark.parametrize(("shape", "axis", "op", "attrs", "expected"), CASES)
def test_another_operator_repeats_them(
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, ...],
    axis: int,
    op: str,
    attrs: dict[str, Any],
    expected: str,
) -> None:
    graph, shapes = repeated(shape, axis, op, **attrs)
    shapes = in_full(shapes, axis, 80 if op == "repeat" and axis == 0 else 40)
    after, done = prepared(StretchAxis, graph, shapes=shapes)
    assert operators(after)[-1] == f"y = {expected}"
    assert [(change.node, change.into) for change in done.changes] == [("y", "y")]
    for batch in (1, 3):  # as many as there are, whatever was known
        given = shapes[0][0] if axis == 0 else (batch, *shapes[0][0][1:])
        x = np.random.default_rng(batch).normal(size=given).astype(np.float32)
        x.flat[0], x.flat[1], x.flat[2] = np.nan, -np.inf, -0.0
        (before,) = outputs(monkeypatch, graph, {}, {"x": x})
        (found,) = outputs(monkeypatch, after, {}, {"x": x}, "MKLDNN")
        np.testing.assert_array_equal(found.view(np.uint32), before.view(np.uint32))


@pytest.mark.parametrize(
    "case",
    [
        *("not certainly one", "two axes", "fast as it is", "little behind", "few values", "no shapes"),
        *("float16", "rule", "flattened", "another axis may be one"),
    ],
)
def test_refuses(case: str) -> None:
    graph, shapes = repeated((4, 1, 64), 1, "tile", reps="(1, 40, 1)")
    axis, size, policy = 1, 40, None
    if case == "not certainly one":
        graph, shapes = repeated((4, 1, 64), 1, "tile", is_certain=False, reps="(1, 40, 1)")
    elif case == "two axes":
        graph, shapes = repeated((4, 1, 64), 1, "tile", reps="(2, 40, 1)")
    elif case == "fast as it is":
        graph, shapes = repeated((4, 1, 64), 1, "broadcast_axis", axis=1, size=40)
    elif case == "little behind":
        graph, shapes = repeated((400, 1, 8), 1, "tile", reps="(1, 40, 1)")
    elif case == "few values":
        graph, shapes = repeated((1, 1, 64), 1, "tile", reps="(1, 40, 1)")
    elif case == "float16":
        graph, shapes = repeated((4, 1, 64), 1, "tile", dtype="2", reps="(1, 40, 1)")
    elif case == "rule":
        policy = Policy.default(BF16).excluding(names=["y"])
    elif case == "flattened":
        graph, shapes = repeated((4, 1, 64), 1, "repeat", repeats=40)
        assert prepared(StretchAxis, graph, shapes=[*shapes, ((4 * 64 * 40,),)])[0] is graph
        return
    elif case == "another axis may be one":
        graph, shapes = repeated((4, 1, 64), 1, "broadcast_to", shape="(4, 40, 64)")
    known = None if case == "no shapes" else in_full(shapes, axis, size)
    assert prepared(StretchAxis, graph, policy=policy, shapes=known)[0] is graph


def test_cpus_choose_it() -> None:
    graph, shapes = repeated((4, 64, 1), 2, "broadcast_axis", axis=2, size=40)
    assert targets_that_choose("stretch_axis", graph, parameters({}), in_full(shapes, 2, 40)) == CPUS


def test_it_is_done_in_a_conversion() -> None:
    graph, shapes = repeated((4, 64, 1), 2, "broadcast_axis", axis=2, size=40)
    target = Target.builtin("cpu-bf16")
    done = prepare_graph(graph, {}, Policy.default(BF16), target=target, shapes=in_full(shapes, 2, 40))
    assert operators(done.graph)[-1] == "y = tile(column) {reps: (40,)}"
