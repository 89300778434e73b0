"""Whether colors are orders or permissions."""

from __future__ import annotations

import enum

from mxamp.errors import PolicyError
from mxamp.messages.arguments import argument


class LowPrecision(enum.Enum):
    """When a GREEN node that the target can run low is low."""

    REQUIRED = "required"
    """Always."""

    PROFITABLE = "profitable"
    """Where the whole model is then faster, by 3 % at least, by what the target says of costs."""


def as_low_precision(given: object) -> LowPrecision | None:
    """Return what an argument means; None leaves it to what is known of the model.

    Raises
    ------
    PolicyError
        When it is no such thing.
    """
    if given is None or isinstance(given, LowPrecision):
        return given
    for member in LowPrecision:
        if isinstance(given, str) and given == member.value:
            return member
    raise PolicyError(
        f"{argument('low_precision')} must be 'required', 'profitable' or None, not {given!r:.80}."
    )
