"""Where detectors rank their candidates, and the tensors that enter the ranking.

A detector's outputs come out of a ranking: where two candidates nearly tie, rounding makes them change
places, and every row after them moves. So beside the outputs the tensors before the first ranking are
compared, where rounding shows and ranking does not.
"""

from __future__ import annotations

from mxamp.errors import UnknownNameError
from mxamp.graph.graph import Entry, Graph, Node

__all__ = ["entries_before", "first_rankings", "is_ranking"]

_RANKING = frozenset(
    {
        "_contrib_box_nms",
        "_contrib_MultiBoxDetection",
        "_contrib_MultiProposal",
        "_contrib_Proposal",
        "topk",
        "argsort",
        "sort",
        # CenterNet: a peak is where the heat map equals its own maximum over the neighbours.
        "broadcast_equal",
    }
)
"""Operators whose result jumps when two candidates change places."""


def is_ranking(node: Node) -> bool:
    """Return whether a node's result jumps when two candidates change places."""
    return node.op in _RANKING


def first_rankings(graph: Graph) -> tuple[str, ...]:
    """Return the names of the ranking nodes that no other ranking node feeds, in graph order."""
    ranked = set()
    first = []
    for position, node in enumerate(graph.nodes):
        if any(entry.node in ranked for entry in node.inputs):
            ranked.add(position)
        elif is_ranking(node):
            ranked.add(position)
            first.append(node.name)
    return tuple(first)


def entries_before(graph: Graph, names: tuple[str, ...]) -> list[Entry]:
    """Return what the named nodes read first: candidates, or their scores.

    A suppression that mxamp wrote anew, ``best_boxes``, is called ``NAME_best`` and reads what nodes called
    ``NAME_...`` make of the candidates.

    Raises
    ------
    UnknownNameError
        When the graph has no such node.
    """
    position = {node.name: number for number, node in enumerate(graph.nodes)}
    found = []
    for name in names:
        own = position.get(name, position.get(f"{name}_best"))
        if own is None:
            raise UnknownNameError(f"The converted model has lost the node {name!r}.")
        entry = graph.nodes[own].inputs[0]
        while graph.nodes[entry.node].name.startswith(f"{name}_"):
            entry = graph.nodes[entry.node].inputs[0]
        found.append(entry)
    return found
