"""What kernels of a library are known to cost, before they are timed on this machine."""

from __future__ import annotations

from typing import AbstractSet, Callable, Mapping

from mxamp.targets.cost import CostModel, Watching
from mxamp.targets.kernel_cost import KernelCost, Leaf, Split, rounded


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
    return _with_rates(cost, lambda rates: {**rates, "one": watching.without(rates.get("one", 0.0))})


def slower_by(cost: KernelCost, times: float) -> KernelCost:
    """Return the costs of kernels that take so many times as long."""
    return _with_rates(cost, lambda rates: {name: rounded(times * rate) for name, rate in rates.items()})


def _with_rates(cost: KernelCost, change: Callable[[Mapping[str, float]], Mapping[str, float]]) -> KernelCost:
    """Return costs with the rates of every leaf changed."""
    if isinstance(cost, Leaf):
        return Leaf(change(cost.rates))
    return Split(cost.trait, cost.below, _with_rates(cost.lower, change), _with_rates(cost.upper, change))
