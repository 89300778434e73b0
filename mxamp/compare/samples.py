"""How far a distance measured on some samples may be from that over many: 95 % confidence bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEWEST_SAMPLES = 5
"""Of fewer samples a resampling says nothing."""

_RESAMPLINGS = 1000
_SEED = 0
_NORMAL_95 = 1.959963984540054
"""The 97.5 % quantile of the standard normal distribution."""


class SampleErrors:
    """Squared errors and norms of single samples, for bounds of the relative L2 error over many of them."""

    def __init__(self) -> None:
        self._errors: list[float] = []
        self._norms: list[float] = []
        self._is_usable = True

    def add(self, reference: NDArray[Any], converted: NDArray[Any], samples: int | None) -> None:
        """Take one more batch into account.

        Parameters
        ----------
        reference, converted
            Arrays of one shape.
        samples
            How many samples the batch has; None where it cannot be cut into samples.
        """
        if samples is None or reference.ndim == 0 or len(reference) != samples:
            self._is_usable = False
        if not self._is_usable:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            for expected, got in zip(reference, converted):  # float64 for one sample at a time
                left = np.ravel(expected).astype(np.float64)
                error = np.ravel(got).astype(np.float64) - left
                self._errors.append(float(np.dot(error, error)))
                self._norms.append(float(np.dot(left, left)))

    def bounds(self) -> tuple[float, float] | None:
        """Return the bounds; None where the output is not one slice a sample, not finite, or too little.

        Notes
        -----
        The percentile bootstrap: samples are drawn again with replacement, the error is that of all drawn
        together, as it is reported (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section
        13.3). The draws are the same every time.
        """
        if not self._is_usable or not self._errors:
            return None
        errors, norms = np.array(self._errors), np.array(self._norms)
        count = len(errors)
        if count < FEWEST_SAMPLES or not (np.isfinite(errors).all() and np.isfinite(norms).all()):
            return None
        if not errors.any():
            return 0.0, 0.0
        random = np.random.default_rng(_SEED)
        ratios = np.empty(_RESAMPLINGS)
        for number in range(_RESAMPLINGS):
            drawn = random.integers(0, count, count)
            norm = float(norms[drawn].sum())
            if norm == 0.0:
                return None
            ratios[number] = math.sqrt(float(errors[drawn].sum()) / norm)
        low, high = np.quantile(ratios, (0.025, 0.975))
        return float(low), float(high)


def share_bounds(hits: int, count: int) -> tuple[float, float]:
    """Return the bounds of a share.

    Parameters
    ----------
    hits
        How many of ``count``.
    count
        At least 1.

    Notes
    -----
    Wilson's score interval (Journal of the American Statistical Association 22, 1927), which also holds where
    all are hits.
    """
    share, square = hits / count, _NORMAL_95**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    spread = (
        _NORMAL_95
        * math.sqrt(share * (1 - share) / count + square / (4 * count * count))
        / (1 + square / count)
    )
    # Rounding must not put all hits outside of their own bounds.
    return max(0.0, min(share, middle - spread)), min(1.0, max(share, middle + spread))
