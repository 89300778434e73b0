"""A decision: everything the rewriter needs to know about one node, and why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Mapping, NamedTuple, Sequence

from mxamp.decisions.estimates import Estimates
from mxamp.dtypes import DType
from mxamp.policy.color import Color


class Decision(NamedTuple):
    """What one operator node computes in, reads and hands on.

    Attributes
    ----------
    color
        What the numerics allow.
    rule
        Which rule gave the color.
    reason
        Why the node computes in ``compute``: one sentence for the report.
    compute
        The dtype it computes in; None where that is not a floating-point matter (integers) or not known.
    accumulation
        The dtype its sums are carried in.
    inputs
        The dtype each input must have; None where any will do.
    outputs
        The dtype of each output; None where it cannot be known before run time.
    attrs
        Attributes the rewriter sets, such as softmax's ``dtype``.
    bodies
        For a control-flow node, the plan of each body.
    of_operator
        The color holds for the operator, whatever the node reads.
    """

    color: Color
    rule: str
    reason: str
    compute: DType | None
    accumulation: DType | None
    inputs: tuple[DType | None, ...]
    outputs: tuple[DType | None, ...]
    attrs: tuple[tuple[str, str], ...] = ()
    bodies: tuple[Plan, ...] = ()
    of_operator: bool = False


@dataclass(frozen=True)
class Plan:
    """The decisions for a whole graph.

    Attributes
    ----------
    decisions
        One a node; None for variables.
    variables_before
        The dtype of every variable before conversion.
    variables_after
        Graph inputs (not parameters) whose dtype changes: name -> dtype.
    heads
        The dtype each graph output must have; None where it is handed on as it comes.
    cast_offline
        The variables whose casts happen to stored values instead of at run time.
    estimates
        What nodes and casts cost, where shapes and target tell.
    rests_on_assumed
        Whether nodes were placed by what they cost for shapes that nobody gave.
    """

    decisions: Sequence[Decision | None]
    variables_before: Mapping[str, DType]
    variables_after: Mapping[str, DType]
    heads: tuple[DType | None, ...]
    cast_offline: frozenset[str]
    estimates: Estimates | None = None
    rests_on_assumed: bool = False

    @cached_property
    def is_float32(self) -> bool:
        """Whether no node computes in low precision, in bodies of control flow neither."""
        return all(
            (made.compute is None or not made.compute.is_low_precision)
            and all(body.is_float32 for body in made.bodies)
            for made in self.decisions
            if made is not None
        )
