"""What nobody reads any more once others read something else."""

from __future__ import annotations

from typing import Callable, Mapping

from mxamp.graph.graph import Entry, Graph, Node
from mxamp.passes.state import State


def left_unread(
    graph: Graph, state: State, instead: Mapping[Entry, Entry], goes: Callable[[Node], bool]
) -> list[int]:
    """Return the operators that lose all their readers, and then those that only such read.

    Parameters
    ----------
    graph, state
        The graph, before anything is changed.
    instead
        Outputs of nodes that go -> what is read in their place.
    goes
        Whether a node may go. One that nobody reads to begin with, a graph output, and one that a rule of the
        user's picks stay.

    Returns
    -------
    list of int
        Positions, readers before what they read. Linear in nodes and inputs.
    """
    gone = {entry.node for entry in instead}
    nodes = graph.nodes
    candidates = [
        position
        for position, node in enumerate(nodes)
        if not node.is_variable and position not in gone and graph.uses[position] and goes(node)
    ]
    found: list[int] = []
    if not candidates:
        return found
    readers = [0] * len(nodes)
    for position, node in enumerate(nodes):
        if position not in gone:
            for entry in node.inputs:
                readers[instead.get(entry, entry).node] += 1
            for dep in node.control_deps:
                readers[dep] += 1
    for head in graph.heads:
        readers[instead.get(head, head).node] += 1
    for position in reversed(candidates):
        if not readers[position] and not state.is_fixed(position):
            found.append(position)
            for entry in nodes[position].inputs:
                readers[instead.get(entry, entry).node] -= 1
    return found
