"""What a task counts as right: metrics of classifiers, of segmentation, of detectors, and the user's own.

A metric keeps a record of every sample, so that two models are compared on the same samples, and intervals
come of drawing those again.
"""

from __future__ import annotations

import importlib
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Callable, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from mxamp.errors import DataError, nearest_names

Array = NDArray[Any]


class Metric(ABC):
    """Measures one model on samples that come batch after batch.

    Attributes
    ----------
    name
        What it is called: ``"top-1"``.
    """

    name: str

    @abstractmethod
    def add(self, outputs: Sequence[Array], labels: Array) -> None:
        """Take a batch.

        Parameters
        ----------
        outputs
            The model's outputs, samples along the first axis of each.
        labels
            The labels, one a sample.

        Raises
        ------
        DataError
            When outputs and labels are not what the metric is of.
        """

    @abstractmethod
    def value(self, samples: NDArray[np.int64] | None = None) -> float:
        """Return the metric from 0 to 1, on all samples, or on those drawn.

        Parameters
        ----------
        samples
            Numbers of samples; one may come several times.
        """

    @property
    @abstractmethod
    def samples(self) -> int:
        """How many samples came."""

    def right(self) -> NDArray[np.bool_] | None:
        """Return which samples are right; None where they are not right or wrong as a whole."""
        return None


class TopK(Metric):
    """The share of samples whose label is among the ``k`` highest scores.

    Labels are class numbers, one a sample; the first output has a score for each class.
    """

    def __init__(self, k: int) -> None:
        self.name, self._k = f"top-{k}", k
        self._right: list[NDArray[np.bool_]] = []

    def add(self, outputs: Sequence[Array], labels: Array) -> None:
        """See :class:`Metric`."""
        scores = np.asarray(outputs[0], np.float64)
        labels = np.asarray(labels)
        if scores.ndim != 2 or labels.size != len(scores):
            raise DataError(
                f"{self.name} takes a score for each class and a class number for each sample, but the first "
                f"output is of shape {scores.shape} and the labels of {labels.shape}. --metric names others."
            )
        numbers = labels.reshape(-1)
        if (numbers != np.floor(numbers)).any() or numbers.min() < 0 or numbers.max() >= scores.shape[1]:
            raise DataError(
                f"The labels reach from {numbers.min()} to {numbers.max()}, but the model tells classes 0 to "
                f"{scores.shape[1] - 1} apart. Do labels and model belong together?"
            )
        if self._k == 1:
            right = scores.argmax(1) == numbers
        else:
            own = scores[np.arange(len(scores)), numbers.astype(np.int64)]
            right = (scores > own[:, np.newaxis]).sum(1) < self._k
        self._right.append(right)

    def right(self) -> NDArray[np.bool_]:
        """See :class:`Metric`."""
        return np.concatenate(self._right) if self._right else np.zeros(0, bool)

    def value(self, samples: NDArray[np.int64] | None = None) -> float:
        """See :class:`Metric`."""
        right = self.right()
        return float((right if samples is None else right[samples]).mean())

    @property
    def samples(self) -> int:
        """See :class:`Metric`."""
        return sum(map(len, self._right))


class MeanOverlap(Metric):
    """The mean over classes of intersection over union, of segmentation.

    Labels are images of class numbers; the first output has a score for each class and pixel. Pixels whose
    label is negative or no class do not count.
    """

    name = "mIoU"

    def __init__(self) -> None:
        self._counts: list[Array] = []  # of each sample: intersection, predicted and true pixels by class

    def add(self, outputs: Sequence[Array], labels: Array) -> None:
        """See :class:`Metric`."""
        scores, labels = np.asarray(outputs[0]), np.asarray(labels)
        if scores.ndim != 4 or labels.shape != (len(scores), *scores.shape[2:]):
            raise DataError(
                "mIoU takes a score for each class and pixel and a class number for each pixel, but the "
                f"first output is of shape {scores.shape} and the labels of {labels.shape}."
            )
        classes = scores.shape[1]
        for predicted, true in zip(scores.argmax(1), labels):
            counted = (true >= 0) & (true < classes)
            predicted, true = predicted[counted].astype(np.int64), true[counted].astype(np.int64)
            self._counts.append(
                np.stack(
                    [
                        np.bincount(values, minlength=classes)
                        for values in (true[true == predicted], predicted, true)
                    ]
                )
            )

    def value(self, samples: NDArray[np.int64] | None = None) -> float:
        """See :class:`Metric`."""
        counts = np.stack(self._counts)
        total = (counts if samples is None else counts[samples]).sum(0).astype(np.float64)
        union = total[1] + total[2] - total[0]
        seen = union > 0
        return float((total[0][seen] / union[seen]).mean()) if seen.any() else 0.0

    @property
    def samples(self) -> int:
        """See :class:`Metric`."""
        return len(self._counts)


