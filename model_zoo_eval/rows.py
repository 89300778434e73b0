"""The result of one case: how it can end, and what to read off it."""

from __future__ import annotations

import copy
from typing import Any, Mapping

__all__ = [
    "CRASHED",
    "FAILED",
    "LOST",
    "OK",
    "OUT_OF_MEMORY",
    "TIMEOUT",
    "UNAVAILABLE",
    "without_timings",
    "worst_error",
]

OK = "ok"
"""Converted to every dtype that was asked for, run and compared."""

FAILED = "failed"
"""Python raised an error: the model could not be built, converted or run."""

CRASHED = "crashed"
"""The process died."""

TIMEOUT = "timeout"

OUT_OF_MEMORY = "out of memory"

LOST = "lost"
"""Stopped from outside; not a result."""

UNAVAILABLE = "unavailable"
"""Not tried: the registry says why it cannot be evaluated."""


def worst_error(found: Mapping[str, Any]) -> float:
    """Return the largest relative L2 error of one conversion.

    Parameters
    ----------
    found
        What a row's ``results`` have for a dtype.

    Returns
    -------
    float
        Of the tensors before the first ranking, where the model ranks; otherwise of its outputs. NaN where
        there is nothing.
    """
    heads = found.get("before_ranking") or found.get("heads") or ()
    return max((float(head["relative_l2"]) for head in heads), default=float("nan"))


def without_timings(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without what differs from one run to the next: times, and memory."""
    kept = copy.deepcopy(dict(row))
    for key in ("seconds", "peak_memory"):
        kept.pop(key, None)
    for found in kept.get("results", {}).values():
        for key in ("conversion_seconds", "latency"):
            found.pop(key, None)
    return kept
