"""Regions: connected sets of low nodes, which go back to float32 together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Sequence

from mxamp.decisions import Plan
from mxamp.dtypes import DType
from mxamp.graph.graph import Graph
from mxamp.policy.color import Color


@dataclass(frozen=True)
class Region:
    """Low nodes between which no cast stands, a piece of them, or several such regions as one.

    Attributes
    ----------
    nodes
        Their names, in graph order; those in control-flow bodies as ``loop/name``.
    starts
        Numbers of the nodes at which the region may be cut: those with a color of their own accord (GREEN),
        since what follows such a node is mostly fused behind it.
    expected_gain
        Microseconds that its low precision is estimated to save, casts not counted; 0 where nothing is known.
    parts
        The regions that it is made of; none for a single one.
    """

    nodes: tuple[str, ...]
    starts: tuple[int, ...]
    expected_gain: float = 0.0
    parts: tuple[Region, ...] = ()

    @classmethod
    def of(cls, parts: Sequence[Region]) -> Region:
        """Return several regions as one; a single one is itself."""
        if len(parts) == 1:
            return parts[0]
        nodes = tuple([name for part in parts for name in part.nodes])
        return cls(nodes, (), sum(part.expected_gain for part in parts), tuple(parts))

    def halves(self) -> tuple[Region, ...]:
        """Return the two pieces of the region, cut near its middle; none where it cannot be cut."""
        if self.parts:
            middle = len(self.parts) // 2
            return Region.of(self.parts[:middle]), Region.of(self.parts[middle:])
        cuts = self.starts[1:]  # each piece keeps a GREEN node
        if not cuts:
            return ()
        # As many GREEN nodes in one piece as in the other, for they are what takes time.
        cut = cuts[(len(cuts) - 1) // 2]
        share = sum(start < cut for start in self.starts) / len(self.starts)
        first = Region(
            self.nodes[:cut],
            tuple(start for start in self.starts if start < cut),
            self.expected_gain * share,
        )
        second = Region(
            self.nodes[cut:],
            tuple(start - cut for start in self.starts if start >= cut),
            self.expected_gain * (1 - share),
        )
        return first, second


def low_regions(graph: Graph, plan: Plan, low: DType) -> list[Region]:
    """Return the maximal regions of a plan, those that are expected to gain least first.

    Parameters
    ----------
    graph
        The graph that was decided about.
    plan
        The decisions.
    low
        The low dtype.

    Notes
    -----
    Two nodes belong together where one reads, in the low dtype, what the other hands on in it. What is low
    inside the bodies of a control-flow node is one region. Linear in nodes and entries, but for sorting.
    """
    parents: dict[int, int] = {}

    def root(position: int) -> int:
        while parents[position] != position:
            parents[position] = parents[parents[position]]
            position = parents[position]
        return position

    regions: list[Region] = []
    for position, (node, decision) in enumerate(zip(graph.nodes, plan.decisions)):
        if decision is None:
            continue
        if decision.bodies:
            inner = tuple(_low_in_bodies(graph, plan, position, low))
            if inner:
                regions.append(Region(inner, ()))
        if decision.compute is not low:
            continue
        parents[position] = position
        for entry, wanted in zip(node.inputs, decision.inputs):
            if entry.node in parents and wanted is low and _hands_on(plan, entry.node, entry.output, low):
                parents[root(entry.node)] = root(position)
    members: dict[int, list[int]] = {}
    for position in parents:
        members.setdefault(root(position), []).append(position)
    regions += [_region(graph, plan, positions) for positions in members.values()]
    return sorted(regions, key=lambda region: (region.expected_gain, len(region.nodes)))


def _hands_on(plan: Plan, position: int, output: int, dtype: DType) -> bool:
    decision = plan.decisions[position]
    return decision is not None and decision.outputs[output] is dtype


def _region(graph: Graph, plan: Plan, positions: list[int]) -> Region:
    starts = []
    for number, position in enumerate(positions):
        decision = plan.decisions[position]
        if decision is not None and decision.color is Color.GREEN:
            starts.append(number)
    gain = 0.0
    if plan.estimates is not None:
        low = plan.estimates.low
        gain = sum(plan.estimates.float32[p] - low[p] for p in positions if p in low)
    return Region(tuple(graph.nodes[position].name for position in positions), tuple(starts), gain)


def _low_in_bodies(graph: Graph, plan: Plan, position: int, low: DType) -> Iterator[str]:
    node, decision = graph.nodes[position], plan.decisions[position]
    for body, inner in zip(node.subgraphs, decision.bodies if decision is not None else ()):
        for number, (inner_node, inner_decision) in enumerate(zip(body.nodes, inner.decisions)):
            if inner_decision is None:
                continue
            if inner_decision.compute is low:
                yield f"{node.name}/{inner_node.name}"
            for name in _low_in_bodies(body, inner, number, low):
                yield f"{node.name}/{name}"


def names_of_operators(graph: Graph) -> Iterator[str]:
    """Yield the names of all operator nodes, those in control-flow bodies as ``loop/name``."""
    for node in graph.nodes:
        if node.is_variable:
            continue
        yield node.name
        for body in node.subgraphs:
            for name in names_of_operators(body):
                yield f"{node.name}/{name}"
