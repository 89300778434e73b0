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
from mxamp.placement.place import place
from mxamp.placement.problem import Crossing, Demand, PlacementCosts, PlacementProblem, Price, Supply
from mxamp.placement.totals import (
    Totals,
    change_in_float32,
    stored_twice,
    totals,
)

__all__ = [
    "Crossing",
    "Demand",
    "PlacementCosts",
    "PlacementProblem",
    "Price",
    "RoundingPrice",
    "Supply",
    "Totals",
    "TradeOff",
    "change_in_float32",
    "fastest_placement",
    "impossible_below",
    "least_error",
    "place",
    "rounding_cost",
    "stored_twice",
    "totals",
    "trade_offs",
]
