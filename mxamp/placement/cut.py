"""Minimum cuts: the solver under the placement.

The problem is the classic one of two labels with pairwise costs: Stone, "Multiprocessor scheduling with
the aid of network flow algorithms", IEEE Trans. Softw. Eng. 3(1), 1977. The flow is SciPy's (Dinic's
algorithm); the cut is read off the residual graph.
"""

from __future__ import annotations

from typing import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

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
        self._tails: list[int] = []
        self._heads: list[int] = []
        self._capacities: list[int] = []
        self._unbounded: list[int] = []
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
        self._tails.append(tail)
        self._heads.append(head)
        self._capacities.append(capacity)
        self._total += capacity

    def forbid(self, tail: int, head: int) -> None:
        """Add an edge that no minimum cut contains (infinite capacity)."""
        if tail in (head, SINK) or head == SOURCE:
            return
        self._unbounded.append(len(self._tails))
        self._tails.append(tail)
        self._heads.append(head)
        self._capacities.append(0)

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
        capacities = np.asarray(self._capacities, dtype=np.int64)
        capacities[self._unbounded] = infinite
        shape = (self._count, self._count)
        capacity = csr_matrix(
            (capacities, (np.asarray(self._tails, np.int32), np.asarray(self._heads, np.int32))), shape=shape
        )
        # Parallel forbidden edges add up on construction, in 64 bits; one infinity is as good as several.
        capacity.sum_duplicates()
        np.minimum(capacity.data, infinite, out=capacity.data)
        capacity = capacity.astype(np.int32)
        capacity.eliminate_zeros()
        residual = capacity - maximum_flow(capacity, SOURCE, SINK).flow
        residual.data[residual.data < 0] = 0
        residual.eliminate_zeros()
        reaches_sink = _reached(residual.T.tocsr(), SINK)
        wanted = [vertex for vertex in prefer_source if not reaches_sink[vertex]]
        if wanted:
            extra = csr_matrix(
                (np.ones(len(wanted), np.int32), (np.full(len(wanted), SOURCE), np.asarray(wanted))),
                shape=shape,
            )
            residual = residual + extra
        return set(np.flatnonzero(_reached(residual, SOURCE)).tolist())


def _reached(graph: csr_matrix, start: int) -> NDArray[np.bool_]:
    reached = np.zeros(graph.shape[0], dtype=bool)
    reached[breadth_first_order(graph, start, directed=True, return_predecessors=False)] = True
    return reached
