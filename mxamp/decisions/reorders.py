"""What the order of images costs around casts, which write plain order where layers keep blocks of channels.

A layer that a cast stands before brings what it reads back into its order. What is FP32 in any case reads
plain order: it reorders blocks for itself, and then writes blocks over them, but finds plain order behind a
cast, and leaves that to its own readers.
"""

from __future__ import annotations

from typing import AbstractSet, NamedTuple, Sequence

from mxamp.decisions.pricing import Pricing
from mxamp.decisions.workload import Layout
from mxamp.graph.graph import Graph
from mxamp.ops.parameters import LAYERS


class Reorder(NamedTuple):
    """What a reader and the cast before it take longer for the order that they find, in microseconds.

    Attributes
    ----------
    writer, reader
        The node in whose order an image lies, and the one that reads it.
    up
        What it is where the writer is low and the reader FP32.
    down
        What it is where it is the other way around.
    """

    writer: int
    reader: int
    up: float
    down: float


def beside_casts(
    graph: Graph,
    pricing: Pricing,
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
        found_in = [_who_orders(entry.node, layouts) for entry in dict.fromkeys(node.inputs)]
        writers = [writer for writer in found_in if writer is not None and writer in choices]
        reorder = pricing.reorder(position) if writers else 0.0
        found[position] -= reorder
        for writer in writers:
            found[head.get(writer, writer)] += reorder / len(writers)
    return found


def _who_orders(position: int, layouts: Sequence[Layout | None]) -> int | None:
    """Return the node that is low or not, and with it the order that another hands on; None where plain."""
    layout = layouts[position]
    if layout is None:
        return None
    return position if layout.over is None else layout.over


def reorders(
    graph: Graph,
    pricing: Pricing,
    layouts: Sequence[Layout | None],
    choices: AbstractSet[int],
    fused: Sequence[tuple[int, ...]],
    groups: Sequence[tuple[int, ...]],
) -> Sequence[Reorder]:
    """Return what readers take longer where a cast wrote plain order, and casts where none did.

    Parameters
    ----------
    graph
        The graph.
    pricing
        What its chains and casts cost.
    layouts
        In which order every node writes images.
    choices
        The nodes that may be low.
    fused, groups
        The chains that run as one kernel in FP32, and where they are low.

    Notes
    -----
    Linear in nodes and entries.
    """
    in_float32, in_low = ({chain[0]: chain for chain in chains} for chains in (fused, groups))
    found = []
    for position, node in enumerate(graph.nodes):
        for number, entry in enumerate(dict.fromkeys(node.inputs)):
            writer = _who_orders(entry.node, layouts)
            if writer is None:
                continue
            up = down = 0.0
            if number == 0 and node.op in LAYERS:
                alone = (position,)
                up = pricing.behind_cast(in_float32.get(position, alone), low=False)
                if position in choices:
                    down = pricing.behind_cast(in_low.get(position, alone), low=True)
            if writer != entry.node and position in choices:
                # What is FP32 in any case is cast down to a low reader, whatever the writer is: out of the
                # blocks of one that is FP32. One cast serves all readers.
                readers = {use.node for use in graph.uses_of(entry)} & choices
                blocks, plain = (
                    pricing.cast(entry, down=True, is_plain=is_plain) for is_plain in (False, True)
                )
                down += max(0.0, blocks - plain) / len(readers)
            if up or down:
                found.append(Reorder(writer, position, up, down))
    return found
