"""Splits along the last axis are slices, whatever is fed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import PreparedNode, RewriteLastAxisSplit
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import CPUS, operators, prepare_graph, prepared, targets_that_choose

UNITS = 96


class Cut(Net):
    """A layer, and what cuts its units."""

    def __init__(self, *rows: int, units: int = UNITS) -> None:
        super().__init__()
        self.rows, self.units = rows or (2, 10), units
        weight = self.param("weight", units, 6)
        self.layer = self.op(
            "FullyConnected",
            self.var("x"),
            weight,
            name="layer",
            num_hidden=units,
            no_bias=True,
            flatten=len(self.rows) == 1,
        )

    def cut(self, op: str = "SliceChannel", count: int = 3, **attrs: Any) -> Entry:
        given = {"num_outputs": count, "axis": len(self.rows)} if op != "_split_v2" else {}
        return self.op(op, self.layer, name="cut", outputs=count, **{**given, **attrs})

    def ends(self, cut: Entry, *numbers: int) -> Graph:
        return self.graph(*[self.op("exp", Entry(cut.node, number), name=f"e{number}") for number in numbers])

    def shapes(self, graph: Graph) -> list[Any]:
        pytest.importorskip("mxnet", reason="MXNet infers the shapes")
        from mxamp.runtime.shapes import infer_shapes

        return list(infer_shapes(graph, {"x": (*self.rows, 6)}, parameters(self.params)))


def test_parts_are_slices() -> None:
    net = Cut()
    graph = net.ends(net.cut(), 0, 1, 2)
    inserted = ["cut_part1", "cut_part2"]
    after, done = prepared(
        RewriteLastAxisSplit, graph, net.params, inserted=inserted, shapes=net.shapes(graph)
    )
    assert operators(after)[1:4] == [
        "cut_part1 = slice_axis(layer) {axis: 2, begin: 32, end: 64}",
        "cut_part2 = slice_axis(layer) {axis: 2, begin: 64, end: 96}",
        "cut = slice_axis(layer) {axis: 2, begin: 0, end: 32}",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("cut", "cut")]


def test_what_nobody_reads_is_not_cut() -> None:
    net = Cut()
    graph = net.ends(net.cut(), 2)
    after, _ = prepared(RewriteLastAxisSplit, graph, net.params, shapes=net.shapes(graph))
    assert operators(after)[1] == "cut = slice_axis(layer) {axis: 2, begin: 64, end: 96}"


def test_numpys_split_says_where_parts_begin() -> None:
    net = Cut()
    graph = net.ends(net.cut("_split_v2", indices="(0, 10, 50)", axis=-1, sections=0), 0, 1, 2)
    inserted = ["cut_part1", "cut_part2"]
    after, _ = prepared(RewriteLastAxisSplit, graph, net.params, inserted=inserted, shapes=net.shapes(graph))
    assert [line.split("{")[1] for line in operators(after)[1:4]] == [
        "axis: 2, begin: 10, end: 50}",
        "axis: 2, begin: 50, end: None}",
        "axis: 2, begin: 0, end: 10}",
    ]


CUTS: dict[str, dict[str, Any]] = {
    "SliceChannel": {},
    "of the last axis": {"axis": -1},
    "numpy's parts": {"op": "_split_v2", "indices": "(0, 10, 50)", "axis": -1, "sections": 0},
    "numpy's equal parts": {"op": "_split_v2", "indices": "(0, 32, 64)", "axis": -1, "sections": 3},
}


@pytest.mark.parametrize("case", CUTS)
@pytest.mark.parametrize("rows", [(40,), (2, 10), (5, 9)])
def test_mxnet_computes_the_same_for_any_rows(
    monkeypatch: pytest.MonkeyPatch, case: str, rows: tuple[int, ...]
) -> None:
    pytest.importorskip("mxnet", reason="graphs are executed")
    from mxamp.runtime.shapes import infer_shapes

    net = Cut(*([12] if len(rows) == 1 else [2, 10]))
    graph, params = net.ends(net.cut(**CUTS[case]), 0, 1, 2), parameters(net.params)
    known, target = net.shapes(graph), Target.builtin("cpu-bf16")
    done = prepare_graph(
        graph, params, Policy.default(BF16), ["last_axis_split"], target=target, shapes=known
    )
    assert [change.node for change in done.record(PreparedNode)] == ["cut"]
    data = {"x": np.random.default_rng(0).normal(size=(*rows, 6)).astype(np.float32)}
    expected = outputs(monkeypatch, graph, params, data)
    for own, other in zip(outputs(monkeypatch, done.graph, dict(done.params), data), expected):
        np.testing.assert_array_equal(own, other)
    after = infer_shapes(done.graph, {"x": (*net.rows, 6)}, done.params)
    assert done.shapes is not None
    assert [own[0] for own in done.shapes] == [own[0] for own in after]


@pytest.mark.parametrize(
    "case",
    [
        *("another axis", "squeezed", "few values", "small parts", "output", "rule", "no shapes"),
        *("an input of any length", "parts that overlap", "rows of any number"),
    ],
)
def test_refuses(case: str) -> None:
    net = Cut(*{"few values": (1, 10)}.get(case, ()))
    given: dict[str, Any] = {
        "another axis": {"axis": 1, "num_outputs": 2, "count": 2},
        "squeezed": {"squeeze_axis": True, "num_outputs": 96, "count": 96},
        "small parts": {"num_outputs": 32, "count": 32},
        "parts that overlap": {"op": "_split_v2", "indices": "(0, 50, 10)", "axis": -1, "sections": 0},
    }.get(case, {})
    if case == "rows of any number":  # which parts tell, and slices would not
        layer = net.nodes[net.layer.node]
        zeros = net.op("_zeros", shape="(0, 10, 6)")
        net.layer = net.op(
            layer.op, zeros, layer.inputs[1], name="of_zeros", **{**layer.attrs, "flatten": False}
        )
    if case == "an input of any length":
        net.layer = net.op("exp", net.nodes[net.layer.node].inputs[0])
    cut = net.cut(**given)
    graph = net.graph(cut) if case == "output" else net.ends(cut, 0, 1)
    policy = Policy.default(BF16).excluding(names=["cut"]) if case == "rule" else None
    shapes = None
    if case in ("parts that overlap", "rows of any number"):
        rows = (*net.rows, UNITS)
        shapes = [
            (net.params[node.name].shape if node.name in net.params else rows,) * node.num_outputs
            for node in graph.nodes
        ]
    elif case != "no shapes":
        shapes = net.shapes(graph)
    assert prepared(RewriteLastAxisSplit, graph, net.params, policy, shapes=shapes)[0] is graph


def test_targets_of_cpus_name_it() -> None:
    net = Cut()
    graph = net.ends(net.cut(), 0, 1, 2)
    assert targets_that_choose("last_axis_split", graph, parameters(net.params), net.shapes(graph)) == CPUS
