"""A tensor whose axes are put in another order, joined and split, in words that are right for every call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple, Sequence

from mxamp.graph.graph import Entry
from mxamp.passes.axis_sizes import joined
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import own_attributes
from mxamp.passes.window_sizes import Sizes

_FEW_AXES = 4
"""MXNet works out for each value where it comes from once there are more."""

_MANY_RUNS = 6
"""What moves more runs of axes is not looked for in two steps."""


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

        An axis of length one is nowhere in particular, and axes that stay side by side are moved as one. More
        than four runs are moved in two steps.
        """
        sizes = tuple([self.sizes[axis] for axis in order])
        shape = tuple([self.shape[axis] for axis in order])
        runs = self._runs(order)
        if len(runs) <= 1:
            moved = self.reshaped(sizes, shape)
        elif len(order) > _FEW_AXES and len(runs) <= _MANY_RUNS:
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
        order = [before.index(run) for run in runs]
        if len(runs) <= _FEW_AXES:
            return merged.transposed(order).reshaped(sizes, shape)
        first = _half_way(order)
        if first is None:
            return None
        turned = merged.transposed(first).transposed([first.index(axis) for axis in order])
        # What cannot be parted again on the way would be moved along all axes, twice.
        is_fast = all(move.op != "transpose" or len(move.shape) <= _FEW_AXES for move in turned.moves)
        return turned.reshaped(sizes, shape) if is_fast else None


def _half_way(order: Sequence[int]) -> Sequence[int] | None:
    """Return an order from which and to which few runs of axes are moved; rows stay whole if they can."""
    keeps_rows = order[-1] == len(order) - 1
    found = []
    for middle in permutations(range(len(order))):
        runs = _runs(middle), _runs([middle.index(axis) for axis in order])
        if max(runs) <= _FEW_AXES and (not keeps_rows or middle[-1] == order[-1]):
            found.append((sum(runs), middle))
    return min(found)[1] if found else None


def _runs(order: Sequence[int]) -> int:
    """Return how many runs of axes an order has."""
    return 1 + sum(later != axis + 1 for axis, later in zip(order, order[1:]))


def move(edit: GraphEdit, position: int, entry: Entry, moves: Sequence[Move], what: str = "") -> Entry:
    """Put moves in front of a node that they are a part of from now on, and return what they make.

    Parameters
    ----------
    edit
        The graph that is made.
    position
        The node.
    entry
        What is moved.
    moves
        How.
    what
        What is moved, in names.
    """
    for step in moves:
        name = f"{what}_{step.op.lower()}" if what else step.op.lower()
        entry = edit.part(position, step.op, name, entry, like=step.shape, **step.attrs)
    return entry


def move_into(edit: GraphEdit, position: int, entry: Entry, moves: Sequence[Move], what: str = "") -> None:
    """Put moves in the place of a node, which is the last of them from now on; see :func:`move`."""
    *before, last = moves
    node, moved = edit.node(Entry(position)), move(edit, position, entry, before, what)
    attrs = {**last.attrs, **own_attributes(node)}
    edit.replace(position, node._replace(op=last.op, attrs=attrs, inputs=(moved,)))
