"""Write the GELU that is spelled out as the operator that backends know."""

from __future__ import annotations

import math
from typing import NamedTuple, Sequence

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import real_number
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass, own_attributes
from mxamp.passes.state import Done, State

_PRODUCTS = frozenset({"elemwise_mul", "broadcast_mul"})

_AS_WRITTEN = 1e-6
"""How far from the exact number one may be: it is a float32 in the graph, or has as many digits."""


class _Gelu(NamedTuple):
    """A GELU that is spelled out.

    Attributes
    ----------
    x
        What it is of.
    last
        The node that has its values.
    parts
        The nodes that compute nothing else.
    """

    x: Entry
    last: int
    parts: Sequence[int]


class RewriteGelu(PreparationPass):
    """Replace the terms of a GELU by ``LeakyReLU {act_type: gelu}``.

    Before::

        x -> _div_scalar {scalar: 1.41421} -> erf -> _plus_scalar {scalar: 1} -> elemwise_mul -> y
        x -> _mul_scalar {scalar: 0.5} ------------------------------------------^

    After::

        x -> LeakyReLU {act_type: gelu} -> y

    The half may be anywhere in the product.

    Refuses: other numbers; parts that something else reads, or that are graph outputs, for they have values
    of their own; other dtypes than float32; a node that a rule of the user's picks; targets that do not name
    the pass; the bodies of control flow. The last node may be a graph output, for its name stays.

    Notes
    -----
    Why: MXNet's ``erf`` calls the C library for each value, and runs in float32 alone; of oneDNN's GELU it
    makes a part of the layer in front, in bfloat16 too. 64 rows of 3,072 values take 2.66 ms in terms and 66
    us so (AMD EPYC of family 26, float32, one thread).

    Numerical effect in float32, u = 2^-24: relative to x, oneDNN's polynomial is at most 5.3u from the exact
    value (3,200,000 values from -10 to 10; root of the mean square 1.0u), and the terms 1.8u (0.3u); results
    below it in magnitude are 0, of either sign. Infinities and NaN give the same, and what only a part of the
    terms overflows on is finite. Linear in nodes.

    References
    ----------
    Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
    """

    step = "gelu"
    operators = frozenset({"erf"})
    asks_target = True

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Write every GELU."""
        edit, changes = GraphEdit(graph, state.params), []
        for position, node in enumerate(graph.nodes):
            found = _gelu(state, position) if node.op in self.operators else None
            if found is None:
                continue
            last = graph.nodes[found.last]
            attrs = {**own_attributes(last), "act_type": "gelu"}
            edit.replace(found.last, Node("LeakyReLU", last.name, attrs, (found.x,)))
            changes.append(self.changed(last, "a GELU that is spelled out, for which backends have a kernel"))
            for part in found.parts:
                edit.drop(part, Entry(found.last))
                changes.append(self.changed(graph.nodes[part], "a part of a GELU", into=last.name))
        return Done(edit.finish(), tuple(changes)) if changes else None


def _gelu(state: State, position: int) -> _Gelu | None:
    """Return the GELU that an ``erf`` is a part of, None where it is of none."""
    graph = state.graph
    inner = graph.nodes[position].inputs[0]
    x, scale = _scaled(graph, inner)
    if x.node in state.left_open:  # terms tell by their results how large they are, and the operator does not
        return None
    if graph.has_numpy_shapes and not state.axes(x):  # LeakyReLU takes no number by itself
        return None
    if not math.isclose(scale, math.sqrt(0.5), rel_tol=_AS_WRITTEN) or inner == x:
        return None
    parts = [position, *([inner.node] if state.only_reader(inner.node) == position else [])]
    last, factor = _only_sum_with_one(state, position), 1.0
    is_product = False
    while last is not None and not (is_product and math.isclose(factor, 0.5, rel_tol=_AS_WRITTEN)):
        parts.append(last)
        reader = state.only_reader(last)
        if reader is None:
            return None
        node = graph.nodes[reader]
        if FACTS.canonical(node.op) in _PRODUCTS and not is_product:
            others = [entry for entry in node.inputs if entry != Entry(last)]
            times = _times(graph, others[0], x) if len(others) == 1 else None
            if times is None:
                return None
            is_product, factor = True, factor * times
            if others[0] != x and state.only_reader(others[0].node) == reader:
                parts.append(others[0].node)
        else:
            times = _times(graph, Entry(reader), Entry(last))
            if times is None:
                return None
            factor *= times
        last = reader
    is_free = last is not None and not any(state.is_fixed(part) for part in (*parts, last))
    is_float32 = state.certain_dtypes[x.node][x.output] is DType.FLOAT32
    return _Gelu(x, last, parts) if last is not None and is_free and is_float32 else None


def _only_sum_with_one(state: State, position: int) -> int | None:
    """Return the one reader of a node, where it adds 1."""
    reader = state.only_reader(position)
    if reader is None or FACTS.canonical(state.graph.nodes[reader].op) != "_plus_scalar":
        return None
    return reader if real_number(state.graph.nodes[reader].attrs, "scalar") == 1.0 else None


def _times(graph: Graph, entry: Entry, x: Entry) -> float | None:
    """Return how many times x an entry is; None where it is no multiple. x may be one of something else."""
    if entry == x:
        return 1.0
    base, times = _scaled(graph, entry)
    return times if base == x else None


def _scaled(graph: Graph, entry: Entry) -> tuple[Entry, float]:
    """Return what an entry is a multiple of, and how many times: itself and 1 where it is none."""
    node = graph.nodes[entry.node]
    op, scalar = FACTS.canonical(node.op), real_number(node.attrs, "scalar")
    if op == "_mul_scalar" and scalar is not None:
        return node.inputs[0], scalar
    if op == "_div_scalar" and scalar:
        return node.inputs[0], 1.0 / scalar
    return entry, 1.0
