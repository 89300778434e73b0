"""What an operator costs however small it is: chains of tiny ones, of different lengths."""

from __future__ import annotations

from typing import Iterator

from mxamp.probe.case import RELU, Case, Dims, Input, X

SHORT_CHAIN, LONG_CHAIN = "overhead: one operator", "overhead: many operators"
LONG_LENGTH = 33

_TINY = (Dims(1, 16, 1),)


def overhead_cases() -> Iterator[Case]:
    """Yield the two chains; they are only timed."""
    for name, length in ((SHORT_CHAIN, 1), (LONG_CHAIN, LONG_LENGTH)):
        yield Case(name, Input(X), (RELU,) * length, check=(), timing=_TINY, feeds=False)
