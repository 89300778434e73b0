"""What rates leave unsaid of kernels: boosted trees that say how many times longer each one takes.

Rates say how a time grows with the work. What they miss is made of many small things at once, such as how
channels fill registers or what a row's end costs; no condition alone is worth a leaf with rates of its own.
Each of some hundred small trees tells a little of it, as the logarithm of a factor (Friedman, "Greedy
function approximation: a gradient boosting machine", 2001). All families have the same trees, which may ask
for the family, and for nothing of what is around a kernel.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import AbstractSet, Any, Iterator, Mapping, NamedTuple, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from mxamp.targets.kernel_terms import AMOUNTS, TRAITS


class Condition(NamedTuple):
    """A condition of a tree.

    Attributes
    ----------
    number
        Which of a kernel's values is looked at.
    below
        The number that it is compared with.
    lower, upper
        What holds where it is below, and where it is not.
    """

    number: int
    below: float
    lower: CorrectionTree
    upper: CorrectionTree


CorrectionTree = Union[float, Condition]

_SURROUNDINGS = frozenset({"around", "model", "operators"})
"""Left to the rates: networks are other surroundings than the graphs that trees learn from."""

NAMES = tuple(sorted((AMOUNTS | TRAITS) - _SURROUNDINGS))
"""The values of a kernel that may be asked for, numbered so; behind them each family, whether it is that."""


@dataclass(frozen=True)
class Correction:
    """How many times longer the kernels of a dtype take than their rates say.

    Attributes
    ----------
    families
        The families that trees ask for.
    trees
        The trees, whose leaves are natural logarithms; they are added.
    up_to_us
        What kernels took at most that trees were learned from: trees know no growth, so of larger ones rates
        alone tell.
    """

    families: tuple[str, ...]
    trees: tuple[CorrectionTree, ...]
    up_to_us: float

    def times(
        self, family: str, amounts: Mapping[str, float], traits: Mapping[str, float], us: float
    ) -> float:
        """Return how many times longer a kernel takes than the microseconds that its rates say.

        Parameters
        ----------
        family
            Which kernels it is one of.
        amounts, traits
            What is known of it. Whatever else trees ask for is 0.
        us
            What its rates say.
        """
        if us > self.up_to_us:
            return 1.0
        return math.exp(self._forest.total(family, {**amounts, **traits}))

    @cached_property
    def _forest(self) -> _Forest:
        return _Forest(self.trees, self.families)


class _Question(NamedTuple):
    """What trees ask about one value, or about one family: 1 for a kernel of it.

    Attributes
    ----------
    name
        The value's name, or the family's.
    bounds
        What it is compared with, ascending.
    first
        The row of the table for what is below all bounds; one for each bound follows.
    """

    name: str
    bounds: Sequence[float]
    first: int

    def row(self, value: float) -> int:
        """Return the row for a value."""
        return self.first + bisect_right(self.bounds, value)


class _Forest:
    """All trees at once, which takes an eighth of the time of one after the other (200 trees: 20 and 170 us).

    The leaves of a tree are numbered from left to right, each a bit. A condition that does not hold takes
    away the leaves on its lower side, and of those that all conditions leave the first one is the tree's
    (Lucchese et al., "QuickScorer: a fast algorithm to rank documents with additive ensembles of regression
    trees", SIGIR 2015). What all conditions about one value leave depends on nothing but between which of
    their bounds it lies: for each such place a table has a row with a number for every tree.
    """

    def __init__(self, trees: Sequence[CorrectionTree], families: Sequence[str]) -> None:
        self._constant = sum(tree for tree in trees if not isinstance(tree, tuple))
        leaves: list[float] = []
        begins: list[int] = []
        conditions: dict[int, dict[float, list[tuple[int, int]]]] = {}
        """Number of a value -> bound -> the trees that compare it with that, and what is left beyond."""

        def add(part: CorrectionTree) -> None:
            if not isinstance(part, tuple):
                leaves.append(part)
                return
            before = len(leaves) - begins[-1]
            add(part.lower)
            taken = (1 << (len(leaves) - begins[-1])) - (1 << before)
            own = conditions.setdefault(part.number, {}).setdefault(part.below, [])
            own.append((len(begins) - 1, _ALL ^ taken))
            add(part.upper)

        for tree in trees:
            if isinstance(tree, tuple):
                begins.append(len(leaves))
                add(tree)
        self._begins, self._leaves = np.array(begins, np.intp), np.array(leaves)
        table: list[NDArray[np.uint16]] = []
        self._of_values: list[_Question] = []
        self._of_families: list[_Question] = []
        for number, own in conditions.items():
            is_family = number >= len(NAMES)
            name = families[number - len(NAMES)] if is_family else NAMES[number]
            question = _Question(name, sorted(own), len(table))
            (self._of_families if is_family else self._of_values).append(question)
            table += _rows([own[bound] for bound in question.bounds], len(begins))
        self._table = np.array(table, np.uint16).reshape(len(table), len(begins))
        self._known: dict[tuple[str, ...], tuple[NDArray[np.uint16], Sequence[_Question]]] = {}

    def total(self, family: str, values: Mapping[str, float]) -> float:
        """Return the sum of the leaves that a kernel comes to."""
        kind = (family, *values)
        if kind not in self._known:
            self._known[kind] = self._begun(family, values.keys())
        left, questions = self._known[kind]
        # _Question.row, without a call for each question of each kernel.
        rows = [first + bisect_right(bounds, values[name]) for name, bounds, first in questions]
        left = left & self._left(rows)
        return self._constant + float(self._leaves.take(self._begins + _FIRST_BIT.take(left)).sum())

    def _begun(self, family: str, names: AbstractSet[str]) -> tuple[NDArray[np.uint16], Sequence[_Question]]:
        """Return what is left of the leaves for all kernels that have such values, and what else is asked."""
        rows = [question.row(float(question.name == family)) for question in self._of_families]
        rows += [question.row(0.0) for question in self._of_values if question.name not in names]
        return self._left(rows), [question for question in self._of_values if question.name in names]

    def _left(self, rows: Sequence[int]) -> NDArray[np.uint16]:
        chosen: NDArray[np.uint16] = self._table.take(np.array(rows, np.intp), axis=0)
        return np.bitwise_and.reduce(chosen, axis=0)  # type: ignore[no-any-return]


def _rows(bounds: Sequence[Sequence[tuple[int, int]]], trees: int) -> Iterator[NDArray[np.uint16]]:
    """Yield what is left of every tree's leaves below all bounds of a value, and from each of them on."""
    row = np.full(trees, _ALL, np.uint16)
    yield row
    for conditions in bounds:
        row = row.copy()
        for tree, left in conditions:
            row[tree] &= left
        yield row


_MOST_LEAVES = 16
"""Of a tree: the bits of a number."""

_ALL = 2**_MOST_LEAVES - 1

_FIRST_BIT = np.zeros(2**_MOST_LEAVES, np.uint8)
"""Which bit of a number is the lowest that is set."""

for _bit in reversed(range(_MOST_LEAVES)):
    _FIRST_BIT[1 << _bit :: 2 << _bit] = _bit


def _leaves_of(tree: CorrectionTree) -> int:
    return _leaves_of(tree.lower) + _leaves_of(tree.upper) if isinstance(tree, tuple) else 1


def correction_to_document(correction: Correction) -> dict[str, Any]:
    """Return it as plain data."""
    trees = [_to_document(tree, correction.families) for tree in correction.trees]
    return {"up_to_us": correction.up_to_us, "trees": trees}


def _to_document(part: CorrectionTree, families: Sequence[str]) -> Any:
    if not isinstance(part, tuple):
        return part
    lower, upper = (_to_document(side, families) for side in (part.lower, part.upper))
    if part.number >= len(NAMES):
        return {"family": families[part.number - len(NAMES)], "then": upper, "else": lower}
    return {"trait": NAMES[part.number], "below": part.below, "then": lower, "else": upper}


def correction_from_document(document: Any, what: str) -> Correction:
    """Read it from plain data.

    Raises
    ------
    KeyError, TypeError, ValueError
        When it is none; names ``what`` it was to be.
    """
    families: dict[str, int] = {}
    trees = tuple([_from_document(tree, families, what) for tree in document["trees"]])
    if any(_leaves_of(tree) > _MOST_LEAVES for tree in trees):
        raise ValueError(f"{what}: a tree has more than {_MOST_LEAVES} leaves")
    return Correction(tuple(families), trees, _number(document["up_to_us"], what))


def _from_document(document: Any, families: dict[str, int], what: str) -> CorrectionTree:
    if not isinstance(document, Mapping):
        return _number(document, what)
    then, other = (_from_document(document[side], families, what) for side in ("then", "else"))
    if "family" in document:
        number = families.setdefault(str(document["family"]), len(families))
        return Condition(len(NAMES) + number, _IS_ONE, other, then)
    trait = document["trait"]
    if trait not in NAMES:
        raise ValueError(f"{what}: {trait!r:.80} is neither a trait nor an amount")
    return Condition(NAMES.index(trait), _number(document["below"], what), then, other)


_IS_ONE = 0.5
"""Between 0 and 1, which say whether a kernel is of a family."""


def _number(given: Any, what: str) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not math.isfinite(given):
        raise ValueError(f"{what}: {given!r:.80} is no number")
    return float(given)
