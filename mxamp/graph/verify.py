"""The invariants of a graph, checked after every pass."""

from __future__ import annotations

from mxamp.errors import GraphError
from mxamp.graph.graph import VARIABLE, Graph

__all__ = ["verify_graph"]


def verify_graph(graph: Graph) -> None:
    """Check every invariant of a graph.

    Raises
    ------
    GraphError
        Naming the node and the entry, when an input or a head names no entry, a node does not come after
        what it reads, a variable reads something, or two variables share a name.
    """
    count = len(graph.nodes)
    output_counts = [node.num_outputs for node in graph.nodes]
    seen: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        for number, (producer, index) in enumerate(node.inputs):
            if not 0 <= producer < position:
                there = f"{graph.nodes[producer]}" if 0 <= producer < count else f"number {producer}"
                raise GraphError(
                    f"{node} at position {position} reads, as input {number}, {there}, "
                    "which does not come before it."
                )
            if not 0 <= index < output_counts[producer]:
                raise GraphError(
                    f"{node} reads, as input {number}, output {index} of {graph.nodes[producer]}, "
                    f"which has {output_counts[producer]}."
                )
        for dependency in node.control_deps:
            if not 0 <= dependency < position:
                raise GraphError(
                    f"{node} depends on node number {dependency}, which does not come before it."
                )
        if node.input_versions and len(node.input_versions) != len(node.inputs):
            raise GraphError(f"{node} has {len(node.inputs)} inputs and {len(node.input_versions)} versions.")
        if node.op == VARIABLE:
            if node.inputs:
                raise GraphError(f"The variable {node.name!r} reads {len(node.inputs)} entries.")
            if node.name in seen:
                raise GraphError(
                    f"Two variables are named {node.name!r}, at positions {seen[node.name]} and {position}."
                )
            seen[node.name] = position
        for body in node.subgraphs:
            verify_graph(body)
    if not graph.heads:
        raise GraphError("The graph returns nothing: it has no heads.")
    for number, (producer, index) in enumerate(graph.heads):
        if not (0 <= producer < count and 0 <= index < output_counts[producer]):
            raise GraphError(
                f"Head {number} names output {index} of node number {producer}, which is not there."
            )
