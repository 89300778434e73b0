"""Fit what kernels of each family cost to timings, and put it into a target's document.

    python -m tools.kernel_costs.rates TARGET.json --timings kernels.jsonl --like cpu-bf16

Each family and dtype gets the tree that foretells best, of those tried: that of another target of the same
library, as it is, made longer or shorter as a whole, or with its conditions alone and rates anew; and one
that is grown from nothing. Cross-validation decides, with one shape always in the same part, for the simplest
of which none is better by more than a standard error (Breiman et al., "Classification and regression trees",
1984). The target's own trees are not tried: they may have seen these timings. Where rates are fitted or trees
grown, those of cross-validation are kept, each of which has not seen some of the kernels, and all tell
together: their mean is off by less than one that has seen all (Krogh and Vedelsby, "Neural network ensembles,
cross validation, and active learning", 1995).

Rates are fitted nearly to medians, for accidents are to count little. What a kernel takes in the mean of all
graphs that it may be in is more: as much longer as guests among random kernels take in the mean than trees
said that had not seen them, all trees are made at last.

Corrections were learned from other timings, with other rates, and are dropped. With `--keep-corrections` they
stay, and rates are fitted to what they leave of times: so a few families can be timed and fitted anew. No
known tree is replaced by one from nothing then, for corrections are about what the known ones leave unsaid.
The target's own rates stay where new ones are not clearly better, or tell random kernels better and worse
those that `tools.kernel_costs.networks` timed, or the other way around: a kernel takes less in a network.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Callable, Mapping, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.probe.fit_kernels import WORST, fit_family
from mxamp.probe.kernel_samples import KernelSample, read_kernels
from mxamp.targets import Target
from mxamp.targets.cost import Corrections, CostModel
from mxamp.targets.kernel_cost import (
    Forest,
    KernelCost,
    Tree,
    cost_to_document,
    slower_by,
    together,
    trees_of,
)
from mxamp.targets.kernel_family import BROADER
from mxamp.targets.kernel_terms import amounts_and_traits
from tools.kernel_costs.timings import (
    add_arguments,
    off_by,
    part_of,
    read_target,
    read_timings,
    within,
    write_target,
)

_PARTS = 4

_TURNS = 2
"""Ways to part kernels, with a tree for each part of each."""

_FEWEST_ANEW = 40
"""Kernels of a family whose rates are fitted anew beneath corrections, ..."""

_CLEARLY = 2.0
"""... how many standard errors better these have to be, ..."""

_FEWEST_OF_A_KIND = 10
"""... and of how many kernels, random or in networks, is to be said whether they are told worse."""

_Fit = Callable[[Sequence[KernelSample]], "KernelCost | None"]


class _Way(NamedTuple):
    """A way to come to what kernels cost, and whether much depends on which kernels it is given."""

    fit: _Fit
    is_grown: bool


class Choice(NamedTuple):
    """What was chosen for the kernels of a family in a dtype.

    Attributes
    ----------
    cost
        What they cost.
    label
        How it came about.
    off
        For each kernel the logarithm of how many times longer it took than trees said that had not seen it.
    """

    cost: KernelCost
    label: str
    off: NDArray[np.float64]


class _Fitted(NamedTuple):
    """What kernels of a family cost in a dtype, None where it stays as it was, and what is said of it."""

    label: str
    said: str
    cost: KernelCost | None = None
    off_of_guests: Sequence[float] = ()


class _Timed(NamedTuple):
    """A kernel that was timed, whether a network had it, and whether it was a guest among random ones."""

    sample: KernelSample
    is_in_network: bool
    is_guest: bool


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_arguments(parser)
    parser.add_argument(
        "--like", action="append", default=[], metavar="TARGET", help="a target of the same library"
    )
    parser.add_argument(
        "--keep-corrections",
        action="store_true",
        help="keep the target's corrections and fit rates beneath them",
    )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="how many fit a family each, at once"
    )
    given = parser.parse_args(arguments)
    document, target = read_target(parser, given.target)
    fitted: list[tuple[str, str, KernelCost]] = []
    off_of_guests: list[float] = []
    likes = {name: Target.builtin(name).cost for name in given.like}
    known = {name: cost for name, cost in likes.items() if cost is not None}
    cost = target.cost
    assert cost is not None, "read_target ends the program"
    own = cost if given.keep_corrections else None
    families = _by_family(given.timings)
    with ProcessPoolExecutor(max(1, given.processes)) as processes:
        # The largest first: the last to be ready is the less of the whole.
        ready = {
            family: processes.submit(_fit_family, family, families[family], known, own)
            for family in sorted(families, key=lambda family: -len(families[family]))
        }
        for family in sorted(ready):
            for one in ready[family].result():
                print(f"{family}, {one.label}: {one.said}", flush=True)
                if one.cost is not None:
                    fitted.append((family, one.label, one.cost))
                    off_of_guests += one.off_of_guests
    longer = 1.0
    if not given.keep_corrections:
        document["cost"].pop("corrections", None)  # they say by how much other rates were off
        longer = in_the_mean(off_of_guests)
        print(f"all of them {longer:.3f} times as long, as guests take in the mean")
    for family, label, tree in fitted:
        document["cost"]["kernels"].setdefault(family, {})[label] = cost_to_document(slower_by(tree, longer))
    write_target(given.target, document)


def _fit_family(
    family: str, timed: Sequence[_Timed], known: Mapping[str, CostModel], own: CostModel | None
) -> Sequence[_Fitted]:
    """Fit what kernels of a family cost in both dtypes; beneath corrections where its own costs are given."""
    found = []
    for label, low in (("float32", False), ("low", True)):
        chosen = [one for one in timed if one.sample.times[low]]
        samples = [one.sample for one in chosen]
        if own is not None:
            if 0 < len(samples) < _FEWEST_ANEW:
                found.append(_Fitted(label, f"as before, {len(samples)} kernels are too few"))
                continue
            samples = [beneath(sample, own.corrections) for sample in samples]
        choice = best_cost(samples, family, known, low=low, is_beneath=own is not None)
        if choice is None:
            continue
        tree = own.kernels[family][low] if own is not None and family in own.kernels else None
        in_networks = np.array([one.is_in_network for one in chosen])
        both = [] if tree is None else [_off(each, samples, low=low) for each in (tree, choice.cost)]
        if both and not is_worth_it(choice, *both, in_networks):
            found.append(_Fitted(label, f"its own, {len(choice.off)} kernels"))
            continue
        said = f"{choice.label}, {len(choice.off)} kernels, {within(choice.off)}"
        of_guests = choice.off[[one.is_guest for one in chosen]].tolist()
        found.append(_Fitted(label, said, choice.cost, of_guests))
    return found


def in_the_mean(off: Sequence[float]) -> float:
    """Return how many times longer kernels take in the mean, accidents left out, than was foretold.

    Parameters
    ----------
    off
        Of each the logarithm of how many times longer it took.
    """
    return float(np.exp(np.clip(off, -WORST, WORST).mean())) if off else 1.0


def _by_family(path: Path) -> Mapping[str, Sequence[_Timed]]:
    """Return timed kernels: family -> its own."""
    found: dict[str, list[_Timed]] = {}
    for one in read_timings(path):
        for sample in read_kernels([one]):
            is_in_network = "network" in one
            is_guest = bool(one.get("guest")) and not is_in_network
            found.setdefault(sample.family, []).append(_Timed(sample, is_in_network, is_guest))
    return found


def is_worth_it(
    choice: Choice,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    in_networks: NDArray[np.bool_],
) -> bool:
    """Return whether a tree is clearly better than the one that is there, and clearly worse for no kind.

    The one that is there may have seen these kernels. So it must be worse than the tree is for kernels that
    the tree has not seen, and for each kind the two are compared where both have.

    Parameters
    ----------
    choice
        The tree.
    before, after
        For each kernel by how much it is off by what is there, as in :attr:`Choice.off`, and by the tree.
    in_networks
        For each whether it was timed in a network; the others are random.
    """
    gained = losses(before) - losses(choice.off)
    seen = losses(before) - losses(after)
    kinds = (seen[in_networks], seen[~in_networks])
    return float(gained.mean()) > _clearly(gained) and all(
        float(own.mean()) >= -_clearly(own) for own in kinds if len(own) >= _FEWEST_OF_A_KIND
    )


def _clearly(gained: NDArray[np.float64]) -> float:
    return _CLEARLY * float(gained.std()) / len(gained) ** 0.5


def beneath(sample: KernelSample, corrections: Corrections) -> KernelSample:
    """Return a kernel with the times that its rates have to tell where corrections multiply them.

    Parameters
    ----------
    sample
        A kernel that was timed.
    corrections
        How many times longer kernels take than their rates say.
    """
    times = []
    for low, (us, correction) in enumerate(zip(sample.times, corrections)):
        if us is not None and correction is not None:
            known = amounts_and_traits(sample.op, sample.work, low=bool(low))
            us /= correction.times(sample.family, *known, us)
        times.append(us)
    return sample._replace(times=(times[0], times[1]))


def best_cost(
    samples: Sequence[KernelSample],
    family: str,
    known: Mapping[str, CostModel],
    *,
    low: bool,
    is_beneath: bool = False,
) -> Choice | None:
    """Return the costs that foretell kernels best; None where none can be told.

    Parameters
    ----------
    samples
        Kernels of a family that were timed in the dtype.
    family
        Its name.
    known
        What kernels cost: a name -> costs of the same library.
    low
        Whether they computed in the low dtype.
    is_beneath
        Whether it stands beneath corrections that were learned with a tree that is known.
    """
    if not samples:
        return None
    ways = _ways(family, known, low=low, is_beneath=is_beneath)
    found: list[Choice] = []
    for label, way in ways.items():
        cost, off = _foretold(way, samples, 0, low=low)
        if cost is not None:
            found.append(Choice(cost, label, off))
    if not found:
        return None
    best = min(found, key=lambda choice: float(losses(choice.off).mean()))
    chosen = next(choice for choice in found if _is_as_good(choice, best))
    return _with_more_trees(chosen, ways[chosen.label], samples, low=low)


def _is_as_good(choice: Choice, best: Choice) -> bool:
    worse = losses(choice.off) - losses(best.off)
    return float(worse.mean()) <= float(worse.std()) / len(worse) ** 0.5


def _ways(family: str, known: Mapping[str, CostModel], *, low: bool, is_beneath: bool) -> Mapping[str, _Way]:
    """Return the ways to come to what kernels cost, the simplest first."""

    def leaning_on(cost: KernelCost) -> _Fit:
        return lambda samples: fit_family(samples, low=low, known=cost)

    def as_a_whole(cost: KernelCost) -> _Fit:
        return lambda samples: slower_by(cost, float(np.exp(np.median(_off(cost, samples, low=low)))))

    def as_it_is(cost: KernelCost) -> _Fit:
        return lambda samples: cost

    ways: dict[str, _Way] = {}
    for label, model in known.items():
        costs = model.kernels.get(family) or model.kernels.get(BROADER.get(family, ""))
        cost = None if costs is None else costs[low]
        if cost is not None:
            ways[label] = _Way(as_it_is(cost), is_grown=False)
            ways[f"{label}, longer or shorter"] = _Way(as_a_whole(cost), is_grown=False)
            # Several trees are enough.
            ways[f"{label}, rates anew"] = _Way(leaning_on(cost), is_grown=not isinstance(cost, Forest))
    if not (ways and is_beneath):
        ways["anew"] = _Way(lambda samples: fit_family(samples, low=low), is_grown=True)
    return ways


def _foretold(
    way: _Way, samples: Sequence[KernelSample], turn: int, *, low: bool
) -> tuple[KernelCost | None, NDArray[np.float64]]:
    """Return what kernels cost, None if not known, and how much those are off that it has not seen."""
    parts = np.array([part_of(one, _PARTS, turn) for one in samples])
    off = np.empty(len(samples))
    trees: list[Tree] = []
    for part in np.unique(parts):
        others = [one for one, own in zip(samples, parts) if own != part]
        cost = way.fit(others) if others else None
        if cost is None:
            return None, off
        apart = [one for one, own in zip(samples, parts) if own == part]
        off[parts == part] = _off(cost, apart, low=low)
        trees += trees_of(cost)
    return (together(trees) if way.is_grown else way.fit(samples)), off


def _with_more_trees(choice: Choice, way: _Way, samples: Sequence[KernelSample], *, low: bool) -> Choice:
    """Return a choice with the trees of other ways to part the kernels."""
    if not way.is_grown:
        return choice
    trees, offs = [*trees_of(choice.cost)], [choice.off]
    for turn in range(1, _TURNS):
        cost, off = _foretold(way, samples, turn, low=low)
        if cost is not None:
            trees += trees_of(cost)
            offs.append(off)
    return Choice(together(trees), choice.label, np.mean(offs, axis=0))


def _off(cost: KernelCost, samples: Sequence[KernelSample], *, low: bool) -> NDArray[np.float64]:
    return np.array([off_by(cost, sample, low=low) or 0.0 for sample in samples])


def losses(off: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return squares of logarithms, of which those of accidents are no larger than others."""
    found: NDArray[np.float64] = np.minimum(np.abs(off), WORST) ** 2
    return found


if __name__ == "__main__":
    main()
