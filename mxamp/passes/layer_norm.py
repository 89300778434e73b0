"""Write the normalisation over the last axis that is spelled out as the operator that backends know."""

from __future__ import annotations

import math
from typing import NamedTuple, Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true, real_number
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.params.rearranged import RearrangedParameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass, own_attributes
from mxamp.passes.state import Done, State

_SMALLEST = float(np.finfo(np.float32).tiny)
"""Of numbers that MXNet reads as an ``eps``."""

_DIFFERENCES = frozenset({"broadcast_sub", "elemwise_sub"})
_PRODUCTS = frozenset({"broadcast_mul", "elemwise_mul"})
_QUOTIENTS = frozenset({"broadcast_div", "elemwise_div"})
_SUMS = frozenset({"broadcast_add", "elemwise_add"})


class _Found(NamedTuple):
    """A normalisation that is spelled out.

    Attributes
    ----------
    x
        What is normalised.
    length
        The size of its last axis.
    eps
        What is added to the variance.
    gamma, beta
        The parameters that the result is multiplied by and that are added; None where there are none.
    last
        The node that has its values.
    parts
        The nodes that compute nothing else.
    """

    x: Entry
    length: int
    eps: float
    gamma: Entry | None
    beta: Entry | None
    last: int
    parts: Sequence[int]


