"""Fitting what kernels cost: for each family a tree of conditions, with non-negative rates at its leaves.

Rates are fitted to relative errors, by non-negative least squares (Lawson and Hanson, "Solving Least Squares
Problems", 1974). A family is split where two sets of rates fit much better than one, as in model trees
(Quinlan, "Learning with continuous classes", 1992), for a library runs different code there. Leaves with few
samples lean on the rates of what they were split from.

Where costs of the same library are known already, of more kernels than can be timed in minutes, their
conditions are taken over: the library asks the same of every machine. Their rates are fitted anew, and lean
on the known ones, made longer or shorter as this machine takes longer or shorter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from mxamp.probe.kernel_samples import KernelSample, by_family
from mxamp.targets.cost import CostModel
from mxamp.targets.kernel_cost import (
    Forest,
    KernelCost,
    Leaf,
    Split,
    Tree,
    cost_to_document,
    kernel_microseconds,
    rounded,
    slower_by,
)
from mxamp.targets.kernel_terms import amounts_and_traits

_FEWEST = 8
"""A leaf has so many samples at least."""

_PRIOR = 1.5
"""Samples that the rates of the parent count for."""

_LEAST_TOLD = 0.01
"""The share of a kernel's time that an amount takes of which it tells the rate."""

_KNOWN = 20.0
"""Samples that rates count for that are known from before, ..."""

_FEWEST_ANEW = 16
"""... with how many they are fitted anew at all, ..."""

_KNOWN_LEAF = 8.0
"""... and so many count they for where fewer make them longer or shorter as a whole."""

WORST = 1.2
"""A logarithm of a ratio; larger ones count as this one, for they are accidents."""

_LEAST_GAIN = 1.5
"""What a split must save of squared logarithms, over all of its samples, ..."""

_LEAST_SHARE = 0.06
"""... and which share of them."""

_THRESHOLDS = 9

_DEEPEST = 9

_TRIED = 24
"""Splits of a node that are fitted; those that the residuals speak for most."""

_LOOKED_AT = 1500
"""Samples of a node that splits are chosen by."""

_FOLDS = 4

_FAR = 64 << 20
"""Bytes around a kernel, of which more make no difference: no cache holds them. Random graphs of more are
made of large kernels, and networks need not be: DenseNet's find in the caches what the one before wrote."""

_BYTES_AROUND = frozenset({"around", "model"})


def fit_kernels(samples: Sequence[KernelSample], known: CostModel | None = None) -> dict[str, Any]:
    """Return what a target's ``cost`` says of kernels: family -> a tree for FP32 and one for the low dtype.

    Families of which too few were timed are left out, if nothing is known of them; where something is, they
    take as much longer or shorter than that as the others do.

    Parameters
    ----------
    samples
        Kernels that were timed.
    known
        What kernels of the same library cost on another machine, or on this one before.
    """
    families = by_family(samples)
    document: dict[str, dict[str, Any]] = {}
    for label, low in (("float32", False), ("low", True)):
        trees: dict[str, KernelCost | None] = {
            family: fit_family(own, low=low, known=_known_tree(known, family, low=low))
            for family, own in families.items()
        }
        untimed = set() if known is None else set(known.kernels) - set(families)
        if untimed and any(trees.values()):
            times = _times_of_known(samples, known, low=low)
            for family in untimed:
                tree = _known_tree(known, family, low=low)
                trees[family] = None if tree is None else slower_by(tree, times)
        for family, fitted in trees.items():
            if fitted is not None:
                document.setdefault(family, {})[label] = cost_to_document(fitted)
    return {family: document[family] for family in sorted(document) if "float32" in document[family]}


def _known_tree(known: CostModel | None, family: str, *, low: bool) -> KernelCost | None:
    costs = None if known is None else known.kernels.get(family)
    return None if costs is None else costs[low]


def _times_of_known(samples: Sequence[KernelSample], known: CostModel | None, *, low: bool) -> float:
    """Return how many times longer kernels take here than is known of them."""
    ratios = []
    for sample in samples:
        tree, time = _known_tree(known, sample.family, low=low), sample.times[low]
        if tree is not None and time:
            expected = kernel_microseconds(tree, *amounts_and_traits(sample.op, sample.work, low=low))
            ratios.append(time / expected)
    return geometric_mean(ratios) if ratios else 1.0


