"""What a placement comes to: its cost, the casts that it needs, and what changes with a few nodes."""

from __future__ import annotations

from typing import AbstractSet, Collection, Iterable, Iterator, NamedTuple

from mxamp.graph.graph import Entry
from mxamp.placement.problem import Crossing, Demand, PlacementProblem, Supply


class Totals(NamedTuple):
    """What a placement comes to.

    Attributes
    ----------
    cost
        What :func:`mxamp.placement.place` minimises, in the unit of the problem's costs; where it has none,
        casts and copies.
    casts
        How many casts the placement needs.
    """

    cost: int
    casts: int


def totals(problem: PlacementProblem, low: AbstractSet[int]) -> Totals:
    """Return what a placement comes to.

    Parameters
    ----------
    problem
        The graph, what is open, and what it costs.
    low
        The low nodes.
    """
    costs = problem.costs
    nodes = () if costs is None else costs.nodes
    found = _totals(problem, low, nodes, range(len(problem.graph.nodes)))
    if costs is None:
        return found
    paid = sum(price.cost for price in costs.prices if not price.nodes.isdisjoint(low))
    paid += sum(_crossing_cost(crossing, low) for crossing in costs.crossings)
    return Totals(found.cost + paid, found.casts)


def change_in_float32(problem: PlacementProblem, low: AbstractSet[int], raised: Collection[int]) -> Totals:
    """Return by how much the totals grow if some low nodes are FP32; negative where they shrink.

    Parameters
    ----------
    problem
        The graph, what is open, and what it costs.
    low
        The low nodes.
    raised
        Those of them that are FP32 instead.

    Notes
    -----
    Linear in these nodes, in the readers of what they read and write, and in the problem's prices and
    crossings.
    """
    graph = problem.graph
    writers = {entry.node for position in raised for entry in graph.nodes[position].inputs} | set(raised)
    readers = {use.node for writer in writers for uses in graph.uses[writer].values() for use in uses}
    low_before = {position for position in writers | readers if position in low}
    before = _totals(problem, low_before, raised, writers)
    after = _totals(problem, low_before.difference(raised), raised, writers)
    grown = after.cost - before.cost
    if problem.costs is not None:
        grown -= sum(
            price.cost
            for price in problem.costs.prices
            if not price.nodes.isdisjoint(raised) and low.isdisjoint(price.nodes.difference(raised))
        )
        left = low - set(raised)
        for crossing in problem.costs.crossings:
            if crossing.writer in raised or crossing.reader in raised:
                grown += _crossing_cost(crossing, left) - _crossing_cost(crossing, low)
    return Totals(grown, after.casts - before.casts)


def stored_twice(problem: PlacementProblem, low: AbstractSet[int]) -> set[int]:
    """Return the parameters, of those that ``copies`` names, that a placement reads in both dtypes.

    Parameters
    ----------
    problem
        The graph and what is open.
    low
        The low nodes.
    """
    return {parameter for parameter in problem.copies if _is_stored_twice(problem, low, parameter)}


def readers_of(problem: PlacementProblem, parameter: int) -> Iterator[tuple[int, Demand]]:
    """Yield who reads a parameter, and what each needs; -1 is the model's caller."""
    for reader, number in problem.graph.uses[parameter].get(0, ()):
        demand = problem.demand[reader][number]
        if demand is not Demand.ANY:
            yield reader, demand
    for demand in problem.demands_of_heads.get((parameter, 0), ()):
        if demand is not Demand.ANY:
            yield -1, demand


def _totals(
    problem: PlacementProblem, low: AbstractSet[int], nodes: Iterable[int], writers: Collection[int]
) -> Totals:
    """Return what some nodes cost, and the casts of what some write; without prices."""
    costs, copies = problem.costs, problem.copies
    casts = list(_casts(problem, low, writers))
    cost = sum(
        copies[writer] for writer in writers if writer in copies and _is_stored_twice(problem, low, writer)
    )
    if costs is None:
        return Totals(cost + len(casts), len(casts))
    cost += sum(costs.nodes[position][position in low] for position in nodes if position in costs.nodes)
    cost += sum(costs.casts[entry.node][entry.output][down] for entry, down in casts)
    return Totals(cost, len(casts))


def _crossing_cost(crossing: Crossing, low: AbstractSet[int]) -> int:
    """Return what two neighbours pay in a placement."""
    if (crossing.writer in low) == (crossing.reader in low):
        return 0
    return crossing.up if crossing.writer in low else crossing.down


def _is_stored_twice(problem: PlacementProblem, low: AbstractSet[int], parameter: int) -> bool:
    dtypes = {
        reader in low if demand is Demand.CHOSEN else demand is Demand.LOW
        for reader, demand in readers_of(problem, parameter)
    }
    return len(dtypes) > 1


def _casts(
    problem: PlacementProblem, low: AbstractSet[int], writers: Iterable[int]
) -> Iterator[tuple[Entry, bool]]:
    """Yield the entries of some nodes that a placement casts, each with whether it is cast down."""
    uses, demands, demands_of_heads = problem.graph.uses, problem.demand, problem.demands_of_heads
    for position in writers:
        for index, offer in enumerate(problem.supply[position]):
            if offer is Supply.EITHER:
                continue
            is_low = offer is Supply.LOW or (offer is Supply.CHOSEN and position in low)
            wants: set[Demand] = {
                (Demand.LOW if reader in low else Demand.FP32) if demand is Demand.CHOSEN else demand
                for reader, number in uses[position].get(index, ())
                for demand in [demands[reader][number]]
            }
            wants.update(demands_of_heads.get((position, index), ()))
            if (Demand.FP32 if is_low else Demand.LOW) in wants:
                yield Entry(position, index), not is_low
