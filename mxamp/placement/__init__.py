"""Placement: the exact minimum cut that chooses precisions with the fewest casts."""

from mxamp.placement.place import Demand, PlacementProblem, Supply, count_casts, place

__all__ = ["Demand", "PlacementProblem", "Supply", "count_casts", "place"]
