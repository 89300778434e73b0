"""Placement: choosing the precision of every GRAY and GREEN node with the fewest casts.

The cost that is minimised is DESIGN's formula with unit costs: GREEN nodes are low wherever that is
possible, GRAY nodes are indifferent, and every cast costs one. One cast serves all consumers of an entry,
so each entry has one extra vertex a direction:

    up(e)    producer -> A_e (1), A_e -> every consumer (infinite): paid once if the producer is low and some
             consumer is FP32
    down(e)  every consumer -> B_e (infinite), B_e -> producer (1): paid once if the producer is FP32 and
             some consumer is low

The cut is exact: no assignment has fewer casts. Parameters are cast offline and cost nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from functools import cached_property
from typing import Mapping, Sequence

from mxamp.graph.graph import Entry, Graph
from mxamp.placement.cut import SINK, SOURCE, CutProblem

__all__ = ["Demand", "PlacementProblem", "Supply", "count_casts", "place"]


class Supply(enum.Enum):
    """What the producer of an entry offers."""

    CHOSEN = "chosen"
    """The dtype its node computes in."""

    FP32 = "fp32"
    """FP32, whatever is chosen."""

    LOW = "low"
    """The low dtype, whatever is chosen."""

    EITHER = "either"
    """Both, for nothing: a parameter, cast offline. Also entries no cast applies to (integers)."""

    __hash__ = object.__hash__


class Demand(enum.Enum):
    """What the reader of an entry needs."""

    CHOSEN = "chosen"
    """The dtype its node computes in."""

    FP32 = "fp32"
    """FP32, whatever is chosen."""

    LOW = "low"
    """The low dtype, whatever is chosen."""

    ANY = "any"
    """Any dtype."""

    __hash__ = object.__hash__


@dataclass(frozen=True)
class PlacementProblem:
    """A graph with what is fixed and what is open.

    Attributes
    ----------
    graph
        The graph.
    free
        Nodes whose precision is open (GRAY and possible on the target).
    low
        Nodes that are low (GREEN and possible on the target). All other nodes are FP32.
    supply
        For every node, what each of its outputs offers.
    demand
        For every node, what each of its inputs needs.
    head_demand
        What each graph output needs.
    groups
        Sets of nodes that share one precision, because the backend fuses them. Disjoint.
    widest
        Free nodes that are low only where all producers of their CHOSEN inputs are.
    """

    graph: Graph
    free: set[int]
    low: set[int]
    supply: Sequence[tuple[Supply, ...]]
    demand: Sequence[tuple[Demand, ...]]
    head_demand: Sequence[Demand]
    groups: Sequence[tuple[int, ...]] = ()
    widest: set[int] = field(default_factory=set)

    @cached_property
    def demands_of_heads(self) -> Mapping[Entry, Sequence[Demand]]:
        """Entry -> what the graph outputs that hand it on need."""
        found: dict[Entry, list[Demand]] = {}
        for head, demand in zip(self.graph.heads, self.head_demand):
            found.setdefault(head, []).append(demand)
        return found


def place(problem: PlacementProblem) -> set[int]:
    """Return the nodes that compute in low precision, with the fewest casts.

    Among placements with equally few casts, a free node downstream of a low GREEN node is low if it can be
    (less memory traffic), and one upstream of all of them is FP32 (its input need not be rounded).

    Parameters
    ----------
    problem
        The graph and what is open.

    Returns
    -------
    set of int
        Positions of low nodes, ``problem.low`` included.
    """
    cut = CutProblem()
    vertex: dict[int, int] = {}
    for group in problem.groups:
        shared = _fixed_side(problem, group)
        if shared is None:
            shared = cut.add_vertex()
        for position in group:
            vertex[position] = shared
    for position in problem.free:
        if position not in vertex:
            vertex[position] = cut.add_vertex()
    for position in problem.low:
        vertex.setdefault(position, SOURCE)

    def side(position: int) -> int:
        return vertex.get(position, SINK)

    graph = problem.graph
    for position in range(len(graph.nodes)):
        for index, offer in enumerate(problem.supply[position]):
            if offer is Supply.EITHER:
                continue
            producer = {Supply.CHOSEN: side(position), Supply.FP32: SINK, Supply.LOW: SOURCE}[offer]
            consumers = {
                _consumer_vertex(problem.demand[use.node][use.input], side(use.node))
                for use in graph.uses[position].get(index, ())
            }
            outward = problem.demands_of_heads.get(Entry(position, index), ())
            consumers.update(_consumer_vertex(demand, SINK) for demand in outward)
            consumers.discard(_NOBODY)
            _add_cast_costs(cut, producer, consumers)
    for position in problem.widest & problem.free:
        for number, entry in enumerate(graph.nodes[position].inputs):
            if problem.demand[position][number] is Demand.CHOSEN:
                offer = problem.supply[entry.node][entry.output]
                if offer is Supply.CHOSEN:
                    cut.forbid(side(position), side(entry.node))
                elif offer is Supply.FP32:
                    cut.forbid(side(position), SINK)

    downstream = _downstream_of_low(problem)
    preferred = {vertex[position] for position in problem.free if position in downstream}
    source_side = cut.solve(preferred - {SOURCE, SINK})
    return {position for position, where in vertex.items() if where in source_side}


_NOBODY = -1


def _consumer_vertex(demand: Demand, own: int) -> int:
    if demand is Demand.CHOSEN:
        return own
    return {Demand.FP32: SINK, Demand.LOW: SOURCE, Demand.ANY: _NOBODY}[demand]


def _add_cast_costs(cut: CutProblem, producer: int, consumers: set[int]) -> None:
    """Charge one for a cast up and one for a cast down of an entry, however many consumers share it."""
    if not consumers or consumers == {producer}:
        return
    if producer != SINK:  # it can be low, so a cast up can happen
        if SINK in consumers:
            cut.add_edge(producer, SINK, 1)
        elif len(consumers) == 1:
            cut.add_edge(producer, next(iter(consumers)), 1)
        else:
            shared = cut.add_vertex()
            cut.add_edge(producer, shared, 1)
            for consumer in consumers:
                cut.forbid(shared, consumer)
    if producer != SOURCE:  # it can be FP32, so a cast down can happen
        if SOURCE in consumers:
            cut.add_edge(SOURCE, producer, 1)
        elif len(consumers) == 1:
            cut.add_edge(next(iter(consumers)), producer, 1)
        else:
            shared = cut.add_vertex()
            cut.add_edge(shared, producer, 1)
            for consumer in consumers:
                cut.forbid(consumer, shared)


def _fixed_side(problem: PlacementProblem, group: tuple[int, ...]) -> int | None:
    """Return where a group is fixed: low with any GREEN member, FP32 with any FP32 member, else None."""
    if any(position not in problem.free and position not in problem.low for position in group):
        return SINK
    return SOURCE if any(position in problem.low for position in group) else None


def _downstream_of_low(problem: PlacementProblem) -> set[int]:
    found = set(problem.low)
    for position, node in enumerate(problem.graph.nodes):
        if position in problem.free and any(
            entry.node in found and problem.demand[position][number] is Demand.CHOSEN
            for number, entry in enumerate(node.inputs)
        ):
            found.add(position)
    return found


def count_casts(problem: PlacementProblem, low: set[int]) -> int:
    """Return how many casts a placement needs: the cost that :func:`place` minimises.

    Parameters
    ----------
    problem
        The graph and what is open.
    low
        The low nodes.
    """
    graph = problem.graph
    casts = 0
    for position in range(len(graph.nodes)):
        for index, offer in enumerate(problem.supply[position]):
            if offer is Supply.EITHER:
                continue
            is_low = offer is Supply.LOW or (offer is Supply.CHOSEN and position in low)
            wants = set()
            for use in graph.uses[position].get(index, ()):
                demand = problem.demand[use.node][use.input]
                if demand is Demand.CHOSEN:
                    demand = Demand.LOW if use.node in low else Demand.FP32
                wants.add(demand)
            wants.update(problem.demands_of_heads.get(Entry(position, index), ()))
            casts += (Demand.FP32 if is_low else Demand.LOW) in wants
    return casts
