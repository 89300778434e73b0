"""The invariants of a graph, checked after every pass."""

from __future__ import annotations

from mxamp.errors import GraphError
from mxamp.graph.graph import VARIABLE, Graph


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
        op, name, _, inputs, _, subgraphs, control_deps, versions = node
        for producer, index in inputs:
            if not (0 <= producer < position and 0 <= index < output_counts[producer]):
                raise GraphError(_input_fault(graph, position))
        for dependency in control_deps:
            if not 0 <= dependency < position:
                raise GraphError(
                    f"{node} depends on node number {dependency}, which does not come before it."
                )
        if versions and len(versions) != len(inputs):
            raise GraphError(f"{node} has {len(inputs)} inputs and {len(versions)} versions.")
        if op == VARIABLE:
            if inputs:
                raise GraphError(f"The variable {name!r} reads {len(inputs)} entries.")
            if name in seen:
                raise GraphError(
                    f"Two variables are named {name!r}, at positions {seen[name]} and {position}."
                )
            seen[name] = position
        for body in subgraphs:
            verify_graph(body)
    if not graph.heads:
        raise GraphError("The graph returns nothing: it has no heads.")
    for number, (producer, index) in enumerate(graph.heads):
        if not (0 <= producer < count and 0 <= index < output_counts[producer]):
            raise GraphError(
                f"Head {number} names output {index} of node number {producer}, which is not there."
            )


def _input_fault(graph: Graph, position: int) -> str:
    """Say what is wrong with the first input of a node that names no entry before it."""
    node, count = graph.nodes[position], len(graph.nodes)
    for number, (producer, index) in enumerate(node.inputs):
        if not 0 <= producer < position:
            there = f"{graph.nodes[producer]}" if 0 <= producer < count else f"number {producer}"
            return (
                f"{node} at position {position} reads, as input {number}, {there}, "
                "which does not come before it."
            )
        outputs = graph.nodes[producer].num_outputs
        if not 0 <= index < outputs:
            return (
                f"{node} reads, as input {number}, output {index} of {graph.nodes[producer]}, "
                f"which has {outputs}."
            )
    raise AssertionError(f"nothing is wrong with the inputs of {node}")
