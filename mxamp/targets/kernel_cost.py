"""What a kernel costs: a tree that says which code runs, and what each amount of work costs it.

The time of one implementation is close to a sum of rates times amounts: so much a multiply-add, so much a
byte read. Which implementation runs is decided by a few traits, such as whether channels fill a vector. So a
family of kernels is a tree of conditions whose leaves hold rates, none of them negative: more work never
costs less within a leaf, and sizes beyond those that were measured are priced as they should be.

Which conditions a tree asks depends on the kernels that it was grown from, a few of them changed being enough
to change it. So a family may have several, each grown from others of its kernels, and their geometric mean is
off by less than any one of them (Breiman, "Bagging predictors", 1996).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Union

from mxamp.targets.kernel_terms import AMOUNTS, TRAITS


@dataclass(frozen=True)
class Leaf:
    """Kernels that one implementation runs.

    Attributes
    ----------
    rates
        Amount -> microseconds for one of it; ``one`` is what every run costs.
    """

    rates: Mapping[str, float]


@dataclass(frozen=True)
class Split:
    """A condition.

    Attributes
    ----------
    trait
        What is looked at.
    below
        The number that it is compared with.
    lower, upper
        What holds where it is below, and where it is not.
    """

    trait: str
    below: float
    lower: Tree
    upper: Tree


Tree = Union[Leaf, Split]


@dataclass(frozen=True)
class Forest:
    """Several trees that tell the same.

    Attributes
    ----------
    trees
        The trees, of whose times the geometric mean is taken.
    """

    trees: tuple[Tree, ...]


KernelCost = Union[Leaf, Split, Forest]


def trees_of(cost: KernelCost) -> tuple[Tree, ...]:
    """Return the trees that tell what kernels cost."""
    return cost.trees if isinstance(cost, Forest) else (cost,)


def together(trees: Iterable[Tree]) -> KernelCost:
    """Return what trees tell together; of those that are equal one is enough, if all are."""
    given = tuple(trees)
    return given[0] if all(tree == given[0] for tree in given) else Forest(given)


def kernel_microseconds(cost: KernelCost, amounts: Mapping[str, float], traits: Mapping[str, float]) -> float:
    """Return what a kernel takes."""
    if isinstance(cost, Forest):
        told = [_tree_microseconds(tree, amounts, traits) for tree in cost.trees]
        return float(math.prod(told) ** (1 / len(told)))
    return _tree_microseconds(cost, amounts, traits)


def _tree_microseconds(tree: Tree, amounts: Mapping[str, float], traits: Mapping[str, float]) -> float:
    while isinstance(tree, Split):
        tree = tree.lower if traits.get(tree.trait, 0.0) < tree.below else tree.upper
    return max(_LEAST_US, sum([rate * amounts.get(name, 0.0) for name, rate in tree.rates.items()]))


_LEAST_US = 0.1
"""Nothing runs in less."""


_DIGITS = 3
"""What a target keeps of a rate."""


def rounded(number: float, digits: int = _DIGITS) -> float:
    """Return a rate, or what a trait is compared with, with the digits that a target keeps."""
    return float(f"{number:.{digits}g}")


def with_rates(cost: KernelCost, change: Callable[[Mapping[str, float]], Mapping[str, float]]) -> KernelCost:
    """Return the same conditions with other rates.

    Parameters
    ----------
    cost
        What kernels cost.
    change
        Makes the rates of a leaf of those that it has.
    """
    if isinstance(cost, Forest):
        return Forest(tuple([_with_rates(tree, change) for tree in cost.trees]))
    return _with_rates(cost, change)


def _with_rates(tree: Tree, change: Callable[[Mapping[str, float]], Mapping[str, float]]) -> Tree:
    if isinstance(tree, Leaf):
        return Leaf({name: rounded(rate) for name, rate in change(tree.rates).items()})
    return Split(tree.trait, tree.below, _with_rates(tree.lower, change), _with_rates(tree.upper, change))


def slower_by(cost: KernelCost, times: float) -> KernelCost:
    """Return the costs of kernels that take so many times as long."""
    return with_rates(cost, lambda rates: {name: times * rate for name, rate in rates.items()})


def cost_to_document(cost: KernelCost) -> dict[str, Any]:
    """Return it as plain data."""
    if isinstance(cost, Forest):
        return {_FOREST: [_tree_to_document(tree) for tree in cost.trees]}
    return _tree_to_document(cost)


_FOREST = "forest"
"""What trees of which the mean is taken stand under: it is no amount's name."""


def _tree_to_document(tree: Tree) -> dict[str, Any]:
    if isinstance(tree, Leaf):
        return dict(tree.rates)
    return {
        "trait": tree.trait,
        "below": tree.below,
        "then": _tree_to_document(tree.lower),
        "else": _tree_to_document(tree.upper),
    }


def cost_from_document(document: Any, what: str) -> KernelCost:
    """Read it from plain data.

    Raises
    ------
    KeyError, TypeError, ValueError
        When it is none; names ``what`` it was to be.
    """
    if isinstance(document, Mapping) and _FOREST in document:
        trees = document[_FOREST]
        if not isinstance(trees, list) or not trees:
            raise TypeError(f"{what}: a {_FOREST} must be a list of trees, not {trees!r:.80}")
        return Forest(tuple([_tree_from_document(tree, what) for tree in trees]))
    return _tree_from_document(document, what)


def _tree_from_document(document: Any, what: str) -> Tree:
    if not isinstance(document, Mapping):
        raise TypeError(f"{what}: {document!r:.80} is neither rates nor a condition")
    if "trait" not in document:
        for name, rate in document.items():
            if name not in AMOUNTS:
                raise ValueError(f"{what}: {name!r:.80} is no amount")
            if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate < float("inf"):
                raise ValueError(f"{what}: the rate of {name} must be 0 or more, not {rate!r:.80}")
        return Leaf({name: float(rate) for name, rate in document.items()})
    trait, below = document["trait"], document["below"]
    if trait not in TRAITS:
        raise ValueError(f"{what}: {trait!r:.80} is no trait")
    if isinstance(below, bool) or not isinstance(below, (int, float)) or below != below:
        raise ValueError(f"{what}: {trait} must be compared with a number, not {below!r:.80}")
    return Split(
        trait,
        float(below),
        _tree_from_document(document["then"], what),
        _tree_from_document(document["else"], what),
    )
