"""Whether a graph draws numbers: equal inputs make other outputs in another forward pass."""

from __future__ import annotations

from mxamp.graph.control_flow import graphs_within
from mxamp.graph.graph import Graph
from mxamp.ops.drawn import draws_numbers


def graph_draws(graph: Graph) -> bool:
    """Return whether a node of the graph, or of a body within it, draws numbers."""
    return any(draws_numbers(node.op, node.attrs) for top in graphs_within(graph) for node in top.nodes)
