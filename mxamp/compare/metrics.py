"""Distances between a reference tensor and another, accumulated in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType

_BLOCK = 1 << 18
"""Elements converted to float64 at a time, so that temporaries do not grow with the tensor."""


@dataclass(frozen=True)
class Distance:
    """How far one tensor is from a reference tensor of the same shape.

    Where both hold a NaN, or the same infinity, they agree and the position is left out of the sums. Where
    only one is finite, or the infinities differ, no finite number is honest: ``relative_l2`` and ``max_abs``
    are then infinite.

    Attributes
    ----------
    elements
        How many elements were compared.
    relative_l2
        ``|converted - reference| / |reference|`` in the Euclidean norm; 0 where they are equal, infinite
        where only the reference is all zeros.
    max_abs
        The largest ``|converted - reference|``.
    mean_error
        The mean of ``converted - reference``, with its sign: the bias. Over finite positions.
    cosine
        The cosine of the angle between the two as vectors; None where one is all zeros.
    reference_nan, reference_inf, converted_nan, converted_inf
        How many elements are not finite.
    """

    elements: int
    relative_l2: float
    max_abs: float
    mean_error: float
    cosine: float | None
    reference_nan: int = 0
    reference_inf: int = 0
    converted_nan: int = 0
    converted_inf: int = 0

    @property
    def sqnr_db(self) -> float:
        """Signal to quantization noise, ``10 log10(sum reference**2 / sum error**2)``, in decibels."""
        if self.relative_l2 == 0.0:
            return math.inf
        return -20.0 * math.log10(self.relative_l2) if math.isfinite(self.relative_l2) else -math.inf

    @property
    def is_finite(self) -> bool:
        """Whether neither tensor holds a NaN or an infinity."""
        return not (self.reference_nan or self.reference_inf or self.converted_nan or self.converted_inf)


class DistanceMeter:
    """Accumulates the distance over several batches of one tensor."""

    def __init__(self) -> None:
        self._elements = 0
        self._compared = 0
        self._disagreements = 0
        self._reference_square = 0.0
        self._converted_square = 0.0
        self._error_square = 0.0
        self._product = 0.0
        self._error_sum = 0.0
        self._max_abs = 0.0
        self._nan = [0, 0]
        self._inf = [0, 0]

    def add(self, reference: NDArray[Any], converted: NDArray[Any]) -> None:
        """Take one more batch into account.

        Parameters
        ----------
        reference, converted
            Arrays of one shape, any real dtype.

        Raises
        ------
        ValueError
            When the shapes differ.
        """
        if reference.shape != converted.shape:
            raise ValueError(f"The shapes differ: {reference.shape} and {converted.shape}.")
        left, right = np.ravel(reference), np.ravel(converted)
        for start in range(0, left.size, _BLOCK):
            stop = start + _BLOCK
            self._add_block(left[start:stop].astype(np.float64), right[start:stop].astype(np.float64))

    def _add_block(self, reference: NDArray[np.float64], converted: NDArray[np.float64]) -> None:
        self._elements += reference.size
        finite = np.isfinite(reference) & np.isfinite(converted)
        if not finite.all():
            self._count_non_finite(reference, converted, finite)
            reference, converted = reference[finite], converted[finite]
        self._compared += reference.size
        if not reference.size:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # float64 tensors beyond 1e154 have infinite norms
            error = converted - reference
            self._reference_square += float(np.dot(reference, reference))
            self._converted_square += float(np.dot(converted, converted))
            self._error_square += float(np.dot(error, error))
            self._product += float(np.dot(reference, converted))
            self._error_sum += float(np.sum(error))
        self._max_abs = max(self._max_abs, float(np.max(np.abs(error))))

    def _count_non_finite(
        self, reference: NDArray[np.float64], converted: NDArray[np.float64], finite: NDArray[np.bool_]
    ) -> None:
        for side, values in enumerate((reference, converted)):
            self._nan[side] += int(np.count_nonzero(np.isnan(values)))
            self._inf[side] += int(np.count_nonzero(np.isinf(values)))
        agree = (np.isnan(reference) & np.isnan(converted)) | (reference == converted)
        self._disagreements += int(np.count_nonzero(~finite & ~agree))

    def result(self) -> Distance:
        """Return the distance over everything added so far."""
        return Distance(
            elements=self._elements,
            relative_l2=self._relative_l2(),
            max_abs=math.inf if self._disagreements else self._max_abs,
            mean_error=self._error_sum / self._compared if self._compared else 0.0,
            cosine=self._cosine(),
            reference_nan=self._nan[0],
            reference_inf=self._inf[0],
            converted_nan=self._nan[1],
            converted_inf=self._inf[1],
        )

    def _relative_l2(self) -> float:
        if self._disagreements:
            return math.inf
        if self._error_square == 0.0:
            # A difference below 1e-162 squares to zero.
            return 0.0 if self._max_abs == 0.0 or self._reference_square > 0.0 else math.inf
        if self._reference_square == 0.0:
            return math.inf
        return math.sqrt(self._error_square) / math.sqrt(self._reference_square)

    def _cosine(self) -> float | None:
        length = math.sqrt(self._reference_square) * math.sqrt(self._converted_square)
        if length == 0.0 or not math.isfinite(length):
            return None
        return max(-1.0, min(1.0, self._product / length))


def distance(reference: NDArray[Any], converted: NDArray[Any]) -> Distance:
    """Return the distance of one array from another.

    Parameters
    ----------
    reference, converted
        Arrays of one shape, any real dtype.
    """
    meter = DistanceMeter()
    meter.add(reference, converted)
    return meter.result()


def top1_agreement(reference: NDArray[Any], converted: NDArray[Any]) -> tuple[int, int]:
    """Count the rows in which both arrays have their largest value in the same column.

    Parameters
    ----------
    reference, converted
        Arrays of shape (rows, classes). Of equal values the first counts; a row with a NaN never agrees.

    Returns
    -------
    tuple of int
        How many rows agree, and how many there are.
    """
    same = np.argmax(reference, axis=1) == np.argmax(converted, axis=1)
    broken = np.isnan(reference).any(axis=1) | np.isnan(converted).any(axis=1)
    return int(np.count_nonzero(same & ~broken)), int(reference.shape[0])


def roundoff(low: DType | None) -> float:
    """Return the largest relative error of rounding to the nearest: half the gap between neighbours."""
    return 1.0 / (low or DType.FLOAT32).max_exact_integer
