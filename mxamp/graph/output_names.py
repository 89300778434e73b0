"""Names of outputs, as MXNet derives them from the names of nodes.

``Symbol.list_outputs`` joins the node's name with the operator's own name for the output
(nnvm's ``Symbol::ListOutputNames``): ``fc0`` gives ``fc0_output``, and an operator with several outputs
gives ``split0_output0``, ``split0_output1`` unless it names them itself (``FListOutputNames``).
"""

from __future__ import annotations

from typing import Mapping

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS

_SUFFIX = "_output"
"""What MXNet appends to the name of a cast."""


def output_name(graph: Graph, entry: Entry) -> str:
    """Return MXNet's name of an entry, were it a graph output."""
    node = graph.nodes[entry.node]
    if node.is_variable:
        return node.name
    facts = FACTS.of(node.op, node.attrs)
    if facts is not None:
        return f"{node.name}_{facts.output_name(entry.output, node.num_outputs)}"
    return f"{node.name}_output" if node.num_outputs == 1 else f"{node.name}_output{entry.output}"


def output_names(graph: Graph) -> tuple[str, ...]:
    """Return the names of the graph's outputs, in order."""
    return tuple(output_name(graph, head) for head in graph.heads)


def cast_names(graph: Graph) -> Mapping[Entry, str]:
    """Return what a cast behind each graph output must be called, so that the output keeps its name.

    The output of a cast is called ``<cast>_output``, so a cast can carry every name that ends so: behind
    ``fc0`` it is called ``fc0``, and behind an RNN's second output, ``rnn0_state_output``, ``rnn0_state``.
    The node itself gets another name, so either all outputs of a node can be cast or none can.

    Returns
    -------
    dict
        Entry -> name. Without variables, and without the nodes of which an output has a name like
        ``split0_output1`` or ``norm0_mean``, has another dtype than the others, or would need a cast whose
        name is taken.
    """
    taken = {node.name for node in graph.nodes}
    found: dict[Entry, str] = {}
    by_node: dict[int, list[Entry]] = {}
    for head in dict.fromkeys(graph.heads):
        by_node.setdefault(head.node, []).append(head)
    for position, heads in by_node.items():
        node = graph.nodes[position]
        names = [output_name(graph, head) for head in heads]
        if node.is_variable or not all(name.endswith(_SUFFIX) for name in names):
            continue
        casts = [name[: -len(_SUFFIX)] for name in names]
        others = [name for name in casts if name != node.name]
        if not taken.isdisjoint(others) or not (len(heads) == 1 or _is_of_one_dtype(node, heads)):
            continue
        taken.update(others)
        found.update(zip(heads, casts))
    return found


def _is_of_one_dtype(node: Node, outputs: list[Entry]) -> bool:
    """Whether some outputs of a node have the dtype it computes in."""
    facts = FACTS.of(node.op, node.attrs)
    if facts is None:
        return False
    dtypes = facts.output_dtypes(node.attrs, DType.FLOAT16, node.num_outputs)
    return all(dtypes[entry.output] is DType.FLOAT16 for entry in outputs)
