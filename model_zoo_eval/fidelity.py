"""Fidelity of outputs, in general and in the terms of each task.

Everything here compares what two models make of the same inputs. Labels play no part, so nothing here is
accuracy.
"""

from __future__ import annotations

import math
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.compare.metrics import DistanceMeter

__all__ = ["MARGINS", "HeadMeter", "TaskMeter", "rounded"]

MARGINS = (0.0, 0.01, 0.1, 0.5, 1.0)
"""Borders of the buckets of FP32's margin: the probability of its first class less that of its second."""

_IOU_TO_MATCH = 0.5

_EMPTY = -1.0
"""What a detector writes where there is nothing: over a class id, or over a whole candidate."""

_CANDIDATE_VALUES = (5, 6)
"""How long a candidate is: a score and a box, before them perhaps the class."""

Array = NDArray[Any]


def rounded(value: float | None, digits: int = 5) -> float | str | None:
    """Return a number for JSON: few digits, and infinities and NaN by name, which JSON does not have."""
    if value is None:
        return None
    if not math.isfinite(value):
        return str(float(value))
    return float(f"{value:.{digits}g}")


class HeadMeter:
    """Accumulates the distance of one output, or of one tensor within."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._distance = DistanceMeter()
        self._absolute = 0.0
        self._compared = 0
        self._candidates = self._emptied = 0

    def add(self, reference: Array, converted: Array) -> None:
        """Take one more sample into account."""
        self._distance.add(reference, converted)
        error = np.abs(converted.astype(np.float64) - reference.astype(np.float64))
        finite = error[np.isfinite(error)]
        self._absolute += float(finite.sum())
        self._compared += finite.size

    def add_candidates(self, reference: Array, converted: Array) -> None:
        """Take a detector's candidates into account: (batch, candidates, values).

        Detectors write -1 over candidates that are too small or too unlikely. One that is emptied on one side
        only crossed a threshold, which says nothing about how large the rounding was: it is counted, and left
        out.
        """
        if reference.ndim != 3 or reference.shape[-1] not in _CANDIDATE_VALUES:
            self.add(reference, converted)
            return
        same = (reference[..., 0] == _EMPTY) == (converted[..., 0] == _EMPTY)
        self._candidates += same.size
        self._emptied += same.size - int(np.count_nonzero(same))
        self.add(reference[same], converted[same])

    def result(self) -> dict[str, Any]:
        """Return the measures as plain data."""
        found = self._distance.result()
        counted = {"candidates": self._candidates, "emptied": self._emptied} if self._candidates else {}
        return {
            **counted,
            "name": self._name,
            "relative_l2": rounded(found.relative_l2),
            "max_error": rounded(found.max_abs),
            "mean_error": rounded(self._absolute / self._compared if self._compared else 0.0),
            "bias": rounded(found.mean_error),
            "cosine": rounded(found.cosine, 9),
            "sqnr_db": rounded(found.sqnr_db, 4),
            "nan": found.converted_nan,
            "inf": found.converted_inf,
            "fp32_nan": found.reference_nan,
            "fp32_inf": found.reference_inf,
        }


class TaskMeter:
    """Accumulates what a conversion changes in the terms of a task.

    Parameters
    ----------
    task
        The registry's word for it.
    size
        Height and width of the input.
    """

    def __init__(self, task: str, size: tuple[int, int]) -> None:
        self._task = task
        self._size = size
        self._sums: dict[str, float] = {}
        self._largest: dict[str, float] = {}
        self._buckets = np.zeros((len(MARGINS) - 1, 2), np.int64)

    def add(self, reference: Sequence[Array], converted: Sequence[Array]) -> None:
        """Take the outputs for one more sample into account."""
        if self._task in ("classification", "action recognition"):
            self._add_classes(reference[0], converted[0])
        elif self._task in ("detection", "instance segmentation"):
            self._add_boxes(reference, converted)
        elif self._task == "segmentation":
            self._add_class_map(reference[0], converted[0])
        elif self._task == "pose":
            self._add_heat_maps(reference[0], converted[0])
        elif self._task == "depth":
            self._add_disparity(reference[0], converted[0])

    def result(self) -> dict[str, Any]:
        """Return the measures as plain data; empty for a task that has none of its own."""
        sums, largest = self._sums, self._largest
        if self._task in ("classification", "action recognition"):
            return {
                "same_top1": int(self._buckets[:, 0].sum()),
                "samples": int(self._buckets[:, 1].sum()),
                "by_margin": [
                    {"margin": [low, high], "same_top1": int(same), "samples": int(of)}
                    for low, high, (same, of) in zip(MARGINS, MARGINS[1:], self._buckets)
                ],
            }
        if self._task in ("detection", "instance segmentation"):
            matched = sums.get("matched", 0)
            found = {
                "boxes": int(sums.get("boxes", 0)),
                "converted_boxes": int(sums.get("converted", 0)),
                "matched": int(matched),
                "mean_iou": rounded(sums.get("iou", 0.0) / matched) if matched else None,
                "max_score_error": rounded(largest.get("score", 0.0)),
            }
            if "mask_pixels" in sums:
                found["same_mask_pixels"] = rounded(sums["same_mask_pixels"] / sums["mask_pixels"])
            return found
        if self._task == "segmentation":
            return {"same_pixels": rounded(sums["same"] / sums["pixels"], 8)} if sums else {}
        if self._task == "pose" and sums:
            return {
                "mean_shift_pixels": rounded(sums["shift"] / sums["keypoints"]),
                "max_shift_pixels": rounded(largest["shift"]),
                "moved": rounded(sums["moved"] / sums["keypoints"]),
            }
        if self._task == "depth" and sums:
            return {"mean_relative_difference": rounded(sums["relative"] / sums["pixels"])}
        return {}

    # ------------------------------------------------------------------ tasks

    def _count(self, **amounts: float) -> None:
        for name, amount in amounts.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(amount)

    def _note(self, **amounts: float) -> None:
        for name, amount in amounts.items():
            self._largest[name] = max(self._largest.get(name, 0.0), float(amount))

    def _add_classes(self, reference: Array, converted: Array) -> None:
        scores = reference.astype(np.float64)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        ordered = np.sort(odds / odds.sum(axis=1, keepdims=True), axis=1)
        margins = ordered[:, -1] - ordered[:, -2]
        same = (reference.argmax(axis=1) == converted.argmax(axis=1)) & ~np.isnan(converted).any(axis=1)
        buckets = np.clip(np.searchsorted(MARGINS, margins, side="right") - 1, 0, len(MARGINS) - 2)
        np.add.at(self._buckets, (buckets, 0), same)
        np.add.at(self._buckets, (buckets, 1), 1)

    def _add_boxes(self, reference: Sequence[Array], converted: Sequence[Array]) -> None:
        for number in range(reference[0].shape[0]):
            left = _detections([output[number] for output in reference])
            right = _detections([output[number] for output in converted])
            self._count(boxes=len(left[0]), converted=len(right[0]))
            for one, other, iou in matches(left, right):
                self._count(matched=1, iou=iou)
                self._note(score=abs(left[1][one] - right[1][other]))
                if len(left) > 3:
                    same = (left[3][one] > 0.5) == (right[3][other] > 0.5)
                    self._count(same_mask_pixels=np.count_nonzero(same), mask_pixels=same.size)

    def _add_class_map(self, reference: Array, converted: Array) -> None:
        same = reference.argmax(axis=1) == converted.argmax(axis=1)
        self._count(same=np.count_nonzero(same), pixels=same.size)

    def _add_heat_maps(self, reference: Array, converted: Array) -> None:
        height, width = reference.shape[-2:]
        stride = np.array([self._size[0] / height, self._size[1] / width])
        places = [
            np.stack(
                np.unravel_index(maps.reshape(-1, height * width).argmax(axis=1), (height, width)), axis=1
            )
            for maps in (reference, converted)
        ]
        shift = np.linalg.norm((places[0] - places[1]) * stride, axis=1)
        self._count(shift=shift.sum(), keypoints=shift.size, moved=np.count_nonzero(shift))
        self._note(shift=shift.max(initial=0.0))

    def _add_disparity(self, reference: Array, converted: Array) -> None:
        relative = np.abs(converted - reference) / np.maximum(np.abs(reference), 1e-6)
        self._count(relative=relative.sum(dtype=np.float64), pixels=relative.size)


def _detections(outputs: Sequence[Array]) -> list[Array]:
    """Return class ids, scores, boxes and masks of what was found; empty rows have the id -1."""
    ids, scores, boxes = outputs[0].reshape(-1), outputs[1].reshape(-1), outputs[2].reshape(-1, 4)
    found = ids >= 0
    return [ids[found], scores[found], boxes[found], *(masks[found] for masks in outputs[3:])]


def matches(left: Sequence[Array], right: Sequence[Array]) -> list[tuple[int, int, float]]:
    """Pair boxes of one class, the surest first, each with the one it overlaps most."""
    pairs = []
    # A class at a time: a detector of 80 classes may find 50,000 boxes, too many to hold all against all.
    for kind in np.intersect1d(left[0], right[0]):
        ones, others = np.flatnonzero(left[0] == kind), np.flatnonzero(right[0] == kind)
        overlaps = _overlaps(left[2][ones].astype(np.float64), right[2][others].astype(np.float64))
        for row in np.argsort(-left[1][ones], kind="stable"):
            column = int(np.argmax(overlaps[row]))
            iou = float(overlaps[row, column])
            if iou >= _IOU_TO_MATCH:
                pairs.append((int(ones[row]), int(others[column]), iou))
                overlaps[:, column] = 0.0
    return pairs


def _overlaps(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the intersection over union of every box on the left with every box on the right."""
    low = np.maximum(left[:, None, :2], right[None, :, :2])
    high = np.minimum(left[:, None, 2:], right[None, :, 2:])
    common = np.prod(np.clip(high - low, 0.0, None), axis=2)
    areas = [np.prod(np.clip(boxes[:, 2:] - boxes[:, :2], 0.0, None), axis=1) for boxes in (left, right)]
    union = areas[0][:, None] + areas[1][None, :] - common
    with np.errstate(invalid="ignore", divide="ignore"):
        shares: NDArray[np.float64] = np.nan_to_num(common / union, nan=0.0, posinf=0.0)
    return shares
