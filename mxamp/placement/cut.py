"""Minimum cuts: the solver under the placement.

The problem is the classic one of two labels with pairwise costs: Stone, "Multiprocessor scheduling with
the aid of network flow algorithms", IEEE Trans. Softw. Eng. 3(1), 1977. The flow is SciPy's (Dinic's
algorithm); the cut is read off the residual graph.
"""

from __future__ import annotations

from typing import Iterable, Sequence

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow

SOURCE = 0
"""The vertex on the low-precision side."""

SINK = 1
"""The vertex on the FP32 side."""


class CutProblem:
    """A directed graph with integer capacities whose minimum source-sink cut is wanted.

    Vertices are numbered from 2; 0 and 1 are :data:`SOURCE` and :data:`SINK`. An edge costs its capacity
    when its tail is on the source side and its head on the sink side.
    """

    def __init__(self) -> None:
        self._capacities: dict[tuple[int, int], int] = {}
        self._forbidden: set[tuple[int, int]] = set()
        self._count = 2
        self._total = 0

    def add_vertex(self) -> int:
        """Return a new vertex."""
        self._count += 1
        return self._count - 1

    def add_edge(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge that costs ``capacity`` when cut; parallel edges add up."""
        if tail in (head, SINK) or head == SOURCE:
            return  # can never be cut
        self._capacities[tail, head] = self._capacities.get((tail, head), 0) + capacity
        self._total += capacity

    def forbid(self, tail: int, head: int) -> None:
        """Add an edge that no minimum cut contains (infinite capacity)."""
        if tail not in (head, SINK) and head != SOURCE:
            self._forbidden.add((tail, head))

    def solve(self, prefer_source: Iterable[int] = ()) -> set[int]:
        """Return the vertices on the source side of a minimum cut.

        Parameters
        ----------
        prefer_source
            Where several cuts cost the same, vertices that shall be on the source side if they can be.

        Returns
        -------
        set of int
            The source side, :data:`SOURCE` included.

        Raises
        ------
        ValueError
            When costs do not fit SciPy's 32-bit capacities.

        Notes
        -----
        The source sides of all minimum cuts are the sets closed under residual reachability that hold the
        source and not the sink (Picard and Queyranne, Math. Programming Study 13, 1980). The smallest is
        what the source reaches; the largest is what does not reach the sink. The answer is the closure of
        the smallest together with the preferred vertices of the largest: again a minimum cut. None of this
        depends on which maximum flow was found.
        """
        infinite = self._total + 1
        if infinite >= 2**31:
            raise ValueError(f"the costs add up to {self._total}, more than 32 bits hold; scale them down")
        capacities = {**self._capacities, **dict.fromkeys(self._forbidden, infinite)}
        edges = np.array([edge for edge, capacity in capacities.items() if capacity], np.int32).reshape(-1, 2)
        values = np.array([capacity for capacity in capacities.values() if capacity], np.int32)
        matrix = csr_matrix((values, tuple(edges.T)), shape=(self._count, self._count))
        flow = maximum_flow(matrix, SOURCE, SINK).flow.tocoo()
        flows = dict(zip(zip(flow.row.tolist(), flow.col.tolist()), flow.data.tolist()))
        left = [edge for edge, capacity in capacities.items() if capacity > flows.get(edge, 0)]
        left += [(head, tail) for (tail, head), amount in flows.items() if amount > 0]
        tails, heads = zip(*left) if left else ((), ())
        reaches_sink = _reached(heads, tails, [SINK])
        return _reached(tails, heads, [SOURCE, *(one for one in prefer_source if one not in reaches_sink)])


def _reached(tails: Sequence[int], heads: Sequence[int], starts: Sequence[int]) -> set[int]:
    """Return what edges lead to from any of the starts."""
    ahead: dict[int, list[int]] = {}
    for tail, head in zip(tails, heads):
        ahead.setdefault(tail, []).append(head)
    reached, waiting = set(starts), list(starts)
    while waiting:
        for vertex in ahead.get(waiting.pop(), ()):
            if vertex not in reached:
                reached.add(vertex)
                waiting.append(vertex)
    return reached
