"""Take apart what was fused for a backend before mxamp saw it."""

from __future__ import annotations

from typing import NamedTuple

from mxamp.graph.builder import GraphBuilder
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.ops.fused import is_fused


class Unfused(NamedTuple):
    """A graph in which nothing is fused.

    Attributes
    ----------
    graph
        The graph; the one that was given where nothing was.
    layers
        The names of the nodes that were taken apart.
    """

    graph: Graph
    layers: tuple[str, ...]


def unfused(graph: Graph) -> Unfused:
    """Return a graph with the nodes that fused ones were made of in their place.

    Parameters
    ----------
    graph
        The graph; never changed.

    Notes
    -----
    A fused node holds a body with a variable for each of its inputs, in their order. What was in the body
    keeps its name where that is free. A graph output keeps its name: the last node behind it takes that of
    the fused one. Linear in nodes.
    """
    layers = tuple([node.name for node in graph.nodes if _is_whole(node)])
    if not layers:
        return Unfused(graph, ())
    heads = {head.node for head in graph.heads}
    builder = GraphBuilder([node.name for node in graph.nodes])
    places: dict[Entry, Entry] = {}
    for position, node in enumerate(graph.nodes):
        inputs = tuple([places[entry] for entry in node.inputs])
        if _is_whole(node):
            (body,) = node.subgraphs
            name = node.name if position in heads else ""
            for output, entry in enumerate(_inlined(builder, body, inputs, name)):
                places[Entry(position, output)] = entry
            continue
        deps = tuple([places[Entry(dep)].node for dep in node.control_deps])
        place = builder.add(node._replace(inputs=inputs, control_deps=deps))
        places.update({Entry(position, output): Entry(place, output) for output in range(node.num_outputs)})
    return Unfused(
        builder.build([places[head] for head in graph.heads], graph.attrs, graph.head_versions), layers
    )


def _is_whole(node: Node) -> bool:
    """Whether a node is a fused one that says for each of its inputs what reads it."""
    return (
        is_fused(node.op, node.attrs)
        and len(node.subgraphs) == 1
        and len(node.subgraphs[0].input_order()) == len(node.inputs)
        and len(node.subgraphs[0].heads) == node.num_outputs
    )


def _inlined(builder: GraphBuilder, body: Graph, inputs: tuple[Entry, ...], name: str) -> list[Entry]:
    """Add the nodes of a body that reads these entries, and return what it returns.

    Its first output is called ``name``, if that is given.
    """
    places = {Entry(variable): entry for variable, entry in zip(body.input_order(), inputs)}
    for position, node in enumerate(body.nodes):
        if node.op == VARIABLE:
            continue
        is_named = name and position == body.heads[0].node
        place = builder.add(
            node._replace(
                name=name if is_named else builder.free_name(node.name),
                inputs=tuple([places[entry] for entry in node.inputs]),
                input_versions=(),
            )
        )
        places.update({Entry(position, output): Entry(place, output) for output in range(node.num_outputs)})
    return [places[head] for head in body.heads]
