"""Placements to measure and to run against each other. Each respects what a problem fixes."""

from __future__ import annotations

from dataclasses import replace
from typing import AbstractSet

from mxamp.decisions.placing import Choose
from mxamp.decisions.worthwhile import simpler_placement
from mxamp.placement import PlacementProblem, place


def float32(problem: PlacementProblem, wanted: AbstractSet[int]) -> set[int]:
    """Choose float32 for everything, even for what should be low: the graph to compare with."""
    return set()


def cheapest(problem: PlacementProblem, wanted: AbstractSet[int]) -> set[int]:
    """Choose what costs least; where nothing is known of costs, the fewest casts."""
    return fewest_casts(problem, wanted) if problem.costs is None else place(problem)


def as_estimated(problem: PlacementProblem, wanted: AbstractSet[int]) -> set[int]:
    """Choose as a conversion does that measures nothing: what costs least, if its casts gain enough.

    Whether low precision gains at all is measured, and not asked here.
    """
    low = cheapest(problem, wanted)
    simple = simpler_placement(problem, low, wanted)
    return low if simple is None else simple


def everything_low(problem: PlacementProblem, wanted: AbstractSet[int]) -> set[int]:
    """Choose low precision for everything that may have it."""
    return _low(problem, problem.free)


def fewest_casts(problem: PlacementProblem, wanted: AbstractSet[int]) -> set[int]:
    """Choose low precision for what is GREEN, and for the rest what needs the fewest casts."""
    green = problem.free & wanted
    return place(replace(problem, low=problem.low | green, free=problem.free - green, costs=None))


def these(low: AbstractSet[int]) -> Choose:
    """Return what chooses some nodes, as far as they have the choice."""

    def choose(problem: PlacementProblem, wanted: AbstractSet[int]) -> set[int]:
        return _low(problem, problem.free & low)

    return choose


def without(nodes: AbstractSet[int], choose: Choose) -> Choose:
    """Return what chooses float32 for some nodes, and for the others as ``choose`` does."""

    def chosen(problem: PlacementProblem, wanted: AbstractSet[int]) -> set[int]:
        return choose(replace(problem, free=problem.free - nodes, widest=problem.widest - nodes), wanted)

    return chosen if nodes else choose


def alternating(parity: int) -> Choose:
    """Return what makes every other unit low, along the paths through the graph.

    Most edges then carry a cast, so that one sees what casts cost where they would be. With parities 0 and 1
    an edge carries one in each direction.
    """

    def choose(problem: PlacementProblem, wanted: AbstractSet[int]) -> set[int]:
        head = {position: group[0] for group in problem.groups for position in group}
        depth: dict[int, int] = {}
        for position, node in enumerate(problem.graph.nodes):
            unit = head.get(position, position)
            if node.is_variable or unit in depth:
                continue
            before = [depth.get(head.get(entry.node, entry.node), -1) for entry in node.inputs]
            depth[unit] = 1 + max(before, default=-1)
        return _low(
            problem, {p for p in problem.free if depth.get(head.get(p, p), 0) % 2 == parity} - problem.widest
        )

    return choose


def _low(problem: PlacementProblem, nodes: AbstractSet[int]) -> set[int]:
    """Return a placement with these of the free nodes low, and of the widest those that can be."""
    widest = problem.widest & nodes
    return place(replace(problem, low=problem.low | (nodes - widest), free=set(widest), costs=None))
