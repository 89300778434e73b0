"""Which tensors oneDNN keeps in the blocked layout of three-dimensional convolutions.

Some operators run in low precision on every tensor but those (:attr:`OperatorSupport.volumes`).
"""

from __future__ import annotations

import re
from typing import Iterator, Sequence

from mxamp.graph.graph import Graph, Node

MAKE_BLOCKS = frozenset({"Convolution", "Deconvolution", "Pooling"})
"""The operators that write another order than the plain one of what lies in that."""

_KEEPS = frozenset(
    {
        "Activation",
        "BatchNorm",
        "BlockGrad",
        "Concat",
        "Dropout",
        "LeakyReLU",
        "Pooling",  # a global pooling may have no kernel
        "_copy",
        "amp_cast",
        "amp_multicast",
        "elemwise_add",
    }
)
"""oneDNN's operators hand on the layout they read; all others write plain tensors."""

WRITE_BLOCKS = frozenset({"Convolution", "Deconvolution"})
"""The operators that write blocks of channels, whatever they read."""

MAY_WRITE_BLOCKS = MAKE_BLOCKS | _KEEPS
"""The operators that may write another order than the plain one."""

KEEP_LAYOUT = _KEEPS - {"amp_cast", "amp_multicast"}
"""The operators whose readers find the layout that they themselves found; casts write plain tensors."""

READ_BLOCKS = frozenset(
    {
        "Activation",
        "BatchNorm",
        "Concat",
        "Convolution",
        "Deconvolution",
        "FullyConnected",
        "LRN",
        "LeakyReLU",
        "Pooling",
        "_copy",
        "amp_cast",
        "elemwise_add",
    }
)
"""oneDNN's operators, which read blocked layouts as they are."""

JOIN_LAYOUTS = frozenset({"Concat"})
"""Operators that keep the layout of all that they read; in DenseNet the first goes back through all before
it, and the last is a layer's."""

SUM_LAYOUTS = frozenset({"elemwise_add"})
"""Operators that take the layout of whichever input is not plain: MXNet makes a sum a part of the layer that
writes one of them, and oneDNN's own goes by the first in blocks."""

WRITE_OVER = frozenset(
    {
        *("broadcast_add", "broadcast_div", "broadcast_maximum", "broadcast_minimum", "broadcast_mul"),
        *("broadcast_sub", "elemwise_div", "elemwise_mul", "elemwise_sub", "_maximum", "_minimum"),
        *("_div_scalar", "_maximum_scalar", "_minimum_scalar", "_minus_scalar", "_mul_scalar"),
        *("_plus_scalar", "_power_scalar", "_rdiv_scalar", "_rminus_scalar"),
        *("abs", "erf", "exp", "hard_sigmoid", "log", "negative", "relu", "sigmoid", "softsign", "sqrt"),
        *("square", "tanh", "softmax", "log_softmax", "LayerNorm"),
    }
)
"""Operators that MXNet lets write over what they read where nothing reads that behind them. They compute in
plain order, and what lay there in another is brought back into that: their reader finds the layer's."""

_SMALLEST_BLOCK = 8
"""Channels."""

_LOOK_BACK = 32
"""How many nodes are looked at for a layout; nothing but operators that keep it stand in between."""


def layout_writers(graph: Graph, position: int) -> Iterator[int]:
    """Yield the layers in whose layout a node may write; none where that is certainly the plain order."""
    ahead, seen = [position], {position}
    while ahead and len(seen) < _LOOK_BACK:
        at = ahead.pop()
        if graph.nodes[at].op in WRITE_BLOCKS:
            yield at
        for source in reversed(layout_sources(graph, at)):
            if source not in seen:
                seen.add(source)
                ahead.append(source)


def layout_writer(graph: Graph, position: int) -> int | None:
    """Return the first of the layers in whose layout a node may write; None where there is none."""
    return next(layout_writers(graph, position), None)


def lies_in_layout(graph: Graph, position: int) -> bool:
    """Return whether what a node writes lies in the order of a layer, unless its kernel is another one.

    So does what is written over such, where nothing else reads that.
    """
    while graph.nodes[position].op in WRITE_OVER:
        (position, _), *_ = graph.nodes[position].inputs
    return any(not writes_plain(graph.nodes[layer]) for layer in layout_writers(graph, position))


def writes_plain(node: Node) -> bool:
    """Return whether a layer writes plain order, in FP32 as in low dtypes: its filters fill no block of any.

    Layers in groups write blocks nevertheless (:func:`mxamp.targets.image_layout.layer_layout`).
    """
    filters = node.attrs.get("num_filter", "")
    is_whole = not filters.isdigit() or int(filters) % _SMALLEST_BLOCK == 0
    return not is_whole and node.attrs.get("num_group", "1") == "1"


def layout_sources(graph: Graph, position: int) -> Sequence[int]:
    """Return the nodes whose layout one may hand on: that of the first which is not plain.

    There are none for layers, and for what writes plain order.
    """
    node = graph.nodes[position]
    if not node.inputs or not (node.op in KEEP_LAYOUT or is_fused_clip(graph, position)):
        return ()
    if node.op in SUM_LAYOUTS:
        return tuple([entry.node for entry in node.inputs])
    return (node.inputs[-1 if node.op in JOIN_LAYOUTS else 0].node,)


def clips_from_zero(node: Node) -> bool:
    """Return whether MXNet makes a clip a part of the layer before it: a relu with an upper bound."""
    try:
        return float(node.attrs["a_min"]) == 0.0
    except (KeyError, ValueError):
        return False


def is_fused_clip(graph: Graph, position: int) -> bool:
    """Return whether a node is a clip that MXNet makes a part of the layer before it."""
    node = graph.nodes[position]
    if node.op != "clip" or not node.inputs or not clips_from_zero(node):
        return False
    before = node.inputs[0].node
    return graph.nodes[before].op in (*WRITE_BLOCKS, "BatchNorm") and len(graph.uses[before].get(0, ())) == 1


def kernel_axes(node: Node) -> int:
    """Return how many axes a kernel has, of which a strange file may say more digits than a number has."""
    return len(re.findall(r"\d+", node.attrs.get("kernel", "")))


def read_volumes(graph: Graph, names: Sequence[str]) -> frozenset[int]:
    """Return the nodes that may read what a three-dimensional convolution or pooling wrote, in its layout.

    Parameters
    ----------
    graph
        The graph.
    names
        The canonical operator name of every node.

    Notes
    -----
    Read off the kernels, so no shapes are needed. Linear in nodes and uses.
    """
    written = {
        position
        for position, op in enumerate(names)
        if op in MAKE_BLOCKS and kernel_axes(graph.nodes[position]) == 3
    }
    if not written:  # most networks are of images
        return frozenset()
    readers: set[int] = set()
    for position, node in enumerate(graph.nodes):
        if any(entry.node in written for entry in node.inputs):
            readers.add(position)
            if names[position] in _KEEPS:
                written.add(position)
    return frozenset(readers)
