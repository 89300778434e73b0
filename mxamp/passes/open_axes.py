"""Which nodes may have other numbers of axes in other calls: those behind a squeeze of whatever is 1."""

from __future__ import annotations

from mxamp.graph.graph import Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true

_SQUEEZES = frozenset({"squeeze", "_np_squeeze"})

_SAY = frozenset({"Convolution", "Deconvolution", "Flatten", "Pooling"})
"""Have as many axes as they say, or none at all: MXNet refuses an input that does not suit them."""


def open_axes(graph: Graph) -> frozenset[int]:
    """Return the nodes whose numbers of axes depend on which axes of an input are 1.

    Of a batch of one a squeeze without axes takes the batch away, too, so what one call tells of it and of
    what comes behind it says nothing of the next.

    Parameters
    ----------
    graph
        The graph.

    Notes
    -----
    Linear in nodes and inputs.
    """
    found: set[int] = set()
    if not any(map(_squeezes_all, graph.nodes)):
        return frozenset()
    for position, node in enumerate(graph.nodes):
        op = FACTS.canonical(node.op)
        says = op in _SAY or (op == "FullyConnected" and is_true(node.attrs, "flatten", default=True))
        if _squeezes_all(node) or (not says and any(entry.node in found for entry in node.inputs)):
            found.add(position)
    return frozenset(found)


def _squeezes_all(node: Node) -> bool:
    return node.attrs.get("axis", "None") == "None" and FACTS.canonical(node.op) in _SQUEEZES
