"""Joins along the last of three or five axes are joins of four, whatever is fed."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import PreparedNode, RewriteLastAxisConcat
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import operators, prepare_graph, prepared

ROWS = {3: (2, 300), 5: (2, 3, 50, 4)}


def joined(axes: int = 3, *, dim: int = -1, widths: tuple[int, ...] = (1, 2, 4), **attrs: str) -> Graph:
    net = Net()
    inputs = [net.var(f"x{number}", **{"__dtype__": "0", **attrs}) for number in range(len(widths))]
    return net.graph(net.op("Concat", *inputs, name="all", dim=dim, num_args=len(widths)))


def shapes_of(axes: int = 3, widths: tuple[int, ...] = (1, 2, 4), rows: tuple[int, ...] = ()) -> list:
    rows = rows or ROWS[axes]
    return [*(((*rows, width),) for width in widths), ((*rows, sum(widths)),)]


def test_three_axes_become_four() -> None:
    rows = ["all_rows0", "all_rows1", "all_rows2", "all_rows"]
    after, done = prepared(RewriteLastAxisConcat, joined(), shapes=shapes_of(), inserted=rows)
    assert operators(after) == [
        "all_rows0 = Reshape(x0) {shape: (0, -4, -1, 1, 0)}",
        "all_rows1 = Reshape(x1) {shape: (0, -4, -1, 1, 0)}",
        "all_rows2 = Reshape(x2) {shape: (0, -4, -1, 1, 0)}",
        "all_rows = Concat(all_rows0, all_rows1, all_rows2) {dim: 3, num_args: 3}",
        "all = Reshape(all_rows) {shape: (0, -3, 0)}",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("all", "all")]


def test_five_axes_become_four() -> None:
    rows = ["all_rows0", "all_rows1", "all_rows2", "all_rows"]
    after, _ = prepared(RewriteLastAxisConcat, joined(5, dim=4), shapes=shapes_of(5), inserted=rows)
    assert operators(after)[0] == "all_rows0 = Reshape(x0) {shape: (-3, 0, 0, 0)}"
    assert operators(after)[-1].startswith("all = reshape_like(all_rows, x0) ")


def singles(axes: int = 4, count: int = 3, *, last: int = 1, repeated: bool = False) -> tuple[Graph, list]:
    """Return a join of tensors that have one value along the last axis, as a Reshape says, and shapes."""
    net = Net()
    shape = (2, *(5, 30, 10)[: axes - 2]) if axes > 2 else (1500,)
    inputs = []
    for number in range(count):
        x = net.var(f"x{number}", __dtype__="0")
        inputs.append(net.op("Reshape", x, name=f"known{number}", shape=(*(0,) * (axes - 1), last)))
    if repeated:
        inputs.append(inputs[0])
    whole = net.op("Concat", *inputs, name="all", dim=axes - 1, num_args=len(inputs))
    shape = (3000 // int(np.prod(shape[1:])), *shape[1:], last)
    shapes = [(shape,)] * len(net.nodes)
    shapes[-1] = ((*shape[:-1], last * len(inputs)),)
    return net.graph(whole), shapes


@pytest.mark.parametrize("axes", [2, 3, 4, 5])
def test_single_values_are_rows_that_are_turned(axes: int) -> None:
    graph, shapes = singles(axes, 2)
    rows = ["all_row0", "all_row1", "all_rows", "all_columns"]
    after, done = prepared(RewriteLastAxisConcat, graph, shapes=shapes, inserted=rows)
    back = f"{{lhs_begin: 0, lhs_end: 1, rhs_begin: 0, rhs_end: {axes - 1}}}"
    assert operators(after)[2:] == [
        "all_row0 = Reshape(known0) {shape: (1, -1)}",
        "all_row1 = Reshape(known1) {shape: (1, -1)}",
        "all_rows = Concat(all_row0, all_row1) {dim: 0, num_args: 2}",
        "all_columns = transpose(all_rows) {axes: (1, 0)}",
        f"all = reshape_like(all_columns, known0) {back}",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("all", "all")]


def test_two_values_are_no_rows() -> None:
    graph, shapes = singles(4, 2, last=2)
    assert prepared(RewriteLastAxisConcat, graph, shapes=shapes)[0] is graph


@pytest.mark.parametrize("axes", [2, 3, 4, 5])
@pytest.mark.parametrize("batch", [1, 2, 7])
@pytest.mark.parametrize("repeated", [False, True])
def test_single_values_are_moved_for_every_batch(
    monkeypatch: pytest.MonkeyPatch, axes: int, batch: int, repeated: bool
) -> None:
    pytest.importorskip("mxnet", reason="graphs are executed")
    from mxamp.runtime.shapes import infer_shapes

    graph, shapes = singles(axes, repeated=repeated)
    target = Target.builtin("cpu-bf16")
    done = prepare_graph(graph, {}, Policy.default(BF16), target=target, shapes=shapes)
    assert [change.step for change in done.record(PreparedNode)] == ["last_axis_concat"]
    told = {f"x{number}": shapes[0][0] for number in range(3)}
    assert list(done.shapes or ()) == list(infer_shapes(done.graph, told, {}))
    data = {f"x{number}": on_edges(batch, *(4, 3, 6)[: axes - 2], 1) for number in range(3)}
    (found,) = outputs(monkeypatch, done.graph, {}, data, "MKLDNN")
    (expected,) = outputs(monkeypatch, graph, {}, data)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_what_is_joined_twice_is_reshaped_once() -> None:
    net = Net()
    x = net.var("x", __dtype__="0")
    graph = net.graph(net.op("Concat", x, x, name="all", dim=2, num_args=2))
    after, _ = prepared(
        RewriteLastAxisConcat,
        graph,
        shapes=[((1, 2000, 3),), ((1, 2000, 6),)],
        inserted=["all_rows0", "all_rows"],
    )
    assert len(operators(after)) == 3


@pytest.mark.parametrize(
    "case", ["another axis", "few values", "four axes", "no shapes", "float16", "any dtype", "rule"]
)
def test_refuses(case: str) -> None:
    policy, shapes = None, shapes_of()
    graph = joined(dim=1) if case == "another axis" else joined()
    if case == "few values":
        shapes = shapes_of(rows=(1, 200))
    elif case == "four axes":
        shapes = shapes_of(rows=(1, 10, 300))
    elif case == "no shapes":
        shapes = None
    elif case == "float16":
        graph = joined(__dtype__="2")
    elif case == "any dtype":  # numpy's arrays of another dtype may be fed
        graph = joined(__dtype__="-1")
    elif case == "rule":
        policy = Policy.default(BF16).excluding(names=["all"])
    assert prepared(RewriteLastAxisConcat, graph, policy=policy, shapes=shapes)[0] is graph


def test_a_layer_behind_tells_that_an_input_is_no_image() -> None:
    """Frames of sound overlap, and a layer reads them: nothing says the input's dtype but its weight."""
    net = Net()
    frames = net.op("Reshape", net.var("sound"), name="frames", shape="(0, -1, 160)")
    halves = [net.op("slice_axis", frames, axis=1, begin=n, end=n + 20) for n in range(2)]
    both = net.op("Concat", *halves, name="all", dim=2, num_args=2)
    weight = net.param("weight", 8, 320)
    graph = net.graph(net.op("FullyConnected", both, weight, num_hidden=8, flatten=False, no_bias=True))
    half = ((1, 20, 160),)
    known = [((1, 3360),), ((1, 21, 160),), half, half, ((1, 20, 320),), ((8, 320),), ((1, 20, 8),)]
    inserted = ["all_rows0", "all_rows1", "all_rows"]
    after, _ = prepared(RewriteLastAxisConcat, graph, net.params, shapes=known, inserted=inserted)
    assert after is not graph


