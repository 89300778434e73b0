"""Every placement of a model with few choices, so small that all of them can run against each other.

Where a forward pass takes microseconds, the processes in which nodes are timed take far longer to start than
to measure, and such times are the least certain: much of them is what every node takes at any size. With few
units that have a choice nothing needs to be known of nodes: all placements are raced.
"""

from __future__ import annotations

from itertools import combinations
from typing import AbstractSet, Sequence

from mxamp.decisions.placing import Choose
from mxamp.placement import PlacementProblem

MOST_PLANS = 16
MOST_MS = 20.0
"""The most plans, and the most that all of them together may take for one forward pass each, as estimated."""


def seen_by(choose: Choose, problems: list[PlacementProblem]) -> Choose:
    """Return what chooses as another does, and keeps the problems that it was asked."""

    def chosen(problem: PlacementProblem, wanted: AbstractSet[int]) -> set[int]:
        problems.append(problem)
        return choose(problem, wanted)

    return chosen


def every_placement(
    problem: PlacementProblem, possible: AbstractSet[int], float32_ms: float | None
) -> Sequence[frozenset[int]]:
    """Return the placements between float32 and all that may be low; none where they are too many.

    Parameters
    ----------
    problem
        What is open, and which nodes are one unit.
    possible
        The nodes that are low where all are that may be.
    float32_ms
        What a forward pass takes in FP32, as estimated; None where that is not known.

    Returns
    -------
    sequence of frozenset of int
        For each the open nodes that are low.
    """
    unit = {position: group for group in problem.groups for position in group}
    units = sorted({unit.get(position, (position,)) for position in problem.free & possible})
    plans = 1 << min(len(units), MOST_PLANS)
    if float32_ms is None or plans > MOST_PLANS or plans * float32_ms > MOST_MS:
        return ()
    return [
        frozenset(position for group in chosen for position in group)
        for count in range(1, len(units))
        for chosen in combinations(units, count)
    ]
