"""Metrics count what they say, by hand on small cases and against GluonCV's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.errors import DataError
from mxamp.evaluation import METRICS, find_metric


def measured(name: Any, outputs: list[Any], labels: Any) -> float:
    metric = find_metric(name)()
    metric.add([np.asarray(output) for output in outputs], np.asarray(labels))
    return metric.value()


def test_top_1_is_the_share_of_highest_scores_and_top_5_of_the_five_highest() -> None:
    scores = np.eye(10)[[0, 1, 2, 3]] + np.linspace(0, 0.5, 10)
    assert measured("top-1", [scores], [0, 1, 2, 9]) == 0.75
    assert measured("top-5", [scores], [0, 1, 2, 9]) == 1.0
    assert measured("top-5", [scores], [0, 1, 2, 0]) == 0.75


def test_mean_overlap_is_that_of_classes_seen_and_leaves_out_pixels_without_a_class() -> None:
    predicted = np.array([[[0, 0], [1, 1]]])
    scores = np.moveaxis(np.eye(3)[predicted], -1, 1)
    # Class 0: one of two; class 1: two of three; class 2 is nowhere; 255 does not count.
    assert measured("miou", [scores], [[[0, 1], [1, 1]]]) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert measured("miou", [scores], [[[0, 255], [1, -1]]]) == 1.0


def boxes(seed: int, samples: int = 6) -> tuple[list[Any], Any]:
    random = np.random.default_rng(seed)
    true = np.full((samples, 4, 5), -1.0)
    ids, scores, found = np.full((samples, 8, 1), -1.0), np.zeros((samples, 8, 1)), np.zeros((samples, 8, 4))
    for sample in range(samples):
        for number in range(3):
            corner = random.uniform(0, 60, 2)
            true[sample, number] = [random.integers(3), *corner, *(corner + random.uniform(20, 40, 2))]
            for copy in range(2):
                row = 2 * number + copy
                ids[sample, row] = true[sample, number, 0] if random.random() < 0.8 else random.integers(3)
                scores[sample, row] = random.random()
                found[sample, row] = true[sample, number, 1:] + random.normal(0, 4, 4)
    return [ids, scores, found], true


@pytest.mark.parametrize("seed", range(4))
def test_the_precision_of_detectors_is_gluoncvs(seed: int) -> None:
    metrics = pytest.importorskip("gluoncv.utils.metrics.voc_detection")
    outputs, true = boxes(seed)
    theirs = metrics.VOC07MApMetric(iou_thresh=0.5)
    ids, scores, found = outputs
    theirs.update(found, ids, scores, true[:, :, 1:], true[:, :, :1])
    # Theirs asks for recalls of 0.30000000000000004 and the like, which 3 of 10 boxes do not reach.
    assert measured("voc-map", outputs, true) == pytest.approx(theirs.get()[1], abs=0.02)


@pytest.mark.parametrize("seed", range(4))
def test_the_precision_of_detectors_is_that_of_pycocotools(seed: int) -> None:
    pytest.importorskip("pycocotools.coco")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    outputs, true = boxes(seed, samples=20)
    ids, scores, found = outputs

    def corner_and_size(box: Any) -> list[float]:
        return [float(box[0]), float(box[1]), float(box[2] - box[0]), float(box[3] - box[1])]

    objects = [
        {
            "image_id": image,
            "category_id": int(row[0]) + 1,
            "bbox": corner_and_size(row[1:]),
            "area": float((row[3] - row[1]) * (row[4] - row[2])),
            "iscrowd": 0,
        }
        for image, rows in enumerate(true)
        for row in rows
        if row[0] >= 0
    ]
    theirs = COCO()
    theirs.dataset = {
        "images": [{"id": image} for image in range(len(true))],
        "categories": [{"id": number + 1} for number in range(3)],
        "annotations": [{"id": number + 1, **each} for number, each in enumerate(objects)],
    }
    theirs.createIndex()
    detected = [
        {
            "image_id": image,
            "category_id": int(ids[image, row, 0]) + 1,
            "bbox": corner_and_size(found[image, row]),
            "score": float(scores[image, row, 0]),
        }
        for image in range(len(true))
        for row in range(ids.shape[1])
        if ids[image, row, 0] >= 0
    ]
    judged = COCOeval(theirs, theirs.loadRes(detected), "bbox")
    judged.evaluate()
    judged.accumulate()
    judged.summarize()
    assert 0.05 < judged.stats[0] < 0.95
    assert measured("coco-map", outputs, true) == pytest.approx(judged.stats[0], abs=1e-6)


def test_boxes_that_are_found_exactly_have_a_precision_of_1_at_every_overlap() -> None:
    _, true = boxes(0)
    outputs = [true[:, :, :1], np.ones((6, 4, 1)), true[:, :, 1:]]
    assert measured("coco-map", outputs, true) == pytest.approx(1.0)
    assert measured("voc-map", outputs, true) == pytest.approx(1.0)


def test_a_difficult_box_is_neither_right_nor_wrong() -> None:
    true = np.array([[[0, 0, 0, 10, 10, 1], [0, 50, 50, 60, 60, 0]]], np.float64)
    outputs = [np.zeros((1, 2, 1)), np.array([[[0.9], [0.8]]]), true[:, :, 1:5]]
    assert measured("voc-map", outputs, true) == pytest.approx(1.0)


def test_a_resampled_metric_is_that_of_the_samples_drawn() -> None:
    outputs, true = boxes(1)
    for name in ("voc-map", "coco-map"):
        metric = find_metric(name)()
        metric.add(outputs, true)
        other = find_metric(name)()
        drawn = np.array([0, 0, 3, 5, 5, 5])
        other.add([output[drawn] for output in outputs], true[drawn])
        assert metric.value(drawn) == pytest.approx(other.value())


def own(outputs: Any, labels: Any) -> Any:
    return np.abs(outputs[0] - labels).max(1)


def test_a_function_of_the_users_is_a_metric(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs, labels = [np.array([[1.0, 2.0], [3.0, 5.0]])], np.array([[1.0, 2.5], [3.0, 5.25]])
    assert measured(own, outputs, labels) == pytest.approx(0.375)
    (tmp_path / "mine.py").write_text("def half(outputs, labels):\n    return [0.5] * len(labels)\n")
    monkeypatch.chdir(tmp_path)
    assert measured("mine:half", outputs, labels) == 0.5


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("top-2", "There is no metric 'top-2'"),
        ("nowhere:f", "cannot be had"),
        ("math:pi", "is no function"),
        (3, "name"),
    ],
)
def test_what_is_no_metric_is_refused(name: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        find_metric(name)


@pytest.mark.parametrize("name", list(METRICS))
def test_outputs_or_labels_of_another_kind_are_refused_with_their_shapes(name: str) -> None:
    with pytest.raises(DataError, match=r"shape|outputs"):
        measured(name, [np.zeros((2, 3, 4))], np.zeros((2, 7)))


def test_labels_beyond_the_classes_are_refused() -> None:
    with pytest.raises(DataError, match="classes 0 to 2 apart"):
        measured("top-1", [np.zeros((2, 3))], [0, 3])


def test_a_metric_that_fails_or_returns_something_else_says_so() -> None:
    with pytest.raises(DataError, match="ZeroDivisionError"):
        measured(lambda outputs, labels: 1 / 0, [np.zeros((2, 3))], [0, 1])
    with pytest.raises(DataError, match="one number for each sample"):
        measured(lambda outputs, labels: 1.0, [np.zeros((2, 3))], [0, 1])
