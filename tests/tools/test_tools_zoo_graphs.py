from __future__ import annotations

import numpy as np
import pytest

from model_zoo_eval.heads import entries_before
from mxamp.errors import UnknownNameError
from tests.building import Net
from tools.zoo_graphs import BoxMatch, first_rankings, match_boxes

BOXES = np.array([[0, 0, 10, 10], [20, 20, 40, 40], [0, 0, 0, 0]], float)


def detections(classes, scores, boxes):
    return [np.array(classes, float)[None, :, None], np.array(scores, float)[None, :, None], boxes[None]]


def test_equal_detections_match_whatever_their_order():
    left = detections([1, 2, -1], [0.9, 0.8, -1], BOXES)
    right = detections([2, 1, -1], [0.8, 0.9, -1], BOXES[[1, 0, 2]])
    assert match_boxes(left, right) == BoxMatch(boxes=2, matched=1.0, mean_overlap=1.0, score_error=0.0)


def test_a_box_matches_boxes_of_its_class_alone():
    left = detections([1, 2, -1], [0.9, 0.8, -1], BOXES)
    right = detections([1, 1, -1], [0.9, 0.8, -1], BOXES)
    assert match_boxes(left, right).matched == 0.5


def test_a_box_is_matched_once():
    left = detections([1, 1, -1], [0.9, 0.8, -1], BOXES[[0, 0, 2]])
    right = detections([1, -1, -1], [0.7, -1, -1], BOXES)
    found = match_boxes(left, right)
    assert found.matched == 0.5
    assert found.score_error == pytest.approx(0.2)


def test_overlap_is_intersection_over_union():
    moved = BOXES + np.array([5, 0, 5, 0])
    found = match_boxes(
        detections([1, -1, -1], [1, -1, -1], BOXES), detections([1, -1, -1], [1, -1, -1], moved)
    )
    assert found.matched == 0.0  # a third, and half is asked for
    found = match_boxes(
        detections([1, -1, -1], [1, -1, -1], BOXES), detections([1, -1, -1], [1, -1, -1], moved), overlap=0.3
    )
    assert found.mean_overlap == pytest.approx(1 / 3)


def test_no_detections_match_none():
    nothing = detections([-1, -1, -1], [-1, -1, -1], BOXES)
    assert match_boxes(nothing, nothing).matched == 1.0


def test_a_ranking_behind_a_ranking_is_no_first_one():
    net = Net()
    ranked = net.op("topk", net.var("data"), name="top", ret_typ="value")
    graph = net.graph(net.op("argsort", ranked, name="sorted"))
    assert first_rankings(graph) == ["top"]
    assert [graph.describe(entry) for entry in entries_before(graph, ("top",))] == ["data"]


def test_candidates_are_found_in_front_of_the_best_groups_of_them():
    net = Net()
    data = net.var("data")
    some = net.op("slice_axis", data, name="nms0_boxes", axis=1, begin=0, end=8)
    graph = net.graph(net.op("_contrib_box_nms", some, name="nms0_best", outputs=2))
    assert [graph.describe(entry) for entry in entries_before(graph, ("nms0",))] == ["data"]
    with pytest.raises(UnknownNameError, match="'nms1'"):
        entries_before(graph, ("nms1",))
