"""A product of two tensors that is summed up along an axis, as a product of matrices."""

from __future__ import annotations

import math
from typing import NamedTuple, Sequence

from mxamp.graph.graph import Entry
from mxamp.passes.arranged import Arranged, Move
from mxamp.passes.axis_sizes import joined
from mxamp.passes.window_sizes import Size, Sizes


class Factor(NamedTuple):
    """One of two factors.

    Attributes
    ----------
    entry
        What is multiplied.
    places
        Which axes of the product its own are.
    sizes
        How long it is along every axis of the product, in every call.
    shape
        The same in one call.
    stretched
        How long each of its own axes has to be where the other factor has a number; 0 where it certainly is.
        In some call it may have one value there, which stands for all.
    """

    entry: Entry
    places: tuple[int, ...]
    sizes: Sizes
    shape: tuple[int, ...]
    stretched: tuple[int, ...] = ()

    def stretched_beside(self, other: Factor) -> Factor:
        """Return it with what the other factor tells of its axes."""
        pairs = [(self.sizes[axis], other.sizes[axis]) for axis in self.places]
        found = [
            theirs if isinstance(theirs, int) and theirs > 1 and not isinstance(own, int) else 0
            for own, theirs in pairs
        ]
        return self._replace(stretched=tuple(found) if any(found) else ())

    def order(self, axes: Sequence[int]) -> list[int]:
        """Return which of its own axes are axes of the product, in their order."""
        return [self.places.index(axis) for axis in axes]

    def arranged(self, order: Sequence[int]) -> Arranged:
        """Return it with axes of the product in an order, and all that it has besides behind them."""
        tensor = Arranged(
            tuple([self.sizes[axis] for axis in self.places]),
            tuple([self.shape[axis] for axis in self.places]),
        )
        if self.has_in_order(order):
            return tensor
        others = [place for place, axis in enumerate(self.places) if axis not in order]
        return tensor.transposed([*self.order(order), *others])

    def has_in_order(self, axes: Sequence[int]) -> bool:
        """Return whether axes of the product come in this order."""
        return self.order(axes) == sorted(self.order(axes))


class Product(NamedTuple):
    """A product that is summed up along an axis.

    Attributes
    ----------
    left, right
        The factors.
    sizes, shape
        How long its axes are, in every call and in one.
    summed
        The axis that is summed up.
    keeps_axis
        Whether the sum has that axis, of length one.
    """

    left: Factor
    right: Factor
    sizes: Sizes
    shape: tuple[int, ...]
    summed: int
    keeps_axis: bool

    def axes(self, *, of_left: bool, of_right: bool) -> tuple[int, ...]:
        """Return the axes that both factors have, or that one has, without that which is summed up."""
        return tuple(
            axis
            for axis, (one, other) in enumerate(zip(self.left.sizes, self.right.sizes))
            if axis != self.summed and (one != 1) == of_left and (other != 1) == of_right
        )


class Operand(NamedTuple):
    """A factor as a row of matrices.

    Attributes
    ----------
    entry
        The factor.
    moves
        What makes matrices of it.
    is_turned
        Whether the axis that is summed up comes before its own.
    """

    entry: Entry
    moves: tuple[Move, ...]
    is_turned: bool


class Form(NamedTuple):
    """A product of matrices.

    Attributes
    ----------
    left, right
        The operands.
    shape
        The shape of the product in one call.
    moves
        What makes of it what is wanted.
    """

    left: Operand
    right: Operand
    shape: tuple[int, ...]
    moves: tuple[Move, ...]


def factor_of(
    entry: Entry, sizes: Sizes, shape: tuple[int, ...], places: tuple[int, ...], axes: int
) -> Factor:
    """Return an entry as a factor of a product with so many axes; along those that it lacks its length is 1.

    Parameters
    ----------
    entry
        What is multiplied.
    sizes, shape
        How long its axes are, in every call and in one.
    places
        Which axes of the product they are.
    axes
        How many the product has, that which is summed up among them.
    """
    along = [places.index(axis) if axis in places else None for axis in range(axes)]
    return Factor(
        entry,
        places,
        tuple([1 if own is None else sizes[own] for own in along]),
        tuple([1 if own is None else shape[own] for own in along]),
    )


