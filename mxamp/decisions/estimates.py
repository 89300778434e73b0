"""What a plan's choices cost: every unit in FP32 and in the low dtype, and every cast.

A unit is a node, or a chain that the backend fuses. Inside a chain the tail is free, and only the chain's
inputs and its last output move through memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import AbstractSet, Mapping, NamedTuple, Sequence

from mxamp.decisions.pricing import Pricing
from mxamp.decisions.reorders import Reorder, beside_casts, reorders
from mxamp.decisions.workload import model_work, written_layouts
from mxamp.graph.graph import Entry, Graph
from mxamp.ops.equivalents import BLOCKS_FOR_POOLING, EVEN_CHANNELS
from mxamp.ops.parameters import FOLDED, LAYERS
from mxamp.placement import Crossing, PlacementCosts
from mxamp.targets import CostModel, Target, folded_patterns, fusion_groups
from mxamp.targets.image_layout import WIDEST_BLOCK
from mxamp.targets.work import Shapes

_NANOSECONDS = 1000
"""In a microsecond; the placement's costs are whole nanoseconds."""


class LoopTime(NamedTuple):
    """What a control-flow node takes in a forward pass, in microseconds.

    Attributes
    ----------
    float32
        In the FP32 model.
    mixed
        With its bodies as they were decided.
    """

    float32: float
    mixed: float


@dataclass(frozen=True)
class Estimates:
    """What nodes and casts cost, in microseconds.

    Attributes
    ----------
    groups
        The chains that are one unit of the placement.
    float32
        For every node, what it adds to a forward pass of the FP32 model. A chain's time is at its first node.
    low
        Node -> what it adds if it is low, for the nodes that have the choice. A chain's time is at its first
        node, and with it what FP32 nodes cost that then are no longer fused behind it.
    casts
        For every node, what casting each of its outputs costs; up, where the directions differ.
    is_measured
        Whether the numbers behind them were measured on such a machine.
    casts_down
        What casting down costs; None where it costs the same as up.
    in_model
        The nodes that were measured in this very model.
    float32_beside
        For every node, what it takes in FP32 beside low ones; None where that is not told apart.
    reorders
        What layers take longer because a cast wrote what they read.
    decided_inside
        Control-flow node -> what it adds with its bodies as they were decided.
    """

    groups: Sequence[tuple[int, ...]]
    float32: Sequence[float]
    low: Mapping[int, float]
    casts: Sequence[tuple[float, ...]]
    is_measured: bool
    casts_down: Sequence[tuple[float, ...]] | None = None
    in_model: AbstractSet[int] = frozenset()
    float32_beside: Sequence[float] | None = None
    reorders: Sequence[Reorder] = ()
    decided_inside: Mapping[int, float] = field(default_factory=dict)

    @property
    def _in_float32(self) -> Sequence[float]:
        return self.float32 if self.float32_beside is None else self.float32_beside

    @property
    def least(self) -> float:
        """What a forward pass takes at the least: every node what it takes in the faster dtype, no cast."""
        return sum(min(cost, self.low.get(position, cost)) for position, cost in enumerate(self._in_float32))

    def cast(self, entry: Entry, *, down: bool) -> float:
        """Return what casting an entry costs."""
        casts = self.casts if not down or self.casts_down is None else self.casts_down
        return casts[entry.node][entry.output]

    def with_loops(self, times: Mapping[int, LoopTime]) -> Estimates:
        """Return the same, and what control flow takes, which no kernel's cost tells."""

        def told(costs: Sequence[float]) -> Sequence[float]:
            return [times[at].float32 if at in times else cost for at, cost in enumerate(costs)]

        return replace(
            self,
            float32=told(self.float32),
            float32_beside=None if self.float32_beside is None else told(self.float32_beside),
            decided_inside={position: time.mixed for position, time in times.items()},
        )

    def for_placement(self) -> PlacementCosts:
        """Return the costs as the placement wants them: whole nanoseconds."""
        float32 = self._in_float32
        return PlacementCosts(
            {
                position: (_nanoseconds(float32[position]), _nanoseconds(low))
                for position, low in self.low.items()
            },
            [
                tuple([(_nanoseconds(cost), _nanoseconds(other)) for cost, other in zip(up, down)])
                for up, down in zip(self.casts, self.casts if self.casts_down is None else self.casts_down)
            ],
            crossings=[
                Crossing(one.writer, one.reader, _nanoseconds(one.up), _nanoseconds(one.down))
                for one in self.reorders
            ],
        )

    def mixed(self, low: AbstractSet[int]) -> Sequence[float]:
        """Return for every node what it adds to a forward pass in which some nodes are low."""
        found = [
            self.low[position] if position in low and position in self.low else cost
            for position, cost in enumerate(self._in_float32)
        ]
        for position, cost in self.decided_inside.items():
            found[position] = cost
        for writer, reader, up, down in self.reorders:
            if (writer in low) != (reader in low):
                found[reader] += up if writer in low else down
        return found


