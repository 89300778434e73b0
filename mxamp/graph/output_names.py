"""Names of outputs, as MXNet derives them from the names of nodes.

``Symbol.list_outputs`` joins the node's name with the operator's own name for the output
(nnvm's ``Symbol::ListOutputNames``): ``fc0`` gives ``fc0_output``, and an operator with several outputs
gives ``split0_output0``, ``split0_output1`` unless it names them itself (``FListOutputNames``).
"""

from __future__ import annotations

from mxamp.graph.graph import Entry, Graph
from mxamp.ops import FACTS

__all__ = ["output_name", "output_names"]


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
