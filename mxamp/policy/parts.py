"""What a policy is made of: an operator's entry, a condition on an attribute, a rule of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

from mxamp.dtypes import DType
from mxamp.policy.color import Color
from mxamp.policy.selector import Selector

ColorFunction = Callable[[Any], Optional[Union[Color, str]]]
"""``color(node) -> Color | None`` over a :class:`mxamp.policy.view.NodeView`."""


@dataclass(frozen=True)
class OperatorPolicy:
    """What the policy says of one operator.

    Attributes
    ----------
    color
        Its color.
    reason
        Why.
    accumulation
        The dtype of its sums when it computes in low precision; None means the compute dtype.
    output
        The dtype it hands on when it computes in low precision; None means the compute dtype.
    """

    color: Color
    reason: str
    accumulation: DType | None = None
    output: DType | None = None


@dataclass(frozen=True)
class AttributeCondition:
    """An operator's color where an attribute has one of some values.

    Attributes
    ----------
    op
        Canonical operator name.
    attribute
        Attribute name.
    values
        The values, as ``symbol.json`` spells them.
    color, reason
        The color and why.
    """

    op: str
    attribute: str
    values: tuple[str, ...]
    color: Color
    reason: str


@dataclass(frozen=True)
class UserRule:
    """A color for the nodes a selector picks; comes before everything else.

    Attributes
    ----------
    selector
        Which nodes.
    color
        Their color.
    reason
        Why, shown in the report.
    """

    selector: Selector
    color: Color
    reason: str
