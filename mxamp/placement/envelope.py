"""The whole trade-off of time against error: every placement that no mixture of two others beats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import AbstractSet, Callable, Iterable, NamedTuple, Sequence

from mxamp.placement.place import place
from mxamp.placement.problem import PlacementCosts, PlacementProblem, Price
from mxamp.placement.totals import totals


class RoundingPrice(NamedTuple):
    """What one rounding adds to the squared error, and which low nodes bring it about.

    Attributes
    ----------
    nodes
        The rounding happens where one of them is low.
    error
        What it adds.
    """

    nodes: frozenset[int]
    error: float


@dataclass(frozen=True)
class TradeOff:
    """One placement of the envelope.

    Attributes
    ----------
    low
        The low nodes.
    time
        What it costs without prices, in the unit of the problem's costs.
    error
        The sum of the prices of what it rounds.
    """

    low: frozenset[int]
    time: int
    error: float


_RESOLUTION = 2**29
"""What time and error together are scaled to; SciPy's flows have 32 bits."""

_STEPS = 2000
"""The most cuts that are solved. Each finds a corner of the envelope or shows that there is none, so that it
ends of itself far earlier, but for graphs of thousands of corners."""


def rounding_cost(prices: Sequence[RoundingPrice], low: AbstractSet[int]) -> float:
    """Return the squared error of a placement.

    Parameters
    ----------
    prices
        What roundings add.
    low
        The low nodes.
    """
    return float(sum(price.error for price in prices if not price.nodes.isdisjoint(low)))


def trade_offs(problem: PlacementProblem, prices: Sequence[RoundingPrice]) -> list[TradeOff]:
    """Return the corners of the lower envelope of time and error, the fastest first.

    Parameters
    ----------
    problem
        The problem, with costs. Prices that it has are left out.
    prices
        What roundings add to the squared error.

    Returns
    -------
    list of TradeOff
        From the least time to the least error. Each is the placement of the least ``time + lambda * error``
        for some lambda, and each lambda has one of them.

    Notes
    -----
    Between two corners the lambda is tried at which both cost the same. Either a third placement costs less
    there, and lies on the envelope between them, or none does, and the envelope is straight (Eisner and
    Severance, J. ACM 23(4), 1976). Each is one minimum cut, exact to the 2^-29 to which costs are scaled.
    """
    _, _, solver = _solver(problem, prices)
    fastest, finest = solver.solve(1.0, 1e-6), solver.solve(1e-6, 1.0)
    found = {fastest.low: fastest, finest.low: finest}
    waiting = [(fastest, finest)]
    steps = 0
    while waiting and steps < _STEPS:
        left, right = waiting.pop()
        saved, paid = left.error - right.error, right.time - left.time
        if saved <= 0 or paid <= 0:
            continue
        steps += 1
        middle = solver.solve(saved * solver.time_scale, paid * solver.error_scale)
        gain = (left.time - middle.time) * saved + (left.error - middle.error) * paid
        if middle.low in found or gain <= 1e-6 * saved * paid:
            continue
        found[middle.low] = middle
        waiting += [(left, middle), (middle, right)]
    return _undominated(found.values())


def fastest_placement(problem: PlacementProblem, prices: Sequence[RoundingPrice]) -> TradeOff:
    """Return the first corner that :func:`trade_offs` returns, by one cut.

    Parameters
    ----------
    problem, prices
        As there.
    """
    return _solver(problem, prices)[2].solve(1.0, 1e-6)


def impossible_below(problem: PlacementProblem, prices: Sequence[RoundingPrice], limit: float) -> float:
    """Return the error that no placement falls below within a time: the lower envelope there.

    Parameters
    ----------
    problem, prices
        As for :func:`trade_offs`.
    limit
        The time, in the unit of the problem's costs.
    """
    before, after = _around(_solver(problem, prices)[2], lambda point: point.time <= limit)
    if after is None or after.time <= before.time:
        return before.error
    share = max(0.0, limit - before.time) / (after.time - before.time)
    return before.error + share * (after.error - before.error)