def product_of(
    left: Factor, right: Factor, shape: tuple[int, ...], summed: int, *, is_equal: bool, keeps_axis: bool
) -> Product | None:
    """Return the product of two factors.

    Parameters
    ----------
    left, right
        The factors.
    shape
        How long the product's axes are in one call.
    summed
        The axis that is summed up.
    is_equal
        Whether axes that both factors have are of one length, or MXNet refuses to multiply.
    keeps_axis
        Whether the sum has that axis, of length one.

    Returns
    -------
    Product or None
        None where it is not certain which axes the factors have.
    """
    sizes = [
        _common(axis, *pair, is_equal=is_equal)
        for axis, pair in enumerate(zip(left.sizes, right.sizes, left.shape, right.shape))
    ]
    # What both factors have once may be many times in the product, where both were copied along an axis.
    if any(size is None or (size == 1 != length) for size, length in zip(sizes, shape)):
        return None
    if not is_equal:
        left, right = left.stretched_beside(right), right.stretched_beside(left)
    left, right = [
        factor._replace(sizes=tuple([1 if own == 1 else size for own, size in zip(factor.sizes, sizes)]))
        for factor in (left, right)
    ]
    return Product(left, right, tuple(sizes), shape, summed, keeps_axis)


def _common(
    axis: int, one: Size, other: Size, length: int, other_length: int, *, is_equal: bool
) -> Size | None:
    """Return how long an axis of a product is; None where that is not certain.

    Beside a number above one an axis is as long, or one in every call: the batch may happen to be as long as
    that number, other axes are meant to.
    """
    if other in (1, one):
        return one
    if one == 1:
        return other
    is_certain = is_equal or (axis > 0 and isinstance(one, int) != isinstance(other, int))
    if not is_certain or length != other_length:
        return None
    return one if isinstance(one, int) else other


def form_of(product: Product) -> Form | None:
    """Return it as a product of matrices; None where what moves values cannot be said for every call."""
    both = product.axes(of_left=True, of_right=True)
    rows = product.axes(of_left=True, of_right=False)
    columns = product.axes(of_left=False, of_right=True)
    left, right = product.left, product.right
    order = sorted(both + rows + columns)
    if list(both + rows + columns) != order == list(both + columns + rows):
        left, right, rows, columns = right, left, columns, rows
    first, second = _operand(product, left, both, rows), _operand(product, right, both, columns)
    result = Arranged(*_joined(product, (both, rows, columns)))
    shape = result.shape
    given = both + rows + columns
    if list(given) != order:
        split = result.reshaped(*_joined(product, [(axis,) for axis in given]))
        if split is None:
            return None
        result = split.transposed([given.index(axis) for axis in order])
    axes = [() if axis == product.summed else (axis,) for axis in range(len(product.shape))]
    wanted = result.reshaped(*_joined(product, [axis for axis in axes if axis or product.keeps_axis]))
    if first is None or second is None or wanted is None:
        return None
    return Form(first, second, shape, wanted.moves)


def _joined(product: Product, groups: Sequence[tuple[int, ...]]) -> tuple[Sizes, tuple[int, ...]]:
    """Return how long each group of a product's axes is, in every call and in one."""
    return (
        tuple([joined([product.sizes[axis] for axis in group]) for group in groups]),
        tuple([math.prod([product.shape[axis] for axis in group]) for group in groups]),
    )


def _operand(product: Product, factor: Factor, both: tuple[int, ...], own: tuple[int, ...]) -> Operand | None:
    """Return a factor as a row of matrices; None where that cannot be said for every call."""
    terms = (product.summed,)
    last = max(both + own + terms, key=factor.places.index)
    found = []
    for groups, is_turned in (((both, own, terms), False), ((both, terms, own), True)):
        order = [axis for group in groups for axis in group]
        matrices = factor.arranged(order).reshaped(*_joined(product, groups))
        if matrices is not None:
            # In place where it can be; otherwise the last axis stays, and whole rows are moved.
            is_moved = not factor.has_in_order(order)
            cost = (is_moved, is_moved and order[-1] != last, len(matrices.moves))
            found.append((cost, is_turned, matrices.moves))
    if not found:
        return None
    _, is_turned, moves = min(found, key=lambda each: each[:2])
    return Operand(factor.entry, moves, is_turned)
