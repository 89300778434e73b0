"""The metrics of tasks, through GluonCV's and MXNet's own classes, and what each sample contributed.

A meter is given the outputs of one model, sample by sample, with what is true. It says what the metric is,
which items (images, boxes, digits) are right, and what the metric is on other draws of the samples.
"""

from __future__ import annotations

from typing import Any, Mapping, Protocol, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["ClassMeter", "Meter", "PixelMeter", "Truth", "VocMeter", "found_boxes", "placed_boxes"]

Array = NDArray[Any]

Truth = Mapping[str, Array]
"""What is true of one sample.

``label`` for classifiers; ``boxes``, ``labels`` and, where there are any, ``difficult``, ``size`` and
``scale`` for detectors; ``mask`` and, where there is one, ``objects`` for segmentation.
"""

FOUND_SCORE = 0.5
"""From which score on a box counts as found."""

FOUND_OVERLAP = 0.5
"""From which overlap (intersection over union) on it does, as in VOC's metric."""


class Meter(Protocol):
    """Measures one model."""

    items: str
    """What `right` counts: ``images``, ``boxes`` or ``digits``; empty where nothing can be counted."""

    def add(self, outputs: Sequence[Array], truth: Truth) -> None:
        """Take a sample's outputs, with a batch of 1, and what is true of it."""

    def metrics(self) -> dict[str, float]:
        """Return the metrics by name, each from 0 to 1; the first is the one that models are compared by."""

    def right(self) -> NDArray[np.bool_]:
        """Return which items are right, in the samples' order."""

    def resampled(self, samples: NDArray[np.int64]) -> float:
        """Return the first metric on a draw of the samples; NaN where it cannot be had so."""


class ClassMeter:
    """Top-1 and top-5 of a classifier, through ``mx.metric``, as GluonCV's own evaluation has them."""

    items = "images"

    def __init__(self) -> None:
        import mxnet as mx

        self._array = mx.nd.array
        self._top1 = mx.metric.Accuracy()
        self._top5 = mx.metric.TopKAccuracy(5)
        self._right: list[bool] = []

    def add(self, outputs: Sequence[Array], truth: Truth) -> None:
        """See :class:`Meter`."""
        scores, label = outputs[0], truth["label"]
        for metric in (self._top1, self._top5):
            metric.update([self._array(label.reshape(1))], [self._array(scores)])
        self._right.append(int(scores[0].argmax()) == int(label))

    def metrics(self) -> dict[str, float]:
        """See :class:`Meter`."""
        return {"top-1": float(self._top1.get()[1]), "top-5": float(self._top5.get()[1])}

    def right(self) -> NDArray[np.bool_]:
        """See :class:`Meter`."""
        return np.array(self._right, bool)

    def resampled(self, samples: NDArray[np.int64]) -> float:
        """See :class:`Meter`."""
        return float(np.array(self._right)[samples].mean())


class VocMeter:
    """VOC07 mAP of a detector, through GluonCV's ``VOC07MApMetric``; ids, scores and boxes are its outputs.

    An item is a box that is there: it is right where one of its class, with a score of 0.5 and more, overlaps
    it by half.
    """

    items = "boxes"

    def __init__(self, classes: Sequence[str]) -> None:
        self._classes = list(classes)
        self._whole = self._metric()
        self._of_sample: list[Any] = []
        self._table: dict[int, tuple[Array, Array, Array, Array]] | None = None
        self._right: list[bool] = []

    def _metric(self) -> Any:
        from gluoncv.utils.metrics.voc_detection import VOC07MApMetric

        return VOC07MApMetric(iou_thresh=FOUND_OVERLAP, class_names=self._classes)

    def add(self, outputs: Sequence[Array], truth: Truth) -> None:
        """See :class:`Meter`."""
        ids, scores, boxes = outputs[:3]
        boxes, true_boxes = placed_boxes(boxes, truth)
        difficult = truth.get("difficult")
        one = self._metric()
        for metric in (self._whole, one):
            metric.update(
                boxes,
                ids,
                scores,
                true_boxes[np.newaxis],
                truth["labels"][np.newaxis],
                None if difficult is None else difficult[np.newaxis],
            )
        self._of_sample.append(one)
        placed = {**truth, "boxes": true_boxes}
        self._right += found_boxes(ids[0].ravel(), scores[0].ravel(), boxes[0], placed)

    def metrics(self) -> dict[str, float]:
        """See :class:`Meter`."""
        return {"VOC07 mAP": _mean_precision(self._whole)}

    def right(self) -> NDArray[np.bool_]:
        """See :class:`Meter`."""
        return np.array(self._right, bool)

    def resampled(self, samples: NDArray[np.int64]) -> float:
        """See :class:`Meter`."""
        if self._table is None:
            self._table = self._tabulate()
        times = np.bincount(samples, minlength=len(self._of_sample))
        drawn = self._metric()
        for label, (present, owners, scores, matches) in self._table.items():
            count = int(present @ times)
            if count or times[owners].any():
                drawn._n_pos[label] = count
                drawn._score[label] = np.repeat(scores, times[owners])
                drawn._match[label] = np.repeat(matches, times[owners])
        return _mean_precision(drawn)

    def _tabulate(self) -> dict[int, tuple[Array, Array, Array, Array]]:
        """Return what the metric keeps, by label.

        How many boxes every sample has; and of every candidate the sample, score and match.
        """
        table = {}
        for label in sorted({label for one in self._of_sample for label in one._n_pos}):
            present = np.array([one._n_pos.get(label, 0) for one in self._of_sample])
            owners = [number for number, one in enumerate(self._of_sample) for _ in one._score.get(label, ())]
            scores = [score for one in self._of_sample for score in one._score.get(label, ())]
            matches = [match for one in self._of_sample for match in one._match.get(label, ())]
            table[label] = (present, np.array(owners, int), np.array(scores), np.array(matches, np.int32))
        return table


