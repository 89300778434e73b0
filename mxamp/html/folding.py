"""Fold a long graph into groups of blocks, so that a picture of it has few nodes at any time.

A group is a run of consecutive nodes in topological order. Whatever path leads from one member to another
runs through members alone, so the folded graph has no cycles, whichever groups are open.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Iterator, Sequence

MOST_SHOWN = 36
"""The most that a group holds, of nodes and groups together."""

_SMALLEST_GROUP = 3
"""Fewer nodes are shown as they are: a box around them would take as much room."""

_SEPARATORS = re.compile(r"(?<=[_/.])")


@dataclass(frozen=True)
class Group:
    """Consecutive nodes that are drawn as one.

    Attributes
    ----------
    label
        What their names have in common beyond what those of the group around them have; or the first and the
        last name.
    first, last
        Its nodes, as positions among those that were folded; the last is the first one behind it.
    parent
        The group around it, as a position; -1 where there is none. It comes before its members.
    """

    label: str
    first: int
    last: int
    parent: int


@dataclass(frozen=True)
class Folding:
    """The groups of a graph.

    Attributes
    ----------
    groups
        Every group, after the one around it.
    members
        For every node the innermost group that holds it; -1 where none does.
    """

    groups: tuple[Group, ...]
    members: tuple[int, ...]


def fold(names: Sequence[str], crossings: Sequence[int], *, most: int = MOST_SHOWN) -> Folding:
    """Fold nodes into groups.

    Parameters
    ----------
    names
        The names of the nodes, in topological order.
    crossings
        For every node how many values that are made before it are read at it or behind it. Groups begin where
        that is small, as it is between the blocks of a network.
    most
        The most that a group holds, at least 4.

    Returns
    -------
    Folding
        The work grows with the nodes times the depth of the groups, which is logarithmic in them but where
        names nest deeper.
    """
    groups: list[Group] = []
    members = [-1] * len(names)
    waiting = [(0, len(names), -1, 0)]
    while waiting:
        first, last, parent, shared = waiting.pop()
        if last - first <= most:
            for position in range(first, last):
                members[position] = parent
            continue
        parts = _runs_of_names(names, first, last, most, shared) or _narrow_cuts(crossings, first, last, most)
        for begin, end in parts:
            if end - begin < _SMALLEST_GROUP:
                for position in range(begin, end):
                    members[position] = parent
                continue
            label, common = _label(names, begin, end, shared)
            groups.append(Group(label, begin, end, parent))
            waiting.append((begin, end, len(groups) - 1, common))
    return Folding(tuple(groups), tuple(members))


def _words(name: str) -> list[str]:
    """Return the parts of a name, each with the separator behind it."""
    return _SEPARATORS.split(name)


def _runs_of_names(
    names: Sequence[str], first: int, last: int, most: int, shared: int
) -> list[tuple[int, int]] | None:
    """Return the runs of nodes whose names begin alike; None where these are too many, or tell nothing."""
    common = max(shared, _common_words(names, first, last))
    runs: list[tuple[int, int]] = []
    begun = first
    before = _words(names[first])[: common + 1]
    for position in range(first + 1, last):
        words = _words(names[position])[: common + 1]
        if words != before:
            runs.append((begun, position))
            begun, before = position, words
    runs.append((begun, last))
    if _shown(runs) > most:
        runs = _joined(runs, max(_SMALLEST_GROUP, (last - first) // most))
    return runs if len(runs) > 1 and _shown(runs) <= most else None


def _shown(runs: Sequence[tuple[int, int]]) -> int:
    """Return how many boxes runs are drawn as."""
    return sum(end - begin if end - begin < _SMALLEST_GROUP else 1 for begin, end in runs)


def _joined(runs: Sequence[tuple[int, int]], short: int) -> list[tuple[int, int]]:
    """Return the runs with neighbours of less than ``short`` nodes made one."""
    joined: list[tuple[int, int]] = []
    was_short = False
    for begin, end in runs:
        is_short = end - begin < short
        if is_short and was_short:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
        was_short = is_short
    return joined


def _narrow_cuts(crossings: Sequence[int], first: int, last: int, most: int) -> list[tuple[int, int]]:
    """Return about as many parts as each of them has nodes, cut where the fewest values cross."""
    count = last - first
    parts = min(most, max(2, math.isqrt(count)))
    size = count / parts
    cuts = [first]
    for number in range(1, parts):
        wanted = first + number * size
        # Windows do not overlap, so the cuts are in order.
        window = range(math.ceil(wanted - size / 2), math.ceil(wanted + size / 2))
        cuts.append(min(window, key=lambda cut: (crossings[cut], abs(cut - wanted))))
    bounds = [*dict.fromkeys(cuts), last]
    return list(zip(bounds, bounds[1:]))


def _common_words(names: Sequence[str], first: int, last: int) -> int:
    """Return how many words all of some names begin with, the last word of none included."""
    common = _words(names[first])[:-1]
    for position in range(first + 1, last):
        words = _words(names[position])[:-1]
        common = [word for word, _ in _equal_pairs(common, words)]
        if not common:
            break
    return len(common)


def _equal_pairs(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pair in zip(left, right):
        if pair[0] != pair[1]:
            return
        yield pair


def _label(names: Sequence[str], first: int, last: int, shared: int) -> tuple[str, int]:
    """Return what a group is called, and how many words its names begin with."""
    common = _common_words(names, first, last)
    words = _words(names[first])
    beside = [position for position in (first - 1, last) if 0 <= position < len(names)]
    # What a neighbour's name begins with as well would tell nobody which of the two is meant.
    if common > shared and all(_words(names[position])[:common] != words[:common] for position in beside):
        return "".join(words[shared:common]).rstrip("_/."), common
    ends = ["".join(_words(names[position])[common:]) for position in (first, last - 1)]
    return " ... ".join(ends), common
