"""A suppression of boxes among the groups that hold the best scores keeps the same boxes, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mxamp
from mxamp.graph import Graph
from mxamp.passes import PreparedNode, RewriteBestBoxes
from mxamp.passes.edit import NodeShapes
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import CPUS, prepare_graph, targets_that_choose

STEP = RewriteBestBoxes.step
MANY = 1157
"""Boxes: 192 for each of six and a few more, and no multiple of 16."""

TOPK = 6
ATTRS = {"overlap_thresh": 0.45, "valid_thresh": 0.01, "topk": TOPK, "id_index": 0, "coord_start": 2}
FIRST = {"axis": 1, "begin": 0, "end": 4}


def suppressed(
    *, op: str = "_contrib_box_nms", first: dict[str, Any] | None = None, heads: str = "y", **attrs: Any
) -> tuple[Net, Graph]:
    """Return a graph that keeps the first of the boxes that a suppression leaves."""
    net = Net()
    boxes = net.op(op, net.var("boxes"), name="nms", outputs=2, **{**ATTRS, **attrs})
    y = net.op("slice_axis", boxes, name="y", **(FIRST if first is None else first))
    return net, net.graph(*{"y": [y], "both": [y, boxes], "all": [boxes]}[heads])


def shapes_of(graph: Graph, *shape: int) -> list[NodeShapes]:
    pytest.importorskip("mxnet", reason="MXNet says what the shapes are")
    from mxamp.runtime.shapes import infer_shapes

    return list(infer_shapes(graph, {"boxes": shape}, {}))


def rewritten(graph: Graph, *shape: int, policy: Policy | None = None) -> Any:
    return prepare_graph(
        graph,
        {},
        policy or Policy.default(BF16),
        [STEP],
        target=Target.builtin("cpu-bf16"),
        shapes=shapes_of(graph, *shape) if shape else None,
    )


def boxes(batch: int, count: int, levels: int = 0, seed: int = 0) -> np.ndarray:
    """Return boxes of three classes and of none that overlap; with levels, most of their scores tie."""
    draw = np.random.default_rng(seed)
    scores = draw.random((batch, count))
    if levels:
        scores = (np.floor(scores * levels) + 1) / levels
    center, size = draw.random((batch, count, 2)) * 40, draw.random((batch, count, 2)) * 20 + 1
    columns = [
        draw.integers(-1, 3, (batch, count, 1)),  # -1: the background, whose scores are as high
        scores[..., None],
        center - size / 2,
        center + size / 2,
    ]
    return np.concatenate(columns, axis=2).astype(np.float32)


def test_only_the_best_groups_are_suppressed() -> None:
    _, graph = suppressed()
    done = rewritten(graph, 2, MANY, 6)
    assert [(change.node, change.into) for change in done.record(PreparedNode)] == [("nms", "nms_best")]
    by_name = {node.name: node for node in done.graph.nodes}
    assert "nms" not in by_name
    assert by_name["nms_best"].attrs == {key: str(value) for key, value in ATTRS.items()}
    assert done.graph.nodes[by_name["y"].inputs[0].node].name == "nms_best"
    known = {node.name: shape for node, shape in zip(done.graph.nodes, done.shapes)}
    assert known["nms_best"] == ((2, TOPK * 16, 6), (2, TOPK * 16, 1))
    inferred = shapes_of(done.graph, 2, MANY, 6)
    assert [shapes[0] for shapes in done.shapes] == [shapes[0] for shapes in inferred]


@pytest.mark.parametrize(
    "case",
    [
        *(
            {"background_id": 0},
            {"topk": -1},
            {"topk": 0},
            {"valid_thresh": -0.5},
            {"first": {**FIRST, "begin": 1}},
        ),
        *({"first": {**FIRST, "end": "None"}}, {"first": {**FIRST, "end": TOPK + 1}}),
        *({"first": {**FIRST, "end": -1}}, {"first": {**FIRST, "axis": 2}}),
        *({"heads": "both"}, {"heads": "all"}, {"topk": TOPK + 1}),
    ],
    ids=str,
)
def test_refuses(case: dict[str, Any]) -> None:
    _, graph = suppressed(**case)
    assert rewritten(graph, 1, MANY, 6).graph is graph


def test_refuses_few_boxes_and_unknown_shapes_and_what_a_rule_picks() -> None:
    _, graph = suppressed()
    assert rewritten(graph, 1, TOPK * 192 - 1, 6).graph is graph
    assert rewritten(graph, 1, TOPK * 192, 6).graph is not graph
    assert rewritten(graph).graph is graph
    _, last_axes = suppressed(first={**FIRST, "axis": -2})
    assert rewritten(last_axes, 2, 1, MANY, 6).graph is last_axes
    named = Policy.default(BF16).excluding(names=["nms"])
    assert rewritten(graph, 1, MANY, 6, policy=named).graph is graph


@pytest.mark.parametrize("first", [FIRST, {**FIRST, "axis": -2, "end": TOPK}])
@pytest.mark.parametrize("op", ["_contrib_box_nms", "_contrib_box_non_maximum_suppression"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("levels", [0, 1, 4, 300])
@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"force_suppress": True},
        {"id_index": -1},
        {"valid_thresh": 0, "in_format": "center"},
        {"out_format": "center"},
        {"id_index": 5, "score_index": 4, "coord_start": 0},
    ],
    ids=str,
)
def test_mxnet_keeps_the_same_boxes(
    monkeypatch: pytest.MonkeyPatch,
    op: str,
    first: dict[str, Any],
    batch: int,
    levels: int,
    attrs: dict[str, Any],
) -> None:
    _, graph = suppressed(op=op, first=first, **attrs)
    done = rewritten(graph, batch, MANY, 6)
    assert done.record(PreparedNode)
    given = boxes(batch, MANY, levels)
    if "score_index" in attrs:
        given = np.concatenate([given[..., 2:], given[..., 1::-1]], axis=2)
    (expected,) = outputs(monkeypatch, graph, {}, {"boxes": given})
    (found,) = outputs(monkeypatch, done.graph, {}, {"boxes": given}, "MKLDNN")
    np.testing.assert_array_equal(found, expected)
    assert (expected[..., 0] >= 0).any()


@pytest.mark.parametrize("backend", ["NONE", "MKLDNN"])
def test_scores_that_are_no_numbers(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    _, graph = suppressed()
    done = rewritten(graph, 2, MANY, 6)
    given = boxes(2, MANY)
    given[:, :, 1:] = on_edges(2, MANY, 5)
    given[0, :512, 1] = np.nan  # whole groups of them
    given[1, :, 1] = np.where(np.arange(MANY) % 7 == 3, given[1, :, 1], -np.inf)
    given[1, -1, 1:] = np.nan, *([np.inf] * 4)  # what rows behind the last box are read from
    (expected,) = outputs(monkeypatch, graph, {}, {"boxes": given})
    (found,) = outputs(monkeypatch, done.graph, {}, {"boxes": given}, backend)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("count", [4, 5, 15, 16, 17, 33, 96, 97, 1000, 1152, 5000])
@pytest.mark.parametrize("batch", [1, 2])
def test_every_number_of_boxes_can_be_given(monkeypatch: pytest.MonkeyPatch, count: int, batch: int) -> None:
    """The graph is right for other shapes than those it was converted with."""
    _, graph = suppressed()
    done = rewritten(graph, 1, MANY, 6)
    for levels in (0, 3):
        given = boxes(batch, count, levels, seed=count)
        (expected,) = outputs(monkeypatch, graph, {}, {"boxes": given})
        (found,) = outputs(monkeypatch, done.graph, {}, {"boxes": given}, "MKLDNN")
        np.testing.assert_array_equal(found, expected)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    levels=st.sampled_from([0, 1, 2, 3, 5, 17, 100]),
    valid=st.sampled_from([0.0, 0.004, 0.02, 0.5]),
    count=st.integers(4, 2 * MANY),
)
def test_ties_of_any_kind(seed: int, levels: int, valid: float, count: int) -> None:
    _, graph = suppressed()
    done = rewritten(graph, 1, MANY, 6)
    given_boxes = boxes(1, count, levels, seed)
    draw = np.random.default_rng(seed)
    given_boxes[..., 1] *= draw.random((1, count)) < valid
    with pytest.MonkeyPatch.context() as monkeypatch:
        (expected,) = outputs(monkeypatch, graph, {}, {"boxes": given_boxes})
        (found,) = outputs(monkeypatch, done.graph, {}, {"boxes": given_boxes})
    np.testing.assert_array_equal(found, expected)


def test_what_finds_the_groups_is_never_rounded() -> None:
    pytest.importorskip("mxnet", reason="converts a model of MXNet's")
    net, graph = suppressed()
    model = mxamp.convert_model(
        graph, parameters(net.params), {}, "bfloat16", target="cpu-bf16", input_shapes={"boxes": (1, MANY, 6)}
    )
    assert any(node.name == "nms_best" for node in model.graph.nodes)
    assert not model.report.casts
    assert "suppression of boxes among the best groups of them alone" in str(model.report)


def test_targets_choose() -> None:
    net, graph = suppressed()
    shapes = shapes_of(graph, 1, MANY, 6)
    assert targets_that_choose(STEP, graph, parameters(net.params), shapes) == CPUS
