"""Which graphs hold operators of mxamp's own library."""

from __future__ import annotations

from collections import Counter
from typing import Mapping

from mxamp.dtypes import DType
from mxamp.errors import TargetError
from mxamp.graph.control_flow import graphs_within
from mxamp.graph.graph import Graph
from mxamp.graph.infer import EntryDtypes
from mxamp.ops import FACTS
from mxamp.ops.grid import keeps_grid
from mxamp.ops.rounding import is_library_operator, is_rounding


def needs_operator_library(graph: Graph) -> bool:
    """Whether a graph, or a body in it, holds an operator of the library."""
    return any(is_library_operator(node.op) for top in graphs_within(graph) for node in top.nodes)


def emulated_formats(graph: Graph) -> Mapping[str, int]:
    """Return the formats that a graph rounds to, with the number of roundings, the most frequent first."""
    found = Counter(
        node.attrs.get("format", "?")
        for top in graphs_within(graph)
        for node in top.nodes
        if is_rounding(node.op)
    )
    return dict(found.most_common())


def emulated_dtypes(graph: Graph, dtypes: EntryDtypes) -> EntryDtypes:
    """Return the dtypes of entries with the emulated format in place of float32 where values are on its grid.

    Parameters
    ----------
    graph
        The graph.
    dtypes
        The dtype of every entry.
    """
    found: list[tuple[DType | None, ...]] = []
    for node, own in zip(graph.nodes, dtypes):
        inputs = [found[entry.node][entry.output] for entry in node.inputs]
        facts = None if node.is_variable else FACTS.of(node.op, node.attrs)
        if is_rounding(node.op):
            own = (_format(node.attrs.get("format", "")) or own[0],)
        elif facts is not None:
            emulated = next((dtype for dtype in inputs if dtype is not None and dtype.is_low_precision), None)
            if emulated is not None:
                own = tuple(
                    emulated
                    if dtype is DType.FLOAT32 and keeps_grid(facts, node.attrs, inputs, emulated, output)
                    else dtype
                    for output, dtype in enumerate(own)
                )
        found.append(own)
    return found


def _format(text: str) -> DType | None:
    try:
        return DType.parse(text, emulated=True, aliases=False)
    except TargetError:
        return None
