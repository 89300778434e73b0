"""Split what is low into parts, and go on splitting the part that does most harm."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Part:
    """Consecutive low nodes, and what they do when nothing else is low.

    Attributes
    ----------
    first, last
        The nodes, as positions among the low ones in topological order; ``last`` is the first behind them.
    error
        The relative L2 error of the worst output with this part alone in low precision; infinite where it
        makes something that is not finite.
    """

    first: int
    last: int
    error: float


def bisect_parts(count: int, measure: Callable[[int, int], float], *, trials: int) -> list[Part]:
    """Find the parts that make most of an error.

    Parameters
    ----------
    count
        How many nodes are low, at least 1.
    measure
        ``measure(first, last)`` returns the error with these nodes alone in low precision.
    trials
        How often it may be called, at least 1.

    Returns
    -------
    list of Part
        Parts that together are all nodes, the largest error first.

    Notes
    -----
    The part with the largest error is split in halves, and each of them measured, until it is a single node
    or the trials are used up. Squared errors of independent roundings add up to first order, so no part hides
    behind another, but a part whose errors cancel can: two halves may then be worse than their sum.
    """
    used = 1
    waiting = [(-measure(0, count), 0, count)]
    done: list[Part] = []
    while waiting:
        error, first, last = heapq.heappop(waiting)
        if last - first == 1 or error == 0 or used + 2 > trials:
            done.append(Part(first, last, -error))
            continue
        middle = (first + last) // 2
        for half in ((first, middle), (middle, last)):
            heapq.heappush(waiting, (-measure(*half), *half))
        used += 2
    return sorted(done, key=lambda part: (-part.error, part.first))