@pytest.mark.parametrize("axes", [3, 5])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_values_are_moved_for_every_batch(monkeypatch: pytest.MonkeyPatch, axes: int, batch: int) -> None:
    graph = joined(axes)
    target = Target.builtin("cpu-bf16")
    done = prepare_graph(graph, {}, Policy.default(BF16), target=target, shapes=shapes_of(axes))
    assert [change.step for change in done.record(PreparedNode)] == ["last_axis_concat"]
    rows = (batch, *(size + 1 for size in ROWS[axes][1:]))
    data = {f"x{number}": on_edges(*rows, width) for number, width in enumerate((1, 2, 4))}
    (found,) = outputs(monkeypatch, done.graph, {}, data, "MKLDNN")
    expected = np.concatenate(list(data.values()), axis=-1)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_other_targets_keep_it() -> None:
    graph, target = joined(), Target.builtin("cuda-fp16")
    done = prepare_graph(graph, {}, Policy.default(target.dtype), target=target, shapes=shapes_of())
    assert done.graph is graph


def test_what_is_joined_is_an_entry() -> None:
    """A second output of a node is another tensor than its first."""
    net = Net()
    halves = net.op(
        "SliceChannel", net.var("x", __dtype__="0"), name="halves", outputs=2, num_outputs=2, axis=2
    )
    second = Entry(halves.node, 1)
    graph = net.graph(net.op("Concat", halves, second, halves, name="all", dim=2, num_args=3))
    shapes = [((1, 2000, 4),), ((1, 2000, 2), (1, 2000, 2)), ((1, 2000, 6),)]
    after, _ = prepared(
        RewriteLastAxisConcat, graph, shapes=shapes, inserted=["all_rows0", "all_rows1", "all_rows"]
    )
    assert [line.split(" {")[0] for line in operators(after)[1:4]] == [
        "all_rows0 = Reshape(halves)",
        "all_rows1 = Reshape(halves[1])",
        "all_rows = Concat(all_rows0, all_rows1, all_rows0)",
    ]
