"""One call of an operator as a shape rule sees it, and the table of rules.

A rule says which shapes an operator returns for the shapes that it reads, as a fact of MXNet 1.9.1. A size
that is not known is :data:`UNKNOWN`; only rules that are entered with ``partial=True`` see such shapes.
"""

from __future__ import annotations

from typing import Callable, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple, Union

from mxamp.ops.attribute_reader import AttributeReader

Shape = Tuple[int, ...]
MaybeShape = Optional[Shape]
Returned = Union[Shape, Sequence[MaybeShape]]

UNKNOWN = -1
"""A size that is not known."""


class MismatchError(Exception):
    """Shapes or attributes that do not fit together; the text says why."""


class UnknownShapeError(Exception):
    """A shape that is needed and not known."""


class ShapeCall(AttributeReader):
    """A call of an operator.

    Parameters
    ----------
    op
        Its canonical name.
    attrs
        Its attributes.
    inputs
        The shapes that it reads; None where one is not known.
    numpy
        Whether sizes have NumPy's meaning: 0 is a size, and there are scalars. Otherwise 0 is unknown, and
        what NumPy would return as a scalar has the shape (1,).
    """

    def __init__(
        self, op: str, attrs: Mapping[str, str], inputs: Sequence[MaybeShape], *, numpy: bool = False
    ) -> None:
        super().__init__(attrs)
        self.op = op
        self.inputs = inputs
        self.numpy = numpy

    def refuse(self, why: str) -> NoReturn:
        """Say that shapes or attributes do not fit.

        Raises
        ------
        MismatchError
            Always.
        """
        raise MismatchError(why)

    def shape(self, number: int) -> Shape:
        """Return the shape of an input.

        Raises
        ------
        UnknownShapeError
            Where it is not known.
        """
        found = self.inputs[number] if number < len(self.inputs) else None
        if found is None:
            raise UnknownShapeError
        return found

    @property
    def data(self) -> Shape:
        """The shape of the first input."""
        return self.shape(0)

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of all inputs."""
        return [self.shape(number) for number in range(len(self.inputs))]

    def axis(self, axis: int, rank: int) -> int:
        """Return the number of an axis, counted from the front."""
        if not -rank <= axis < rank:
            self.refuse(f"it names the axis {axis} of what has {rank} axes")
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> set[int]:
        """Return the numbers of axes that must differ."""
        found = {self.axis(axis, rank) for axis in axes}
        if len(found) < len(axes):
            self.refuse(f"it names an axis twice: {tuple(axes)}")
        return found

    def rank(self, number: int, *ranks: int) -> Shape:
        """Return the shape of an input that must have one of some numbers of axes."""
        shape = self.shape(number)
        if len(shape) not in ranks:
            wanted = " or ".join(str(rank) for rank in ranks)
            self.refuse(f"input {number} has the shape {shape}, and {wanted} axes are wanted")
        return shape

    def expect(self, number: int, wanted: Shape, what: str) -> None:
        """Check an input whose shape, where it is known, can only be one."""
        found = self.inputs[number] if number < len(self.inputs) else None
        if found is not None and merged(found, wanted) is None:
            self.refuse(f"the {what} has the shape {found}, and {wanted} is wanted")

    def scalar(self) -> Shape:
        """Return the shape of one number: no axes where the operator is numpy's, in its shape semantics."""
        return () if self.numpy and self.op.startswith("_np") else (1,)

    def made(self, sizes: Sequence[int]) -> Shape:
        """Return a shape that an attribute gives."""
        return tuple(UNKNOWN if size < 0 or (size == 0 and not self.numpy) else size for size in sizes)


class Rule(NamedTuple):
    """How the shapes are found that an operator returns.

    Attributes
    ----------
    outputs
        Returns the shape of the first output, or a list of those of the first few, hidden ones included.
    is_partial
        Whether it takes shapes of which sizes are unknown.
    """

    outputs: Callable[[ShapeCall], Returned]
    is_partial: bool


RULES: dict[str, Rule] = {}
"""Canonical name of an operator -> its rule."""

DEMANDS: dict[str, Callable[[ShapeCall, Sequence[MaybeShape]], Sequence[MaybeShape]]] = {}
"""Canonical name -> what tells unknown inputs from what is known around them; None where nothing does."""


def rule(
    names: str, *, partial: bool = False
) -> Callable[[Callable[[ShapeCall], Returned]], Callable[[ShapeCall], Returned]]:
    """Enter the decorated function into the table.

    Parameters
    ----------
    names
        Canonical names of operators, separated by spaces.
    partial
        Whether it takes shapes of which sizes are unknown.
    """

    def enter(outputs: Callable[[ShapeCall], Returned]) -> Callable[[ShapeCall], Returned]:
        for name in names.split():
            assert name not in RULES, name
            RULES[name] = Rule(outputs, partial)
        return outputs

    return enter


_Demand = Callable[[ShapeCall, Sequence[MaybeShape]], Sequence[MaybeShape]]


def demand(names: str) -> Callable[[_Demand], _Demand]:
    """Enter what tells an operator's unknown inputs from what is known around it."""

    def enter(inputs: _Demand) -> _Demand:
        for name in names.split():
            assert name not in DEMANDS, name
            DEMANDS[name] = inputs
        return inputs

    return enter


def merged(one: MaybeShape, other: MaybeShape) -> MaybeShape:
    """Return what two partly known shapes of the same tensor say together; None where they contradict.

    A shape that is not known at all says nothing.
    """
    if one is None or other is None:
        return one if other is None else other
    if one == other:
        return one
    if len(one) != len(other):
        return None
    sizes = []
    for size, another in zip(one, other):
        if size != another and UNKNOWN not in (size, another):
            return None
        sizes.append(another if size == UNKNOWN else size)
    return tuple(sizes)
