"""Colors, and the verdict that gives a node one."""

from __future__ import annotations

import enum
from typing import NamedTuple

from mxamp.dtypes import DType
from mxamp.errors import PolicyError, nearest_names


class Color(enum.Enum):
    """What the numerics allow."""

    GREEN = "green"
    """Low precision is wanted."""

    GRAY = "gray"
    """Either will do; the placement decides."""

    RED = "red"
    """FP32 only."""

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
    by_user
        The user gave the color; nothing takes it away, except where results would be wrong.
    of_operator
        It holds for the operator, whatever a node reads.
    computes_float32
        The node computes in FP32 whatever it reads.
    of_range
        A parameter is beyond the dtype's range.
    is_cast
        The node is a cast of the user's.
    """

    color: Color
    rule: str
    reason: str
    accumulation: DType | None = None
    output: DType | None = None
    widest: bool = False
    by_user: bool = False
    of_operator: bool = False
    computes_float32: bool = False
    of_range: bool = False
    is_cast: bool = False
