"""Races: what is timed runs by turns, so that what else the machine does falls on all alike.

The times of one round lie close together, so their ratio means something even where the machine drifts. A
short run is timed as it is where a model is deployed and runs alone: behind some that do not count and bring
back into the caches what the others drove out.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Callable, Iterator, Sequence

import numpy as np

CONFIDENCE = 0.95
"""How sure the interval of a median is."""

SAME_WITHIN = 0.005
"""Two models whose ratio is known to differ from 1 by less are equally fast for every purpose here."""

MOST_ROUNDS = 1000
"""Time is what bounds a race; a small model needs many rounds on a busy machine."""

FEWEST_TELLING_ROUNDS = 6
"""The first number of rounds whose slowest and fastest bound the median with that confidence."""

_FIRST_LOOK = 20
"""The round after which a race first looks whether it may stop; so many also tell how much rounds differ."""

_EARLY_LOOK, _LONG_SECONDS = 10, 2.0
"""Where so many rounds took so long, it looks then: more rounds are too dear for what they tell."""

_NEXT_LOOK = 1.5
"""After so many times as many rounds it looks again: seldom, for every look is a chance to be wrong."""

LEAD_IN_BELOW = 0.05
"""Seconds. Where a run takes fewer, each is led in by some that do not count. Those that take more have
replaced what the caches hold many times over, and it does not matter what lay there before."""

_LEAD_IN, _MOST_LEAD_INS = 0.02, 8
"""Seconds of runs that lead one in, and the most of them. A cache that takes what another gives up fills over
several runs: of a language model with 8 MB of weights for its words, behind another model, they take 3.55,
3.27, 3.10, 2.84, 2.38, 2.23, 2.16 and 2.15 ms (AMD EPYC of family 26, 32 MB of shared cache, one thread)."""

TimedRun = Callable[[], float]
"""Runs a model once and returns the seconds that took."""


@dataclass(frozen=True)
class Ratio:
    """How many times as fast as another a model is, from times taken in the same rounds.

    Attributes
    ----------
    median
        The median over rounds of the other's time divided by this one's.
    low, high
        The 10th and the 90th percentile of that ratio: how much single rounds differ.
    median_low, median_high
        Between them the true median lies with 95 % confidence: how well the median is known. The interval
        is that of the sign test, which assumes nothing of how times are distributed; 0 and infinity where
        there are too few rounds.
    rounds
        How many rounds there were.
    """

    median: float
    low: float
    high: float
    median_low: float
    median_high: float
    rounds: int

    @classmethod
    def of(cls, seconds_other: Sequence[float], seconds_own: Sequence[float]) -> Ratio:
        """Return it for times of which the two at one place were taken in one round.

        Parameters
        ----------
        seconds_other, seconds_own
            Seconds of the model that is compared with, and of the one that the ratio is about.
        """
        ratios = np.sort(np.asarray(seconds_other, np.float64) / np.asarray(seconds_own, np.float64))
        low, median, high = np.percentile(ratios, (10, 50, 90))
        left_out = _left_out(len(ratios))
        sure = left_out is not None
        return cls(
            median=float(median),
            low=float(low),
            high=float(high),
            median_low=float(ratios[left_out]) if sure else 0.0,
            median_high=float(ratios[-1 - (left_out or 0)]) if sure else math.inf,
            rounds=len(ratios),
        )

    def rounded(self) -> dict[str, Any]:
        """Return its numbers as reports hold them, the median as ``ratio``."""
        found = {
            "ratio": self.median,
            "low": self.low,
            "high": self.high,
            "median_low": self.median_low,
            "median_high": self.median_high,
        }
        return {**{name: round(value, 4) for name, value in found.items()}, "rounds": self.rounds}

    @property
    def is_faster(self) -> bool:
        """Whether the model is surely faster than the other."""
        return self.median_low > 1

    @property
    def is_slower(self) -> bool:
        """Whether the model is surely slower than the other."""
        return self.median_high < 1

    @property
    def is_clear(self) -> bool:
        """Whether it is known which of the two is faster, or that it does not matter."""
        if self.is_faster or self.is_slower:
            return True
        return self.median_low > 1 - SAME_WITHIN and self.median_high < 1 + SAME_WITHIN

    def __str__(self) -> str:
        return f"{self.median:.2f} times as fast ({self.low:.2f} to {self.high:.2f}, {self.rounds} rounds)"


@dataclass(frozen=True)
class Race:
    """What a race of models measured.

    Attributes
    ----------
    seconds
        For every model, in the order in which they were given, its time in each round.
    """

    seconds: tuple[tuple[float, ...], ...]

    @property
    def rounds(self) -> int:
        """How often each model was timed."""
        return len(self.seconds[0])

    @property
    def median_ms(self) -> tuple[float, ...]:
        """The median time of each model, in milliseconds."""
        return tuple(1e3 * float(np.median(own)) for own in self.seconds)

    @property
    def ratios(self) -> tuple[Ratio, ...]:
        """How many times as fast as the first each model is; the first itself is 1 times as fast."""
        return tuple(self.ratio(model) for model in range(len(self.seconds)))

    def ratio(self, model: int, to: int = 0) -> Ratio:
        """Return how many times as fast as another model one is.

        Parameters
        ----------
        model, to
            Their numbers; the first model is number 0.
        """
        return Ratio.of(self.seconds[to], self.seconds[model])

    @property
    def fastest(self) -> int:
        """The number of the model with the largest median ratio to the first; of equal ones the first."""
        medians = [ratio.median for ratio in self.ratios]
        return medians.index(max(medians))


def race_is_clear(so_far: Race) -> bool:
    """Whether more rounds could hardly change which model is the fastest.

    Against every other the fastest is surely faster, or differs from it by less than half a percent.
    """
    leader = so_far.fastest
    others = (model for model in range(len(so_far.seconds)) if model != leader)
    return all(so_far.ratio(leader, to=model).is_clear for model in others)


def run_by_turns(
    timed: Sequence[TimedRun],
    *,
    rounds: int = 100,
    warmup: int = 3,
    seconds: float = math.inf,
    at_least: int = 1,
    seed: int = 0,
    is_clear: Callable[[Race], bool] | None = race_is_clear,
) -> Race:
    """Run what is ready to run by turns, wherever it runs.

    Parameters
    ----------
    timed
        Each runs a model once and returns the seconds that took.
    rounds
        The most rounds; in each every model is timed once, behind runs that do not count where the fastest
        takes less than :data:`LEAD_IN_BELOW`.
    warmup
        Runs of each before, the first of which lets a runtime choose and prepare its kernels. Where one takes
        so long that they would use up a quarter of ``seconds``, there are fewer, but always one.
    seconds
        The most time that runs may take in all, those included that do not count.
    at_least
        So many rounds are run, however long they take; :data:`FEWEST_TELLING_ROUNDS` for an interval of the
        median.
    seed
        Of the order in which the models run. It is drawn anew for every other round, and the next round runs
        in the reverse order, so that what one leaves behind for the next cancels.
    is_clear
        Asked after rounds: whether the race may stop early. None for running all rounds.
    """
    spent, shortest = 0.0, math.inf
    for run in timed:
        own = 0.0
        for _ in range(warmup):
            last = run()
            own += last
            shortest = min(shortest, last)
            if own > seconds / (4 * len(timed)):
                break
        spent += own
    runs_a_round = 1 + _lead_ins(shortest)
    taken: list[list[float]] = [[] for _ in timed]
    next_look: float = _FIRST_LOOK
    for number, order in enumerate(_orders(len(timed), rounds, seed), start=1):
        for model in order:
            *led_in, last = [timed[model]() for _ in range(runs_a_round)]
            taken[model].append(last)
            spent += last + sum(led_in)
        one_more = spent * runs_a_round / (number * runs_a_round + warmup)
        if number >= at_least and spent + one_more > seconds:
            break
        if number >= next_look or (number == _EARLY_LOOK and spent > _LONG_SECONDS):
            if is_clear is not None and is_clear(_race(taken)):
                break
            next_look = number * _NEXT_LOOK
    return _race(taken)


def _lead_ins(seconds: float) -> int:
    """Return how many runs lead in one of so many seconds."""
    if seconds >= LEAD_IN_BELOW:
        return 0
    return max(1, math.ceil(min(_MOST_LEAD_INS, _LEAD_IN / max(seconds, 1e-9))))


def _race(taken: Sequence[Sequence[float]]) -> Race:
    return Race(tuple(tuple(own) for own in taken))


def _orders(models: int, rounds: int, seed: int) -> Iterator[list[int]]:
    """Yield the order of each round: drawn, then reversed."""
    generator = random.Random(seed)
    order = list(range(models))
    for number in range(rounds):
        if number % 2 == 0:
            generator.shuffle(order)
            yield list(order)
        else:
            yield order[::-1]


@lru_cache(maxsize=None)
def _left_out(rounds: int) -> int | None:
    """Return how many values at either end of a sorted sample the interval of its median leaves out.

    A value lies below the true median with probability 1/2, so the number that do is binomial. None where
    even the whole sample does not bound the median with the confidence.

    References
    ----------
    Conover, Practical Nonparametric Statistics, 3rd edition, 1999, section 3.2.
    """
    allowed = (1 - CONFIDENCE) / 2
    below = 0.0
    for count in range(rounds // 2 + 1):
        below += math.comb(rounds, count) / 2**rounds
        if below > allowed:
            return count - 1 if count else None
    return None
