"""A kernel to time: one operator with its shapes, and what the backend fuses with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

BLOCKED, PLAIN = "blocked", "plain"
"""Whether data comes as a convolution leaves it, in blocks of channels, or in the order of its axes."""


@dataclass(frozen=True)
class Operand:
    """One input of a kernel.

    Attributes
    ----------
    shape
        Its shape.
    role
        ``data`` (low), ``weight`` (low, a parameter), ``float32`` (a parameter that is never cast),
        ``index`` (whole numbers below ``limit``, never cast), ``regions`` (of an image, never cast).
    limit
        The number that indices are below; the side of the image that regions are of.
    """

    shape: tuple[int, ...]
    role: str = "data"
    limit: int = 1


@dataclass(frozen=True)
class Kernel:
    """One kernel.

    Attributes
    ----------
    family
        The kind of kernel: those of one family are fitted together.
    op
        MXNet's operator.
    operands
        Its inputs, data first.
    attrs
        Its attributes, as a symbol file holds them.
    layout
        How its data come: :data:`BLOCKED` or :data:`PLAIN`.
    tail
        What follows and is fused: ``""``, ``relu``, ``add`` or ``add relu``.
    """

    family: str
    op: str
    operands: tuple[Operand, ...]
    attrs: Mapping[str, str]
    layout: str = PLAIN
    tail: str = ""

    @property
    def elements(self) -> int:
        """The values that it reads."""
        total = 0
        for operand in self.operands:
            size = 1
            for axis in operand.shape:
                size *= axis
            total += size
        return total


def kernel(
    family: str, op: str, operands: Sequence[Operand], *, layout: str = PLAIN, tail: str = "", **attrs: Any
) -> Kernel:
    """Return a kernel; attributes are written as MXNet writes them."""
    return Kernel(
        family, op, tuple(operands), {name: str(value) for name, value in attrs.items()}, layout, tail
    )