def placed_boxes(boxes: Array, truth: Truth) -> tuple[Array, Array]:
    """Return predicted and true boxes as GluonCV's evaluations compare them.

    Predicted ones are cut off at the input's ``size``; where there is a ``scale``, both are in the pixels of
    the original image.
    """
    if "size" in truth:
        height, width = truth["size"]
        boxes = np.clip(boxes, 0, np.array((width, height, width, height), boxes.dtype))
    scale = truth.get("scale", 1.0)
    return boxes * np.float32(scale), truth["boxes"] * np.float32(scale)


def _mean_precision(metric: Any) -> float:
    names, values = metric.get()
    return float(values[names.index("mAP")])


def found_boxes(ids: Array, scores: Array, boxes: Array, truth: Truth) -> list[bool]:
    """Say for every box that is there, but for difficult ones, whether a prediction found it."""
    from gluoncv.utils.bbox import bbox_iou

    sure = (ids >= 0) & (scores >= FOUND_SCORE)
    difficult = truth.get("difficult")
    found = []
    for number, (box, label) in enumerate(zip(truth["boxes"], truth["labels"])):
        if label < 0 or (difficult is not None and difficult[number]):
            continue
        same = sure & (ids == label)
        overlaps = bbox_iou(boxes[same], box[np.newaxis]) if same.any() else np.zeros(1)
        found.append(bool((overlaps >= FOUND_OVERLAP).any()))
    return found


class PixelMeter:
    """Pixel accuracy and mIoU of a segmentation network, through GluonCV's ``SegmentationMetric``.

    An item is an object of the ``objects`` map, where there is one: it is right where most of its pixels get
    its class.
    """

    def __init__(self, classes: int, *, items: str = "") -> None:
        from gluoncv.utils.metrics.segmentation import SegmentationMetric

        self.items = items
        self._classes = classes
        self._whole = SegmentationMetric(classes)
        self._intersections: list[Array] = []
        self._unions: list[Array] = []
        self._right: list[bool] = []

    def add(self, outputs: Sequence[Array], truth: Truth) -> None:
        """See :class:`Meter`."""
        import mxnet as mx
        from gluoncv.utils.metrics.segmentation import batch_intersection_union

        mask = truth["mask"]
        label, scores = mx.nd.array(mask[np.newaxis], dtype="int32"), mx.nd.array(outputs[0])
        self._whole.update(label, scores)
        intersection, union = batch_intersection_union(scores, label, self._classes)
        self._intersections.append(intersection)
        self._unions.append(union)
        if "objects" in truth:
            predicted = outputs[0][0].argmax(axis=0)
            for number in range(int(truth["objects"].max()) + 1):
                inside = truth["objects"] == number
                self._right.append(bool((predicted[inside] == mask[inside]).mean() > 0.5))

    def metrics(self) -> dict[str, float]:
        """See :class:`Meter`."""
        pixels, overlap = self._whole.get()
        return {"mIoU": float(overlap), "pixel accuracy": float(pixels)}

    def right(self) -> NDArray[np.bool_]:
        """See :class:`Meter`."""
        return np.array(self._right, bool)

    def resampled(self, samples: NDArray[np.int64]) -> float:
        """See :class:`Meter`."""
        intersection = np.stack(self._intersections)[samples].sum(axis=0)
        union = np.stack(self._unions)[samples].sum(axis=0)
        # As SegmentationMetric.get does it.
        return float((intersection / (np.spacing(1) + union)).mean())
