"""Let pooling read plain planes where it would read an order that it has no kernel for."""

from __future__ import annotations

import math
from typing import Callable

from mxamp.graph.graph import Entry
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST, integers, is_true
from mxamp.passes.edit import GraphEdit
from mxamp.passes.images import KEEPS_RANK
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.state import State
from mxamp.targets.layout import KEEP_LAYOUT

_BLOCK = 16
"""The channels of a block in oneDNN's layouts for AVX-512."""

_IMAGE = 4

_LARGE_PLANE = 1 << 14
"""Values of a plane from which on a block of float32 planes takes 1 MiB, and pooling of plain order is slow
as well."""

_MANY_IMAGES = 8
"""Of so many a Concat was never seen to keep small blocks; of up to three it was, for every other shape."""

_SMALLEST_BLOCK = 4
"""Of a grouped Convolution. Its pooling has no kernel for it, in no dtype."""

_JOINS = "Concat"

_KEEP_BLOCKS = KEEP_LAYOUT - {_JOINS, "Pooling"}
"""What hands small blocks on; pooling is to find none."""


class PlainForPooling(NodeRewrite):
    """Put a Reshape before a pooling of channels in blocks of four, or put together of parts of no blocks.

    Before::

        x (24 channels), y (216) -> Concat [-> elemwise_add -> Activation] -> Pooling
        x -> Convolution {num_filter: 64, num_group: 16} -> Pooling {global_pool: True}

    After::

        x, y -> Concat [-> elemwise_add -> Activation] -> Reshape {shape: (0, 0, 0, -1)} -> Pooling
        x -> Convolution {num_filter: 64, num_group: 16} -> Reshape -> Pooling {global_pool: True}

    Refuses: channels last; what is certainly no image; a node that a rule of the user's picks; targets that
    do not name the pass; the bodies of control flow. Of channels that were put together: where every part is
    whole blocks of 16 channels, or does not say how many it has; global pooling where none is of eight, or of
    eight images and more; planes of 16,384 values and more, or of unknown size. Of groups: where channels and
    filters of one have no factor of four, or one of eight
    (:class:`mxamp.passes.plain_for_low_pooling.PlainForLowPooling`).

    Notes
    -----
    Why: oneDNN's Concat keeps blocks that are smaller than 16 channels, sums and activations keep what they
    read, and for that order its pooling looks up value by value. In ShuffleNet v1 one pooling, of 240
    channels of 28 x 28, takes 8.4 of 15.6 ms in float32 and 9.6 of 14.3 in bfloat16, and behind a Reshape,
    which brings it into plain order, 0.2 with that: the network takes 7.0 ms in float32 and 4.8 in bfloat16;
    of eight images 85 instead of 177 ms, and 64 instead of 189 (AMD EPYC with avx512_bf16, one thread).

    Global pooling is as slow, but where there is a kernel so much shorter than a copy that only a few images
    with a layer in blocks of eight are copied: 8 and 8 channels of 56 x 56 take 1.6 ms, and 0.06 with the
    Reshape, 24 and 24 take 0.05, and 0.16 with it (an Intel Xeon with avx512_bf16, one thread, float32).

    A grouped Convolution writes blocks of as many channels as a group fills, down to four. Of 64 channels in
    groups of four, 56 x 56, the mean takes 3.6 ms in float32 and 3.7 in bfloat16, and a maximum over 3x3 10.3
    and 12.5; in plain order 0.12, and 0.15 (AMD EPYC of family 26, one thread).

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
        if node.attrs.get("layout", "None") not in CHANNELS_FIRST or source.node not in state.images:
            return None
        is_global = is_true(node.attrs, "global_pool", default=False)
        parts = _with_half_a_block if is_global else _with_parts_of_blocks
        is_joined = (
            shape is not None
            and shape[2] * shape[3] < _LARGE_PLANE
            and not (is_global and shape[0] >= _MANY_IMAGES)
            and source.node in state.once(parts)
        )
        if not is_joined and block_of_group(state, source) != _SMALLEST_BLOCK:
            return None
        read_plain(edit, position, shape)
        return "reads plain planes, for it has no kernel for blocks of so few channels"


def read_plain(edit: GraphEdit, position: int, shape: tuple[int, ...] | None) -> Entry:
    """Put in the Reshape through which a pooling reads plain planes, and return it.

    Parameters
    ----------
    edit
        What the graph is changed by.
    position
        The pooling.
    shape
        The shape of the image that it reads; None where that is not known.
    """
    node = edit.node(Entry(position))
    plain = edit.part(position, "Reshape", "plain", node.inputs[0], like=shape, shape="(0, 0, 0, -1)")
    edit.replace(position, node._replace(inputs=(plain, *node.inputs[1:])))
    return plain


def block_of_group(state: State, entry: Entry) -> int | None:
    """Return how many channels are in a block of what a grouped Convolution wrote; None where it did not.

    Parameters
    ----------
    state
        What is known of the graph.
    entry
        An image. What keeps an image's order may stand behind the Convolution.
    """
    graph = state.graph
    while True:
        node = graph.nodes[entry.node]
        op = FACTS.canonical(node.op)
        if op == "Convolution":
            break
        if op not in _KEEP_BLOCKS or not node.inputs or entry.output:
            return None
        entry = node.inputs[0]
    weight = state.usual_shape(node.inputs[1])
    groups = integers(node.attrs.get("num_group", "")) or (1,)
    if weight is None or len(weight) != _IMAGE or groups[0] == 1 or weight[1] == 1:
        return None
    both = math.gcd(weight[1], weight[0] // groups[0])
    return next((block for block in (_BLOCK, _BLOCK // 2, _SMALLEST_BLOCK) if both % block == 0), None)


def _with_parts_of_blocks(state: State) -> frozenset[int]:
    """Return the nodes that may hand on the order of channels put together of no whole blocks."""
    return _behind_joined(state, lambda channels: channels % _BLOCK != 0)


def _with_half_a_block(state: State) -> frozenset[int]:
    """Return the nodes that may hand on the order of channels put together with eight."""
    return _behind_joined(state, lambda channels: channels == _BLOCK // 2)


def _behind_joined(state: State, is_partial: Callable[[int], bool]) -> frozenset[int]:
    channels_of = state.image_origins.channels_of
    found: set[int] = set()
    for position, node in enumerate(state.graph.nodes):
        op = FACTS.canonical(node.op)
        if op in KEEPS_RANK and (
            any(read.node in found for read in node.inputs)
            or (op == _JOINS and any(is_partial(channels_of(part) or 0) for part in node.inputs))
        ):
            found.add(position)
    return frozenset(found)
