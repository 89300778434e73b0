"""Colors, and the verdict that gives a node one."""

from __future__ import annotations

import enum
from typing import NamedTuple

from mxamp.dtypes import DType
from mxamp.errors import PolicyError, nearest_names

__all__ = ["NEVER_IN_INFERENCE", "PARAMETER_RANGE", "USER_RULES", "Color", "Verdict"]

USER_RULES = frozenset({"user rule", "color function"})
"""The rules by which a user gives a color; nothing takes it away, except where results would be wrong."""

PARAMETER_RANGE = "parameter range"
"""The rule for parameters beyond the range of the dtype."""

NEVER_IN_INFERENCE = "never in inference"
"""The rule for operators that no inference graph holds."""


class Color(enum.Enum):
    """What the numerics allow."""

    GREEN = "green"
    """Low precision is wanted."""

    GRAY = "gray"
    """Either will do; the placement decides."""

    RED = "red"
    """FP32 only."""

    __hash__ = object.__hash__

    @classmethod
    def parse(cls, value: object) -> Color:
        """Read a color from a member or its name.

        Raises
        ------
        PolicyError
            When it is neither.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            try:
                return cls(value.strip().lower())
            except ValueError:
                pass
        hint = nearest_names(str(value), [member.value for member in cls])
        raise PolicyError(f"{value!r} is not a color.{hint} Use Color.GREEN, Color.GRAY or Color.RED.")

    def __str__(self) -> str:
        return self.value


class Verdict(NamedTuple):
    """A color with its reason.

    Attributes
    ----------
    color
        The color.
    rule
        Which rule gave it: ``"user rule"``, ``"operator table"``, ``"parameter range"`` ...
    reason
        Why, in one sentence a user can read.
    accumulation
        The dtype sums are carried in when the node computes in low precision; None means the compute dtype.
    output
        The dtype the node hands on when it computes in low precision; None means the compute dtype.
    widest
        Low precision only where every data input already is (MXNet's "widest" list).
    """

    color: Color
    rule: str
    reason: str
    accumulation: DType | None = None
    output: DType | None = None
    widest: bool = False
