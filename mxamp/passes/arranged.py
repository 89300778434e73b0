"""A tensor whose axes are put in another order, joined and split, in words that are right for every call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Sequence

from mxamp.passes.axis_sizes import Sizes, joined

_FEW_AXES = 4
"""MXNet works out for each value where it comes from once there are more."""


class Move(NamedTuple):
    """A node of one input that moves values.

    Attributes
    ----------
    op
        ``transpose`` or ``Reshape``.
    attrs
        Its attributes.
    shape
        The shape of its result in one call.
    """

    op: str
    attrs: dict[str, str]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Arranged:
    """A tensor, and what was done to its axes.

    Attributes
    ----------
    sizes
        How long its axes are, in every call.
    shape
        The same in one call.
    moved
        The last move; None where nothing was done.
    before
        The tensor before that.
    """

    sizes: Sizes
    shape: tuple[int, ...]
    moved: Move | None = None
    before: Arranged | None = None

    @property
    def moves(self) -> tuple[Move, ...]:
        """What was done, first things first."""
        if self.before is None or self.moved is None:
            return ()
        return (*self.before.moves, self.moved)

    def transposed(self, order: Sequence[int]) -> Arranged:
        """Return it with its axes in another order, moved as few axes as there are runs of them.

        An axis of length one is nowhere in particular, and axes that stay side by side are moved as one.
        """
        sizes = tuple([self.sizes[axis] for axis in order])
        shape = tuple([self.shape[axis] for axis in order])
        runs = self._runs(order)
        if len(runs) <= 1:
            moved = self.reshaped(sizes, shape)
        elif len(runs) <= _FEW_AXES < len(order):
            moved = self._by_runs(runs, sizes, shape)
        else:
            moved = None
        if moved is not None:
            return moved
        text = f"({', '.join(map(str, order))})"
        return Arranged(sizes, shape, Move("transpose", {"axes": text}, shape), self)

    def reshaped(self, sizes: Sizes, shape: tuple[int, ...]) -> Arranged | None:
        """Return it with axes of other sizes.

        Returns
        -------
        Arranged or None
            None where a Reshape cannot say that: it takes numbers, axes that stay where they are, and one
            that is what the others leave.
        """
        if self.moved is not None and self.moved.op == "Reshape" and self.before is not None:
            at_once = self.before.reshaped(sizes, shape)
            if at_once is not None:
                return at_once
        if sizes == self.sizes:
            return self
        codes = []
        for axis, size in enumerate(sizes):
            stays = axis < len(self.sizes) and self.sizes[axis] == size
            codes.append(size if isinstance(size, int) else 0 if stays else -1)
        if codes.count(-1) > 1:
            return None
        text = f"({', '.join(map(str, codes))}{',' * (len(codes) == 1)})"
        return Arranged(sizes, shape, Move("Reshape", {"shape": text}, shape), self)

    def _runs(self, order: Sequence[int]) -> list[list[int]]:
        """Return the axes, but those of length one, in their new order, with those together that stay so."""
        runs: list[list[int]] = []
        for axis in order:
            if self.sizes[axis] == 1:
                continue
            between = range(runs[-1][-1] + 1, axis) if runs else ()
            if runs and runs[-1][-1] < axis and all(self.sizes[each] == 1 for each in between):
                runs[-1].append(axis)
            else:
                runs.append([axis])
        return runs

    def _by_runs(self, runs: list[list[int]], sizes: Sizes, shape: tuple[int, ...]) -> Arranged | None:
        before = sorted(runs)
        merged = self.reshaped(
            tuple([joined([self.sizes[axis] for axis in run]) for run in before]),
            tuple([math.prod([self.shape[axis] for axis in run]) for run in before]),
        )
        if merged is None:
            return None
        return merged.transposed([before.index(run) for run in runs]).reshaped(sizes, shape)
