"""Placement: the exact minimum cut that chooses precisions at the least cost."""

from mxamp.placement.place import count_casts, place, placement_cost, stored_twice
from mxamp.placement.problem import Demand, PlacementCosts, PlacementProblem, Price, Supply

__all__ = [
    "Demand",
    "PlacementCosts",
    "PlacementProblem",
    "Price",
    "Supply",
    "count_casts",
    "place",
    "placement_cost",
    "stored_twice",
]
