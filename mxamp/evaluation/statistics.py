"""Is a difference more than chance? Tests and confidence intervals for two models on the same samples.

Both models see the same samples, so what counts is where they differ: a sample that both get right, or both
wrong, says nothing about the difference. All intervals are of 95 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Tuple

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95

RESAMPLES = 1000

Interval = Tuple[float, float]


@dataclass(frozen=True)
class Flips:
    """How often two models get the same samples right.

    Attributes
    ----------
    both, lost, gained, neither
        Samples that both get right, only the first, only the second, and neither.
    """

    both: int
    lost: int
    gained: int
    neither: int

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return self.both + self.lost + self.gained + self.neither

    @property
    def difference(self) -> float:
        """The second model's share of right samples, less the first's."""
        return (self.gained - self.lost) / self.samples if self.samples else 0.0


def count_flips(first: NDArray[Any], second: NDArray[Any]) -> Flips:
    """Compare which samples two models get right: bool, one number a sample, the same samples in order."""
    if first.shape != second.shape:
        raise ValueError(f"the two have {len(first)} and {len(second)} samples, but must be of the same")
    return Flips(
        both=int((first & second).sum()),
        lost=int((first & ~second).sum()),
        gained=int((~first & second).sum()),
        neither=int((~first & ~second).sum()),
    )


def mcnemar(flips: Flips) -> float:
    """Return the probability of so uneven flips, or more, if either direction were as likely.

    McNemar's test in its exact form: a two-sided binomial test of the flips (McNemar 1947, Psychometrika 12,
    153-157). 1.0 where nothing flips.
    """
    from scipy.stats import binomtest

    changed = flips.lost + flips.gained
    return float(binomtest(flips.lost, changed, 0.5).pvalue) if changed else 1.0


def wilson(right: int, samples: int) -> Interval:
    """Return Wilson's score interval of a share (Wilson 1927, JASA 22, 209-212)."""
    from scipy.stats import binomtest

    found = binomtest(right, samples).proportion_ci(CONFIDENCE, method="wilson")
    return float(found.low), float(found.high)


def newcombe_paired(flips: Flips) -> Interval:
    """Return the interval of :attr:`Flips.difference`.

    Newcombe's hybrid score interval for paired shares, his method 10 (Newcombe 1998, Statistics in Medicine
    17, 2635-2650): unlike the simple interval it has a width where nothing flips.
    """
    total = flips.samples
    first_right, second_right = flips.both + flips.lost, flips.both + flips.gained
    first, second = first_right / total, second_right / total
    (first_low, first_high), (second_low, second_high) = (
        wilson(first_right, total),
        wilson(second_right, total),
    )
    phi = _correlation(flips)
    below = _combined(second - second_low, first_high - first, phi)
    above = _combined(second_high - second, first - first_low, phi)
    return second - first - below, second - first + above


def _combined(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, one * one - 2.0 * phi * one * other + other * other))


def _correlation(flips: Flips) -> float:
    """Return the correlation of the two models' being right, with Newcombe's correction for continuity."""
    product = flips.both * flips.neither - flips.lost * flips.gained
    half = flips.samples / 2.0
    corrected = max(product - half, 0.0) if product > 0 else float(product)
    scale = math.sqrt(
        float(flips.both + flips.lost)
        * (flips.gained + flips.neither)
        * (flips.both + flips.gained)
        * (flips.lost + flips.neither)
    )
    return corrected / scale if scale else 0.0


def bootstrap_intervals(
    statistic: Callable[[NDArray[np.int64]], NDArray[np.float64]], samples: int, *, seed: int
) -> list[Interval]:
    """Return intervals of statistics that are no means over samples, by drawing samples again.

    Parameters
    ----------
    statistic
        Takes indices of samples, as many as there are, and returns one or several numbers.
    samples
        How many samples there are.
    seed
        Of what is drawn.

    Returns
    -------
    list of (float, float)
        For every number, between which values 95 % of the resamples are: Efron's percentile interval, which
        also exists where resamples agree. ``scipy.stats.bootstrap`` draws them.
    """
    from scipy.stats import bootstrap

    indices = np.arange(samples)

    def of_batch(drawn: NDArray[np.int64], axis: int = -1) -> NDArray[np.float64]:
        rows = np.moveaxis(drawn, axis, -1).reshape(-1, samples)
        found = np.stack([statistic(row) for row in rows], axis=-1)
        return found.reshape(len(found), *drawn.shape[:-1])

    found = bootstrap(
        (indices,),
        of_batch,
        vectorized=True,
        axis=-1,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        random_state=np.random.RandomState(seed),
    ).confidence_interval
    return [
        (float(low), float(high)) for low, high in zip(np.atleast_1d(found.low), np.atleast_1d(found.high))
    ]
