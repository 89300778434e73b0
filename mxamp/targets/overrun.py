"""1x1 convolutions that write beyond their memory, where oneDNN 2.4 computes bfloat16 with AMX.

It cuts the pixels of an output into tiles of the largest size up to 16 that leaves none over. Where that
makes three tiles (36 pixels are 3 times 12, 48 are 3 times 16) and channels fill whole blocks, it writes a
fourth. Values are right, and what lies behind them in memory is gone: MXNet ends sooner or later, within
malloc or free. Seen, with glibc's checks of the heap, for every such size from 27 to 48 pixels and for no
other one, in one to three dimensions, at any batch size; strided, grouped and larger kernels are right.
"""

from __future__ import annotations

import math
from typing import Mapping, Sequence

from mxamp.graph.graph import Graph
from mxamp.measuring.machine import AMX
from mxamp.ops.attributes import integers
from mxamp.targets.target import Target
from mxamp.targets.work import Shapes

WHY_OVERRUNS = "oneDNN writes beyond the memory of a 1x1 convolution of so many pixels, with AMX"

_LARGEST_TILE = 16

_TILES = 3

_CHANNELS, _FILTERS = 32, 16
"""Blocks that are filled where its kernel for AMX is taken."""


def overrunning(
    graph: Graph, names: Sequence[str], shapes: Shapes | None, target: Target
) -> Mapping[str, str]:
    """Return the nodes that must not compute in bfloat16 on a target, each with why.

    Parameters
    ----------
    graph
        The graph.
    names
        The canonical operator name of every node.
    shapes
        For every node the shape of each output; where they are not known, nothing is.
    target
        The target; without AMX nothing overruns.
    """
    if shapes is None or AMX not in target.needs:
        return {}
    found = {}
    for node, name, outputs in zip(graph.nodes, names, shapes):
        if name != "Convolution" or not outputs or outputs[0] is None:
            continue
        weight = shapes[node.inputs[1].node][node.inputs[1].output]
        if weight is not None and _overruns(node.attrs, weight, outputs[0]):
            found[node.name] = WHY_OVERRUNS
    return found


def _overruns(attrs: Mapping[str, str], weight: tuple[int, ...], output: tuple[int, ...]) -> bool:
    filters, channels, *kernel = weight
    is_plain = max(integers(attrs.get("stride", "")) or (1,)) == 1 and attrs.get("num_group", "1") == "1"
    if not is_plain or math.prod(kernel) != 1 or channels % _CHANNELS or filters % _FILTERS:
        return False
    pixels = math.prod(output[2:])
    tile = max(size for size in range(1, _LARGEST_TILE + 1) if pixels % size == 0)
    return pixels == _TILES * tile
