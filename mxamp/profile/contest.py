"""Which of several plans wins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from mxamp.measuring.race import Ratio

TIE = 0.01
"""Plans whose speeds differ by no more are equally fast."""

DOUBT = 0.02
"""Plans whose speeds differ by no more are equally fast where the race does not surely tell them apart."""


@dataclass(frozen=True)
class Contestant:
    """A plan that was run.

    Attributes
    ----------
    speed
        How many times as fast as the FP32 plan it is; None where it could not be run.
    casts
        How many casts it has.
    low_nodes
        How many nodes it computes in the low dtype.
    expected_ms
        What it was expected to take; None where that is not known.
    seconds
        Its times, round by round; empty where it did not run beside the others.
    may_win
        Whether it does what was asked for; the FP32 plan does not where low precision is required.
    """

    speed: float | None
    casts: int
    low_nodes: int
    expected_ms: float | None = None
    seconds: Sequence[float] = ()
    may_win: bool = True


def winner(plans: Sequence[Contestant]) -> int | None:
    """Return the number of the fastest plan; None where none could be run.

    Plans that are within 1 % of the fastest, or within 2 % where the race does not surely tell that they are
    slower, are equally fast. Of those the one wins that was expected to be the fastest (times of nodes are
    disturbed less than those of whole models), then the one with the fewest casts, and then the one with the
    fewest low nodes: what is not needed for speed need not be rounded.
    """
    ran = [(n, plan.speed) for n, plan in enumerate(plans) if plan.may_win and plan.speed is not None]
    if not ran:
        return None
    leader, best = max(ran, key=lambda one: one[1])
    close = [
        n
        for n, speed in ran
        if speed >= best * (1 - TIE)
        or (speed >= best * (1 - DOUBT) and not _is_slower(plans[n], plans[leader]))
    ]
    expected = [plans[n].expected_ms for n in close]
    known = [ms for ms in expected if ms is not None]
    if len(known) == len(close):
        close = [n for n, ms in zip(close, known) if ms <= min(known) * (1 + TIE)]
    return min(close, key=lambda n: (plans[n].casts, plans[n].low_nodes, n))


def _is_slower(plan: Contestant, leader: Contestant) -> bool:
    """Whether a plan is surely slower than the leader."""
    if not plan.seconds or len(plan.seconds) != len(leader.seconds):
        return True  # they did not run beside each other; the speeds are all there is
    return Ratio.of(leader.seconds, plan.seconds).is_slower
