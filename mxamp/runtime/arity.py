"""Check a graph before MXNet reads it: whether nodes have the inputs and outputs that their operators have.

MXNet checks neither when it loads a symbol, and reads memory that is not its own as soon as it infers shapes
or lists the outputs of such a graph; the process ends there. It does know the numbers, and tells them where a
node is made through its Python interface.
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any, Mapping

from mxamp.errors import GraphError, OperatorError
from mxamp.graph.control_flow import body_inputs, graphs_within
from mxamp.graph.graph import Graph, Node
from mxamp.ops.attributes import integers
from mxamp.ops.control_flow import CONTROL_FLOW
from mxamp.ops.rounding import ROUND_BOTH_WAYS
from mxamp.runtime.mxnet import import_mxnet

_OLDEST_COMPLETE = 1000
"""Before this version (0.10) symbols did not list all inputs, and MXNet adds them when it loads one."""

_INTERNAL = re.compile(r"backward|_update|^(_copyto|_Native|_NDArray|_onehot_encode)$|_element_0index$")
"""Operators that MXNet makes for itself, or that train: nothing checks them; two hold addresses of memory."""

_FUSED = re.compile(r"_sg_|_CachedOp$|_FusedOp$")
"""Operators that hold a subgraph."""

_REMEMBERED = 4096


def check_arity(graph: Graph) -> None:
    """Check the number of inputs and outputs of every node, in control-flow bodies too.

    Raises
    ------
    GraphError
        Naming the node, when it has another number of inputs than its operator, when an output is read that
        it does not have, or when the operator has no place in a saved model.
    """
    complete = _is_complete(graph)
    for top in graphs_within(graph):
        outputs = _read_outputs(top)
        for position, node in enumerate(top.nodes):
            if not node.is_variable:
                _check_node(node, outputs[position], complete=complete)


def _is_complete(graph: Graph) -> bool:
    version: Any = graph.attrs.get("mxnet_version")
    known: bool = isinstance(version, list) and len(version) == 2 and isinstance(version[1], int)
    return known and bool(version[1] >= _OLDEST_COMPLETE)


def _read_outputs(graph: Graph) -> list[int]:
    """Return for every node how many outputs it must have for those that are read to be there."""
    read = [1] * len(graph.nodes)
    for entries in (*(node.inputs for node in graph.nodes), graph.heads):
        for producer, index in entries:
            if index >= read[producer]:
                read[producer] = index + 1
    return read


def _check_node(node: Node, read: int, *, complete: bool) -> None:
    if _INTERNAL.search(node.op):
        raise GraphError(
            f"{node} is no operator that a saved model can hold: MXNet makes such nodes for itself and for "
            "training, and crashes on others. Export the model again."
        )
    if node.op in CONTROL_FLOW:
        found: tuple[int, int] | None = _control_flow_arity(node)
    elif node.op == ROUND_BOTH_WAYS:
        found = _subgraph_arity(node)
    elif node.subgraphs:
        return  # what MXNet's backends fused counts in its subgraph, without which MXNet crashes
    elif _FUSED.match(node.op):
        raise GraphError(
            f"{node} is what a backend of MXNet's fused, and its subgraph is missing. MXNet would not "
            "notice, and crash. Export the model again."
        )
    else:
        found = _arity(node.op, tuple(sorted(node.attrs.items())))
    if found is None:
        return  # MXNet will say what it does not like
    inputs, outputs = found
    count = len(node.inputs)
    if count > inputs or (count < inputs and complete):
        raise GraphError(
            f"{node} reads {count} entries, and with its attributes the operator has {inputs} inputs. MXNet "
            "would not notice, and crash. Export the model again."
        )
    if read > outputs:
        raise GraphError(
            f"Output {read - 1} of {node} is read, and with its attributes the operator has {outputs}. MXNet "
            "would not notice, and crash. Export the model again."
        )


def _control_flow_arity(node: Node) -> tuple[int, int]:
    """Return the inputs and outputs of a control-flow node as its attributes count them."""
    bodies = len(CONTROL_FLOW[node.op].locations)
    counts = []
    for attribute in ("num_args", "num_outputs"):
        found = integers(node.attrs.get(attribute, ""))
        if found is None or len(found) != 1:
            raise OperatorError(
                f"{node} has the attribute {attribute}={node.attrs.get(attribute)!r:.80}: no number."
            )
        counts.append(found[0])
    for number in range(bodies):
        given, wanted = len(body_inputs(node, number)), len(node.subgraphs[number].input_order())
        if given != wanted:
            raise OperatorError(f"{node} gives its body {number} {given} inputs, and the body has {wanted}.")
    # It counts its bodies among its arguments.
    return counts[0] - bodies, counts[1]


def _subgraph_arity(node: Node) -> tuple[int, int]:
    """Return the inputs and outputs of a node that MXNet counts in its subgraph."""
    if len(node.subgraphs) != 1:
        raise GraphError(
            f"{node} has {len(node.subgraphs)} subgraphs, and MXNet reads one without looking whether it is "
            "there. Emulate the model again."
        )
    (body,) = node.subgraphs
    return len(body.variables), len(body.heads)


@functools.lru_cache(maxsize=_REMEMBERED)
def _arity(op: str, attrs: tuple[tuple[str, str], ...]) -> tuple[int, int] | None:
    """Return how many inputs and visible outputs MXNet gives such a node, or None when it makes none."""
    mx = import_mxnet()
    node: Mapping[str, Any] = {"op": op, "name": "n", "attrs": dict(attrs), "inputs": []}
    # Without a version MXNet takes it for a file of before 0.9, and prints that it upgrades it.
    version = {"mxnet_version": ["int", 10901]}
    document = {"nodes": [node], "arg_nodes": [], "heads": [[0, 0, 0]], "attrs": version}
    try:
        made = mx.sym.load_json(json.dumps(document, ensure_ascii=False))(
            name="n"
        )  # adds a variable for each input
        inputs = len(made.list_inputs())
        return inputs, len(made.get_internals().list_outputs()) - inputs
    except mx.base.MXNetError:
        return None