class RewriteLayerNorm(PreparationPass):
    """Replace the terms of a normalisation over the last axis by ``LayerNorm``.

    Before::

        d = broadcast_sub(x, mean(x, axis=-1, keepdims))
        n = broadcast_div(d, sqrt(mean(square(d), axis=-1, keepdims) + eps))
        broadcast_add(broadcast_mul(n, g), b) -> y

    After::

        LayerNorm(x, g, b) {axis: -1, eps: eps} -> y

    The product with g and the sum with b may be missing. The square may be a product, and the quotient one
    with ``rsqrt``.

    Refuses: where it is not certain how long the last axis is, or x may be empty, or of a size that its
    readers tell; parts that something else reads, or that are graph outputs; g and b that are no dense
    float32 parameters along the last axis; other dtypes than float32; a node that a rule of the user's picks;
    the bodies of control flow. The last node may be a graph output, for its name stays.

    Notes
    -----
    Why: each term goes over all values, broadcasts value by value, and runs in float32 alone. Transformers
    that were read from ONNX have two in every block: 197 words of 192 values take 0.82 ms in terms and 0.06
    as LayerNorm (AMD EPYC of family 26, float32, one thread).

    Numerical effect in float32: MXNet's LayerNorm adds up a row value by value, as for every model that has
    the operator, and ``mean`` carries along what each addition loses. Of rows of 768 values, normal with a
    mean of up to their deviation, results are 3.2e-7 from the exact value (root of the mean square; 3.2e-6 at
    most, 5e-9 in the mean) and the terms' 5e-8 (4e-7); both grow with the mean, to 2.3e-5 and 2.2e-6 where it
    is up to 100 times the deviation. A layer of 768 by 768 is 3.5e-7 of its deviation off. Where
    squares overflow, above 2^63, both are useless, and not in the same way. Linear in nodes.

    References
    ----------
    Ba, Kiros and Hinton, "Layer Normalization", 2016, arXiv:1607.06450.
    """

    step = "layer_norm"
    operators = frozenset({"sqrt", "rsqrt"})

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Write every normalisation."""
        edit, changes = GraphEdit(graph, state.params), []
        for position, node in enumerate(graph.nodes):
            found = _normalised(state, position) if node.op in self.operators else None
            if found is None:
                continue
            last = graph.nodes[found.last]
            gamma = _along(edit, state, found, found.gamma, "gamma")
            beta = _along(edit, state, found, found.beta, "beta")
            attrs = {**own_attributes(last), "axis": "-1", "eps": repr(found.eps)}
            shape = state.usual_shape(Entry(found.last))
            moments = None if shape is None else (*shape[:-1], 1)
            made = Node("LayerNorm", last.name, attrs, (found.x, gamma, beta), 3)
            edit.replace(found.last, made, shapes=(shape, moments, moments))
            changes.append(self.changed(last, "a normalisation that is spelled out: one operator's work"))
            for part in found.parts:
                edit.drop(part, Entry(found.last))
                changes.append(self.changed(graph.nodes[part], "a part of a normalisation", into=last.name))
        return Done(edit.finish(), tuple(changes)) if changes else None


def _along(edit: GraphEdit, state: State, found: _Found, given: Entry | None, name: str) -> Entry:
    """Return a parameter along the last axis: the one that is given, or ones or zeros."""
    parameter = None if given is None else state.parameter(given)
    if given is not None and parameter is not None and len(parameter.shape) == 1:
        return given
    values: Parameter
    sources: Sequence[str] = ()
    if given is None or parameter is None:
        values = ArrayParameter(np.full(found.length, float(name == "gamma"), np.float32))
    else:
        values = RearrangedParameter(parameter, range(len(parameter.shape)), (found.length,))
        sources = (state.graph.nodes[given.node].name,)
    last = state.graph.nodes[found.last].name
    return edit.add_parameter(f"{last}_{name}", values, sources, before=found.last)


def _normalised(state: State, position: int) -> _Found | None:
    """Return the normalisation that a square root is a part of, None where it is of none."""
    graph = state.graph
    shifted = graph.nodes[position].inputs[0].node
    eps = real_number(graph.nodes[shifted].attrs, "scalar")
    if _op(state, shifted) != "_plus_scalar" or eps is None or not _SMALLEST <= eps < math.inf:
        return None
    variance = graph.nodes[shifted].inputs[0].node
    squares = _mean_of(state, variance)
    difference = None if squares is None else _squared(state, squares.node)
    if squares is None or difference is None or _op(state, difference.node) not in _DIFFERENCES:
        return None
    x, mean = graph.nodes[difference.node].inputs
    if _mean_of(state, mean.node) != x:
        return None
    quotient = state.only_reader(position)
    is_quotient = quotient is not None and _op(state, quotient) in (
        _PRODUCTS if _op(state, position) == "rsqrt" else _QUOTIENTS
    )
    if quotient is None or not is_quotient or graph.nodes[quotient].inputs[0] != difference:
        return None
    sizes = state.axis_sizes.of(x)
    length = sizes[-1] if sizes and len(sizes) > 1 else None
    if not isinstance(length, int):
        return None
    parts = [mean.node, difference.node, squares.node, variance, shifted, position]
    readers = {use.node for part in parts for places in graph.uses[part].values() for use in places}
    scaled, gamma = _and_parameter(state, quotient, _PRODUCTS, length)
    last, beta = _and_parameter(state, scaled, _SUMS, length)
    parts += [node for node in dict.fromkeys((quotient, scaled)) if node != last]
    is_free = not any(part in state.heads or state.is_fixed(part) for part in parts)
    if not is_free or state.is_fixed(last) or not readers <= {*parts, last}:
        return None
    if state.certain_dtypes[x.node][x.output] is not DType.FLOAT32:
        return None
    if x.node not in state.never_empty or x.node in state.left_open:
        return None
    return _Found(x, length, eps, gamma, beta, last, parts)


def _op(state: State, position: int) -> str:
    return FACTS.canonical(state.graph.nodes[position].op)


def _mean_of(state: State, position: int) -> Entry | None:
    """Return what a node is the mean of, along the last axis, which stays as one of length one."""
    node = state.graph.nodes[position]
    if _op(state, position) != "mean" or is_true(node.attrs, "exclude", default=False):
        return None
    axis, axes = integers(node.attrs.get("axis", "")), state.axes(node.inputs[0])
    is_last = axis == (-1,) or (axes is not None and axis == (axes - 1,))
    return node.inputs[0] if is_last and is_true(node.attrs, "keepdims", default=False) else None


def _squared(state: State, position: int) -> Entry | None:
    """Return what a node is the square of."""
    node = state.graph.nodes[position]
    if _op(state, position) == "square" or (_op(state, position) in _PRODUCTS and len(set(node.inputs)) == 1):
        return node.inputs[0]
    return None


def _and_parameter(
    state: State, position: int, operators: frozenset[str], length: int
) -> tuple[int, Entry | None]:
    """Return what combines a node with a parameter along the last axis, and that; or the node and None."""
    reader = state.only_reader(position)
    if reader is None or _op(state, reader) not in operators or state.is_fixed(reader):
        return position, None
    for entry in state.graph.nodes[reader].inputs:
        parameter = state.parameter(entry)
        if (
            parameter is not None
            and parameter.dtype is DType.FLOAT32
            and not parameter.is_sparse
            and parameter.shape[-1:] == (length,)
            and math.prod(parameter.shape) == length
            and len(parameter.shape) <= (state.axes(Entry(position)) or 1)
        ):
            return reader, entry
    return position, None
