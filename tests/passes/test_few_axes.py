"""Values are moved along as few axes as possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.passes import MoveFewAxes, PreparedNode
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import operators, prepare_graph, prepared, targets_that_choose

BOXES = (8, 3, 85, 13, 13)


def moving(op: str = "transpose", dtype: str = "0", shape: Any = None, **attrs: Any) -> Graph:
    """Return a graph that moves values, behind a Reshape that says how long its axes are."""
    net = Net()
    x = net.var("x", __dtype__=dtype)
    if shape is not None:
        x = net.op("Reshape", x, name="known", shape=(0, *shape[1:]))
    return net.graph(net.op(op, x, name="y", **attrs))


def shapes_of(shape: tuple[int, ...], order: tuple[int, ...], *, is_known: bool = True) -> list[Any]:
    return [(shape,)] * (1 + is_known) + [(tuple(shape[axis] for axis in order),)]


def test_runs_of_axes_are_moved() -> None:
    order = (0, 3, 4, 1, 2)
    graph = moving(shape=BOXES, axes=order)
    after, done = prepared(
        MoveFewAxes, graph, shapes=shapes_of(BOXES, order), inserted=["y_reshape", "y_transpose"]
    )
    assert operators(after)[1:] == [
        "y_reshape = Reshape(known) {shape: (0, 255, 169)}",
        "y_transpose = transpose(y_reshape) {axes: (0, 2, 1)}",
        "y = Reshape(y_transpose) {shape: (0, 13, 13, 3, 85)}",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("y", "y")]


@pytest.mark.parametrize("kernel", ["(1, 1, 1)", "(1, 1)"])
def test_what_a_layer_of_volumes_makes_stays(kernel: str) -> None:
    """MXNet raises where a Reshape to three axes comes between: could not create a reorder primitive."""
    order = (0, 3, 4, 1, 2)
    net = Net()
    made = net.op("Pooling", net.var("x", __dtype__="0"), kernel=kernel, name="made")
    known = net.op("Reshape", net.op("relu", made), name="known", shape=(0, *BOXES[1:]))
    graph = net.graph(net.op("transpose", known, name="y", axes=order))
    shapes = [(BOXES,)] * 4 + [(tuple(BOXES[axis] for axis in order),)]
    is_volume = kernel == "(1, 1, 1)"
    inserted = () if is_volume else ("y_reshape", "y_transpose")
    assert (prepared(MoveFewAxes, graph, shapes=shapes, inserted=inserted)[0] is graph) == is_volume


def test_more_runs_are_moved_in_two_steps() -> None:
    """Queries, keys and values of three heads, as transformers tell them apart."""
    shape, order = (64, 49, 3, 3, 32), (2, 0, 3, 1, 4)
    graph = moving(shape=shape, axes=order)
    inserted = ["y_reshape", "y_reshape_1", "y_transpose", "y_transpose_1"]
    after, _ = prepared(MoveFewAxes, graph, shapes=shapes_of(shape, order), inserted=inserted)
    assert [line.split("(")[0] for line in operators(after)[1:]] == [
        "y_reshape = Reshape",
        "y_transpose = transpose",
        "y_reshape_1 = Reshape",
        "y_transpose_1 = transpose",
        "y = Reshape",
    ]


def test_what_cannot_be_parted_again_half_way_is_moved_at_once() -> None:
    """Neither how many images there are is known nor how many tokens."""
    net = Net()
    rows = net.op(
        "FullyConnected", net.var("x"), net.param("w", 288, 96), num_hidden=288, flatten=False, no_bias=True
    )
    parts = net.op("Reshape", rows, shape=(0, 0, 3, 3, 32))
    graph = net.graph(net.op("transpose", parts, name="y", axes=(2, 0, 3, 1, 4)))
    shapes: Any = [
        ((1, 197, 96),),
        ((288, 96),),
        ((1, 197, 288),),
        ((1, 197, 3, 3, 32),),
        ((3, 1, 3, 197, 32),),
    ]
    assert prepared(MoveFewAxes, graph, net.params, shapes=shapes)[0] is graph


@pytest.mark.parametrize("op", ["SwapAxis", "swapaxes"])
def test_swapped_axes_are_transposed(op: str) -> None:
    graph = moving(op, dim1=1, dim2=-1)
    after, _ = prepared(MoveFewAxes, graph, shapes=shapes_of((2, 3, 4), (0, 2, 1), is_known=False))
    assert operators(after) == ["y = transpose(x) {axes: (0, 2, 1)}"]


def test_an_axis_of_length_one_is_reshaped_away() -> None:
    net = Net()
    parts = net.op("expand_dims", net.var("x"), name="parts", axis=2)
    graph = net.graph(net.op("transpose", parts, name="y", axes="(0, 2, 1, 3)"))
    shapes: Any = [((8, 30, 64),), ((8, 30, 1, 64),), ((8, 1, 30, 64),)]
    assert (
        prepared(MoveFewAxes, graph, shapes=shapes)[0] is graph
    )  # steps and width would have to be told apart
    known = moving(shape=(8, 30, 1, 64), axes=(0, 2, 1, 3))
    after, _ = prepared(MoveFewAxes, known, shapes=shapes_of((8, 30, 1, 64), (0, 2, 1, 3)))
    assert operators(after)[1:] == ["y = Reshape(known) {shape: (0, 1, 30, 64)}"]


@pytest.mark.parametrize(
    "case",
    [
        *("four axes", "few values", "last axis stays", "unknown sizes", "no shapes", "float16"),
        *("rule", "nothing moves"),
    ],
)
def test_refuses(case: str) -> None:
    order, shape, policy, dtype = (0, 3, 4, 1, 2), BOXES, None, "0"
    op, attrs, is_known = "transpose", {}, True
    if case == "four axes":
        shape, order = (8, 85, 13, 13), (0, 2, 3, 1)
    elif case == "few values":
        shape = (2, 3, 5, 4, 4)
    elif case == "last axis stays":
        op, attrs, shape, order = "SwapAxis", {"dim1": 1, "dim2": 2}, (1, 2, 58, 28, 28), (0, 2, 1, 3, 4)
    elif case == "unknown sizes":
        is_known = False
    elif case == "float16":
        dtype = "2"
    elif case == "rule":
        policy = Policy.default(BF16).excluding(names=["y"])
    elif case == "nothing moves":
        order = (0, 1, 2, 3, 4)
    graph = moving(op, dtype, shape if is_known else None, **(attrs or {"axes": order}))
    shapes = None if case == "no shapes" else shapes_of(shape, order, is_known=is_known)
    assert prepared(MoveFewAxes, graph, policy=policy, shapes=shapes)[0] is graph


@pytest.mark.parametrize(
    ("op", "shape", "order", "attrs"),
    [
        ("transpose", BOXES, (0, 3, 4, 1, 2), {}),
        ("transpose", (1, 8, 7, 8, 7, 16), (0, 1, 3, 2, 4, 5), {}),
        ("transpose", (2, 16, 1, 1, 4, 200), (5, 0, 2, 1, 3, 4), {}),
        ("transpose", (64, 49, 3, 3, 32), (2, 0, 3, 1, 4), {}),
        ("transpose", (12, 4, 14, 3, 14, 5), (0, 5, 2, 4, 1, 3), {}),
        ("SwapAxis", (1, 1152, 10, 16, 1), (0, 1, 2, 4, 3), {"dim1": 3, "dim2": 4}),
        ("SwapAxis", (8, 128, 64), (0, 2, 1), {"dim1": 2, "dim2": 1}),
    ],
)
def test_mxnet_moves_the_same_values_in_every_call(
    monkeypatch: pytest.MonkeyPatch, op: str, shape: Any, order: Any, attrs: Any
) -> None:
    graph = moving(op, shape=shape, **(attrs or {"axes": order}))
    target = Target.builtin("cpu-bf16")
    done = prepare_graph(graph, {}, Policy.default(BF16), target=target, shapes=shapes_of(shape, order))
    assert [change.step for change in done.record(PreparedNode)] == ["few_axes"]
    for batch in (shape[0], 1, 3):
        x = on_edges(batch, *shape[1:])
        (expected,) = outputs(monkeypatch, graph, {}, {"x": x})
        (found,) = outputs(monkeypatch, done.graph, {}, {"x": x}, "MKLDNN")
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))


def test_targets_of_cpus_name_it() -> None:
    order = (0, 3, 4, 1, 2)
    graph = moving(shape=BOXES, axes=order)
    found = targets_that_choose("few_axes", graph, {}, shapes_of(BOXES, order))
    assert found == ["cpu-bf16", "cpu-bf16-amx", "cpu-bf16-intel"]
