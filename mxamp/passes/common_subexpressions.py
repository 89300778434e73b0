"""Compute what is computed twice once."""

from __future__ import annotations

import re
from typing import Any

from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.drawn import draws_numbers
from mxamp.ops.parameters import AUXILIARY_INPUTS
from mxamp.passes.edit import GraphEdit
from mxamp.passes.open_shapes import has_a_size_of_its_own
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State

_NOT_TWICE_THE_SAME = re.compile(r"Dropout|_npx_dropout|RNN|_npi_share_memory|_contrib_dgl_.*")
"""Operators that draw in training alone, or may, or tell of memory and not of values."""

_OF_NO_MEANING = frozenset({"__profiler_scope__"})
"""Attributes that may differ between nodes that compute the same."""


class MergeCommonSubexpressions(PreparationPass):
    """Merge nodes with the same operator, attributes and inputs; the first one stays.

    Before::

        x -> exp (a) -> y
        x -> exp (b) -> z

    After::

        x -> exp (a) -> y
                     -> z

    Refuses: operators that are random, that update auxiliary states (BatchNorm), run code of the user's or
    have no facts; what is filled with a value and says not all of its sizes, for its reader settles them, and
    two readers need not alike; control flow; casts, of which the converter puts in no more than it needs; a
    second node that is a graph output, since the output has its name (the first may be one); nodes that a
    rule of the user's picks; attributes that are written differently, though they may mean the same;
    parameters of equal values.

    Notes
    -----
    Bit-exact: the same kernel on the same values. Readers of a node that is gone are looked at with their new
    inputs, so equal chains merge from end to end in one run. Every key is hashed once: linear in nodes and
    inputs.

    References
    ----------
    Cocke, "Global common subexpression elimination", 1970.
    """

    step = "common_subexpressions"

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph in which nothing is computed twice."""
        if not _may_hold_duplicates(graph):
            return None
        instead: dict[Entry, Entry] = {}
        first_of: dict[Any, int] = {}
        edit = GraphEdit(graph, state.params)
        changes = []
        for position, node in enumerate(graph.nodes):
            if node.op == VARIABLE:
                continue
            inputs = tuple([instead.get(entry, entry) for entry in node.inputs])
            attrs = frozenset([item for item in node.attrs.items() if item[0] not in _OF_NO_MEANING])
            key = (node.op, inputs, attrs, node.num_outputs)
            first = first_of.setdefault(key, position)
            if first == position or not _is_function(node) or state.is_fixed(position):
                continue
            if state.is_fixed(first):
                first_of[key] = position
                continue
            if position in state.heads:
                continue
            outputs = [Entry(first, output) for output in range(node.num_outputs)]
            edit.drop(position, *outputs)
            for output, entry in enumerate(outputs):
                instead[Entry(position, output)] = entry
            into = graph.nodes[first].name
            changes.append(self.changed(node, f"computes what {into!r} does", into=into))
        return Done(edit.finish(), tuple(changes)) if changes else None


def _may_hold_duplicates(graph: Graph) -> bool:
    """Whether any two nodes have an operator and inputs in common: the look that most graphs end with."""
    seen = set()
    for node in graph.nodes:
        if node.op != VARIABLE:
            key = (node.op, node.inputs)
            if key in seen:
                return True
            seen.add(key)
    return False


def _is_function(node: Node) -> bool:
    """Whether equal inputs make equal outputs, and that is all the operator does."""
    op = FACTS.canonical(node.op)
    if op in AUXILIARY_INPUTS or _NOT_TWICE_THE_SAME.fullmatch(op) or draws_numbers(op, node.attrs):
        return False
    facts = FACTS.of(node.op, node.attrs)
    return (
        facts is not None
        and not facts.never_in_inference
        and (bool(node.inputs) or has_a_size_of_its_own(node))
    )
