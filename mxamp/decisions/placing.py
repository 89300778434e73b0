"""What a plan is made with that knows more than the target: times measured in this model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import AbstractSet, Any, Callable, Mapping, Sequence, Set

from mxamp.graph.graph import Entry
from mxamp.placement import PlacementProblem

Choose = Callable[[PlacementProblem, AbstractSet[int]], Set[int]]
"""Returns the low nodes of a problem; given also the GREEN nodes that the target can run low."""


@dataclass(frozen=True)
class MeasuredTimes:
    """What nodes and casts of one graph took while the whole graph ran, in microseconds.

    Attributes
    ----------
    float32
        Node -> its time in the graph run in FP32. What ran as one kernel counts at its first node, and the
        others take 0. Empty where the graph could not be measured.
    low
        The same for the graph in which everything is low that may be; it may lack nodes.
    float32_beside
        What FP32 nodes take beside low ones, where that was measured apart.
    fused
        The sets of nodes that ran as one kernel in the FP32 graph.
    fused_low
        The sets that did in the low one.
    casts_down, casts_up
        Entry -> what casting it cost, what the cast makes its readers pay included.
    cast_overhead, cast_per_element
        What a cast costs that was not measured: so much, and so much for each value. None where no cast was.
    """

    float32: Mapping[int, float] = field(default_factory=dict)
    low: Mapping[int, float] = field(default_factory=dict)
    float32_beside: Mapping[int, float] = field(default_factory=dict)
    fused: Sequence[tuple[int, ...]] = ()
    fused_low: Sequence[tuple[int, ...]] = ()
    casts_down: Mapping[Entry, float] = field(default_factory=dict)
    casts_up: Mapping[Entry, float] = field(default_factory=dict)
    cast_overhead: float | None = None
    cast_per_element: float | None = None


@dataclass(frozen=True)
class Placing:
    """How the nodes that have a choice are placed.

    Attributes
    ----------
    choose
        Makes the choice.
    reason
        Why a node is what was chosen, for the report: ``"bfloat16 <reason>"``.
    times
        What was measured; None for the target's costs.
    in_bodies
        Whether the nodes inside control-flow bodies are chosen so as well.
    race
        What the report says of the plans that were run against each other.
    notes
        What the user should know about how this came about.
    spares
        Whether outputs are spared the roundings that they feel most, where that costs next to nothing.
    needs_costs
        Whether the choice weighs times, so that where none are known all is placed as if nothing was said.
    """

    choose: Choose
    reason: str
    times: MeasuredTimes | None = None
    in_bodies: bool = False
    race: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()
    spares: bool = True
    needs_costs: bool = False
