"""Control-flow operators: how the variables of a body correspond to the inputs of the node.

``_foreach`` lists, for its data, its states and what remains (loop invariants), which of the body's inputs
each one is; ``_while_loop`` and ``_cond`` list, for each of a body's inputs, which of the node's inputs it
is (src/operator/control_flow.cc, MXNet 1.9.1).
"""

from __future__ import annotations

from typing import Mapping, Sequence

from mxamp.errors import OperatorError
from mxamp.graph.graph import Graph, Node
from mxamp.ops.attributes import integers

CONTROL_FLOW = {
    "_foreach": ("",),
    "_while_loop": ("cond_input_locs", "func_input_locs"),
    "_cond": ("cond_input_locs", "then_input_locs", "else_input_locs"),
}
"""Operator -> the attribute that maps the inputs of each body; ``_foreach`` has a scheme of its own."""


def is_control_flow(node: Node) -> bool:
    """Whether the node runs bodies of its own."""
    return node.op in CONTROL_FLOW and bool(node.subgraphs)


def _locations(node: Node, attribute: str) -> tuple[int, ...]:
    text = node.attrs.get(attribute, "[]")
    found = integers(text)
    if found is None or min(found, default=0) < 0:
        raise OperatorError(
            f"{node} has the attribute {attribute}={text!r}, which is not a list of positions."
        )
    return found


def body_inputs(node: Node, number: int) -> Mapping[str, int]:
    """Return, for body ``number`` of a control-flow node: body variable name -> node input position.

    Raises
    ------
    OperatorError
        When the node's attributes point outside its inputs or the body's.
    """
    bodies = len(CONTROL_FLOW[node.op])
    if len(node.subgraphs) != bodies:
        raise OperatorError(f"{node} has {len(node.subgraphs)} bodies, and a {node.op} has {bodies}.")
    body = node.subgraphs[number]
    names = [body.nodes[position].name for position in body.input_order()]
    if node.op == "_foreach":
        inner = [
            place
            for attribute in ("in_data_locs", "in_state_locs", "remain_locs")
            for place in _locations(node, attribute)
        ]
        pairs = [(place, outer) for outer, place in enumerate(inner)]
    else:
        pairs = list(enumerate(_locations(node, CONTROL_FLOW[node.op][number])))
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
    dtype they entered it, and the data of ``_foreach`` is sliced outside our sight.
    """
    count = len(node.inputs)
    if node.op == "_foreach":
        varying = len(_locations(node, "in_data_locs")) + len(_locations(node, "in_state_locs"))
        return frozenset(range(varying, count))
    if node.op == "_while_loop":
        mapping = _locations(node, "func_input_locs")
        varying_places = _locations(node, "func_var_locs")
        return frozenset(range(count)) - {mapping[place] for place in varying_places if place < len(mapping)}
    # The bodies of a _cond run once; its first input is what the condition reads.
    return frozenset(range(count))


def graphs_within(graph: Graph) -> Sequence[Graph]:
    """Return the graph and every control-flow body in it, at any depth."""
    found = [graph]
    for top in found:  # grows while it is walked
        found.extend(top.bodies)
    return found
