"""Placement: choosing the precision of every node that is open at the least total cost.

The cost of a placement is that of its nodes and that of its casts:

    sum of c_u(x_u) over units u (x_u = 1 where u is low; a unit is a node, or a group that the backend fuses)
    + sum of up(e) over entries e that a low node hands on and some consumer needs in FP32
    + sum of down(e) over entries e that an FP32 node hands on and some consumer needs low
    + sum of copy(p) over parameters p that some consumer needs in FP32 and some low
    + sum of price(S) over sets S of nodes of which one is low at least
    + sum of up(u, v) over pairs of nodes of which u alone is low, and of down(u, v) where v alone is

It is minimised by one cut. u's vertex is on the source's side where u is low: source -> u costs c_u(0), and
u -> sink costs c_u(1). One cast serves all consumers of an entry, so each entry has one extra vertex a
direction:

    up(e)    producer -> A_e (up(e)), A_e -> every consumer (infinite)
    down(e)  every consumer -> B_e (infinite), B_e -> producer (down(e))

    copy(p)  every consumer -> A_p (infinite), A_p -> B_p (copy(p)), B_p -> every consumer (infinite)
    price(S) every node of S -> A_S (infinite), A_S -> sink (price(S))
    pair     u -> v (up(u, v)), v -> u (down(u, v))

The cut is exact: no assignment costs less. Parameters are cast offline: that costs nothing, but memory where
both dtypes are stored.

Where no costs are known, nodes cost nothing and every cast costs one: the placement has the fewest casts.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Sequence

from mxamp.placement.cut import SINK, SOURCE, CutProblem
from mxamp.placement.problem import Demand, PlacementCosts, PlacementProblem, Price, Supply
from mxamp.placement.totals import readers_of

_ONE_A_CAST = (1, 1)
"""What casting an entry costs, up and down, where nothing is known of time."""

_MOST = 2**30
"""What the costs of a problem may add up to, so that they fit SciPy's 32-bit capacities."""


def place(problem: PlacementProblem) -> set[int]:
    """Return the nodes that compute in low precision, at the least cost.

    Among placements that cost the same, a free node downstream of a low GREEN node is low if it can be
    (less memory traffic), and one upstream of all of them is FP32 (its input need not be rounded).

    Parameters
    ----------
    problem
        The graph and what is open.

    Returns
    -------
    set of int
        Positions of low nodes, ``problem.low`` included.

    Notes
    -----
    SciPy's flows are of 32 bits. Where costs add up to more than 2^30 they are divided by the smallest whole
    number that makes them fit, and rounded: the placement is then the cheapest one for the rounded costs.
    """
    costs, copies = problem.costs, problem.copies
    if costs is not None:
        costs, copies = _scaled(costs, copies)
    cut = CutProblem()
    sides = _Sides(_vertices(problem, cut))
    if costs is not None:
        _add_node_costs(cut, costs, sides)
        _add_prices(cut, costs.prices, sides)
        for writer, reader, up, down in costs.crossings:
            cut.add_edge(sides.of(writer), sides.of(reader), up)
            cut.add_edge(sides.of(reader), sides.of(writer), down)
    _add_casts(cut, problem, costs, sides)
    _add_copies(cut, problem, copies, sides)
    _keep_widest(cut, problem, sides)
    downstream = _downstream_of_low(problem)
    preferred = {sides.of(position) for position in problem.free if position in downstream}
    source_side = cut.solve(preferred - {SOURCE, SINK})
    return {position for position, where in sides.vertices.items() if where in source_side}


class _Sides(NamedTuple):
    """Where nodes stand in the cut.

    Attributes
    ----------
    vertices
        Node -> its vertex, for those that are low or may be; all others are on the sink's side.
    """

    vertices: Mapping[int, int]

    def of(self, position: int) -> int:
        """Return the vertex of a node."""
        return self.vertices.get(position, SINK)

    def demanding(self, demand: Demand, reader: int) -> int:
        """Return the vertex on whose side a reader needs what it reads."""
        return self.of(reader) if demand is Demand.CHOSEN else _SIDES[demand]


def _vertices(problem: PlacementProblem, cut: CutProblem) -> Mapping[int, int]:
    """Return the vertex of every node that is low or may be; what is in a group shares one."""
    vertices: dict[int, int] = {}
    for group in problem.groups:
        shared = _fixed_side(problem, group)
        if shared is None:
            shared = cut.add_vertex()
        for position in group:
            vertices[position] = shared
    for position in problem.free:
        if position not in vertices:
            vertices[position] = cut.add_vertex()
    for position in problem.low:
        vertices.setdefault(position, SOURCE)
    return vertices


def _add_casts(
    cut: CutProblem, problem: PlacementProblem, costs: PlacementCosts | None, sides: _Sides
) -> None:
    """Charge for the casts of every entry that comes in one dtype."""
    for position, (offers, readers) in enumerate(zip(problem.supply, problem.graph.uses)):
        for index, offer in enumerate(offers):
            if offer is Supply.EITHER:
                continue
            producer = (
                sides.of(position) if offer is Supply.CHOSEN else SINK if offer is Supply.FP32 else SOURCE
            )
            consumers = set()
            for reader, number in readers.get(index, ()):
                demand = problem.demand[reader][number]
                if demand is not Demand.ANY:
                    consumers.add(sides.demanding(demand, reader))
            for demand in problem.demands_of_heads.get((position, index), ()):
                consumers.add(_SIDES[demand])
            prices = _ONE_A_CAST if costs is None else costs.casts[position][index]
            _add_cast_costs(cut, producer, consumers, prices)


