"""Let pooling in the low dtype read plain planes where it would read blocks that it has no kernel for."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST
from mxamp.passes.edit import GraphEdit
from mxamp.passes.plain_for_pooling import block_of_group, read_plain
from mxamp.passes.planned import PlannedPass
from mxamp.passes.state import Done, State

_FLOAT32_BLOCK = 8
"""Channels in a block of oneDNN's for AVX2, for which it pools float32 alone."""


class PlainForLowPooling(PlannedPass):
    """Put a Reshape before a pooling in the low dtype of channels that come in groups of eight.

    Before::

        x -> Convolution {num_filter: 64, num_group: 8} [-> Activation] -> Pooling

    After::

        x -> Convolution {num_filter: 64, num_group: 8} [-> Activation] -> Reshape -> Pooling

    Refuses: pooling in float32, and channels last; what no grouped Convolution wrote, or one whose groups
    have another number of channels than 8, 24, 40 and so on; a node that a rule of the user's picks.

    Notes
    -----
    Why: a grouped Convolution writes blocks of as many channels as a group fills. For blocks of eight oneDNN
    has a kernel that pools in float32, which is faster than in plain order. It has none for low dtypes, and
    looks up value by value: of 64 channels in groups of eight, 56 x 56, the mean takes 3.8 ms in bfloat16,
    and 0.12 in plain order, a maximum over 3x3 12.6 and 0.13 (AMD EPYC of family 26, one thread). So it waits
    for the plan. Blocks of four are slow in either (:mod:`mxamp.passes.plain_for_pooling`).

    Bit-exact. Linear in nodes.
    """

    step = "plain_for_low_pooling"

    def run(self, state: State) -> Done | None:
        """Return the graph in which such pooling reads plain planes."""
        graph, plan = state.graph, self.plan(state)
        edit = GraphEdit(graph, state.params)
        decisions, records = {}, []
        for position, node in enumerate(graph.nodes):
            decision = plan.decisions[position]
            if FACTS.canonical(node.op) != "Pooling" or decision is None or state.is_fixed(position):
                continue
            dtype, source = decision.inputs[0], node.inputs[0]
            if (
                dtype in (None, DType.FLOAT32)
                or node.attrs.get("layout", "None") not in CHANNELS_FIRST
                or block_of_group(state, source) != _FLOAT32_BLOCK
            ):
                continue
            plain = read_plain(edit, position, state.usual_shape(source))
            decisions[plain.node] = decision._replace(inputs=(dtype,), outputs=(dtype,), attrs=())
            reason = (
                "a Reshape before it brings plain order, for in low dtypes it has no kernel for blocks of 8"
            )
            records.append(self.changed(state, position, reason))
        return Done(edit.finish(), tuple(records), decisions) if records else None
