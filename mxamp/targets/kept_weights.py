"""Layers whose weights MXNet 1.9.1's oneDNN fusion keeps from the first forward pass on."""

from __future__ import annotations

from typing import Collection, Iterator, Sequence

from mxamp.graph.drawn import graph_draws
from mxamp.graph.graph import Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.ops.drawn import draws_numbers

_WEIGHT = 1
"""The number of the input."""

_PLACES = 2
"""Axes of places from which on convolutions are fused."""


def layers_of_computed_weights(graph: Graph, params: Collection[str]) -> Sequence[int]:
    """Return the layers that fusion computes with the weights of the first forward pass, in graph order.

    Parameters
    ----------
    graph
        The graph.
    params
        The names of its parameters and auxiliary states: what is computed from these alone stays as it is.

    Notes
    -----
    A fused node brings its weight into oneDNN's order once, and keeps that: right for a parameter, and wrong
    for a weight that the graph computes from an input, as where one network makes the weights of another, or
    that it draws anew, as Bayesian layers do. What depends on the shapes of inputs alone (the matrices of a
    resize) stays as it is too: for other shapes an executor is bound anew, and a block compiled anew.
    Deconvolutions and convolutions over sequences are not fused, and biases not kept. Linear in nodes.
    """
    changes = bytearray(len(graph.nodes))
    found = []
    for position, node in enumerate(graph.nodes):
        if node.is_variable:
            changes[position] = node.name not in params
            continue
        changes[position] = _draws(node) or any(changes[place] for place in _read(node))
        op = FACTS.canonical(node.op)
        is_fused = op == "FullyConnected" or (
            op == "Convolution" and len(integers(node.attrs.get("kernel", "")) or ()) >= _PLACES
        )
        if is_fused and len(node.inputs) > _WEIGHT and changes[node.inputs[_WEIGHT].node]:
            found.append(position)
    return found


def _draws(node: Node) -> bool:
    """Whether the node, or one in a body of its own, draws numbers."""
    return draws_numbers(node.op, node.attrs) or any(map(graph_draws, node.subgraphs))


def _read(node: Node) -> Iterator[int]:
    """Yield the nodes whose values, and not their shapes alone, the node reads."""
    facts = FACTS.of(node.op, node.attrs)
    for number, entry in enumerate(node.inputs):
        if facts is None or facts.role(number, node.attrs).reads_values:
            yield entry.node
