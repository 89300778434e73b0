"""Let pooling read plain planes where it would read an order that it has no kernel for."""

from __future__ import annotations

from mxamp.graph.graph import Entry, Graph
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST, is_true
from mxamp.passes.edit import GraphEdit
from mxamp.passes.images import KEEPS_RANK, channels_of
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.state import State

_BLOCK = 16
"""The channels of a block in oneDNN's layouts for AVX-512."""

_LARGE_PLANE = 1 << 14
"""Values of a plane from which on a block of float32 planes takes 1 MiB, and pooling of plain order is slow
as well."""

_JOINS = "Concat"


class PlainForPooling(NodeRewrite):
    """Put a Reshape before a pooling whose channels were put together of parts that fill no blocks.

    Before::

        x (24 channels), y (216) -> Concat [-> elemwise_add -> Activation] -> Pooling

    After::

        x, y -> Concat [-> elemwise_add -> Activation] -> Reshape {shape: (0, 0, 0, -1)} -> Pooling

    Refuses: global pooling, and channels last; where every part is whole blocks of 16 channels, or does not
    say how many it has; what is certainly no image; planes of 16,384 values and more, or of unknown size; a
    node that a rule of the user's picks; targets that do not name the pass; the bodies of control flow.

    Notes
    -----
    Why: oneDNN's Concat keeps blocks that are smaller than 16 channels, sums and activations keep what they
    read, and for that order its pooling looks up value by value. In ShuffleNet v1 one pooling, of 240
    channels of 28 x 28, takes 8.4 of 15.6 ms in float32 and 9.6 of 14.3 in bfloat16, and behind a Reshape,
    which brings it into plain order, 0.2 with that: the network takes 7.0 ms in float32 and 4.8 in bfloat16;
    of eight images 85 instead of 177 ms, and 64 instead of 189 (AMD EPYC with avx512_bf16, one thread).

    Bit-exact. Linear in nodes and inputs.
    """

    step = "plain_for_pooling"
    operators = frozenset({"Pooling"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Put a Reshape before one pooling."""
        node = state.graph.nodes[position]
        source = node.inputs[0]
        shape = state.usual_shape(source)
        if (
            is_true(node.attrs, "global_pool", default=False)
            or node.attrs.get("layout", "None") not in CHANNELS_FIRST
            or source.node not in state.images
            or shape is None
            or shape[2] * shape[3] >= _LARGE_PLANE
            or not _has_parts_of_blocks(state.graph, source)
        ):
            return None
        plain = edit.part(position, "Reshape", "plain", source, like=shape, shape="(0, 0, 0, -1)")
        edit.replace(position, node._replace(inputs=(plain, *node.inputs[1:])))
        return "reads plain planes, for it has no kernel for blocks that were put together of smaller ones"


def _has_parts_of_blocks(graph: Graph, entry: Entry) -> bool:
    """Return whether an image may have the order of channels that were put together of no whole blocks."""
    waiting, seen = [entry], {entry}
    while waiting:
        node = graph.nodes[waiting.pop().node]
        op = FACTS.canonical(node.op)
        if op not in KEEPS_RANK:
            continue
        if op == _JOINS and any((channels_of(graph, part) or 0) % _BLOCK for part in node.inputs):
            return True
        for read in node.inputs:
            if read not in seen:
                seen.add(read)
                waiting.append(read)
    return False
