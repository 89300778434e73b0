"""A graph as it would be without its casts."""

from __future__ import annotations

from dataclasses import replace

from mxamp.graph.graph import Entry, Graph
from mxamp.ops.casts import AMP_CAST


def without_casts(graph: Graph) -> Graph:
    """Return the graph in which what a cast reads is read in its place, and the cast reads nothing."""
    instead: dict[Entry, Entry] = {}
    for position, node in enumerate(graph.nodes):
        if node.op == AMP_CAST and node.inputs:
            instead[Entry(position)] = instead.get(node.inputs[0], node.inputs[0])
    if not instead:
        return graph
    nodes = [
        node._replace(
            inputs=() if node.op == AMP_CAST else tuple([instead.get(entry, entry) for entry in node.inputs])
        )
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(nodes), heads=tuple([instead.get(head, head) for head in graph.heads]))
