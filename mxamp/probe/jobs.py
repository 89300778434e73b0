"""What is done with a case: jobs, in the order in which they run, and what they leave behind.

A job is plain data, since it crosses a pipe. All jobs of one kind of one case are a *unit*: what one process
does before the next, and what is written to the journal at once.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from mxamp.probe.case import Case, Dims, Input

CHECK, TIME = "check", "time"
"""The kinds of jobs: whether it is right, and how long it takes."""

PLAIN, BEHIND, FIRST_BEHIND = "plain", "convolution", "first behind a convolution"
"""Where inputs come from: as they are, or each, or only the first, from a convolution in front."""

_WIDEST = 512


class Unit(NamedTuple):
    """One case, checked or timed."""

    case: str
    kind: str


def feedable(shape: Sequence[int]) -> bool:
    """Return whether a tensor of this shape can come from a convolution or a fully connected layer."""
    return 2 <= len(shape) <= 5 and shape[1] <= _WIDEST


def jobs_of(case: Case, kind: str) -> list[dict[str, Any]]:
    """Return the jobs of a case: every size with every origin of its inputs; plain ones come first."""
    if kind == TIME:
        return [{"dims": list(dims)} for dims in case.timing]
    feeds = [PLAIN]
    if case.feeds and case.check:
        fed = [given for given in case.inputs if _can_be_fed(given, case.check[0])]
        if fed:
            feeds.append(BEHIND)
        if len(fed) > 1 and case.first in fed:
            feeds.append(FIRST_BEHIND)
    return [{"dims": list(dims), "feed": feed} for feed in feeds for dims in case.check]


def _can_be_fed(given: Input, dims: Dims) -> bool:
    return given.role == "data" and feedable(given.shape(dims))


def is_on_volumes(case: Case, job: Mapping[str, Any]) -> bool:
    """Return whether a job reads what a three-dimensional convolution wrote, in its layout."""
    return job.get("feed", PLAIN) != PLAIN and len(case.first.shape.parts) == 5


def units_of(cases: Mapping[str, Case], kinds: Sequence[str] = (CHECK, TIME)) -> list[Unit]:
    """Return what is to be done: all checks, then all times, or of one kind alone."""
    return [Unit(case.name, kind) for kind in kinds for case in cases.values() if jobs_of(case, kind)]