def estimate(
    graph: Graph,
    names: Sequence[str],
    target: Target,
    model: CostModel,
    shapes: Shapes,
    *,
    choices: AbstractSet[int],
    apart: AbstractSet[int] = frozenset(),
    cast_offline: AbstractSet[str] = frozenset(),
) -> Estimates:
    """Return what the units of a graph cost on a target.

    Parameters
    ----------
    graph
        The graph.
    names
        The canonical operator name of every node.
    target
        The target, which says what is fused.
    model
        What its operators cost.
    shapes
        For every node, the shape of each output.
    choices
        The nodes that may be low.
    apart
        The nodes that no chain of choices may hold.
    cast_offline
        The variables that are cast at conversion: in a forward pass that costs nothing.

    Notes
    -----
    Linear in nodes and entries. A node whose shapes are not known costs what the smallest one does.
    """
    evens = EVEN_CHANNELS in target.rewrites
    layouts = written_layouts(graph, shapes, evens=evens, block=model.block)
    patterns = (*target.rounds_once, *target.fusion, *folded_patterns(target))
    fused = fusion_groups(graph, names, target, patterns=patterns)
    groups = fusion_groups(graph, names, target, among=choices - apart, patterns=patterns)
    folded = frozenset(
        position
        for chain in (*fused, *groups)
        for position in chain[1:]
        if names[position] in FOLDED and names[chain[0]] in LAYERS
    )
    works = model_work(graph, shapes, layouts, folded, block=model.block)
    pools_blocks = BLOCKS_FOR_POOLING in target.rewrites and model.block < WIDEST_BLOCK
    pricing = Pricing(
        graph, names, shapes, works, layouts, folded, model, evens=evens, pools_blocks=pools_blocks
    )
    # A chain costs what its head stands for; of what is in one, nothing else is priced.
    in_fused, in_groups = ({position for chain in chains for position in chain} for chains in (fused, groups))
    float32 = [
        0.0 if position in in_fused else pricing.microseconds((position,), low=False)
        for position in range(len(graph.nodes))
    ]
    low = dict.fromkeys(choices, 0.0)
    for position in choices - in_groups:
        low[position] = pricing.microseconds((position,), low=True)
        if target.convolves_batch_norm:
            for cost in pricing.convolved(position):
                low[position] = cost
    for chain in groups:
        low[chain[0]] = pricing.microseconds(chain, low=True)
    for chain in fused:
        float32[chain[0]] = pricing.microseconds(chain, low=False)
        if chain[0] in choices:
            # If the head is low, what must be FP32 behind it runs alone.
            low[chain[0]] += sum(
                pricing.microseconds((position,), low=False)
                for position in chain[1:]
                if position not in choices
            )

    def casts(*, down: bool) -> Sequence[tuple[float, ...]]:
        return [
            (0.0,) * len(outputs)
            if node.is_variable and node.name in cast_offline
            else tuple([pricing.cast(Entry(position, index), down=down) for index in range(len(outputs))])
            for position, (node, outputs) in enumerate(zip(graph.nodes, shapes))
        ]

    return Estimates(
        groups=groups,
        float32=float32,
        float32_beside=beside_casts(graph, pricing, float32, layouts, choices, groups),
        reorders=reorders(graph, pricing, layouts, choices, fused, groups),
        low=low,
        casts=casts(down=False),
        is_measured=model.is_measured,
        casts_down=casts(down=True) if model.kernels else None,
    )


def _nanoseconds(microseconds: float) -> int:
    return round(microseconds * _NANOSECONDS)
