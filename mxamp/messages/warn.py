"""Warn the user, at the line of theirs that called mxamp."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from mxamp.errors import MxampWarning

_NOT_THEIRS = frozenset({"mxamp", "contextlib"})


def warn_user(message: str) -> None:
    """Warn at the innermost line outside this package, through however many of its functions it came here."""
    level, frame = 1, sys._getframe()
    while _is_ours(frame) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, MxampWarning, stacklevel=level)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _NOT_THEIRS
