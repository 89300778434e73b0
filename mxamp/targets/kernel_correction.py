"""What rates leave unsaid of kernels: boosted trees that say how many times longer each one takes.

Rates say how a time grows with the work. What they miss is made of many small things at once, such as how
channels fill registers or what a row's end costs; no condition alone is worth a leaf with rates of its own.
Each of some hundred small trees tells a little of it, as the logarithm of a factor (Friedman, "Greedy
function approximation: a gradient boosting machine", 2001). All families have the same trees, which may ask
for the family, and for nothing of what is around a kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Mapping, NamedTuple, Sequence, Union

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
"""The values of a kernel that may be asked for; behind them stands for each family whether it is that."""

_NUMBERS = {name: number for number, name in enumerate(NAMES)}


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
        """Return how many times longer a kernel takes than the microseconds that its rates say."""
        if us > self.up_to_us:
            return 1.0
        return self.times_of(kernel_values(self.families, family, amounts, traits))

    def times_of(self, values: NDArray[np.float64]) -> float:
        """Return how many times longer a kernel of such values takes; see :func:`kernel_values`."""
        return math.exp(self._forest.total(values))

    @cached_property
    def _forest(self) -> _Forest:
        return _Forest(self.trees)


class _Forest:
    """All trees at once, which takes less than half the time of one after the other.

    The leaves of a tree are numbered from left to right, each a bit. A condition that does not hold takes
    away the leaves on its lower side, and of those that all conditions leave the first one is the tree's
    (Lucchese et al., "QuickScorer: a fast algorithm to rank documents with additive ensembles of regression
    trees", SIGIR 2015).
    """

    def __init__(self, trees: Sequence[CorrectionTree]) -> None:
        self._constant = sum(tree for tree in trees if not isinstance(tree, tuple))
        numbers: list[int] = []
        belows: list[float] = []
        taken: list[int] = []
        firsts: list[int] = []
        leaves: list[float] = []
        begins: list[int] = []

        def add(part: CorrectionTree) -> None:
            if not isinstance(part, tuple):
                leaves.append(part)
                return
            at, left = len(numbers), len(leaves) - begins[-1]
            numbers.append(part.number)
            belows.append(part.below)
            taken.append(0)
            add(part.lower)
            taken[at] = (1 << (len(leaves) - begins[-1])) - (1 << left)
            add(part.upper)

        for tree in trees:
            if isinstance(tree, tuple):
                firsts.append(len(numbers))
                begins.append(len(leaves))
                add(tree)
        self._numbers, self._belows = np.array(numbers, np.intp), np.array(belows)
        self._left = ~np.array(taken, np.uint16)
        self._firsts, self._begins = np.array(firsts, np.intp), np.array(begins, np.intp)
        self._leaves = np.array(leaves)

    def total(self, values: NDArray[np.float64]) -> float:
        """Return the sum of the leaves that a kernel of such values comes to."""
        if not self._firsts.size:
            return self._constant
        left = np.where(values.take(self._numbers) < self._belows, _ALL, self._left)
        firsts = _FIRST_BIT.take(np.bitwise_and.reduceat(left, self._firsts))
        return self._constant + float(self._leaves.take(self._begins + firsts).sum())


_MOST_LEAVES = 16
"""Of a tree: the bits of a number."""

_ALL = np.uint16(2**_MOST_LEAVES - 1)

_FIRST_BIT = np.zeros(2**_MOST_LEAVES, np.uint8)
"""Which bit of a number is the lowest that is set."""

for _bit in reversed(range(_MOST_LEAVES)):
    _FIRST_BIT[1 << _bit :: 2 << _bit] = _bit


def _leaves_of(tree: CorrectionTree) -> int:
    return _leaves_of(tree.lower) + _leaves_of(tree.upper) if isinstance(tree, tuple) else 1


def kernel_values(
    families: Sequence[str], family: str, amounts: Mapping[str, float], traits: Mapping[str, float]
) -> NDArray[np.float64]:
    """Return the values of a kernel that conditions are about, in their order; 0 for what it has none of."""
    values = np.zeros(len(NAMES) + len(families))
    for known in (amounts, traits):
        for name, value in known.items():
            number = _NUMBERS.get(name)
            if number is not None:
                values[number] = value
    if family in families:
        values[len(NAMES) + families.index(family)] = 1.0
    return values


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
