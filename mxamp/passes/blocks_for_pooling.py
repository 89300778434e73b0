"""Let pooling read blocks of channels where it would read planes in plain order, and slowly."""

from __future__ import annotations

from typing import NamedTuple, Sequence

import numpy as np

from mxamp.decisions import Plan
from mxamp.decisions.workload import written_layouts
from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true
from mxamp.ops.equivalents import BLOCKS_FOR_POOLING, pools_value_by_value
from mxamp.params.parameter import ArrayParameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.images import depthwise
from mxamp.passes.planned import PlannedPass
from mxamp.passes.state import Done, State
from mxamp.targets.image_layout import PLAIN, WIDEST_BLOCK
from mxamp.targets.layout import KEEP_LAYOUT, WRITE_BLOCKS

_LARGE = 1 << 20
"""Bytes of so many planes as there are channels in a block, from which oneDNN's kernel for plain tensors is
one that computes value by value."""

_IMAGE = 4


class _Pool(NamedTuple):
    """A pooling over planes in plain order."""

    channels: int
    dtype: DType


class BlocksForPooling(PlannedPass):
    """Put a depthwise Convolution with ones before a pooling that would read planes in plain order.

    Before::

        cast -> Activation -> Pooling -> y

    After::

        cast -> Activation -> Convolution {num_group: channels}(ones) -> Pooling -> y

    Refuses: what a layer in the same dtype wrote, whose blocks arrive as they are; channels that are not
    known, or fill no blocks (of 16, without AVX-512 of 8); what is no image (four axes); where no shapes are
    known or assumed. With AVX-512 also global pooling, and planes of which 16 take less than 1 MiB; without,
    fewer values in all windows than 2^13, 2^14 for a mean and 2^17 for whole planes.

    Notes
    -----
    Why: a cast writes plain tensors, as do all operators that are not oneDNN's. For those oneDNN's pooling
    turns 16 planes at a time into blocks where they fit a core's cache, and else computes value by value: 32
    channels of 128 x 128 in float32, 3x3, take 29 ms in plain order, and 1.3 with the Convolution, which
    writes blocks (AMD EPYC, one thread). CenterNet looks for the peaks of its heat maps so. What reads a cast
    is only known once everything is decided.

    Without AVX-512 it computes all plain planes value by value: 64 channels of 56 x 56, 3x3, take 3.9 ms with
    stride 2 and 13.9 without, and 0.26 and 0.74 so; their means 1.3 and 0.13 (AMD EPYC of family 23, float32,
    one thread).

    Bit-exact: each value is multiplied by one and added to nothing, but the sign of a zero may differ. Linear
    in nodes.
    """

    step = BLOCKS_FOR_POOLING

    def run(self, state: State) -> Done | None:
        """Return the graph with blocks of channels."""
        graph, plan = state.graph, self.plan(state)
        layouts = None
        shapes = state.usual_shapes
        if state.target.block < WIDEST_BLOCK and shapes is not None:
            written = written_layouts(graph, shapes, block=state.target.block)
            layouts = [PLAIN if layout is None else layout.float32 for layout in written]
        found = {
            position: pool
            for position, node in enumerate(graph.nodes)
            if FACTS.canonical(node.op) == "Pooling"
            and not state.is_fixed(position)
            and node.inputs[0].node in state.images
            for pool in [_pool(state, plan, position, layouts)]
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
            shape = state.usual_shape(source)
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


def _pool(state: State, plan: Plan, position: int, layouts: Sequence[int] | None) -> _Pool | None:
    """Return what is to be done about a pooling; None where nothing is.

    Parameters
    ----------
    state, plan
        What is known of the graph.
    position
        The pooling.
    layouts
        The order that each node writes, where all is float32 and known; None where casts count too.
    """
    node = state.graph.nodes[position]
    source = node.inputs[0]
    shape, written = state.usual_shape(source), state.usual_shape(Entry(position))
    channels = state.image_origins.channels_of(source)
    decision = plan.decisions[position]
    dtype = None if decision is None else decision.inputs[0]
    if shape is None or len(shape) != _IMAGE or channels is None or dtype is None:
        return None
    if shape[1] != channels or channels % state.target.block:
        return None
    if layouts is not None:
        is_plain = layouts[source.node] == PLAIN
        is_slow = (
            is_plain and written is not None and pools_value_by_value("Pooling", node.attrs, shape, written)
        )
    else:
        is_large = state.target.block * shape[2] * shape[3] * dtype.itemsize >= _LARGE
        is_slow = is_large and not _is_global(node) and _is_plain(state, plan, position, source)
    return _Pool(channels, dtype) if is_slow else None


def _is_global(node: Node) -> bool:
    return is_true(node.attrs, "global_pool", default=False)


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
