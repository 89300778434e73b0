"""Which nodes are joined with each other."""

from __future__ import annotations

from collections import defaultdict
from typing import Iterable, Mapping, Sequence


def components(nodes: Sequence[int], joined: Mapping[int, Iterable[int]]) -> Sequence[Sequence[int]]:
    """Return the nodes that are joined with each other, directly or not.

    Parameters
    ----------
    nodes
        Positions.
    joined
        Position -> others that it is joined with; all of them are among ``nodes``.

    Returns
    -------
    sequence of sequences of int
        By their first nodes; each in the order of ``nodes``.
    """
    first = {position: position for position in nodes}

    def root(position: int) -> int:
        while first[position] != position:
            first[position] = first[first[position]]
            position = first[position]
        return position

    for position, others in joined.items():
        for other in others:
            earlier, later = sorted((root(other), root(position)))
            first[later] = earlier
    found: dict[int, list[int]] = defaultdict(list)
    for position in nodes:
        found[root(position)].append(position)
    return list(found.values())
