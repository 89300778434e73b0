"""What kernels of a library are known to cost, before they are timed on this machine."""

from __future__ import annotations

import math
from typing import AbstractSet, Sequence

from mxamp.targets.cost import CostModel, Watching
from mxamp.targets.kernel_cost import KernelCost, Leaf, Split

_DIGITS = 3


class PriorCosts:
    """The trees of a target that was measured, by family.

    Parameters
    ----------
    cost
        That target's costs; None where nothing is known.
    """

    def __init__(self, cost: CostModel | None) -> None:
        self._trees: dict[tuple[str, bool], KernelCost] = {}
        if cost is not None:
            for family, costs in cost.kernels.items():
                for tree, low in ((costs.float32, False), (costs.low, True)):
                    if tree is not None:
                        self._trees[family, low] = _unwatched(tree, cost.watching)

    @property
    def families(self) -> AbstractSet[str]:
        """The families that something is known of."""
        return {family for family, _ in self._trees}

    def tree(self, family: str, *, low: bool) -> KernelCost | None:
        """Return what kernels of a family cost in a dtype, without what watching them took then."""
        return self._trees.get((family, low))


def _unwatched(cost: KernelCost, watching: Watching) -> KernelCost:
    if isinstance(cost, Leaf):
        return Leaf({**cost.rates, "one": watching.without(cost.rates.get("one", 0.0))})
    lower, upper = (_unwatched(part, watching) for part in (cost.lower, cost.upper))
    return Split(cost.trait, cost.below, lower, upper)


def slower_by(cost: KernelCost, times: float) -> KernelCost:
    """Return the costs of kernels that take so many times as long."""
    if isinstance(cost, Leaf):
        return Leaf({name: float(f"{times * rate:.{_DIGITS}g}") for name, rate in cost.rates.items()})
    return Split(cost.trait, cost.below, slower_by(cost.lower, times), slower_by(cost.upper, times))


def typical_ratio(ratios: Sequence[float]) -> float:
    """Return the geometric mean of some ratios; 1 of none."""
    return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios)) if ratios else 1.0
