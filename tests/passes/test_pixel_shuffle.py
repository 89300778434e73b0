"""A shuffle of pixels is two transposes of four axes, with the same values."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import PreparedNode, RewritePixelShuffle
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import CPUS, operators, prepare_graph, prepared, targets_that_choose

STEP = RewritePixelShuffle.step
INSERTED = ["s_split", "s_rows", "s_lines", "s_columns"]


def layer(net: Net, channels: int) -> Entry:
    """Return a depthwise layer that hands its data on as it is."""
    weight = net.param("weight", channels, 1, 1, 1, value=1.0)
    attrs = {"num_filter": channels, "num_group": channels, "kernel": "(1, 1)", "no_bias": True}
    return net.op("Convolution", net.var("data"), weight, name="layer", **attrs)


def shuffled(
    channels: int = 12, rows: int = 2, columns: int = 2, *, case: str = "", op: str = "Reshape"
) -> tuple[Net, Graph]:
    """Return what Gluon's PixelShuffle2D writes."""
    net = Net()
    x = net.var("data") if case == "no channels" else layer(net, channels)
    x = net.op(op, x, name="whole", shape=(0, -4, -1, rows * columns, 0, 0))
    parts = (0, 0, -4, columns + 1 if case == "other parts" else rows, columns, 0, 0)
    x = parted = net.op(op, x, name="parts", shape=parts)
    x = net.op("transpose", x, name="t", axes=(0, 1, 2, 4, 3, 5) if case == "order" else (0, 1, 4, 2, 5, 3))
    attrs = {"reverse": True} if case == "reverse" else {}
    last = net.op(op, x, name="s", shape=(0, 0, -3, -1) if case == "merge" else (0, 0, -3, -3), **attrs)
    return net, net.graph(last, *([parted] if case == "read between" else []))


def deep(channels: int = 12, block: object = 2) -> tuple[Net, Graph]:
    net = Net()
    return net, net.graph(net.op("depth_to_space", layer(net, channels), name="s", block_size=block))


@pytest.mark.parametrize("op", ["Reshape", "reshape"])
def test_six_axes_become_twice_four(op: str) -> None:
    net, graph = shuffled(24, 2, 4, op=op)
    after, done = prepared(RewritePixelShuffle, graph, net.params, inserted=INSERTED)
    assert operators(after)[1:] == [
        "s_split = Reshape(layer) {shape: (-1, 8, 0, 0)}",
        "s_rows = transpose(s_split) {axes: (0, 2, 1, 3)}",
        "s_lines = Reshape(s_rows) {shape: (0, -1, 4, 0)}",
        "s_columns = transpose(s_lines) {axes: (0, 1, 3, 2)}",
        "s = Reshape(s_columns) {shape: (-4, -1, 3, 0, -3)}",
    ]
    assert {(change.node, change.into) for change in done.changes} == {
        ("s", "s"),
        *((name, "s") for name in ("t", "parts", "whole")),
    }


def test_depth_to_space_too() -> None:
    net, graph = deep()
    after, _ = prepared(RewritePixelShuffle, graph, net.params, inserted=INSERTED)
    assert operators(after)[1:] == [
        "s_split = Reshape(layer) {shape: (0, 4, -1, 0)}",
        "s_rows = transpose(s_split) {axes: (0, 2, 1, 3)}",
        "s_lines = Reshape(s_rows) {shape: (0, -1, 2, 0)}",
        "s_columns = transpose(s_lines) {axes: (0, 1, 3, 2)}",
        "s = Reshape(s_columns) {shape: (0, -4, 3, -1, -3)}",
    ]


@pytest.mark.parametrize(
    "case", ["no channels", "other parts", "order", "reverse", "merge", "read between", "11 channels", "rule"]
)
def test_refuses(case: str) -> None:
    net, graph = shuffled(11 if case == "11 channels" else 12, case=case)
    policy = Policy.default(BF16).excluding(names=["parts"]) if case == "rule" else None
    assert prepared(RewritePixelShuffle, graph, net.params, policy)[0] is graph


@pytest.mark.parametrize("block", ["None", 0, 5])
def test_refuses_other_blocks(block: object) -> None:
    net, graph = deep(12, block)
    assert prepared(RewritePixelShuffle, graph, net.params)[0] is graph


@pytest.mark.parametrize("write", [shuffled, deep])
@pytest.mark.parametrize(("side", "is_rewritten"), [(16, False), (64, True)])
def test_few_values_stay_and_shapes_go_with_many(write: object, side: int, is_rewritten: bool) -> None:
    pytest.importorskip("mxnet", reason="MXNet says what the shapes are")
    from mxamp.runtime.shapes import infer_shapes

    assert callable(write)
    net, graph = write()
    known = {name: value.shape for name, value in net.params.items()}
    known["data"] = (2, 12, side, side + 3)
    shapes = infer_shapes(graph, known, {})
    target, given = Target.builtin("cpu-bf16"), parameters(net.params)
    done = prepare_graph(graph, given, Policy.default(BF16), [STEP], target=target, shapes=shapes)
    assert bool(done.record(PreparedNode)) is is_rewritten
    assert list(done.shapes or ()) == list(infer_shapes(done.graph, known, {}))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("columns", [2, 4])
@pytest.mark.parametrize("is_deep", [False, True])
def test_mxnet_moves_the_same_values(
    monkeypatch: pytest.MonkeyPatch, batch: int, rows: int, columns: int, is_deep: bool
) -> None:
    net, graph = deep(5 * columns**2, columns) if is_deep else shuffled(5 * rows * columns, rows, columns)
    given = parameters(net.params)
    done = prepare_graph(graph, given, Policy.default(BF16), [STEP], target=Target.builtin("cpu-bf16"))
    assert {change.step for change in done.record(PreparedNode)} == {STEP}
    data = {"data": on_edges(batch, given["weight"].shape[0], 6, 7)}
    (expected,) = outputs(monkeypatch, graph, given, data)
    (found,) = outputs(monkeypatch, done.graph, done.params, data)
    np.testing.assert_array_equal(found, expected)


def test_targets_choose() -> None:
    net, graph = shuffled()
    assert targets_that_choose(STEP, graph, parameters(net.params)) == CPUS
