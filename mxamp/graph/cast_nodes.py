"""Make the nodes that cast."""

from __future__ import annotations

from typing import Sequence

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops.casts import AMP_MULTICAST


def cast_node(op: str, name: str, source: Entry, dtype: DType) -> Node:
    """Return a node that casts ``source`` to ``dtype``.

    Parameters
    ----------
    op
        ``"amp_cast"`` or ``"Cast"``.
    name
        The node's name.
    source
        What is cast.
    dtype
        The dtype of the result.
    """
    return Node(op, name, {"dtype": dtype.label}, (source,))


def multicast_node(name: str, sources: Sequence[Entry]) -> Node:
    """Return an ``amp_multicast`` node: all ``sources`` in the widest dtype among them at run time."""
    return Node(
        AMP_MULTICAST, name, {"num_outputs": str(len(sources))}, tuple(sources), num_outputs=len(sources)
    )