def least_error(
    problem: PlacementProblem,
    prices: Sequence[RoundingPrice],
    more_time: float,
    *,
    allows: Callable[[AbstractSet[int]], bool] = lambda low: True,
    others: Iterable[AbstractSet[int]] = (),
) -> TradeOff:
    """Return the placement of the least error that takes little longer than the fastest.

    Parameters
    ----------
    problem
        The problem, with costs. Prices that it has are left out.
    prices
        What roundings add to the squared error.
    more_time
        How much longer it may take, as a share of what the fastest takes.
    allows
        Whether a set of low nodes may be chosen besides; the fastest may in any case.
    others
        Placements that may be chosen as well.

    Notes
    -----
    The corner of the envelope before the limit is exact. What it leaves of the time is spent on the dearest
    roundings that can be had for it, one after another, each with the best placement of all else: choosing
    among those is a knapsack, which has no exact answer that a cut would find.
    """
    bare, wanted, solver = _solver(problem, prices)
    limit = solver.solve(1.0, 1e-6).time * (1 + more_time)

    def may(point: TradeOff) -> bool:
        return point.time <= limit and allows(point.low)

    best, slow = _around(solver, may)
    if slow is None:
        return best
    # What both weigh where the envelope passes the limit, a little in favour of the end before it.
    time = max(best.error - slow.error, 0.0) * solver.time_scale or 1.0
    error = 0.99 * max(slow.time - best.time, 0) * solver.error_scale or 1e-6
    for low in others:
        point = TradeOff(frozenset(low), totals(bare, low).cost, rounding_cost(wanted, low))
        if may(point) and point.error < best.error:
            best = point
    spared: frozenset[int] = frozenset()
    together = {position: frozenset(group) for group in bare.groups for position in group}
    for price in sorted(wanted, key=lambda price: -price.error)[:_FILLED]:
        nodes = price.nodes.union(*(together.get(node, price.nodes) for node in price.nodes))
        if price.nodes.isdisjoint(best.low) or nodes & bare.low:
            continue
        point = solver.solve(time, error, spared=spared | nodes)
        if may(point) and point.error < best.error:
            best, spared = point, spared | nodes
    return best


def _around(solver: _Solver, may: Callable[[TradeOff], bool]) -> tuple[TradeOff, TradeOff | None]:
    """Return the last corner that may be, and the first that may not; None where the finest may.

    The fastest may in any case.
    """
    best, slow = solver.solve(1.0, 1e-6), solver.solve(1e-6, 1.0)
    if may(slow):
        return slow, None
    for _ in range(_STEPS):
        saved, paid = best.error - slow.error, slow.time - best.time
        if saved <= 0 or paid <= 0:
            break
        middle = solver.solve(saved * solver.time_scale, paid * solver.error_scale)
        gain = (best.time - middle.time) * saved + (best.error - middle.error) * paid
        if middle.low in (best.low, slow.low) or gain <= 1e-6 * saved * paid:
            break
        if may(middle):
            best = middle
        else:
            slow = middle
    return best, slow


def _solver(
    problem: PlacementProblem, prices: Sequence[RoundingPrice]
) -> tuple[PlacementProblem, list[RoundingPrice], _Solver]:
    """Return the problem without prices of its own, what roundings cost, and what solves both."""
    assert problem.costs is not None  # there is no time to weigh otherwise
    wanted = [price for price in prices if price.error > 0 and price.nodes]
    return problem.unpriced, wanted, _Solver(problem.unpriced, wanted)


def _undominated(found: Iterable[TradeOff]) -> list[TradeOff]:
    kept: list[TradeOff] = []
    for point in sorted(found, key=lambda point: (point.time, point.error)):
        if not kept or point.error < kept[-1].error:
            kept.append(point)
    return kept


_FILLED = 24
"""How many of the dearest roundings are tried for what is left of the time."""


class _Solver:
    """Solves ``a * time + b * error`` in whole numbers."""

    def __init__(self, problem: PlacementProblem, prices: Sequence[RoundingPrice]) -> None:
        assert problem.costs is not None  # see trade_offs
        self._problem, self._prices = problem, prices
        self._costs = problem.costs
        # Half the resolution at most for each of both, however they are weighed.
        self.time_scale = float(problem.costs.total + sum(problem.copies.values())) or 1.0
        self.error_scale = float(sum(price.error for price in prices)) or 1.0

    def solve(self, time: float, error: float, *, spared: AbstractSet[int] = frozenset()) -> TradeOff:
        """Return the placement of least ``time * (time over all) + error * (error over all)``.

        The nodes of ``spared`` stay FP32.
        """
        total = time + error
        by_time = _RESOLUTION * (time / total) / self.time_scale
        by_error = _RESOLUTION * (error / total) / self.error_scale

        def scaled(cost: int) -> int:
            return round(cost * by_time)

        costs = PlacementCosts(
            {p: (scaled(fp32), scaled(low)) for p, (fp32, low) in self._costs.nodes.items()},
            [tuple([(scaled(up), scaled(down)) for up, down in outputs]) for outputs in self._costs.casts],
            [Price(price.nodes, round(price.error * by_error)) for price in self._prices],
            [one._replace(up=scaled(one.up), down=scaled(one.down)) for one in self._costs.crossings],
        )
        copies = {parameter: scaled(cost) for parameter, cost in self._problem.copies.items()}
        problem = replace(self._problem, costs=costs, copies=copies)
        if spared:
            problem = replace(problem, free=problem.free - spared, widest=problem.widest - spared)
        low = frozenset(place(problem))
        return TradeOff(low, totals(self._problem, low).cost, rounding_cost(self._prices, low))
