"""How large the numbers in a symbol may be.

A few bytes of a file can claim anything. Everything that costs memory or time in proportion to a claim, and
not to the length of the file, has its limit here; each is far above what a model needs.
"""

from __future__ import annotations

from typing import Any

from mxamp.files.names import short

MAX_BYTES = 2**28
"""Bytes of a symbol file; a node takes about 300."""

MAX_NESTING = 32
"""How deep control-flow bodies nest."""

MAX_OUTPUTS = 2**16
"""Outputs of one node."""

MAX_TOTAL_OUTPUTS = 2**18
"""Outputs of all nodes together, beyond one a node."""

MAX_HEADS = 2**16
"""Outputs of a graph."""

MAX_NUMBER = 2**31
"""Entries, versions and sums of outputs; MXNet reads them into 32 bits."""

COUNTING_ATTRIBUTES = ("num_args", "num_arrays", "num_out_data", "num_outputs", "num_weights")
"""Attributes by which an operator says how many inputs or outputs it has, whereupon MXNet makes as many."""

_MAX_COUNT = 2**14
"""The most that they may say: MXNet's time grows with the square."""

_MAX_GRAPH_ATTRIBUTE = 2**16
_GRAPH_ATTRIBUTE_DEPTH = 4


def attribute_fault(text: str) -> str | None:
    """Say what is wrong with a counting attribute, or return None; what is no number is MXNet's to refuse."""
    stripped = text.strip().lstrip("+")
    if stripped.startswith("-"):
        return f"is {short(text)}, and MXNet would take that for billions"
    digits = stripped[: len(stripped) - len(stripped.lstrip("0123456789_"))].replace("_", "").lstrip("0")
    if len(digits) > len(str(_MAX_COUNT)) or int(digits or "0") > _MAX_COUNT:
        return f"is {short(text)}, and no operator has more than {_MAX_COUNT}"
    return None


def graph_attribute_fault(value: Any) -> str | None:
    """Say why a graph attribute cannot be one of MXNet's (such as ``["int", 10901]``), or return None."""
    waiting = [(value, 0)]
    seen = 0
    while waiting:
        item, depth = waiting.pop()
        seen += 1
        if depth > _GRAPH_ATTRIBUTE_DEPTH:
            return f"nests more than {_GRAPH_ATTRIBUTE_DEPTH} deep, which no attribute of MXNet does"
        if seen > _MAX_GRAPH_ATTRIBUTE:
            return f"holds more than {_MAX_GRAPH_ATTRIBUTE} values, which no attribute of MXNet does"
        if isinstance(item, list):
            waiting.extend((inner, depth + 1) for inner in item)
        elif isinstance(item, dict):
            waiting.extend((inner, depth + 1) for inner in item.values())
        elif isinstance(item, int) and not -(2**63) <= item < 2**63:
            return f"holds {short(item)}, more than 64 bits"
        elif isinstance(item, float) and not abs(item) <= 1.7976931348623157e308:
            return "holds a number beyond what a float64 can be"
    return None
