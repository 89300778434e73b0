"""A placement problem: what is fixed, what is open, and what it costs."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import AbstractSet, Mapping, NamedTuple, Sequence

from mxamp.graph.graph import Graph


class Supply(enum.Enum):
    """What the producer of an entry offers."""

    CHOSEN = "chosen"
    """The dtype its node computes in."""

    FP32 = "fp32"
    """FP32, whatever is chosen."""

    LOW = "low"
    """The low dtype, whatever is chosen."""

    EITHER = "either"
    """Both, for nothing: a parameter, cast offline. Also entries no cast applies to (integers)."""


class Demand(enum.Enum):
    """What the reader of an entry needs."""

    CHOSEN = "chosen"
    """The dtype its node computes in."""

    FP32 = "fp32"
    """FP32, whatever is chosen."""

    LOW = "low"
    """The low dtype, whatever is chosen."""

    ANY = "any"
    """Any dtype."""


class Crossing(NamedTuple):
    """What is paid where two nodes compute in different dtypes, besides the casts between them.

    Attributes
    ----------
    writer, reader
        The nodes; what is FP32 or low in any case counts as well.
    up
        The price where the writer is low and the reader FP32.
    down
        The price where it is the other way around.
    """

    writer: int
    reader: int
    up: int
    down: int


class Price(NamedTuple):
    """What is paid once where one node of a set is low: for a rounding that all of them have in common.

    Attributes
    ----------
    nodes
        The set. Nodes that are always low make it unavoidable, and nodes that never are count for nothing.
    cost
        The price, in the unit of the other costs.
    """

    nodes: frozenset[int]
    cost: int


@dataclass(frozen=True)
class PlacementCosts:
    """What nodes and casts cost: whole numbers of one unit of time, not below zero.

    Attributes
    ----------
    nodes
        Node -> what it costs in FP32 and in the low dtype. For a group the costs of its members add up.
        Nodes that are left out cost nothing.
    casts
        For every node, what casting each of its outputs costs: up, and down.
    prices
        What is paid beside, for numerical reasons.
    crossings
        What neighbours of different dtypes pay besides their casts.
    """

    nodes: Mapping[int, tuple[int, int]]
    casts: Sequence[tuple[tuple[int, int], ...]]
    prices: Sequence[Price] = ()
    crossings: Sequence[Crossing] = ()

    @property
    def total(self) -> int:
        """What they add up to: more than any placement costs."""
        nodes = sum(map(sum, self.nodes.values()))
        casts = sum(sum(map(sum, outputs)) for outputs in self.casts)
        crossings = sum(crossing.up + crossing.down for crossing in self.crossings)
        return nodes + casts + crossings + sum(price.cost for price in self.prices)


@dataclass(frozen=True)
class PlacementProblem:
    """A graph with what is fixed and what is open.

    Attributes
    ----------
    graph
        The graph.
    free
        Nodes whose precision is open (GRAY and possible on the target).
    low
        Nodes that are low (GREEN and possible on the target). All other nodes are FP32.
    supply
        For every node, what each of its outputs offers.
    demand
        For every node, what each of its inputs needs.
    head_demand
        What each graph output needs.
    groups
        Sets of nodes that share one precision, because the backend fuses them. Disjoint.
    widest
        Free nodes that are low only where all producers of their CHOSEN inputs are.
    costs
        What nodes and casts cost; None where only casts are counted.
    copies
        Parameter -> what storing it in both dtypes costs, in casts or in the unit of ``costs``.
    """

    graph: Graph
    free: AbstractSet[int]
    low: AbstractSet[int]
    supply: Sequence[tuple[Supply, ...]]
    demand: Sequence[tuple[Demand, ...]]
    head_demand: Sequence[Demand]
    groups: Sequence[tuple[int, ...]] = ()
    widest: AbstractSet[int] = frozenset()
    costs: PlacementCosts | None = None
    copies: Mapping[int, int] = field(default_factory=dict)

    @property
    def unpriced(self) -> PlacementProblem:
        """The same problem, of time alone."""
        return self if self.costs is None else replace(self, costs=replace(self.costs, prices=()))

    @cached_property
    def demands_of_heads(self) -> Mapping[tuple[int, int], Sequence[Demand]]:
        """Entry -> what the graph outputs that hand it on need."""
        found: dict[tuple[int, int], list[Demand]] = {}
        for head, demand in zip(self.graph.heads, self.head_demand):
            found.setdefault(head, []).append(demand)
        return found