@dataclass(frozen=True)
class _Table:
    """The samples of a family as arrays."""

    amounts: NDArray[np.float64]
    traits: NDArray[np.float64]
    times: NDArray[np.float64]

    def rows(self, chosen: NDArray[Any]) -> _Table:
        return _Table(self.amounts[chosen], self.traits[chosen], self.times[chosen])

    def __len__(self) -> int:
        return len(self.times)


@dataclass
class _Node:
    rates: NDArray[np.float64]
    trait: int = -1
    below: float = 0.0
    lower: _Node | None = None
    upper: _Node | None = None
    is_known: bool = False

    def predict(self, table: _Table) -> NDArray[np.float64]:
        if self.lower is None or self.upper is None:
            return _predict(self.rates, table)
        is_lower = table.traits[:, self.trait] < self.below
        found = np.empty(len(table))
        found[is_lower] = self.lower.predict(table.rows(is_lower))
        found[~is_lower] = self.upper.predict(table.rows(~is_lower))
        return found


def fit_family(
    samples: Sequence[KernelSample], *, low: bool, known: KernelCost | None = None
) -> KernelCost | None:
    """Return what the kernels of one family cost; None where too few were timed to tell.

    Parameters
    ----------
    samples
        Kernels of one family, with their times.
    low
        Whether they computed in the low dtype.
    known
        What they cost elsewhere.
    """
    if isinstance(known, Forest):
        trees = [_fit_tree(samples, low=low, known=tree) for tree in known.trees]
        found = tuple([tree for tree in trees if tree is not None])
        return Forest(found) if found else None
    return _fit_tree(samples, low=low, known=known)


def _fit_tree(samples: Sequence[KernelSample], *, low: bool, known: Tree | None) -> Tree | None:
    timed = [(sample, time) for sample in samples for time in [sample.times[low]] if time]
    if len(timed) < (_FEWEST if known is None else 1):
        return None
    samples = [sample for sample, _ in timed]
    described = [amounts_and_traits(sample.op, sample.work, low=low) for sample in samples]
    names, traits = list(described[0][0]), list(described[0][1])
    table = _Table(
        np.array([[amounts[name] for name in names] for amounts, _ in described]),
        np.array([[_seen(name, own[name]) for name in traits] for _, own in described]),
        np.array([time for _, time in timed]),
    )
    if known is None:
        tree = _grow(table, _fit(table, None), depth=0)
    else:
        elsewhere = [kernel_microseconds(known, *one) for one in described]
        tree = _regrow(known, table, (names, traits), _longer(table.times, np.array(elsewhere)), depth=0)
    _prune(tree, table)
    return _as_tree(tree, names, traits)


def _seen(trait: str, value: float) -> float:
    """Return what is looked at of a trait."""
    return float(min(value, _FAR) if trait in _BYTES_AROUND else value)


def _longer(times: NDArray[np.float64], expected: NDArray[np.float64], prior: float = 0.0) -> float:
    """Return how many times longer kernels take than expected; 1 counts as so many samples."""
    off = np.clip(np.log(times / expected), -WORST, WORST)
    return math.exp(float(off.sum()) / (len(off) + prior))


def _regrow(
    known: Tree,
    table: _Table,
    labels: tuple[Sequence[str], Sequence[str]],
    longer: float,
    *,
    depth: int,
) -> _Node:
    """Return a tree with the conditions that are known, and more where samples ask for them."""
    names, traits = labels
    if isinstance(known, Leaf):
        rates = longer * np.array([known.rates.get(name, 0.0) for name in names])
        if len(table) < _FEWEST_ANEW:
            return _Node(rates * _longer(table.times, _predict(rates, table), _KNOWN_LEAF))
        return _grow(table, _fit(table, rates, prior=_KNOWN), depth=depth)
    if known.below > _seen(known.trait, known.below):
        return _regrow(known.lower, table, labels, longer, depth=depth)
    trait = traits.index(known.trait)
    is_lower = table.traits[:, trait] < known.below
    lower, upper = (
        _regrow(part, table.rows(side), labels, longer, depth=depth + 1)
        for part, side in ((known.lower, is_lower), (known.upper, ~is_lower))
    )
    return _Node(np.zeros(len(names)), trait, known.below, lower, upper, is_known=True)


