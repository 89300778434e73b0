"""The price of one chain after the other, and of the casts between them, in microseconds."""

from __future__ import annotations

import math
from typing import AbstractSet, Sequence

from mxamp.decisions.workload import BLOCKED_RANKS, Layout, as_depthwise, chain_work, with_bias
from mxamp.graph.graph import Entry, Graph
from mxamp.ops.equivalents import (
    depthwise_of,
    depthwise_of_ones,
    pools_value_by_value,
    reads_odd_channels,
)
from mxamp.targets import CostModel, Work
from mxamp.targets.image_layout import BLOCKS, PLAIN
from mxamp.targets.work import Shapes


class Pricing:
    """Prices the kernels and casts of one graph.

    Parameters
    ----------
    graph
        The graph.
    names
        The canonical operator name of every node.
    shapes
        For every node, the shape of each output.
    works, layouts
        What every node does, and in which order it writes images (:mod:`mxamp.decisions.workload`).
    folded
        Each BatchNorm that a layer takes into itself.
    model
        What operators cost.
    evens
        Whether a low layer of an odd number of channels reads one more.
    pools_blocks
        Whether planes in plain order are brought into blocks of channels before they are pooled, where they
        are pooled value by value otherwise.
    """

    def __init__(
        self,
        graph: Graph,
        names: Sequence[str],
        shapes: Shapes,
        works: Sequence[Work | None],
        layouts: Sequence[Layout | None],
        folded: AbstractSet[int],
        model: CostModel,
        *,
        evens: bool,
        pools_blocks: bool = False,
    ) -> None:
        self._graph, self._names, self._shapes = graph, names, shapes
        self._works, self._layouts, self._folded, self._model = works, layouts, folded, model
        self._evens, self._pools_blocks = evens, pools_blocks
        self._around = max((work.around for work in works if work is not None), default=0)
        self._operators = max((work.operators for work in works if work is not None), default=0)
        self._known: dict[tuple[object, ...], float] = {}

    def cast(self, entry: Entry, *, down: bool, is_plain: bool | None = None) -> float:
        """Return what casting an entry costs, where it lies in plain order or not, if so said.

        What is FP32 in any case hands plain order on where it finds that, behind a cast of its own.
        """
        layout = self._layouts[entry.node]
        shape = self._shapes[entry.node][entry.output]
        if layout is not None and (layout.is_cast_plain if is_plain is None else is_plain):
            layout = None
        order = PLAIN if layout is None else layout.float32 if down else layout.low
        is_blocked = layout is not None and len(shape or ()) in BLOCKED_RANKS
        key = (shape, order, is_blocked, down)  # few occur in a network, most of them often
        if key not in self._known:
            self._known[key] = self._model.cast_microseconds(
                0 if shape is None else math.prod(shape),
                shape=shape or (),
                is_blocked=is_blocked,
                arrives_in=order,
                around=self._around,
                operators=self._operators,
                down=down,
            )
        return self._known[key]

    def behind_cast(self, chain: tuple[int, ...], *, low: bool) -> float:
        """Return how much longer a chain takes because it finds plain order."""
        work = self._works[chain[0]]
        if work is None or work.arrives_in[low] == PLAIN:
            return 0.0
        return max(0.0, self._chain(chain, low=low, is_plain=True) - self.microseconds(chain, low=low))

    def microseconds(self, chain: tuple[int, ...], *, low: bool) -> float:
        """Return what a chain costs; one node is a chain too. Variables cost nothing."""
        key = (chain, low)
        if key not in self._known:
            self._known[key] = self._chain(chain, low=low, is_plain=False)
        return self._known[key]

    def _chain(self, chain: tuple[int, ...], *, low: bool, is_plain: bool) -> float:
        head = chain[0]
        if self._graph.nodes[head].is_variable:
            return 0.0
        ran = (head, *[position for position in chain[1:] if position not in self._folded])
        works = [self._works[position] for position in ran]
        if is_plain and works[0] is not None:
            works[0] = works[0]._replace(is_blocked=False, arrives_in=(PLAIN, PLAIN))
        if len(ran) < len(chain) and works[0] is not None:
            works[0] = with_bias(works[0])
        work = chain_work(self._graph, ran, self._shapes, works)
        curves = sum(self._curve(position, low=low) for position in chain[1:])
        if low and self._evens and work is not None and self._is_odd(head, work):
            return curves + self._evened(head, work)
        if not low and self._pools_blocks and work is not None and self._is_pooled_in_blocks(head, work):
            return curves + self._pooled_in_blocks(head, work)
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

    def _is_pooled_in_blocks(self, head: int, work: Work) -> bool:
        """Return whether blocks are made for a Pooling (:mod:`mxamp.passes.blocks_for_pooling`)."""
        return (
            len(work.inputs) == 1
            and work.arrives_in[False] == PLAIN
            and pools_value_by_value(self._names[head], work.attributes, work.inputs[0], work.output)
            and work.inputs[0][1] % work.block == 0
        )

    def _pooled_in_blocks(self, head: int, work: Work) -> float:
        """Return what a depthwise layer of ones costs, and pooling the blocks that it writes."""
        data, channels = work.inputs[0], work.inputs[0][1]
        op, attributes = depthwise_of_ones(channels)
        layer = as_depthwise(work._replace(output=data), attributes)._replace(
            has_bias=False, inputs=(data, (channels, 1, 1, 1)), elements=2 * math.prod(data) + channels
        )
        pooling = work._replace(is_blocked=True, arrives_in=(BLOCKS, work.arrives_in[True]))
        return self._kernel(op, layer, low=False) + self._kernel(self._names[head], pooling, low=False)

    def reorder(self, position: int) -> float:
        """Return how much longer an FP32 node takes because it finds blocks of channels."""
        work = self._works[position]
        if work is None or not work.is_blocked:
            return 0.0
        alone = (position,)
        plain = self._chain(alone, low=False, is_plain=True)
        return max(0.0, self.microseconds(alone, low=False) - plain)

    def convolved(self, position: int) -> Sequence[float]:
        """Return what a low BatchNorm costs as a depthwise convolution, for those that become one.

        Where it reads plain tensors, the convolution has to bring them into blocks first, and gains nothing.
        """
        node, work = self._graph.nodes[position], self._works[position]
        if work is None or len(work.output) != _IMAGE or set(self._graph.uses[position]) - {0}:
            return ()
        if not work.finds_blocks(low=True):
            return ()
        layer = depthwise_of(self._names[position], node.attrs, work.output[1], work.block)
        if layer is None:
            return ()
        op, attributes = layer
        return (self._kernel(op, as_depthwise(work, attributes), low=True),)


_ATTRIBUTES = Work._fields.index("attributes")

_IMAGE = 4
"""What has so many axes may become a convolution (:mod:`mxamp.passes.convolve_batch_norm`)."""
