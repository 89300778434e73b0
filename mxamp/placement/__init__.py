"""Placement: the exact minimum cut that chooses precisions at the least cost."""

from mxamp.placement.envelope import (
    RoundingPrice,
    TradeOff,
    fastest_placement,
    impossible_below,
    least_error,
    rounding_cost,
    trade_offs,
)
from mxamp.placement.place import count_casts, place, placement_cost, stored_twice
from mxamp.placement.problem import Demand, PlacementCosts, PlacementProblem, Price, Supply

__all__ = [
    "Demand",
    "PlacementCosts",
    "PlacementProblem",
    "Price",
    "RoundingPrice",
    "Supply",
    "TradeOff",
    "count_casts",
    "fastest_placement",
    "impossible_below",
    "least_error",
    "place",
    "placement_cost",
    "rounding_cost",
    "stored_twice",
    "trade_offs",
]
