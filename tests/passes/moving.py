"""What moves make of values, with NumPy."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mxamp.passes.arranged import Move

__all__ = ["moved"]


def moved(moves: Sequence[Move], values: np.ndarray) -> np.ndarray:
    """Return what moves make of values, read as MXNet reads their attributes."""
    for move in moves:
        (text,) = move.attrs.values()
        numbers = tuple(int(number) for number in text.strip("(,)").split(",") if number.strip())
        if move.op == "transpose":
            values = values.transpose(numbers)
        else:
            values = values.reshape(
                [values.shape[at] if size == 0 else size for at, size in enumerate(numbers)]
            )
    return values
