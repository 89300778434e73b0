"""Which entries of a model stand for its outputs when the errors of roundings are priced."""

from __future__ import annotations

from typing import Collection, Sequence

from mxamp.graph.graph import Entry, Graph
from mxamp.ops import FACTS
from mxamp.ops.parameters import LAYERS

_RANKS = frozenset(
    {
        *("argmax", "argmax_channel", "argmin", "argsort", "sort", "topk", "_npi_argmax", "_npi_argmin"),
        *("_contrib_box_nms", "_contrib_MultiBoxDetection", "_contrib_Proposal", "_contrib_MultiProposal"),
        *("_contrib_bipartite_matching", "_equal", "_not_equal", "broadcast_equal", "broadcast_not_equal"),
    }
)
"""What chooses among values by their order, or looks for equal ones: its result jumps where two tie."""

_HAVE_NO_GRADIENT = _RANKS | frozenset(
    {
        *("pick_index", "one_hot", "_contrib_MultiBoxPrior", "_contrib_box_decode", "_contrib_box_encode"),
        *("_contrib_MultiBoxTarget", "_contrib_boolean_mask", "_contrib_box_iou", "_contrib_index_array"),
        *("sign", "round", "rint", "ceil", "floor", "trunc", "fix", "shape_array", "size_array"),
        *("_greater", "_greater_equal", "_lesser", "_lesser_equal", "_equal_scalar", "_not_equal_scalar"),
        *("_greater_scalar", "_greater_equal_scalar", "_lesser_scalar", "_lesser_equal_scalar"),
        *("broadcast_greater", "broadcast_greater_equal", "broadcast_lesser", "broadcast_lesser_equal"),
        *("_npx_nonzero", "_npi_unique", "Custom"),
    }
)
"""Operators whose results do not answer to small changes, or for which MXNet has no gradient."""


def priced_heads(graph: Graph) -> tuple[Entry, ...]:
    """Return the entries whose errors are priced.

    Returns
    -------
    tuple of Entry
        The graph's outputs; in place of those that are made by ranking or comparing, what is ranked, and in
        place of what is computed of what was chosen, what it was chosen from.

    Notes
    -----
    CenterNet multiplies its scores with a mask of where they equal the largest around them, ranks the product
    and gathers boxes by the ranks. Where two scores nearly tie, all of these jump for any rounding, however
    small: no sum of prices tells by how much. What the mask and the gathering read has prices. Behind a layer
    of its own, as in the second stage of Faster R-CNN, what was chosen is priced as it was chosen.
    """
    constant: set[int] = set()
    blind: set[int] = set()
    ranks: set[int] = set()
    jumping: set[int] = set()
    for position, node in enumerate(graph.nodes):
        if node.is_variable:
            continue
        op, computed = FACTS.canonical(node.op), _computed(graph, position)
        if constant.issuperset(entry.node for entry in _read(graph, position)):
            constant.add(position)
            continue
        if op in _RANKS:
            ranks.add(position)
        if position in ranks or (op not in LAYERS and not jumping.isdisjoint(computed)):
            jumping.add(position)
        if op in _HAVE_NO_GRADIENT or node.subgraphs or (computed and blind.issuperset(computed)):
            blind.add(position)
    outputs = [head.node for head in graph.heads]
    led = _reached(graph, outputs)
    ranked = [own for position in sorted(led & ranks) for own in _computed(graph, position)]
    blind |= _reached(graph, [position for position in (*outputs, *ranked) if position in jumping], jumping)

    def is_priced(entry: Entry) -> bool:
        return not (entry.node in blind or entry.node in constant or graph.nodes[entry.node].is_variable)

    heads = dict.fromkeys(head for head in graph.heads if is_priced(head))
    for position in sorted(led, reverse=True):
        if position in blind:
            heads.update((entry, None) for entry in _read(graph, position) if is_priced(entry))
    return tuple(heads)


def _read(graph: Graph, position: int) -> list[Entry]:
    """Return the entries whose values a node reads, and not only their shapes."""
    node = graph.nodes[position]
    facts = FACTS.of(node.op, node.attrs)
    if facts is None:
        return list(node.inputs)
    roles = facts.all_roles(len(node.inputs), node.attrs)
    return [entry for entry, role in zip(node.inputs, roles) if role.reads_values]


def _computed(graph: Graph, position: int) -> list[int]:
    """Return the nodes whose values a node reads, without variables."""
    return [entry.node for entry in _read(graph, position) if not graph.nodes[entry.node].is_variable]


def _reached(graph: Graph, starts: Sequence[int], within: Collection[int] | None = None) -> set[int]:
    """Return what is reached backwards from some nodes, these among it, without leaving a set."""
    found, waiting = set(starts), list(starts)
    while waiting:
        for position in _computed(graph, waiting.pop()):
            if position not in found and (within is None or position in within):
                found.add(position)
                waiting.append(position)
    return found
