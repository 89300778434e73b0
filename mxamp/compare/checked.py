"""Arguments of a comparison, checked."""

from __future__ import annotations

import contextlib
import math
import numbers
from typing import Any

from mxamp.errors import DataError
from mxamp.files.names import short


def checked_progress(given: Any) -> Any:
    """Return what is called as work proceeds.

    Raises
    ------
    DataError
        When it cannot be called.
    """
    if given is not None and not callable(given):
        raise DataError(f"progress must be a function or None, not {given!r:.80}.")
    return given


def checked_number(given: Any, what: str) -> float:
    """Return a number that the user gave.

    Raises
    ------
    DataError
        When it is no number from 0 on.
    """
    number = math.nan
    if isinstance(given, numbers.Real):
        with contextlib.suppress(OverflowError):
            number = float(given)
    if not number >= 0:
        raise DataError(f"{what} must be a number from 0 on, not {short(given)}.")
    return number


def checked_seed(given: Any) -> int:
    """Return the seed of what is drawn.

    Raises
    ------
    DataError
        When it is no whole number of 32 bits, from 0 on.
    """
    if not isinstance(given, numbers.Integral) or not 0 <= int(given) < 2**32:
        raise DataError(f"seed must be a whole number from 0 to 2**32 - 1, not {short(given)}.")
    return int(given)
