"""Which tensors have the shape that their readers ask for: MXNet infers it backwards."""

from __future__ import annotations

from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true
from mxamp.passes.equal_shapes import KEEP_SHAPE

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


def is_left_open(graph: Graph, entry: Entry) -> bool:
    """Return whether nothing but what reads an entry says how large it is."""
    node = graph.nodes[source_of_shape(graph, entry)]
    return not node.inputs and not node.is_variable and not has_a_size_of_its_own(node)
