"""Which variables are parameters, and what shape a parameter must have."""

from __future__ import annotations

from typing import Mapping, Tuple

from mxamp.graph.graph import VARIABLE, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.ops.auxiliary import AUXILIARY_INPUTS

__all__ = ["auxiliary_names", "expected_shapes", "parameter_names"]

PartialShape = Tuple[int, ...]
"""A shape whose unknown sizes are 0, or -1 under NumPy shape semantics."""

_WEIGHTED = {
    "Convolution": (1, 2),
    "Deconvolution": (1, 2),
    "FullyConnected": (1, 2),
    "BatchNorm": (1, 2, 3, 4),
    "_contrib_SyncBatchNorm": (1, 2, 3, 4),
    "LayerNorm": (1, 2),
    "GroupNorm": (1, 2),
    "InstanceNorm": (1, 2),
    "Embedding": (1,),
    "RNN": (1,),
    "_contrib_DeformableConvolution": (2, 3),
    "_contrib_ModulatedDeformableConvolution": (3, 4),
}
"""Operator -> the inputs that are parameters when a variable stands there."""


_SHAPED = frozenset({"Convolution", "Deconvolution", "FullyConnected", "Embedding"})
"""The operators whose attributes tell the shapes of their parameters."""


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
    statistic, or when Gluon marked it as one (``__init__``). Other variables may be inputs.

    Returns
    -------
    dict
        Variable name -> the node that reads it and the number of the input; None where only the mark tells.
    """
    found: dict[str, tuple[Node, int] | None] = {}
    nodes, canonical = graph.nodes, FACTS.canonical
    for node in nodes:
        op, inputs = node.op, node.inputs
        if op == VARIABLE:
            if "__init__" in node.attrs:
                found.setdefault(node.name, None)
            continue
        for number in _WEIGHTED.get(canonical(op), ()):
            if number < len(inputs):
                source = nodes[inputs[number].node]
                if source.op == VARIABLE:
                    found[source.name] = (node, number)
    return found


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
        for number, shape in _weight_shapes(op, node.attrs).items() if op in _SHAPED else ():
            if number < len(node.inputs):
                source = graph.nodes[node.inputs[number].node]
                if source.op == VARIABLE:
                    # The operator is more telling than __shape__, which may be all zeros.
                    found[source.name] = (shape, node)
    return found


def _weight_shapes(op: str, attrs: Mapping[str, str]) -> Mapping[int, PartialShape]:
    try:
        if op == "Convolution" and attrs.get("layout", "NCHW") in ("None", "NCHW", "NCW", "NCDHW"):
            filters, kernel = int(attrs["num_filter"]), integers(attrs["kernel"])
            if kernel is not None:
                return {1: (filters, 0, *kernel), 2: (filters,)}
        if op == "Deconvolution" and attrs.get("layout", "NCHW") in ("None", "NCHW", "NCW", "NCDHW"):
            filters, kernel = int(attrs["num_filter"]), integers(attrs["kernel"])
            if kernel is not None:
                groups = int(attrs.get("num_group", "1"))
                return {1: (0, filters // groups, *kernel), 2: (filters,)}
        if op == "FullyConnected":
            hidden = int(attrs["num_hidden"])
            return {1: (hidden, 0), 2: (hidden,)}
        if op == "Embedding":
            return {1: (int(attrs["input_dim"]), int(attrs["output_dim"]))}
    except (KeyError, ValueError, ZeroDivisionError):
        pass  # MXNet reports an attribute it cannot read, with more to say about it than we have
    return {}
