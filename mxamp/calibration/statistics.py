"""What the values of an entry were, over all samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Mapping

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.params.ranges import overflow_limit

DTYPES = (DType.FLOAT16, DType.BFLOAT16)
"""The dtypes whose ranges values are held against."""


@dataclass(frozen=True)
class EntryStatistics:
    """The values of one entry, over all samples, in float32.

    Attributes
    ----------
    count
        How many finite values there were.
    not_finite
        How many were NaN or infinite.
    minimum, maximum
        Of the finite ones; 0 where there were none.
    mean, mean_square
        Of the finite ones.
    smallest
        The least magnitude that is not zero; infinity where all are zero.
    sample
        The number of the sample that holds the largest magnitude.
    beyond
        dtype -> the share of finite values that would become infinite in it.
    below
        dtype -> the share that would become zero and are not.
    """

    count: int
    not_finite: int
    minimum: float
    maximum: float
    mean: float
    mean_square: float
    smallest: float
    sample: int
    beyond: Mapping[str, float] = field(default_factory=dict)
    below: Mapping[str, float] = field(default_factory=dict)

    @property
    def largest(self) -> float:
        """The largest magnitude."""
        return max(-self.minimum, self.maximum, 0.0)

    def merged(self, other: EntryStatistics, *, samples: int) -> EntryStatistics:
        """Return the statistics of the values of both.

        Parameters
        ----------
        other
            The statistics of the samples that came later.
        samples
            How many came before these.
        """
        if not other.count:
            return replace(self, not_finite=self.not_finite + other.not_finite)
        if not self.count:
            return replace(
                other, not_finite=self.not_finite + other.not_finite, sample=other.sample + samples
            )
        count = self.count + other.count
        own, others = self.count / count, other.count / count

        def mixed(mine: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
            names = dict.fromkeys([*mine, *theirs])
            return {name: own * mine.get(name, 0.0) + others * theirs.get(name, 0.0) for name in names}

        return EntryStatistics(
            count,
            self.not_finite + other.not_finite,
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
            own * self.mean + others * other.mean,
            own * self.mean_square + others * other.mean_square,
            min(self.smallest, other.smallest),
            self.sample if self.largest >= other.largest else other.sample + samples,
            mixed(self.beyond, other.beyond),
            mixed(self.below, other.below),
        )


class EntryMeter:
    """Adds up the statistics of an entry, batch after batch."""

    def __init__(self) -> None:
        self.statistics: EntryStatistics | None = None
        """What was seen so far."""

    def add(self, values: NDArray[np.float32], *, first: int, samples: int) -> None:
        """Add the values of some samples.

        Parameters
        ----------
        values
            float32, any shape.
        first
            The number of the first sample.
        samples
            How many there are. Where the first axis is not theirs, the sample is told as the first.
        """
        found = _statistics(np.ascontiguousarray(values, np.float32), samples)
        if self.statistics is None:
            self.statistics = replace(found, sample=found.sample + first)
        else:
            self.statistics = self.statistics.merged(found, samples=first)


def _statistics(values: NDArray[np.float32], samples: int) -> EntryStatistics:
    flat = values.reshape(-1)
    not_finite = 0
    if flat.size:
        low, high = float(flat.min()), float(flat.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            flat = flat[np.isfinite(flat)]
            not_finite = values.size - flat.size
    if not flat.size:
        return EntryStatistics(0, not_finite, 0.0, 0.0, 0.0, 0.0, math.inf, 0)
    if not_finite:
        low, high = float(flat.min()), float(flat.max())
    # The bits without the sign, less one: zero becomes the largest of all.
    magnitudes = flat.view(np.uint32) << np.uint32(1)
    magnitudes -= np.uint32(1)
    least = int(magnitudes.min())
    has_values = least != np.iinfo(np.uint32).max
    smallest = float(np.uint32((least + 1) >> 1).view(np.float32)) if has_values else math.inf
    largest = max(-low, high)
    beyond, below = {}, {}
    for dtype in DTYPES:
        limit, zero = overflow_limit(dtype), dtype.smallest_subnormal / 2
        over = int(np.count_nonzero(np.abs(flat) >= limit)) if largest >= limit else 0
        under = 0
        if smallest <= zero:
            bits = int(np.float32(zero).view(np.uint32))
            under = int(np.count_nonzero(magnitudes <= np.uint32((bits << 1) - 1)))
        beyond[dtype.label], below[dtype.label] = over / flat.size, under / flat.size
    with np.errstate(over="ignore"):
        square = float(np.dot(flat, flat))
    if not math.isfinite(square):
        square = float(np.square(flat, dtype=np.float64).sum())
    sample = 0
    if samples > 1 and values.ndim and values.shape[0] == samples and not not_finite:
        rows = values.reshape(samples, -1)
        sample = int(np.argmax(np.maximum(rows.max(axis=1), -rows.min(axis=1))))
    return EntryStatistics(
        flat.size,
        not_finite,
        low,
        high,
        float(flat.mean(dtype=np.float64)),
        square / flat.size,
        smallest,
        sample,
        beyond,
        below,
    )