def _as_tree(node: _Node, names: Sequence[str], traits: Sequence[str]) -> Tree:
    if node.lower is None or node.upper is None:
        return Leaf({name: rounded(rate) for name, rate in zip(names, node.rates) if rate > 0})
    return Split(
        traits[node.trait],
        rounded(node.below),
        _as_tree(node.lower, names, traits),
        _as_tree(node.upper, names, traits),
    )


def _grow(table: _Table, rates: NDArray[np.float64], *, depth: int) -> _Node:
    node = _Node(rates)
    looked_at = table.rows(np.arange(0, len(table), -(-len(table) // _LOOKED_AT)))
    loss = _loss(rates, looked_at)
    best: tuple[float, int, float] | None = None
    if len(table) >= 2 * _FEWEST and depth < _DEEPEST:
        for trait, below in _promising_splits(looked_at, rates):
            is_lower = looked_at.traits[:, trait] < below
            parts = [looked_at.rows(is_lower), looked_at.rows(~is_lower)]
            found = sum(_loss(_fit(part, rates, rounds=3), part) for part in parts)
            if best is None or found < best[0]:
                best = (found, trait, below)
    if best is None or loss - best[0] < max(_LEAST_GAIN * len(looked_at) / len(table), _LEAST_SHARE * loss):
        return node
    _, node.trait, node.below = best
    is_lower = table.traits[:, node.trait] < node.below
    lower, upper = table.rows(is_lower), table.rows(~is_lower)
    node.lower = _grow(lower, _fit(lower, rates), depth=depth + 1)
    node.upper = _grow(upper, _fit(upper, rates), depth=depth + 1)
    return node


def _promising_splits(table: _Table, rates: NDArray[np.float64]) -> Sequence[tuple[int, float]]:
    """Return the splits on whose two sides a line through the residuals leaves least."""
    predicted = _predict(rates, table)
    residuals = np.clip(np.log(table.times / predicted), -WORST, WORST)
    sizes = np.log(predicted)
    # What a least-squares line needs, summed up to each sample in the order of a trait.
    terms = np.stack([np.ones_like(sizes), sizes, sizes**2, residuals, sizes * residuals, residuals**2])
    found: list[tuple[float, int, float]] = []
    for trait in range(table.traits.shape[1]):
        for below in _thresholds(table.traits[:, trait]):
            is_lower = table.traits[:, trait] < below
            if min(is_lower.sum(), (~is_lower).sum()) >= _FEWEST:
                left = sum(_left_by_a_line(terms[:, side].sum(axis=1)) for side in (is_lower, ~is_lower))
                found.append((left, trait, below))
    return [(trait, below) for _, trait, below in sorted(found)[:_TRIED]]


def _left_by_a_line(sums: NDArray[np.float64]) -> float:
    """Return the sum of squares that a line leaves, from the sums of 1, x, x^2, y, xy and y^2."""
    count, x, xx, y, xy, yy = (float(one) for one in sums)
    spread = xx - x * x / count
    common = xy - x * y / count
    return yy - y * y / count - (common * common / spread if spread > 1e-9 else 0.0)


def _prune(node: _Node, table: _Table) -> None:
    """Take back splits that do not hold for samples that they were not made from."""
    if node.lower is None or node.upper is None:
        return
    is_lower = table.traits[:, node.trait] < node.below
    _prune(node.lower, table.rows(is_lower))
    _prune(node.upper, table.rows(~is_lower))
    if node.is_known or node.lower.lower is not None or node.upper.lower is not None:
        return
    apart = together = 0.0
    for fold in range(_FOLDS):
        kept = np.arange(len(table)) % _FOLDS != fold
        whole = _fit(table.rows(kept), None)
        together += _loss(whole, table.rows(~kept))
        for side in (is_lower, ~is_lower):
            part = _fit(table.rows(kept & side), whole) if (kept & side).any() else whole
            apart += _loss(part, table.rows(~kept & side))
    if apart >= together:
        node.lower = node.upper = None


def _thresholds(values: NDArray[np.float64]) -> Sequence[float]:
    distinct = np.unique(values)
    if len(distinct) < 2:
        return ()
    middles = np.sqrt(np.maximum(distinct[:-1], 0.25) * np.maximum(distinct[1:], 0.25))
    middles = np.where((middles > distinct[:-1]) & (middles <= distinct[1:]), middles, distinct[1:])
    if len(middles) <= _THRESHOLDS:
        return list(middles)
    return sorted({float(value) for value in np.quantile(values, np.linspace(0.06, 0.94, _THRESHOLDS))})


def _predict(rates: NDArray[np.float64], table: _Table) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.maximum(table.amounts @ rates, 1e-2)
    return found


def _loss(rates: NDArray[np.float64], table: _Table) -> float:
    if not len(table):
        return 0.0
    off = np.minimum(np.abs(np.log(_predict(rates, table) / table.times)), WORST)
    return float(np.sum(off**2))


def _fit(
    table: _Table, parent: NDArray[np.float64] | None, *, rounds: int = 4, prior: float = _PRIOR
) -> NDArray[np.float64]:
    """Return the rates that fit best, by relative errors; those of the parent count for so many samples."""
    amounts, times = table.amounts, table.times
    scale = np.maximum(amounts.max(axis=0), 1e-12)
    scaled = amounts / scale
    # What is the same everywhere cannot be told from what every run costs.
    scaled = np.where(amounts.max(axis=0) > amounts.min(axis=0), scaled, 0.0)
    scaled[:, 0] = 1.0
    leaning = np.zeros((0, scaled.shape[1]))
    wanted = np.zeros(0)
    kept = np.zeros(scaled.shape[1])
    if parent is not None:
        expected = parent * math.exp(float(np.median(np.log(times / _predict(parent, table)))))
        is_told = _is_told(amounts, times, expected)
        kept = np.where(is_told, 0.0, expected)
        scaled[:, ~is_told] = 0.0
        is_had = (scaled > 0).any(axis=0)
        # As samples of what the parent says, each of one amount alone, as much as those have that have any.
        shares = np.where(scaled > 0, scaled / times[:, None], np.nan)
        typical = np.zeros(scaled.shape[1])
        typical[is_had] = np.nanmedian(shares[:, is_had], axis=0) * math.sqrt(prior)
        leaning, wanted = np.diag(typical), typical * expected * scale
    known = amounts @ kept
    weights = 1.0 / times
    found = np.zeros(scaled.shape[1])
    for _ in range(rounds):
        try:
            found, _residual = nnls(
                np.vstack([scaled * weights[:, None], leaning]),
                np.concatenate([(times - known) * weights, wanted]),
            )
        except RuntimeError:  # it did not converge; the last round's are good enough
            break
        ratio = np.maximum(scaled @ found + known, 1e-3) / times
        # Squared logarithms rather than squared relative errors, and less of what is far off.
        off = np.abs(np.log(ratio))
        slope = off / np.maximum(np.abs(ratio - 1.0), 1e-6)
        weights = slope / times / np.sqrt(np.maximum(off, 0.15) / 0.15)
    rates: NDArray[np.float64] = found / scale + kept
    return rates


def _is_told(
    amounts: NDArray[np.float64], times: NDArray[np.float64], expected: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return of which amounts samples tell the rate: those that take some of the time of several samples.

    One whose 256 bytes come from memory, and which took 5 microseconds longer for whatever reason, would say
    of megabytes that they take a fifth of a second.
    """
    takes = np.where(expected > 0, amounts * expected >= _LEAST_TOLD * times[:, None], amounts > 0)
    found: NDArray[np.bool_] = takes.sum(axis=0) >= _FEWEST // 2
    found[0] = True  # what every run costs
    return found
