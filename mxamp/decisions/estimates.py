"""What a plan's choices cost: every unit in FP32 and in the low dtype, and every cast.

A unit is a node, or a chain that the backend fuses. Inside a chain the tail is free, and only the chain's
inputs and its last output move through memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import AbstractSet, Mapping, Sequence

from mxamp.decisions.workload import (
    BLOCKED_RANKS,
    Layout,
    as_depthwise,
    chain_work,
    model_work,
    with_bias,
    written_layouts,
)
from mxamp.graph.graph import Entry, Graph
from mxamp.ops.equivalents import EVEN_CHANNELS, depthwise_of, reads_odd_channels
from mxamp.ops.parameters import FOLDED, LAYERS
from mxamp.placement import PlacementCosts
from mxamp.targets import CostModel, Target, Work, folded_patterns, fusion_groups
from mxamp.targets.image_layout import PLAIN
from mxamp.targets.work import Shapes

_NANOSECONDS = 1000
"""In a microsecond; the placement's costs are whole nanoseconds."""


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
    """

    groups: Sequence[tuple[int, ...]]
    float32: Sequence[float]
    low: Mapping[int, float]
    casts: Sequence[tuple[float, ...]]
    is_measured: bool
    casts_down: Sequence[tuple[float, ...]] | None = None
    in_model: AbstractSet[int] = frozenset()
    float32_beside: Sequence[float] | None = None

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
        )

    def mixed(self, low: AbstractSet[int]) -> Sequence[float]:
        """Return for every node what it adds to a forward pass in which some nodes are low."""
        return [
            self.low[position] if position in low and position in self.low else cost
            for position, cost in enumerate(self._in_float32)
        ]


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
    layouts = written_layouts(graph, shapes)
    patterns = (*target.rounds_once, *target.fusion, *folded_patterns(target))
    fused = fusion_groups(graph, names, target, patterns=patterns)
    groups = fusion_groups(graph, names, target, among=choices - apart, patterns=patterns)
    folded = frozenset(
        position
        for chain in (*fused, *groups)
        for position in chain[1:]
        if names[position] in FOLDED and names[chain[0]] in LAYERS
    )
    works = model_work(graph, shapes, layouts, folded)
    around = max((work.around for work in works if work is not None), default=0)
    operators = max((work.operators for work in works if work is not None), default=0)
    evens = EVEN_CHANNELS in target.rewrites
    pricing = _Pricing(graph, names, shapes, works, folded, model, evens=evens)
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

    @lru_cache(maxsize=None)  # few shapes occur in a network, most of them often
    def cast(shape: tuple[int, ...] | None, is_blocked: bool, arrives_in: int, down: bool) -> float:
        return model.cast_microseconds(
            0 if shape is None else math.prod(shape),
            shape=shape or (),
            is_blocked=is_blocked and len(shape or ()) in BLOCKED_RANKS,
            arrives_in=arrives_in,
            around=around,
            operators=operators,
            down=down,
        )

    def casts(*, down: bool) -> Sequence[tuple[float, ...]]:
        found = []
        for position, (node, outputs) in enumerate(zip(graph.nodes, shapes)):
            if node.is_variable and node.name in cast_offline:
                found.append((0.0,) * len(outputs))
                continue
            layout = layouts[position]
            order = PLAIN if layout is None else layout[not down]
            is_blocked = layout is not None and (down or not layout.is_cast_plain)
            found.append(tuple([cast(shape, is_blocked, order, down) for shape in outputs]))
        return found

    return Estimates(
        groups=groups,
        float32=float32,
        float32_beside=_beside_casts(graph, pricing, float32, layouts, choices, groups),
        low=low,
        casts=casts(down=False),
        is_measured=model.is_measured,
        casts_down=casts(down=True) if model.kernels else None,
    )


def _beside_casts(
    graph: Graph,
    pricing: _Pricing,
    float32: Sequence[float],
    layouts: Sequence[Layout | None],
    choices: AbstractSet[int],
    groups: Sequence[tuple[int, ...]],
) -> Sequence[float]:
    """Return what nodes take in FP32, with what is spent on plain order at those that write blocks.

    What can only be FP32 and reads plain order reorders blocks for itself, but finds plain order behind a
    cast. So what the reorder takes is a cost of the FP32 layer that wrote the blocks, and none where it is
    low.
    """
    found = list(float32)
    head = {position: chain[0] for chain in groups for position in chain}
    for position, node in enumerate(graph.nodes):
        if position in choices or not float32[position]:
            continue
        writers = [
            entry.node
            for entry in dict.fromkeys(node.inputs)
            if entry.node in choices and layouts[entry.node] is not None
        ]
        reorder = pricing.reorder(position) if writers else 0.0
        found[position] -= reorder
        for writer in writers:
            found[head.get(writer, writer)] += reorder / len(writers)
    return found


class _Pricing:
    """The price of one chain after the other."""

    def __init__(
        self,
        graph: Graph,
        names: Sequence[str],
        shapes: Shapes,
        works: Sequence[Work | None],
        folded: AbstractSet[int],
        model: CostModel,
        *,
        evens: bool,
    ) -> None:
        self._graph, self._names, self._shapes = graph, names, shapes
        self._works, self._folded, self._model = works, folded, model
        self._evens = evens
        self._known: dict[tuple[object, ...], float] = {}

    def microseconds(self, chain: tuple[int, ...], *, low: bool) -> float:
        """Return what a chain costs; one node is a chain too. Variables cost nothing."""
        head = chain[0]
        if self._graph.nodes[head].is_variable:
            return 0.0
        ran = (head, *[position for position in chain[1:] if position not in self._folded])
        works = [self._works[position] for position in ran]
        if len(ran) < len(chain) and works[0] is not None:
            works[0] = with_bias(works[0])
        work = chain_work(self._graph, ran, self._shapes, works)
        curves = sum(self._curve(position, low=low) for position in chain[1:])
        if low and self._evens and work is not None and self._is_odd(head, work):
            return curves + self._evened(head, work)
        return curves + self._kernel(self._names[head], work or Work(0, 0), low=low)

    def _kernel(self, op: str, work: Work, *, low: bool) -> float:
        """Return what a kernel costs; many of a network's are alike."""
        key = (op, low, tuple(work.attributes.items()), *work[:_ATTRIBUTES], *work[_ATTRIBUTES + 1 :])
        if key not in self._known:
            self._known[key] = self._model.microseconds(op, work, low=low)
        return self._known[key]

    def _curve(self, position: int, *, low: bool) -> float:
        work = self._works[position]
        return 0.0 if work is None else self._model.curve_microseconds(self._names[position], work, low=low)

    def _is_odd(self, head: int, work: Work) -> bool:
        return len(work.inputs) > 1 and reads_odd_channels(self._names[head], work.attributes, work.inputs[1])

    def _evened(self, head: int, work: Work) -> float:
        """Return what a low layer costs that reads one channel more, and what it takes to put that there."""
        data, weight, *others = work.inputs
        more = math.prod((data[0], *data[2:]))
        wide = (data[0], data[1] + 1, *data[2:])
        twin = work._replace(
            multiply_adds=work.multiply_adds // data[1] * wide[1],
            elements=work.elements + more + math.prod(weight) // weight[1],
            channels=wide[1],
            inputs=(wide, (weight[0], wide[1], *weight[2:]), *others),
        )
        # Two copies, which take about as long as a cast of what they write.
        moved = self._model.cast_microseconds(
            math.prod(wide), shape=wide, around=work.around, operators=work.operators, down=True
        )
        return self._kernel(self._names[head], twin, low=True) + moved

    def reorder(self, position: int) -> float:
        """Return how much longer an FP32 node takes because it finds blocks of channels."""
        work = self._works[position]
        if work is None or not work.is_blocked:
            return 0.0
        name = self._names[position]
        found = work._replace(is_blocked=False, arrives_in=(PLAIN, PLAIN))
        plain = self._kernel(name, found, low=False)
        return max(0.0, self._kernel(name, work, low=False) - plain)

    def convolved(self, position: int) -> Sequence[float]:
        """Return what a low BatchNorm costs as a depthwise convolution, for those that become one.

        Where it reads plain tensors, the convolution has to bring them into blocks first, and gains nothing.
        """
        node, work = self._graph.nodes[position], self._works[position]
        if work is None or len(work.output) != _IMAGE or set(self._graph.uses[position]) - {0}:
            return ()
        if not work.finds_blocks(low=True):
            return ()
        layer = depthwise_of(self._names[position], node.attrs, work.output[1])
        if layer is None:
            return ()
        op, attributes = layer
        return (self._kernel(op, as_depthwise(work, attributes), low=True),)


_ATTRIBUTES = Work._fields.index("attributes")

_IMAGE = 4
"""What has so many axes may become a convolution (:mod:`mxamp.passes.convolve_batch_norm`)."""


def _nanoseconds(microseconds: float) -> int:
    return round(microseconds * _NANOSECONDS)
