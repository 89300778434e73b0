"""Labels: inputs that a training head reads, and inference does not."""

from __future__ import annotations

from typing import Collection

from mxamp.graph.graph import Graph
from mxamp.ops.casts import CAST_OPERATORS
from mxamp.ops.rounding import is_rounding
from mxamp.ops.training_heads import LABEL, TRAINING_HEADS


def label_names(graph: Graph, params: Collection[str]) -> frozenset[str]:
    """Return the variables that are read as labels alone, rounded or as they are.

    Parameters
    ----------
    graph
        The graph.
    params
        The names of its parameters and auxiliary states: none of them is a label.
    """
    return frozenset(
        name
        for name, position in graph.variables.items()
        if name not in params and _is_label(graph, position)
    )


def _is_label(graph: Graph, position: int) -> bool:
    uses = graph.uses[position].get(0, ())
    return bool(uses) and all(
        use.input == LABEL
        if graph.nodes[use.node].op in TRAINING_HEADS
        else _hands_on(graph.nodes[use.node].op) and _is_label(graph, use.node)
        for use in uses
    )


def _hands_on(op: str) -> bool:
    return op in CAST_OPERATORS or is_rounding(op)
