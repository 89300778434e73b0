"""Why a node computes in what was decided: the sentence of the report."""

from __future__ import annotations

from mxamp.decisions.choices import Choices
from mxamp.dtypes import DType
from mxamp.ops import OperatorFacts
from mxamp.ops.casts import CAST
from mxamp.policy.color import Color, Verdict


def reason_for(
    position: int,
    facts: OperatorFacts | None,
    verdict: Verdict,
    choices: Choices,
    *,
    before: DType | None,
    chosen: DType,
    why_chosen: str,
    has_bodies: bool,
) -> str:
    """Return why a node computes in what was decided.

    Parameters
    ----------
    position
        The node.
    facts
        What is known of its operator.
    verdict
        Its color.
    choices
        Which nodes had the choice, and why others had none.
    before
        What it computes in before conversion; None where it reads no floating-point data.
    chosen
        What the placement chose, if it had the choice.
    why_chosen
        Why it chose that.
    has_bodies
        Whether it is a control-flow node whose bodies are decided.
    """
    if has_bodies:
        return "control flow: its bodies are decided inside; its states stay float32"
    if verdict.is_cast or (facts is not None and facts.name == CAST):
        return "a cast of the original graph is kept as it is"
    if facts is not None and before is not None and before is not DType.FLOAT32:
        if before.is_float:
            return f"computes in {before} already"
        return f"works on {before}, which no cast touches"
    if verdict.of_operator and verdict.color is Color.RED:
        return verdict.reason
    if facts is not None and before is None and not facts.only_float32:
        return "reads no floating-point data; there is nothing to cast"
    if position in choices.refusals:
        return choices.refusals[position]
    if position in choices.free:
        return f"{verdict.reason}; {chosen.label} {why_chosen}"
    return verdict.reason
