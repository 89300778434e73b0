"""What a kernel costs: a tree that says which code runs, and what each amount of work costs it.

The time of one implementation is close to a sum of rates times amounts: so much a multiply-add, so much a
byte read. Which implementation runs is decided by a few traits, such as whether channels fill a vector. So a
family of kernels is a tree of conditions whose leaves hold rates, none of them negative: more work never
costs less within a leaf, and sizes beyond those that were measured are priced as they should be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Union

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
    lower: KernelCost
    upper: KernelCost


KernelCost = Union[Leaf, Split]


def kernel_microseconds(cost: KernelCost, amounts: Mapping[str, float], traits: Mapping[str, float]) -> float:
    """Return what a kernel takes."""
    while isinstance(cost, Split):
        cost = cost.lower if traits.get(cost.trait, 0.0) < cost.below else cost.upper
    return max(_LEAST_US, sum([rate * amounts.get(name, 0.0) for name, rate in cost.rates.items()]))


_LEAST_US = 0.1
"""Nothing runs in less."""


_DIGITS = 3
"""What a target keeps of a rate."""


def rounded(number: float, digits: int = _DIGITS) -> float:
    """Return a rate, or what a trait is compared with, with the digits that a target keeps."""
    return float(f"{number:.{digits}g}")


def slower_by(cost: KernelCost, times: float) -> KernelCost:
    """Return the costs of kernels that take so many times as long."""
    if isinstance(cost, Leaf):
        return Leaf({name: rounded(times * rate) for name, rate in cost.rates.items()})
    return Split(cost.trait, cost.below, slower_by(cost.lower, times), slower_by(cost.upper, times))


def tree_to_document(cost: KernelCost) -> dict[str, Any]:
    """Return it as plain data."""
    if isinstance(cost, Leaf):
        return dict(cost.rates)
    return {
        "trait": cost.trait,
        "below": cost.below,
        "then": tree_to_document(cost.lower),
        "else": tree_to_document(cost.upper),
    }


def tree_from_document(document: Any, what: str) -> KernelCost:
    """Read it from plain data.

    Raises
    ------
    KeyError, TypeError, ValueError
        When it is none; names ``what`` it was to be.
    """
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
        tree_from_document(document["then"], what),
        tree_from_document(document["else"], what),
    )
