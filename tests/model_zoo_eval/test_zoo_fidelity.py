"""Fidelity in the terms of each task, on outputs made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from model_zoo_eval.fidelity import HeadMeter, TaskMeter, matches, rounded


def boxes(*rows: tuple[float, float, float, float, float, float]) -> list[np.ndarray]:
    """Return ids, scores and boxes of one sample as detectors give them, padded with an empty row."""
    table = np.array([*rows, (-1, -1, -1, -1, -1, -1)], np.float32)
    return [table[None, :, :1], table[None, :, 1:2], table[None, :, 2:]]


def test_head_counts_what_is_not_finite_and_measures_the_rest() -> None:
    meter = HeadMeter("logits")
    meter.add(np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, np.inf]))
    found = meter.result()
    assert (found["nan"], found["inf"], found["fp32_inf"]) == (0, 1, 0)
    assert found["max_error"] == "inf"  # JSON has no infinity
    assert found["mean_error"] == pytest.approx(0.25)
    assert found["bias"] == pytest.approx(0.25)


def test_equal_heads_have_no_error_and_infinite_sqnr() -> None:
    meter = HeadMeter("logits")
    meter.add(np.ones((1, 3)), np.ones((1, 3)))
    found = meter.result()
    assert (found["relative_l2"], found["sqnr_db"], found["cosine"]) == (0.0, "inf", 1.0)


def test_a_candidate_that_is_emptied_on_one_side_is_counted_and_left_out() -> None:
    reference = np.arange(30.0).reshape(1, 6, 5)
    converted = reference + 0.5
    converted[0, 1] = -1.0
    reference[0, 2] = converted[0, 2] = -1.0
    meter = HeadMeter("box_nms0")
    meter.add_candidates(reference, converted)
    found = meter.result()
    assert (found["candidates"], found["emptied"], found["max_error"]) == (6, 1, 0.5)
    other = HeadMeter("topk0")
    other.add_candidates(reference[..., :4], converted[..., :4])
    assert "candidates" not in other.result()


def test_numbers_for_json_are_short() -> None:
    assert rounded(1 / 3) == 0.33333
    assert rounded(float("nan")) == "nan"
    assert rounded(None) is None


def test_top1_is_counted_by_the_margin_of_fp32() -> None:
    meter = TaskMeter("classification", (224, 224))
    sure, unsure = np.array([[9.0, 0.0]]), np.array([[0.001, 0.0]])
    meter.add([sure], [sure])
    meter.add([unsure], [unsure[:, ::-1]])
    found = meter.result()
    assert (found["same_top1"], found["samples"]) == (1, 2)
    assert [(b["same_top1"], b["samples"]) for b in found["by_margin"]] == [(0, 1), (0, 0), (0, 0), (1, 1)]


def test_a_nan_is_never_the_same_class() -> None:
    meter = TaskMeter("classification", (224, 224))
    meter.add([np.array([[2.0, 1.0]])], [np.array([[np.nan, 1.0]])])
    assert meter.result()["same_top1"] == 0


def test_boxes_are_matched_by_class_and_overlap_whatever_their_order() -> None:
    left = boxes((0, 0.9, 0, 0, 10, 10), (1, 0.8, 20, 20, 30, 30), (2, 0.7, 50, 50, 60, 60))
    right = boxes((1, 0.85, 20, 20, 30, 31), (0, 0.9, 0, 0, 10, 10), (0, 0.7, 50, 50, 60, 60))
    meter = TaskMeter("detection", (64, 64))
    meter.add(left, right)
    found = meter.result()
    assert (found["boxes"], found["converted_boxes"], found["matched"]) == (3, 3, 2)
    assert found["mean_iou"] == pytest.approx((1 + 100 / 110) / 2, abs=1e-4)
    assert found["max_score_error"] == pytest.approx(0.05, abs=1e-4)


def test_a_box_is_matched_once() -> None:
    meter = TaskMeter("detection", (64, 64))
    meter.add(boxes((0, 0.9, 0, 0, 10, 10), (0, 0.8, 0, 0, 10, 10)), boxes((0, 0.9, 0, 0, 10, 10)))
    assert meter.result()["matched"] == 1


def test_no_boxes_are_no_match_and_no_error() -> None:
    meter = TaskMeter("detection", (64, 64))
    meter.add(boxes(), boxes((0, 0.9, 0, 0, 10, 10)))
    found = meter.result()
    assert (found["boxes"], found["matched"], found["mean_iou"]) == (0, 0, None)


def test_pixels_of_a_class_map_agree_by_their_class() -> None:
    reference = np.zeros((1, 2, 2, 2))
    reference[:, 1, 0, :] = 1.0
    converted = reference.copy()
    converted[:, 1, 0, 0] = -1.0
    meter = TaskMeter("segmentation", (2, 2))
    meter.add([reference], [converted])
    assert meter.result() == {"same_pixels": 0.75}


def test_keypoints_shift_in_pixels_of_the_input() -> None:
    reference, converted = np.zeros((1, 2, 4, 4)), np.zeros((1, 2, 4, 4))
    reference[0, :, 1, 1] = converted[0, 0, 1, 1] = converted[0, 1, 1, 2] = 1.0
    meter = TaskMeter("pose", (16, 16))
    meter.add([reference], [converted])
    assert meter.result() == {"mean_shift_pixels": 2.0, "max_shift_pixels": 4.0, "moved": 0.5}


def test_depth_differs_relatively_and_other_tasks_have_no_measure() -> None:
    meter = TaskMeter("depth", (2, 2))
    meter.add([np.full((1, 1, 2, 2), 2.0)], [np.full((1, 1, 2, 2), 2.1)])
    assert meter.result()["mean_relative_difference"] == pytest.approx(0.05)
    assert TaskMeter("tracking", (2, 2)).result() == {}


def test_many_boxes_of_many_classes_are_matched_in_little_memory() -> None:
    """All against all would be 40 GB here."""
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 500, (50_000, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(5, 50, (50_000, 2))], axis=1)
    found = [np.repeat(np.arange(500.0), 100), rng.uniform(0, 1, 50_000), boxes]
    pairs = matches(found, found)
    assert len(pairs) == 50_000
    assert all(one == other and iou == 1.0 for one, other, iou in pairs)
