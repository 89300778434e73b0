"""Control flow: how the variables of a body correspond to the inputs of the node that runs it."""

from __future__ import annotations

from typing import Mapping, Sequence

from mxamp.errors import OperatorError
from mxamp.graph.graph import Graph, Node
from mxamp.ops.control_flow import CONTROL_FLOW


def is_control_flow(node: Node) -> bool:
    """Whether the node runs bodies of its own."""
    return node.op in CONTROL_FLOW and bool(node.subgraphs)


def body_inputs(node: Node, number: int) -> Mapping[str, int]:
    """Return, for body ``number`` of a control-flow node: body variable name -> node input position.

    Raises
    ------
    OperatorError
        When the node's attributes point outside its inputs or the body's.
    """
    operator = CONTROL_FLOW[node.op]
    bodies = len(operator.locations)
    if len(node.subgraphs) != bodies:
        raise OperatorError(f"{node} has {len(node.subgraphs)} bodies, and a {node.op} has {bodies}.")
    body = node.subgraphs[number]
    names = [body.nodes[position].name for position in body.input_order()]
    try:
        pairs = operator.connections(node.attrs, number)
    except OperatorError as error:
        raise OperatorError(f"{node}: {error}") from None
    mapping = {}
    for place, outer in pairs:
        if place >= len(names) or outer >= len(node.inputs):
            raise OperatorError(
                f"{node} connects input {outer} of {len(node.inputs)} to input {place} of {len(names)} "
                f"of its body {number}, which does not exist."
            )
        mapping[names[place]] = outer
    return mapping


def invariant_inputs(node: Node) -> frozenset[int]:
    """Return the node inputs that hold the same value in every iteration.

    They alone may change their dtype at the boundary: the states of a loop must leave an iteration with the
    dtype they entered it, and the data of a loop is sliced outside our sight.
    """
    try:
        return frozenset(range(len(node.inputs))) - CONTROL_FLOW[node.op].varying(node.attrs)
    except OperatorError as error:
        raise OperatorError(f"{node}: {error}") from None


def graphs_within(graph: Graph) -> Sequence[Graph]:
    """Return the graph and every control-flow body in it, at any depth."""
    found = [graph]
    for top in found:  # grows while it is walked
        found.extend(top.bodies)
    return found
