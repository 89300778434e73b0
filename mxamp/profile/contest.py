"""Which of several plans wins."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import Sequence

from mxamp.measuring.race import Ratio

TIE = 0.01
"""Plans whose speeds differ by no more are equally fast."""

DOUBT = 0.02
"""Plans whose speeds differ by no more are equally fast where the race does not surely tell them apart."""

LUCK = 0.05
"""How much faster a plan may be because of where its memory happens to lie, each of the few times that it is
bound."""

LUCK_OF_A_PROCESS = 0.1
"""How much faster a plan may be because of where all of its process comes to lie."""


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
    rounds
        How many of the rounds were run each time that the plans were bound; empty where none ran beside the
        others.
    may_win
        Whether it does what was asked for; the FP32 plan does not where low precision is required.
    is_by_table
        Whether it is what a conversion makes that measures nothing.
    """

    speed: float | None
    casts: int
    low_nodes: int
    expected_ms: float | None = None
    seconds: Sequence[float] = ()
    rounds: Sequence[int] = ()
    may_win: bool = True
    is_by_table: bool = False


def winner(plans: Sequence[Contestant]) -> int | None:
    """Return the number of the fastest plan; None where none could be run.

    Plans that are within 1 % of the fastest, or within 2 % where the race does not surely tell that they are
    slower, are equally fast. Of those the one wins that was expected to be the fastest (times of nodes are
    disturbed less than those of whole models), then the one with the fewest casts, and then the one with the
    fewest low nodes: what is not needed for speed need not be rounded.

    But the fastest of several is partly lucky, and with a profile a model shall be no slower than without. So
    the plan by the target's table stays where it is among the fastest, or where what would replace it was not
    faster each time that the plans were bound, by 2 % if it is faster by no more than 5 % in all.
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
    by_table = [n for n, _ in ran if plans[n].is_by_table]
    if by_table and (by_table[0] in close or not _surely_replaces(plans[leader], plans[by_table[0]])):
        return by_table[0]
    expected = [plans[n].expected_ms for n in close]
    known = [ms for ms in expected if ms is not None]
    if len(known) == len(close):
        close = [n for n, ms in zip(close, known) if ms <= min(known) * (1 + TIE)]
    return min(close, key=lambda n: (plans[n].casts, plans[n].low_nodes, n))


def needs_another_race(plan: Contestant, by_table: Contestant) -> bool:
    """Whether a plan that won may have been lucky with its process, in every round alike."""
    if plan.speed is None or by_table.speed is None:
        return False
    return plan.speed <= by_table.speed * (1 + LUCK_OF_A_PROCESS)


def _is_slower(plan: Contestant, leader: Contestant) -> bool:
    """Whether a plan is surely slower than the leader."""
    if not plan.seconds or len(plan.seconds) != len(leader.seconds):
        return True  # they did not run beside each other; the speeds are all there is
    return Ratio.of(leader.seconds, plan.seconds).is_slower


def _surely_replaces(plan: Contestant, by_table: Contestant) -> bool:
    """Whether a plan is faster than the one by the table each time they were bound, and by more than luck."""
    assert plan.speed is not None  # both ran
    assert by_table.speed is not None
    is_far = plan.speed > by_table.speed * (1 + LUCK)
    if len(plan.seconds) != len(by_table.seconds):
        return is_far
    ends = list(accumulate(plan.rounds, initial=0))
    parts = [slice(start, end) for start, end in zip(ends, ends[1:])]
    gains = [median(by_table.seconds[part]) / median(plan.seconds[part]) for part in parts]
    return all(gain > (1 if is_far else 1 + DOUBT) for gain in gains)
