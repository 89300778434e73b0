"""What an argument is called where the user gave it: its name in Python, its option on a command line."""

from __future__ import annotations

import contextlib
import os
from contextvars import ContextVar
from typing import Any, Iterator, Mapping, TypeVar

import numpy as np

from mxamp.errors import MxampError, PolicyError

_Settings = TypeVar("_Settings")

_OPTIONS = {
    "by_position": "--by-position",
    "calibration": "--calibration",
    "cast_op": "--cast-op",
    "compensate": "--compensate",
    "emulate": "--emulate",
    "epoch": "--epoch",
    "exclude": "--exclude",
    "input_shapes": "--input-shape",
    "headroom": "--headroom",
    "inputs": "--input",
    "io_dtype": "--io-dtype",
    "low_precision": "--low-precision",
    "policy": "--policy",
    "prefix": "the prefix",
    "profile": "--profile",
    "saturate": "--saturate",
    "target": "--target",
    "target_dtype": "--dtype",
    "time_budget": "--time-budget",
}
"""Argument -> the option that gives it, or what a command line calls it. What has neither keeps its name."""

_NAMES: ContextVar[Mapping[str, str] | None] = ContextVar("names", default=None)
"""What the arguments are called; None where they were given in Python."""


@contextlib.contextmanager
def as_options(**others: str) -> Iterator[None]:
    """Let messages call arguments by their options, for the command line.

    Parameters
    ----------
    **others
        Argument -> the option that gives it here, where that is another than usual.
    """
    before = _NAMES.set({**_OPTIONS, **others})
    try:
        yield
    finally:
        _NAMES.reset(before)


def argument(name: str) -> str:
    """Return what the user calls an argument: ``input_shapes``, or ``--input-shape``."""
    return (_NAMES.get() or {}).get(name, name)


def setting(name: str, value: object) -> str:
    """Return how the user gives an argument a value: ``saturate=True``, or ``--saturate``.

    Parameters
    ----------
    name
        The argument.
    value
        Its value. A list is one option for each item, a mapping one for each pair.
    """
    option = (_NAMES.get() or {}).get(name)
    if option is None:
        return f"{name}={value!r}"
    if value is True:
        return option
    if isinstance(value, dict):
        return " ".join(f"{option} {key}={_text(item)}" for key, item in value.items())
    return " ".join(f"{option} {_text(item)}" for item in (value if isinstance(value, list) else [value]))


def check_flag(given: Any, label: str, error: type[MxampError] = PolicyError) -> None:
    """Check that an option that is either on or off is one or the other.

    Parameters
    ----------
    given
        What the user gave.
    label
        What the option is called.
    error
        What to raise.

    Raises
    ------
    MxampError
        ``error``, when it is anything but a bool.
    """
    if not isinstance(given, (bool, np.bool_)):
        raise error(f"{label} must be True or False, not {given!r:.80}.")


def settings_of(kind: type[_Settings], given: Any, label: str) -> _Settings | None:
    """Return what an argument means that is on or off, or says more: None where it is off.

    Raises
    ------
    PolicyError
        When it is neither a bool nor of that kind.
    """
    if isinstance(given, kind):
        return given
    if not isinstance(given, (bool, np.bool_)):
        where = kind.__module__.split(".")[1]
        raise PolicyError(
            f"{label} must be True, False or an mxamp.{where}.{kind.__name__}, not {given!r:.80}."
        )
    return kind() if given else None


def one_of(function: str, **given: Any) -> Any:
    """Return the value of an argument that has two names; None where neither was given.

    Raises
    ------
    TypeError
        When both were, as where Python itself gets two values for one argument.
    """
    found = {name: value for name, value in given.items() if value is not None}
    if len(found) > 1:
        raise TypeError(f"{function}() got {' and '.join(map(repr, found))}, two names of one argument")
    return next(iter(found.values()), None)


def items(given: object) -> list[Any] | None:
    """Return what a collection holds, read once; None for a string, and for what cannot be gone through."""
    if isinstance(given, (str, bytes)):
        return None
    try:
        return list(given)  # type: ignore[call-overload, no-any-return]
    except Exception:  # whatever an object of the user's raises, it is no collection
        return None


def path_fault(path: object) -> str | None:
    """Say what makes something unusable as the path of a file, or return None."""
    if not isinstance(path, (str, os.PathLike)):
        return f"{path!r:.80} is no path"
    text = os.fspath(path)
    try:
        name = os.fsencode(text)
    except UnicodeEncodeError:
        return f"{text!r:.80} holds a lone surrogate, which no file name does"
    if b"\0" in name:
        return f"{text!r:.80} holds a NUL, which ends a path"
    if len(name) > _LONGEST_PATH or any(len(part) > _LONGEST_NAME for part in name.split(b"/")):
        return f"{text[:40]!r}... is longer than a path can be"
    return None


_LONGEST_PATH, _LONGEST_NAME = 4000, 255
"""Linux's limits in bytes; of a path with some to spare, for what is appended to a prefix."""


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
