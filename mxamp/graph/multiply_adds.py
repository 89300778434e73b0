"""How many multiply-adds a node does."""

from __future__ import annotations

from typing import Sequence, Tuple

from mxamp.graph.graph import Graph
from mxamp.ops import FACTS
from mxamp.ops.multiply_adds import multiply_adds_of

Shape = Tuple[int, ...]


def multiply_adds(graph: Graph, position: int, shapes: Sequence[tuple[Shape | None, ...]]) -> int | None:
    """Return the multiply-adds of one forward pass through a node.

    Parameters
    ----------
    graph
        The graph.
    position
        The node.
    shapes
        For every node, the shape of each output.

    Returns
    -------
    int or None
        None for operators that are not sums of products, and where a shape is not known.
    """
    node = graph.nodes[position]
    facts = FACTS.of(node.op, node.attrs)
    if facts is None or not facts.multiplies:
        return None
    inputs = [shapes[entry.node][entry.output] for entry in node.inputs]
    output = shapes[position][0]
    if output is None or any(shape is None for shape in inputs[:2]) or len(inputs) < 2:
        return None
    return multiply_adds_of(facts.name, node.attrs, inputs, output)
