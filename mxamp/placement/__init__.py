"""Placement: the exact minimum cut that chooses precisions at the least cost."""

from mxamp.placement.place import (
    Demand,
    PlacementCosts,
    PlacementProblem,
    Supply,
    count_casts,
    place,
    placement_cost,
    stored_twice,
)

__all__ = [
    "Demand",
    "PlacementCosts",
    "PlacementProblem",
    "Supply",
    "count_casts",
    "place",
    "placement_cost",
    "stored_twice",
]
