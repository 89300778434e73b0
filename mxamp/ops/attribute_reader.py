"""Attributes of one node as values, for whoever says what a node does by them."""

from __future__ import annotations

import json
from typing import Mapping, NoReturn, Sequence

from mxamp.ops.attributes import as_json, integers, is_true

_MEANS_ABSENT = (None, "None")


class AttributeReader:
    """Reads attributes as the types that an operator gives them.

    Parameters
    ----------
    attrs
        The node's attributes, as text.
    """

    def __init__(self, attrs: Mapping[str, str]) -> None:
        self.attrs = attrs

    def refuse(self, why: str) -> NoReturn:
        """Say that the attributes are none that can be read."""
        raise NotImplementedError

    def text(self, key: str, default: str | None = None) -> str | None:
        """Return an attribute as it is written; ``default`` where it is absent or None."""
        found = self.attrs.get(key)
        return default if found in _MEANS_ABSENT else found

    def flag(self, key: str, default: bool = False) -> bool:
        """Return an attribute that is true or false."""
        return is_true(self.attrs, key, default=default)

    def number(self, key: str, default: float | None = None) -> float:
        """Return a floating-point attribute."""
        text = self.text(key)
        try:
            if text is None and default is not None:
                return default
            return float(str(text).replace("True", "1").replace("False", "0"))
        except ValueError:
            self.refuse(f"its attribute {key}={text!r} is no number.")

    def integer(self, key: str, default: int | None = None) -> int:
        """Return an integer attribute."""
        value = self.number(key, default)
        if value != int(value):
            self.refuse(f"its attribute {key}={value!r} is no integer.")
        return int(value)

    def sizes(self, key: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return an attribute that holds integers."""
        text = self.text(key)
        if text is None or text in ("()", "[]"):
            if default is None:
                self.refuse(f"it has no attribute {key!r}, or an empty one.")
            return tuple(default)
        found = integers(text)
        if found is None:
            self.refuse(f"its attribute {key}={text!r} holds no integers.")
        return found

    def optional_sizes(self, key: str) -> tuple[int | None, ...]:
        """Return an attribute that holds integers and None."""
        text = self.text(key) or "()"
        try:
            found = json.loads(as_json(text).replace("None", "null"))
        except ValueError:
            self.refuse(f"its attribute {key}={text!r} holds no integers.")
        return tuple(found) if isinstance(found, list) else (found,)

    def numbers(self, key: str, default: Sequence[float]) -> tuple[float, ...]:
        """Return an attribute that holds floating-point numbers."""
        text = self.text(key)
        if text is None:
            return tuple(default)
        try:
            return tuple(float(part) for part in text.strip("()[] ").split(",") if part.strip())
        except ValueError:
            self.refuse(f"its attribute {key}={text!r} holds no numbers.")
