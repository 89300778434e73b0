"""The whole trade-off of time against error: every placement that no mixture of two others beats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import AbstractSet, Iterable, NamedTuple, Sequence

from mxamp.placement.place import place, placement_cost
from mxamp.placement.problem import PlacementCosts, PlacementProblem, Price

__all__ = ["RoundingPrice", "TradeOff", "rounding_cost", "trade_offs"]


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
    assert problem.costs is not None  # there is no time to weigh otherwise
    bare = replace(problem, costs=replace(problem.costs, prices=()))
    wanted = [price for price in prices if price.error > 0 and price.nodes]
    solver = _Solver(bare, wanted)
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


def _undominated(found: Iterable[TradeOff]) -> list[TradeOff]:
    kept: list[TradeOff] = []
    for point in sorted(found, key=lambda point: (point.time, point.error)):
        if not kept or point.error < kept[-1].error:
            kept.append(point)
    return kept


class _Solver:
    """Solves ``a * time + b * error`` in whole numbers."""

    def __init__(self, problem: PlacementProblem, prices: Sequence[RoundingPrice]) -> None:
        assert problem.costs is not None  # see trade_offs
        self._problem, self._prices = problem, prices
        self._costs = problem.costs
        # Half the resolution at most for each of both, however they are weighed.
        self.time_scale = float(problem.costs.total + sum(problem.copies.values())) or 1.0
        self.error_scale = float(sum(price.error for price in prices)) or 1.0

    def solve(self, time: float, error: float) -> TradeOff:
        """Return the placement of least ``time * (time over all) + error * (error over all)``."""
        total = time + error
        by_time = _RESOLUTION * (time / total) / self.time_scale
        by_error = _RESOLUTION * (error / total) / self.error_scale

        def scaled(cost: int) -> int:
            return round(cost * by_time)

        costs = PlacementCosts(
            {p: (scaled(fp32), scaled(low)) for p, (fp32, low) in self._costs.nodes.items()},
            [tuple([(scaled(up), scaled(down)) for up, down in outputs]) for outputs in self._costs.casts],
            [Price(price.nodes, round(price.error * by_error)) for price in self._prices],
        )
        copies = {parameter: scaled(cost) for parameter, cost in self._problem.copies.items()}
        low = frozenset(place(replace(self._problem, costs=costs, copies=copies)))
        return TradeOff(low, placement_cost(self._problem, set(low)), rounding_cost(self._prices, low))
