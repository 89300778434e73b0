"""Numbers of things, and lists that are too long to read, in words."""

from __future__ import annotations

from typing import Any, Sequence

_REASONS_SHOWN = 12


_NAMES_SHOWN = 6


def count_of(number: int, noun: str) -> str:
    """Return ``1 cast`` or ``2 casts``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def some_of(names: Sequence[str], shown: int = _NAMES_SHOWN) -> str:
    """Return the first names, and how many more there are."""
    # "and 1 more" is no shorter than the name itself.
    if len(names) <= shown + 1:
        return ", ".join(names)
    return f"{', '.join(names[:shown])} and {len(names) - shown} more"


def shown_of(reasons: Sequence[Any]) -> int:
    """Return how many reasons are shown; one more that is left out would take a line, too."""
    return len(reasons) if len(reasons) <= _REASONS_SHOWN + 1 else _REASONS_SHOWN
