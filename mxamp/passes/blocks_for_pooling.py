"""Let pooling read blocks of channels where it would read large planes in plain order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mxamp.decisions import Plan
from mxamp.dtypes import DType
from mxamp.graph.graph import Entry
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true
from mxamp.params.parameter import ArrayParameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.images import channels_of, depthwise
from mxamp.passes.planned import PlannedPass
from mxamp.passes.state import Done, State
from mxamp.targets.layout import KEEP_LAYOUT, WRITE_BLOCKS

_BLOCK = 16
_LARGE = 1 << 20
"""Bytes of so many planes as there are channels in a block, from which oneDNN's kernel for plain tensors is
one that computes value by value."""


class _Pool(NamedTuple):
    """A pooling over large planes in plain order."""

    channels: int
    dtype: DType


class BlocksForPooling(PlannedPass):
    """Put a depthwise Convolution with ones before a pooling that would read large planes in plain order.

    Before::

        cast -> Activation -> Pooling -> y

    After::

        cast -> Activation -> Convolution {num_group: channels}(ones) -> Pooling -> y

    Refuses: what a layer in the same dtype wrote, whose blocks arrive as they are; global pooling; planes of
    which 16 take less than 1 MiB; channels that are not known, or no multiple of 16; what is no image
    (four axes); where no shapes are known.

    Notes
    -----
    Why: a cast writes plain tensors, as do all operators that are not oneDNN's. For those oneDNN's pooling
    turns 16 planes at a time into blocks where they fit a core's cache, and else computes value by value: 32
    channels of 128 x 128 in float32, 3x3, take 29 ms in plain order, and 1.3 with the Convolution, which
    writes blocks (AMD EPYC, one thread). CenterNet looks for the peaks of its heat maps so. What reads a cast
    is only known once everything is decided.

    Bit-exact: each value is multiplied by one and added to nothing, but the sign of a zero may differ. Linear
    in nodes.
    """

    step = "blocks_for_pooling"

    def run(self, state: State) -> Done | None:
        """Return the graph with blocks of channels."""
        graph, plan = state.graph, self.plan(state)
        found = {
            position: pool
            for position, node in enumerate(graph.nodes)
            if FACTS.canonical(node.op) == "Pooling"
            and not is_true(node.attrs, "global_pool", default=False)
            and not state.is_fixed(position)
            and node.inputs[0].node in state.images
            for pool in [_pool(state, plan, position)]
            if pool is not None
        }
        if not found:
            return None
        edit = GraphEdit(graph, state.params)
        decisions, records = {}, []
        for position, pool in found.items():
            node, decision = graph.nodes[position], plan.decisions[position]
            assert decision is not None  # a Pooling is an operator
            ones = np.ones((pool.channels, 1, 1, 1), np.float32)
            weight = edit.add_parameter(f"{node.name}_ones", ArrayParameter(ones), before=position)
            source = node.inputs[0]
            blocks = depthwise(f"{node.name}_blocks", source, weight, pool.channels)
            shape = state.shape(source)
            entry = edit.insert(blocks, before=position, shapes=None if shape is None else (shape,))
            edit.replace(position, node._replace(inputs=(entry, *node.inputs[1:])))
            decisions[entry.node] = decision._replace(
                inputs=(pool.dtype,) * 2, outputs=(pool.dtype,), attrs=()
            )
            reason = (
                "a depthwise Convolution with ones before it writes blocks of channels, which pool faster"
            )
            records.append(self.changed(state, position, reason))
        return Done(edit.finish(), tuple(records), decisions)


def _pool(state: State, plan: Plan, position: int) -> _Pool | None:
    source = state.graph.nodes[position].inputs[0]
    shape, channels = state.shape(source), channels_of(state.graph, source)
    decision = plan.decisions[position]
    dtype = None if decision is None else decision.inputs[0]
    if shape is None or len(shape) != 4 or channels is None or channels % _BLOCK or dtype is None:
        return None
    if shape[1] != channels or _BLOCK * shape[2] * shape[3] * dtype.itemsize < _LARGE:
        return None
    return _Pool(channels, dtype) if _is_plain(state, plan, position, source) else None


def _is_plain(state: State, plan: Plan, reader: int, entry: Entry) -> bool:
    """Return whether a node reads a tensor in plain order: one that was cast, or that no layer wrote."""
    graph = state.graph
    while True:
        producer, decision = plan.decisions[entry.node], plan.decisions[reader]
        if producer is None or decision is None:
            return True
        number = graph.nodes[reader].inputs.index(entry)
        if decision.inputs[number] not in (None, producer.outputs[entry.output]):
            return True
        op = FACTS.canonical(graph.nodes[entry.node].op)
        if op in WRITE_BLOCKS:
            return False
        if op not in KEEP_LAYOUT:
            return True
        reader, entry = entry.node, graph.nodes[entry.node].inputs[0]
