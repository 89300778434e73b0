"""Operator attributes as values: ``symbol.json`` holds them all as text, spelt in more than one way."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Mapping

CHANNELS_FIRST = frozenset({"None", "NCW", "NCHW", "NCDHW"})
"""What the attribute ``layout`` says of a layer or a Pooling whose second axis is channels."""

_TRUE = frozenset({"true", "1"})

_WRITTEN_OTHERWISE = re.compile(r"(?<=\d)L|(?<=[\dLe]),\s*(?=[)\]])")
"""What MXNet reads over in a tuple: the ``L`` behind a long integer of Python 2, and a last comma."""


def is_true(attrs: Mapping[str, str], key: str, *, default: bool) -> bool:
    """Return a boolean attribute, or ``default`` where it is absent."""
    text = attrs.get(key)
    return default if text is None else text.lower() in _TRUE


def real_number(attrs: Mapping[str, str], key: str, default: float | None = None) -> float | None:
    """Return a number, ``default`` where the attribute is absent, and None where it holds anything else."""
    try:
        return float(attrs[key]) if key in attrs else default
    except ValueError:
        return None


def as_json(text: str) -> str:
    """Return a tuple of numbers, in whichever way MXNet takes it, as a list of JSON's."""
    return _WRITTEN_OTHERWISE.sub("", text).replace("(", "[").replace(")", "]")


def elements(text: str) -> tuple[str, ...]:
    """Return the elements of a tuple as they are written: numbers, and ``None`` where there is no bound."""
    return tuple([part.strip() for part in text.strip("()[] ").split(",") if part.strip()])


@lru_cache(maxsize=1024)  # the same few kernels and shapes, over and over
def integers(text: str) -> tuple[int, ...] | None:
    """Return an attribute that holds one integer or several, or None when it holds anything else.

    MXNet writes tuples both ways, ``[0, 1]`` and ``(0, 1)``, and takes ``3`` for ``(3,)``; Python 2 wrote
    ``(0L, 1L)``.
    """
    try:
        value = json.loads(as_json(text))
    except (
        ValueError,
        RecursionError,
    ):  # no JSON, more digits than Python agrees to read, or endless brackets
        return None
    if type(value) is int:
        return (value,)
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        return None
    return tuple(value)


@lru_cache(maxsize=1024)
def all_integers(text: str) -> tuple[int, ...]:
    """Return the integers of an attribute in their order, those of pairs within a tuple one after another."""
    return tuple([int(number) for number in re.findall(r"-?\d+", text)])