def _add_copies(cut: CutProblem, problem: PlacementProblem, copies: Mapping[int, int], sides: _Sides) -> None:
    """Charge for parameters that are stored in both dtypes."""
    for parameter, cost in copies.items():
        consumers = {sides.demanding(demand, reader) for reader, demand in readers_of(problem, parameter)}
        if cost and len(consumers) > 1:
            any_low, all_low = cut.add_vertex(), cut.add_vertex()
            for consumer in consumers:
                cut.forbid(consumer, any_low)
                cut.forbid(all_low, consumer)
            cut.add_edge(any_low, all_low, cost)


def _keep_widest(cut: CutProblem, problem: PlacementProblem, sides: _Sides) -> None:
    """Let the widest nodes be low only where all is low that they read in their own dtype."""
    for position in problem.widest & problem.free:
        for entry, demand in zip(problem.graph.nodes[position].inputs, problem.demand[position]):
            if demand is Demand.CHOSEN:
                offer = problem.supply[entry.node][entry.output]
                if offer is Supply.CHOSEN:
                    cut.forbid(sides.of(position), sides.of(entry.node))
                elif offer is Supply.FP32:
                    cut.forbid(sides.of(position), SINK)


_SIDES = {Demand.FP32: SINK, Demand.LOW: SOURCE}


def _scaled(costs: PlacementCosts, copies: Mapping[int, int]) -> tuple[PlacementCosts, Mapping[int, int]]:
    """Return costs that add up to no more than :data:`_MOST`."""
    total = costs.total + sum(copies.values())
    if total <= _MOST:
        return costs, copies
    # Rounding may add half a unit each.
    pairs = len(costs.nodes) + sum(map(len, costs.casts)) + len(costs.crossings)
    count = 2 * pairs + len(copies) + len(costs.prices)
    divisor = -(-total // max(1, _MOST - count))

    def scale(cost: int) -> int:
        return (cost + divisor // 2) // divisor

    scaled = PlacementCosts(
        {position: (scale(fp32), scale(low)) for position, (fp32, low) in costs.nodes.items()},
        [tuple([(scale(up), scale(down)) for up, down in outputs]) for outputs in costs.casts],
        [price._replace(cost=scale(price.cost)) for price in costs.prices],
        [one._replace(up=scale(one.up), down=scale(one.down)) for one in costs.crossings],
    )
    return scaled, {parameter: scale(cost) for parameter, cost in copies.items()}


def _add_node_costs(cut: CutProblem, costs: PlacementCosts, sides: _Sides) -> None:
    """Charge what open nodes cost; of the two costs of a vertex only the difference can be saved."""
    saved: dict[int, int] = {}
    for position, (fp32, low) in costs.nodes.items():
        where = sides.of(position)
        if where > SINK:
            saved[where] = saved.get(where, 0) + fp32 - low
    for where, difference in saved.items():
        if difference > 0:
            cut.add_edge(SOURCE, where, difference)
        elif difference < 0:
            cut.add_edge(where, SINK, -difference)


def _add_prices(cut: CutProblem, prices: Sequence[Price], sides: _Sides) -> None:
    """Charge each price where a node of its set is low; two that share their vertices are one."""
    charged: dict[frozenset[int], int] = {}
    for price in prices:
        payers = frozenset(map(sides.of, price.nodes)) - {SINK}
        if payers and SOURCE not in payers:  # otherwise it is paid never, or always
            charged[payers] = charged.get(payers, 0) + price.cost
    for payers, cost in charged.items():
        if len(payers) == 1:
            cut.add_edge(next(iter(payers)), SINK, cost)
            continue
        shared = cut.add_vertex()
        cut.add_edge(shared, SINK, cost)
        for payer in payers:
            cut.forbid(payer, shared)


def _add_cast_costs(cut: CutProblem, producer: int, consumers: set[int], costs: tuple[int, int]) -> None:
    """Charge for a cast up and for a cast down of an entry, once however many consumers share it."""
    if not consumers or consumers == {producer}:
        return
    # Up where it is low and they are not, down the other way: the same edges, turned round.
    for cost, fixed, is_up in zip(costs, (SINK, SOURCE), (True, False)):
        if producer == fixed:
            continue
        if fixed in consumers or len(consumers) == 1:
            consumer = fixed if fixed in consumers else next(iter(consumers))
            cut.add_edge(*((producer, consumer) if is_up else (consumer, producer)), cost)
            continue
        shared = cut.add_vertex()
        cut.add_edge(*((producer, shared) if is_up else (shared, producer)), cost)
        for consumer in consumers:
            cut.forbid(*((shared, consumer) if is_up else (consumer, shared)))


def _fixed_side(problem: PlacementProblem, group: tuple[int, ...]) -> int | None:
    """Return where a group is fixed: low with any GREEN member, FP32 with any FP32 member, else None."""
    if any(position not in problem.free and position not in problem.low for position in group):
        return SINK
    return SOURCE if any(position in problem.low for position in group) else None


def _downstream_of_low(problem: PlacementProblem) -> set[int]:
    found = set(problem.low)
    for position in sorted(problem.free):
        for (producer, _), need in zip(problem.graph.nodes[position].inputs, problem.demand[position]):
            if need is Demand.CHOSEN and producer in found:
                found.add(position)
                break
    return found
