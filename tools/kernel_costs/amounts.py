"""Fit what an amount of work costs that trees do not know yet, and put it into a target's document.

    python -m tools.kernel_costs.amounts TARGET.json relaid gathered --timings kernels.jsonl

Trees are fitted to more kernels than an hour can time. What an amount costs that is told since then is one
number for each dtype, whichever family a kernel is of, and of a few hundred kernels it is known: that of
those which single kernels ask for with which all are told best. It goes into every leaf of the families of
such kernels, where it is clearly better. Corrections stay, and are left out of times first.
"""

from __future__ import annotations

import argparse
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.probe.kernel_samples import read_kernels
from mxamp.targets.cost import CostModel
from mxamp.targets.kernel_cost import (
    Forest,
    KernelCost,
    Leaf,
    cost_to_document,
    kernel_microseconds,
    with_rates,
)
from mxamp.targets.kernel_terms import AMOUNTS, amounts_and_traits
from tools.kernel_costs.rates import beneath, losses
from tools.kernel_costs.timings import add_arguments, part_of, read_target, read_timings, within, write_target

_PARTS = 4

_FEWEST = 50
"""Kernels that have some of an amount."""

_CLEARLY = 2.0
"""How many standard errors better times must be told."""

_TRIED = 99
"""Rates, from nearly the least that a kernel asks for to nearly the largest."""


class AmountSamples(NamedTuple):
    """Kernels that have some of an amount.

    Attributes
    ----------
    families
        What they are.
    told
        For each the microseconds that its tree says.
    amount
        How much of the amount it has.
    times
        The microseconds that it took.
    parts
        Which part it is in; one shape is in the same, wherever it was timed.
    """

    families: tuple[str, ...]
    told: NDArray[np.float64]
    amount: NDArray[np.float64]
    times: NDArray[np.float64]
    parts: NDArray[np.int_]

    def rows(self, chosen: NDArray[np.bool_]) -> AmountSamples:
        """Return some of them."""
        families = tuple([name for name, is_chosen in zip(self.families, chosen) if is_chosen])
        return AmountSamples(families, *(own[chosen] for own in self[1:]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_arguments(parser)
    parser.add_argument("amounts", nargs="+", choices=sorted(AMOUNTS), metavar="AMOUNT", help="its name")
    given = parser.parse_intermixed_args(arguments)
    document, target = read_target(parser, given.target)
    cost = target.cost
    assert cost is not None, "read_target ends the program"
    timed = read_timings(given.timings)
    for name in given.amounts:
        for label, low in (("float32", False), ("low", True)):
            samples = samples_of(timed, cost, name, low=low)
            if len(samples.times) < _FEWEST:
                print(f"{name}, {label}: {len(samples.times)} kernels are too few")
                continue
            rate = best_rate(samples)
            before, after = off(samples, 0.0), foretold(samples)
            gained = losses(before) - losses(after)
            said = f"{len(gained)} kernels, {within(before)} without and {within(after)} with it"
            if rate == 0 or gained.mean() <= _CLEARLY * gained.std() / len(gained) ** 0.5:
                print(f"{name}, {label}: nothing; {said}")
                continue
            for family in sorted(set(samples.families)):
                tree = cost.kernels[family][low]
                assert tree is not None, "it told their times"
                document["cost"]["kernels"][family][label] = cost_to_document(with_rate(tree, name, rate))
            print(f"{name}, {label}: {rate:.3g} microseconds for one; {said}", flush=True)
    write_target(given.target, document)


def samples_of(timed: Iterable[Mapping[str, Any]], cost: CostModel, name: str, *, low: bool) -> AmountSamples:
    """Return the kernels that have some of an amount and whose trees do not know it.

    Parameters
    ----------
    timed
        As :func:`mxamp.runtime.kernel_times.time_kernels` returns them.
    cost
        What kernels cost.
    name
        The amount.
    low
        Whether they computed in the low dtype.
    """
    families, told, amount, times, parts = [], [], [], [], []
    for sample in read_kernels(timed):
        costs = cost.kernels.get(sample.family)
        tree = None if costs is None else costs[low]
        if tree is None or not sample.times[low] or knows(tree, name):
            continue
        amounts, traits = amounts_and_traits(sample.op, sample.work, low=low)
        if amounts.get(name, 0.0) > 0:
            families.append(sample.family)
            told.append(kernel_microseconds(tree, amounts, traits))
            amount.append(amounts[name])
            times.append(beneath(sample, cost.corrections).times[low])
            parts.append(part_of(sample, _PARTS))
    return AmountSamples(
        tuple(families), np.array(told), np.array(amount), np.array(times, float), np.array(parts, int)
    )


def best_rate(samples: AmountSamples) -> float:
    """Return the rate with which kernels are told best, of those that single ones ask for; 0 if none is."""
    asks = samples.times > samples.told
    if not asks.any():
        return 0.0
    asked = (samples.times - samples.told)[asks] / samples.amount[asks]
    tried = np.quantile(asked, np.linspace(0.01, 0.99, _TRIED))
    return min((0.0, *map(float, tried)), key=lambda rate: float(losses(off(samples, rate)).sum()))


def foretold(samples: AmountSamples) -> NDArray[np.float64]:
    """Return by how much kernels are off by a rate that others tell, as :func:`off` does."""
    found = np.empty(len(samples.times))
    for part in np.unique(samples.parts):
        is_apart = samples.parts == part
        found[is_apart] = off(samples.rows(is_apart), best_rate(samples.rows(~is_apart)))
    return found


def off(samples: AmountSamples, rate: float) -> NDArray[np.float64]:
    """Return the logarithms of how many times longer kernels took than they are told to take."""
    found: NDArray[np.float64] = np.log(samples.times / (samples.told + rate * samples.amount))
    return found


def knows(cost: KernelCost, name: str) -> bool:
    """Return whether a leaf has a rate for an amount."""
    if isinstance(cost, Leaf):
        return name in cost.rates
    parts = cost.trees if isinstance(cost, Forest) else (cost.lower, cost.upper)
    return any(knows(part, name) for part in parts)


def with_rate(cost: KernelCost, name: str, rate: float) -> KernelCost:
    """Return what kernels cost with a rate for an amount in all leaves."""
    return with_rates(cost, lambda rates: {**rates, name: rate})


if __name__ == "__main__":
    main()
