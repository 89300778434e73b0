"""What numbers on the command line may be."""

from __future__ import annotations

import argparse

__all__ = ["count", "number"]


def count(text: str) -> int:
    """Read a number of things, of which there must be one."""
    return _at_least(1, text)


def number(text: str) -> int:
    """Read a whole number that is not negative."""
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    found = int(text)
    if found < least:
        raise argparse.ArgumentTypeError(f"must be {least} or more, not {found}")
    return found
