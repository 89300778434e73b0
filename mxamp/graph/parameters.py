"""Which variables are parameters, and what shape a parameter must have."""

from __future__ import annotations

from typing import Iterator, Mapping, Sequence, Tuple

from mxamp.graph.graph import VARIABLE, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.ops.auxiliary import AUXILIARY_INPUTS

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


_GLUON_MARKS = frozenset({"__dtype__", "__lr_mult__", "__wd_mult__", "__storage_type__"})
"""What ``gluon.Parameter.var`` gives to every variable it makes; the inputs of a block get none of it."""


_NORMS = frozenset({"BatchNorm", "_contrib_SyncBatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm"})
"""The operators whose parameters are one number for each channel, group or feature, and as many each."""


_SHAPED = frozenset({"Convolution", "Deconvolution", "FullyConnected", "Embedding"})
"""The operators whose attributes tell the shapes of their parameters."""

_CHANNELS_FIRST = frozenset({"None", "NCHW", "NCW", "NCDHW"})

_CHANNELS = {"Convolution": "num_filter", "Deconvolution": "num_filter", "FullyConnected": "num_hidden"}
"""Layer -> the attribute that is the size of axis 1 of what it hands on."""


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
        places = _WEIGHTED.get(canonical(op), ())
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
        if op in _NORMS:
            for number in _WEIGHTED[op]:
                if number < len(node.inputs):
                    source = graph.nodes[node.inputs[number].node]
                    if source.op == VARIABLE:
                        found[source.name] = ((_normalized(graph, op, node),), node)
        for number, shape in _weight_shapes(op, node.attrs).items() if op in _SHAPED else ():
            if number < len(node.inputs):
                source = graph.nodes[node.inputs[number].node]
                if source.op == VARIABLE:
                    # The operator is more telling than __shape__, which may be all zeros.
                    found[source.name] = (shape, node)
    return found


def _normalized(graph: Graph, op: str, node: Node) -> int:
    """Return how many channels a BatchNorm right behind a layer normalizes; 0 where nothing here tells."""
    layer = graph.nodes[node.inputs[0].node]
    key = _CHANNELS.get(FACTS.canonical(layer.op)) if op == "BatchNorm" else None
    is_first = node.attrs.get("axis", "1") == "1" and layer.attrs.get("layout", "None") in _CHANNELS_FIRST
    if key is None or not is_first or layer.attrs.get("flatten", "True") not in ("True", "1"):
        return 0
    size = layer.attrs.get(key, "")
    return int(size) if size.isdigit() else 0


def norms_with_parameters(graph: Graph) -> Iterator[tuple[Node, Sequence[str]]]:
    """Yield the normalizations with the variables among their parameters, which must all be of one size."""
    for node in graph.nodes:
        op = node.op if node.op == VARIABLE else FACTS.canonical(node.op)
        if op in _NORMS:
            sources = [graph.nodes[node.inputs[n].node] for n in _WEIGHTED[op] if n < len(node.inputs)]
            yield node, [source.name for source in sources if source.op == VARIABLE]


def _weight_shapes(op: str, attrs: Mapping[str, str]) -> Mapping[int, PartialShape]:
    try:
        if op == "Convolution" and attrs.get("layout", "NCHW") in _CHANNELS_FIRST:
            filters, kernel = int(attrs["num_filter"]), integers(attrs["kernel"])
            if kernel is not None:
                return {1: (filters, 0, *kernel), 2: (filters,)}
        if op == "Deconvolution" and attrs.get("layout", "NCHW") in _CHANNELS_FIRST:
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
