"""Learn what rates leave unsaid of kernels, and put it into a target's document.

    python -m tools.kernel_costs.corrections TARGET.json --timings kernels.jsonl

Boosted trees learn from timings by how much the target's rates are off, and stand in its document as
`corrections`. What is printed is of kernels that the corrections have not seen: how well they are estimated
with and without. The target's rates have seen them where they were fitted to the same timings, and look the
better for it: judge both by kernels of other seeds (`make bench-estimates`).
"""

from __future__ import annotations

import argparse
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.probe.fit_kernels import WORST
from mxamp.probe.kernel_samples import KernelSample, read_kernels
from mxamp.targets.cost import CostModel
from mxamp.targets.kernel_correction import (
    NAMES,
    Condition,
    Correction,
    CorrectionTree,
    correction_to_document,
)
from mxamp.targets.kernel_cost import kernel_microseconds, rounded
from mxamp.targets.kernel_terms import amounts_and_traits
from tools.kernel_costs.timings import add_arguments, part_of, read_target, read_timings, within, write_target

_OTHERS_COUNT = 0.3
"""How much a kernel counts that was not a guest, for its graph has few kinds, beside one that was."""

_LEARNER = {
    "n_estimators": 200,
    "learning_rate": 0.08,
    "max_depth": None,
    "max_leaf_nodes": 16,
    "min_samples_leaf": 12,
    "max_features": 0.3,
    "subsample": 0.5,
    "random_state": 0,
}
"""Of scikit-learn's stochastic gradient boosting (Friedman, "Stochastic gradient boosting", 2002)."""

_KNOWN_SIZES = 0.98
"""The share of kernels up to whose times corrections hold."""

_DIGITS = 6
"""Of what values are compared with, which lies in the middle between two of them."""

_PARTS = 4
"""One of so many parts of the shapes is kept apart to judge by."""

_FEWEST = 100
"""Kernels to learn from."""


class _Samples(NamedTuple):
    """The kernels of a dtype: what may be asked of them, and by how much they are off.

    Attributes
    ----------
    families
        All families.
    values
        For each kernel its values, in the order of ``NAMES``, and for each family whether it is that.
    us
        For each the microseconds that its rates say.
    off
        For each the logarithm of how many times longer than by its rates it takes.
    weights
        How much each counts.
    is_apart
        Whether it is judged by; one shape is so wherever it was timed.
    """

    families: tuple[str, ...]
    values: NDArray[np.float32]
    us: NDArray[np.float64]
    off: NDArray[np.float64]
    weights: NDArray[np.float64]
    is_apart: NDArray[np.bool_]

    def rows(self, chosen: NDArray[np.bool_]) -> _Samples:
        """Return some of them."""
        return _Samples(self.families, *(own[chosen] for own in self[1:]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Learn and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_arguments(parser)
    given = parser.parse_args(arguments)
    document, target = read_target(parser, given.target)
    assert target.cost is not None, "read_target ends the program"
    timed = read_timings(given.timings)
    corrections: dict[str, Any] = {}
    for label, low in (("float32", False), ("low", True)):
        samples = samples_of(timed, target.cost, low=low)
        if len(samples.off) < _FEWEST:
            print(f"{label}: {len(samples.off)} kernels are too few to learn from")
            continue
        print(f"{label}: {judged(samples)}", flush=True)
        corrections[label] = correction_to_document(learned(samples))
    document["cost"]["corrections"] = corrections
    write_target(given.target, document)


def samples_of(timed: Iterable[Mapping[str, Any]], cost: CostModel, *, low: bool) -> _Samples:
    """Return what is to be learned of timed kernels.

    Parameters
    ----------
    timed
        As :func:`mxamp.runtime.kernel_times.time_kernels` returns them; ``guest`` says which ones were.
    cost
        What says how long they take by rates alone.
    low
        Whether in the low dtype.
    """
    trees = {
        family: tree for family, costs in cost.kernels.items() for tree in [costs[low]] if tree is not None
    }
    found: list[tuple[KernelSample, float, float]] = []
    for one in timed:
        for sample in read_kernels([one]):
            time = sample.times[low]
            if time and sample.family in trees:
                found.append((sample, time, 1.0 if one.get("guest") else _OTHERS_COUNT))
    families = tuple(sorted({sample.family for sample, _, _ in found}))
    values, us, off, weights, is_apart = [], [], [], [], []
    for sample, time, weight in found:
        amounts, traits = amounts_and_traits(sample.op, sample.work, low=low)
        known = {**amounts, **traits}
        values.append([known.get(name, 0.0) for name in NAMES] + [name == sample.family for name in families])
        us.append(kernel_microseconds(trees[sample.family], amounts, traits))
        off.append(np.log(time / us[-1]))
        weights.append(weight)
        is_apart.append(part_of(sample, _PARTS) == 0)
    return _Samples(
        families,
        np.array(values, np.float32).reshape(len(off), len(NAMES) + len(families)),
        np.array(us),
        np.array(off),
        np.array(weights),
        np.array(is_apart, np.bool_),
    )


def learned(samples: _Samples) -> Correction:
    """Return trees that say by how much kernels are off."""
    from sklearn.ensemble import GradientBoostingRegressor

    learner = GradientBoostingRegressor(**_LEARNER)
    learner.fit(samples.values, np.clip(samples.off, -WORST, WORST), sample_weight=samples.weights)
    first: CorrectionTree = rounded(float(learner.init_.constant_[0, 0]))
    rate = _LEARNER["learning_rate"]
    trees = [_tree(one.tree_, 0, rate) for (one,) in learner.estimators_]
    return Correction(samples.families, (first, *trees), round(float(np.quantile(samples.us, _KNOWN_SIZES))))


def _tree(tree: Any, at: int, rate: float) -> CorrectionTree:
    """Return one of scikit-learn's trees as one of ours: there a kernel goes left up to a threshold."""
    if tree.children_left[at] == tree.children_right[at]:
        return rounded(rate * float(tree.value[at, 0, 0]))
    lower, upper = (_tree(tree, side[at], rate) for side in (tree.children_left, tree.children_right))
    below = rounded(float(tree.threshold[at]), _DIGITS)
    return Condition(int(tree.feature[at]), below, lower, upper)


def judged(samples: _Samples) -> str:
    """Return in words how well guests are told that nothing was learned from."""
    apart = samples.rows(samples.is_apart & (samples.weights == 1.0))
    correction = learned(samples.rows(~samples.is_apart))
    values, is_family = apart.values[:, : len(NAMES)].tolist(), apart.values[:, len(NAMES) :]
    told = [
        correction.times(apart.families[number], {}, dict(zip(NAMES, own)), us)
        for number, own, us in zip(is_family.argmax(axis=1), values, apart.us)
    ]
    left = apart.off - np.log(told)
    return (
        f"{len(samples.off)} kernels; of {len(left)} kept apart {within(apart.off)} by rates alone, "
        f"{within(left)} with corrections"
    )


if __name__ == "__main__":
    main()
