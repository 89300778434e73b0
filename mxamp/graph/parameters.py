"""Which variables are parameters, and what shape a parameter must have."""

from __future__ import annotations

from typing import Iterator, Mapping, Sequence

from mxamp.graph.graph import VARIABLE, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.ops.parameters import (
    AUXILIARY_INPUTS,
    NORMS,
    PARAMETER_INPUTS,
    PartialShape,
    normalized_channels,
    parameter_shapes,
)

_GLUON_MARKS = frozenset({"__dtype__", "__lr_mult__", "__wd_mult__", "__storage_type__"})
"""What ``gluon.Parameter.var`` gives to every variable it makes; the inputs of a block get none of it."""


def auxiliary_names(graph: Graph) -> frozenset[str]:
    """Return the names of the variables that are auxiliary states."""
    found = set()
    for node in graph.nodes:
        for number in AUXILIARY_INPUTS.get(node.op, ()):
            if number < len(node.inputs):
                source = graph.nodes[node.inputs[number].node]
                if source.is_variable:
                    found.add(source.name)
    return frozenset(found)


def parameter_names(graph: Graph) -> Mapping[str, tuple[Node, int] | None]:
    """Return the variables that must be parameters, with where each is read.

    A variable is taken for a parameter when it stands where an operator expects a weight, a bias or a
    statistic, or when it was given an initialiser (``__init__``). Other variables may be inputs. So may one
    that a layer also reads as its data; and, in a graph that Gluon wrote, one without Gluon's marks that
    has no name MXNet makes up for the parameters of a node.

    Returns
    -------
    dict
        Variable name -> the node that reads it and the number of the input; None where only the mark tells.
    """
    found: dict[str, tuple[Node, int] | None] = {}
    initialised, read_as_data, is_from_gluon = set(), set(), False
    nodes, canonical = graph.nodes, FACTS.canonical
    for node in nodes:
        op, inputs = node.op, node.inputs
        if op == VARIABLE:
            if "__init__" in node.attrs:
                found.setdefault(node.name, None)
                initialised.add(node.name)
            is_from_gluon = is_from_gluon or node.attrs.keys() >= _GLUON_MARKS
            continue
        places = PARAMETER_INPUTS.get(canonical(op), ())
        if places and inputs and nodes[inputs[0].node].op == VARIABLE:
            read_as_data.add(nodes[inputs[0].node].name)
        for number in places:
            if number < len(inputs):
                source = nodes[inputs[number].node]
                if source.op == VARIABLE:
                    found[source.name] = (node, number)
    may_be_inputs = [
        name
        for name, place in found.items()
        if place is not None
        and name not in initialised
        and (name in read_as_data or (is_from_gluon and not _is_made_for(place[0], name, graph)))
    ]
    for name in may_be_inputs:
        del found[name]
    return found


def _is_made_for(node: Node, name: str, graph: Graph) -> bool:
    """Whether a variable was made as a parameter: by Gluon, or by MXNet for this node."""
    marked = not _GLUON_MARKS.isdisjoint(graph.nodes[graph.variables[name]].attrs)
    return marked or name.startswith(f"{node.name}_")


def expected_shapes(graph: Graph) -> Mapping[str, tuple[PartialShape, Node]]:
    """Return what attributes say of the shapes of variables.

    Returns
    -------
    dict
        Variable name -> (partial shape, the node that says so: an operator, or the variable itself).
    """
    found: dict[str, tuple[PartialShape, Node]] = {}
    for node in graph.nodes:
        if node.op == VARIABLE:
            if "__shape__" in node.attrs:
                shape = integers(node.attrs["__shape__"])
                if shape is not None:
                    found.setdefault(node.name, (shape, node))
            continue
        op = FACTS.canonical(node.op)
        shapes = parameter_shapes(op, node.attrs)
        if op in NORMS and node.inputs:
            layer = graph.nodes[node.inputs[0].node]
            channels = normalized_channels(op, node.attrs, FACTS.canonical(layer.op), layer.attrs)
            shapes = dict.fromkeys(PARAMETER_INPUTS[op], (channels,))
        for number, shape in shapes.items():
            if number < len(node.inputs):
                source = graph.nodes[node.inputs[number].node]
                if source.op == VARIABLE:
                    # The operator is more telling than __shape__, which may be all zeros.
                    found[source.name] = (shape, node)
    return found


def norms_with_parameters(graph: Graph) -> Iterator[tuple[Node, Sequence[str]]]:
    """Yield the normalizations with the variables among their parameters, which must all be of one size."""
    for node in graph.nodes:
        op = node.op if node.op == VARIABLE else FACTS.canonical(node.op)
        if op in NORMS:
            sources = [graph.nodes[node.inputs[n].node] for n in PARAMETER_INPUTS[op] if n < len(node.inputs)]
            yield node, [source.name for source in sources if source.op == VARIABLE]
