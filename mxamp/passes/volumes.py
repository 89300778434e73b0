"""Which tensors MXNet keeps in the order that a layer of volumes wrote, through other shapes too."""

from __future__ import annotations

from mxamp.graph.graph import Graph
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers

_LAYERS = frozenset({"Convolution", "Deconvolution", "Pooling"})

_KEEP_ORDER = frozenset(
    {
        "Activation",
        "Dropout",
        "Flatten",
        "LeakyReLU",
        "Reshape",
        "_copy",
        "expand_dims",
        "relu",
        "sigmoid",
        "tanh",
    }
)
"""Operators that keep it, or may after other passes."""

_AXES = 3


def of_volumes(graph: Graph) -> frozenset[int]:
    """Return the nodes whose first output may lie in the order of a layer of volumes.

    Where a Reshape or a Flatten has given it another shape, MXNet 1.9.1 cannot transpose it, cast it or give
    it another shape: it asks oneDNN for a reorder that does not exist. Linear in nodes.
    """
    found: set[int] = set()
    for position, node in enumerate(graph.nodes):
        op = FACTS.canonical(node.op)
        is_layer = op in _LAYERS and len(integers(node.attrs.get("kernel", "")) or ()) == _AXES
        if is_layer or (op in _KEEP_ORDER and node.inputs and node.inputs[0].node in found):
            found.add(position)
    return frozenset(found)