class MeanPrecision(Metric):
    """The mean over classes of the average precision, of detectors.

    The outputs are class numbers, scores and boxes (x1, y1, x2, y2), as GluonCV's detectors return them;
    labels are rows of (class, x1, y1, x2, y2) for each sample, filled up with rows of class -1, and where
    there is a sixth number, boxes with one that is not 0 are difficult: neither right nor wrong.

    VOC's is at an overlap of 0.5, precision at eleven recalls (Everingham et al., IJCV 88, 2010); COCO's the
    mean over overlaps from 0.5 to 0.95, precision at 101 recalls, and the 100 highest scores an image (Lin
    et al., ECCV 2014). COCO's lets a box whose best match is taken have the next best one; VOC's does not.
    """

    def __init__(
        self, name: str, overlaps: Sequence[float], recalls: int, *, most: int | None, is_coco: bool
    ) -> None:
        self.name, self._overlaps, self._most = name, tuple(overlaps), most
        self._is_coco, self._pixel = is_coco, 0 if is_coco else 1
        # VOC's eleven recalls are decimal numbers; COCO's are compared as they are, as its own code does.
        self._slack = 0.0 if is_coco else 1e-12
        self._recalls = np.linspace(0, 1, recalls)
        self._boxes: list[dict[int, int]] = []
        self._found: list[tuple[Array, Array, Array]] = []  # classes, scores, and -1 to 1 for each overlap

    def add(self, outputs: Sequence[Array], labels: Array) -> None:
        """See :class:`Metric`."""
        labels = np.asarray(labels, np.float64)
        if len(outputs) < 3 or np.asarray(outputs[2]).shape[-1:] != (4,):
            raise DataError(
                f"{self.name} takes three outputs, class numbers, scores and boxes, and the model has "
                f"{len(outputs)}. --metric module:function takes anything."
            )
        if labels.ndim != 3 or labels.shape[2] < 5 or len(labels) != len(outputs[0]):
            raise DataError(
                f"{self.name} takes labels of shape (samples, boxes, 5): class, x1, y1, x2, y2, filled up "
                f"with rows of class -1. They are of shape {labels.shape}."
            )
        for number, true in enumerate(labels):
            classes, scores, boxes = (np.asarray(output[number], np.float64) for output in outputs[:3])
            self._add_one(
                classes.reshape(-1), scores.reshape(-1), boxes.reshape(-1, 4), true[true[:, 0] >= 0]
            )

    def _add_one(self, classes: Array, scores: Array, boxes: Array, true: Array) -> None:
        difficult = true[:, 5] != 0 if true.shape[1] > 5 else np.zeros(len(true), bool)
        counted: dict[int, int] = {}
        for label, is_difficult in zip(true[:, 0].astype(int), difficult):
            counted[label] = counted.get(label, 0) + (not is_difficult)
        self._boxes.append(counted)
        order = np.flatnonzero(classes >= 0)
        order = order[np.argsort(-scores[order], kind="stable")][: self._most]
        matches = np.zeros((len(order), len(self._overlaps)), np.int8)
        for column, overlap in enumerate(self._overlaps):
            taken = np.zeros(len(true), bool)
            for row, index in enumerate(order):
                own = np.flatnonzero(true[:, 0] == classes[index])
                if not len(own):
                    continue
                shares = _overlaps(boxes[index], true[own, 1:5], self._pixel)
                if self._is_coco:
                    shares = np.where(taken[own], -1.0, shares)
                best = own[int(shares.argmax())]
                if shares.max() < overlap:
                    continue
                if difficult[best]:
                    matches[row, column] = -1
                elif not taken[best]:
                    taken[best] = True
                    matches[row, column] = 1
        self._found.append((classes[order].astype(np.int64), scores[order], matches))

    def value(self, samples: NDArray[np.int64] | None = None) -> float:
        """See :class:`Metric`."""
        drawn = range(len(self._boxes)) if samples is None else samples
        boxes: dict[int, int] = {}
        for sample in drawn:
            for label, count in self._boxes[sample].items():
                boxes[label] = boxes.get(label, 0) + count
        found = [self._found[sample] for sample in drawn]
        classes = np.concatenate([one[0] for one in found])
        scores = np.concatenate([one[1] for one in found])
        matches = np.concatenate([one[2] for one in found])
        precisions = []
        for label, count in boxes.items():
            if not count:
                continue
            own = np.flatnonzero(classes == label)
            own = own[np.argsort(-scores[own], kind="stable")]
            for column in range(len(self._overlaps)):
                hits = matches[own, column]
                hits = hits[hits >= 0]
                precisions.append(self._average_precision(hits, count))
        return float(np.mean(precisions)) if precisions else 0.0

    def _average_precision(self, hits: Array, count: int) -> float:
        right = np.cumsum(hits == 1)
        recall, precision = right / count, right / np.arange(1, len(hits) + 1)
        best = np.maximum.accumulate(precision[::-1])[::-1]
        at = np.searchsorted(recall, self._recalls - self._slack, side="left")
        return (
            float(np.where(at < len(best), best[np.minimum(at, len(best) - 1)], 0).mean())
            if len(best)
            else 0.0
        )

    @property
    def samples(self) -> int:
        """See :class:`Metric`."""
        return len(self._boxes)


