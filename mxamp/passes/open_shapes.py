"""Which tensors have the shape that their readers ask for: MXNet infers it backwards."""

from __future__ import annotations

from typing import AbstractSet

from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true
from mxamp.ops.shapes.elementwise import BROADCASTING
from mxamp.passes.equal_shapes import KEEP_SHAPE

_TELL_EACH_OTHER = frozenset(
    {"Concat", "_grad_add", "add_n", "elemwise_add", "elemwise_div", "elemwise_mul", "elemwise_sub", "where"}
)
"""Operators that tell one input's size by another's."""

_FILLED = frozenset({"_zeros", "_zeros_without_dtype", "_ones", "_full", "_npi_zeros", "_npi_ones"})
"""Operators that fill as many values as an attribute says with one number."""


def has_a_size_of_its_own(node: Node) -> bool:
    """Whether the attributes of a node that reads nothing say how large its output is.

    MXNet takes a size of 0, or of -1, for one that it does not know yet, as of the first states of a
    recurrent layer, and infers it from what reads it; so it does with ``infer_range``.
    """
    if FACTS.canonical(node.op) in _FILLED:
        sizes = integers(node.attrs.get("shape", "")) or ()
        return bool(sizes) and all(size > 0 for size in sizes)
    return not is_true(node.attrs, "infer_range", default=False)


def source_of_shape(graph: Graph, entry: Entry) -> int:
    """Return the node whose shape an entry has, through operators that keep shapes."""
    position = entry.node
    while FACTS.canonical(graph.nodes[position].op) in KEEP_SHAPE and graph.nodes[position].inputs:
        position = graph.nodes[position].inputs[0].node
    return position


def left_open(graph: Graph) -> frozenset[int]:
    """Return the nodes of whose first output nothing but what reads it says how large it is.

    So are the first states of a recurrent layer, and what is made of them alone, as by a FullyConnected. A
    form of a node that MXNet tells no size through backwards must not read them. Linear in nodes and inputs.
    """
    found: set[int] = set()
    for position, node in enumerate(graph.nodes):
        if _is_left_open(node, found):
            found.add(position)
    return frozenset(found)


def _is_left_open(node: Node, found: AbstractSet[int]) -> bool:
    if not node.inputs:
        return not node.is_variable and not has_a_size_of_its_own(node)
    op, are_open = FACTS.canonical(node.op), [entry.node in found for entry in node.inputs]
    if op in _TELL_EACH_OTHER:
        return all(are_open)
    return any(are_open) if op in BROADCASTING else are_open[0]
