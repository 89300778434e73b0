"""The operators of mxamp's own library, by name."""

from __future__ import annotations

LIBRARY_PREFIX = "_mxamp_"
"""What the names of all operators of the library begin with: MXNet has none that does."""

ROUND = "_mxamp_round"
"""Rounds float32 values to the grid of a format."""

ROUND_BOTH_WAYS = "_mxamp_round_both_ways"
"""The same for graphs: with an identity for a subgraph, through which MXNet infers shapes both ways."""

OBSERVE = "_mxamp_observe"
"""Hands its data on, and says what it holds."""


def is_library_operator(op: str) -> bool:
    """Whether an operator is one of mxamp's library, which must be loaded before MXNet knows it."""
    return op.startswith(LIBRARY_PREFIX)


def is_rounding(op: str) -> bool:
    """Whether an operator rounds float32 values to the grid of a format."""
    return op in (ROUND, ROUND_BOTH_WAYS)


def round_node_name(name: str, label: str) -> str:
    """Return what a node is called that rounds the result of another.

    Parameters
    ----------
    name
        The name of the other node.
    label
        The format: ``"float16"`` ...
    """
    return f"{name}_round_{label}"