def _overlaps(box: Array, others: Array, pixel: int) -> Array:
    """Return the intersection over union of a box with others; VOC counts the last ``pixel`` in."""
    corner = np.array([0, 0, pixel, pixel])
    box, others = box + corner, others + corner
    width = np.minimum(box[2], others[:, 2]) - np.maximum(box[0], others[:, 0])
    height = np.minimum(box[3], others[:, 3]) - np.maximum(box[1], others[:, 1])
    both = np.clip(width, 0, None) * np.clip(height, 0, None)
    areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
    return np.asarray(both / np.maximum((box[2] - box[0]) * (box[3] - box[1]) + areas - both, 1e-12))


class OwnMetric(Metric):
    """What a function of the user's says of each sample; the metric is its mean."""

    def __init__(self, function: Callable[[Sequence[Array], Array], Any], name: str) -> None:
        self.name, self._function = name, function
        self._scores: list[Array] = []

    def add(self, outputs: Sequence[Array], labels: Array) -> None:
        """See :class:`Metric`."""
        try:
            scores = np.asarray(self._function(outputs, labels), np.float64)
        except Exception as error:
            raise DataError(f"The metric {self.name} failed: {type(error).__name__}: {error}") from error
        if scores.shape != (len(labels),):
            raise DataError(
                f"The metric {self.name} must return one number for each sample of a batch: {len(labels)} "
                f"numbers, not an array of shape {scores.shape}. Their mean is the metric."
            )
        self._scores.append(scores)

    def value(self, samples: NDArray[np.int64] | None = None) -> float:
        """See :class:`Metric`."""
        scores = np.concatenate(self._scores)
        return float((scores if samples is None else scores[samples]).mean())

    @property
    def samples(self) -> int:
        """See :class:`Metric`."""
        return sum(map(len, self._scores))


METRICS: dict[str, Callable[[], Metric]] = {
    "top-1": lambda: TopK(1),
    "top-5": lambda: TopK(5),
    "miou": MeanOverlap,
    "voc-map": lambda: MeanPrecision("VOC07 mAP", (0.5,), 11, most=None, is_coco=False),
    "coco-map": lambda: MeanPrecision(
        "COCO mAP", tuple(np.linspace(0.5, 0.95, 10)), 101, most=100, is_coco=True
    ),
}
"""The metrics by name."""


GivenMetric = Union[str, Callable[..., Any]]
"""A metric as users name it: see :func:`find_metric`."""


def find_metric(given: GivenMetric) -> Callable[[], Metric]:
    """Return what makes a metric, for what users call one.

    Parameters
    ----------
    given
        A name of :data:`METRICS`; ``"module:function"``; or a function of (outputs, labels) that returns one
        number for each sample.

    Raises
    ------
    DataError
        When there is none such.
    """
    if callable(given):
        name = getattr(given, "__name__", "metric")
        return lambda: OwnMetric(given, name)
    if not isinstance(given, str):
        raise DataError(f"A metric is a name or a function, not {given!r:.80}.")
    if given in METRICS:
        return METRICS[given]
    module, colon, name = given.partition(":")
    if not colon:
        raise DataError(
            f"There is no metric {given!r}.{nearest_names(given, METRICS)} There are "
            f"{', '.join(METRICS)}, and module:function for your own."
        )
    sys.path.insert(0, str(Path.cwd()))  # where the user keeps it
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise DataError(
            f"The metric {given!r} cannot be had: {error}. It is a function in a module that Python finds "
            "from this folder: it takes the outputs of a batch and its labels, and returns a number a sample."
        ) from error
    finally:
        sys.path.pop(0)
    if not callable(function):
        raise DataError(f"The metric {given!r} is no function.")
    return lambda: OwnMetric(function, given)
