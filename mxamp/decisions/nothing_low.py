"""Why a plan converts nothing, in one sentence."""

from __future__ import annotations

from collections import Counter
from typing import AbstractSet, Callable, Iterator

from mxamp.decisions.decision import Decision, Plan
from mxamp.dtypes import DType
from mxamp.policy.color import Color

ALREADY = "already"
"""How the reason of a node that was low before ends (``computes in bfloat16 already``)."""


def why_nothing_is_low(
    plan: Plan, low: DType, put_in: Callable[[], AbstractSet[int]] = frozenset
) -> str | None:
    """Return why no node becomes low, for the end of a sentence; None where one does, or there is none.

    Parameters
    ----------
    plan
        The plan, whose bodies of control flow count too.
    low
        The dtype that was asked for.
    put_in
        Returns the nodes that passes put in, or made others of: nobody knows them, and where there are
        others, what is said of them is no cause. Asked where nothing is low.
    """
    decisions = list(_all_decisions(plan))
    if not decisions or any(d.compute is low and not _was_low(d) for d in decisions):
        return None
    before = already_low(plan)
    if before is low:
        return f"the model is {low} already"
    if before is not None:
        return f"the model is {before} already; convert the float32 model"
    # What gains is asked first; what the operator table says of all nodes is no cause, but what the model is.
    own = list(_all_decisions(plan, put_in()))
    wanting = [d for d in own if d.color is Color.GREEN] or [d for d in own if not d.of_operator]
    wanting = wanting or [d for d in decisions if d.color is Color.GREEN]
    if not wanting:
        return f"none of its operators gains by {low}"
    # A reason ends with what decided; before that it says what the numerics allow.
    causes = Counter(decision.reason.rpartition("; ")[2] for decision in wanting)
    cause, count = causes.most_common(1)[0]
    of_all = "" if count == len(wanting) else f" ({count} of {len(wanting)} nodes)"
    return f"{cause}{of_all}"


def already_low(plan: Plan) -> DType | None:
    """Return the low dtype in which nodes of the model computed before; None where none did."""
    for decision in _all_decisions(plan):
        if _was_low(decision):
            return decision.compute
    return None


def _was_low(decision: Decision) -> bool:
    compute = decision.compute
    return compute is not None and compute.is_low_precision and decision.reason.endswith(ALREADY)


def _all_decisions(plan: Plan, left_out: AbstractSet[int] = frozenset()) -> Iterator[Decision]:
    for position, decision in enumerate(plan.decisions):
        if decision is not None and position not in left_out:
            yield decision
            for body in decision.bodies:
                yield from _all_decisions(body)
