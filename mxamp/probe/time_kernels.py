"""Time random kernels in processes that may die of it, for as long as there is time."""

from __future__ import annotations

import itertools
import sys
import time
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.errors import TargetError
from mxamp.measuring.process import Dialogue
from mxamp.ops import FACTS
from mxamp.ops.casts import AMP_CAST
from mxamp.probe.fit_kernels import fit_kernels
from mxamp.probe.kernel_samples import KernelSample
from mxamp.probe.kernels import FAMILIES, GUESTS, Kernel, draw_guest, draw_kernels, seat_guests
from mxamp.targets import CostModel, Support, Target
from mxamp.targets.kernel_cost import cost_from_document, kernel_microseconds
from mxamp.targets.kernel_terms import amounts_and_traits

JUDGE_SEED = 900_000_000
"""Where the seeds of kernels begin that costs are judged by and never fitted on."""

_IN_GRAPHS = (24, 12, 24, 6, 24, 3)
"""Kernels in graphs, by turns. Among many a kernel's weights leave the caches until it runs again; among few,
as in a network of a handful of layers, they stay."""

_MOST_DEATHS = 20
"""Graphs in a row."""

_SLOW_IN_LOW = frozenset({"prelu", "elu", "selu"})
"""Kinds of LeakyReLU that MXNet 1.9.1 has no low kernel for."""


@dataclass(frozen=True)
class KernelTiming:
    """How kernels are timed.

    Attributes
    ----------
    dtype
        The low dtype.
    environment
        Of the processes; the engine is added.
    seconds
        For how long.
    command
        What to start.
    patience
        Seconds after which a process that answers nothing is ended. A graph takes one or two. A kernel that
        spoils the heap may end its process in the middle of an allocation, where MXNet's own handler of
        signals waits for the allocator for ever.
    progress
        Told after each graph for how many seconds it goes on.
    """

    dtype: DType
    environment: Mapping[str, str]
    seconds: float
    command: tuple[str, ...] = (sys.executable, "-m", "mxamp.runtime.kernel_times")
    patience: float = 120.0
    progress: Callable[[float], None] = lambda seconds: None


def time_random_kernels(
    timing: KernelTiming,
    target: Target,
    *,
    seed: int = 0,
    weights: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """Return what random kernels take, as :func:`mxamp.runtime.kernel_times.time_kernels` does.

    Parameters
    ----------
    timing
        How they are timed.
    target
        What says which operators run in the low dtype.
    seed
        Of the first graph; each graph has its own.
    weights
        See :func:`mxamp.probe.kernels.draw_kernels`.

    Raises
    ------
    TargetError
        When the processes keep dying.
    """
    graphs = (_Graph.drawn(number, weights) for number in itertools.count(seed))
    return [kernel for _, timed in _timed(timing, target, graphs) for kernel in timed]


def time_in_surroundings(
    timing: KernelTiming, target: Target, count: int, *, seed: int
) -> list[list[dict[str, Any]]]:
    """Time each of some random kernels again and again, in graphs of other kernels each time.

    What a kernel takes depends on what runs around it: what that leaves in the caches, of code and of data,
    and in which of their sets. What it takes in the mean is a property of its own.

    Parameters
    ----------
    timing
        How they are timed.
    target
        What says which operators run in the low dtype.
    count
        How many kernels.
    seed
        Where the seeds of kernels and graphs begin.

    Returns
    -------
    list
        For each kernel its times, as :func:`mxamp.runtime.kernel_times.time_kernels` returns them; all have
        been timed as often, give or take one.

    Raises
    ------
    TargetError
        When the processes keep dying.
    """
    drawn = guests_from(seed, count)
    found: dict[int, list[dict[str, Any]]] = {guest: [] for guest in drawn}
    for graph in time_guests(timing, target, drawn, seed=seed + count):  # no guest's seed
        for guest, times in graph.guests:
            found[guest].append(times)
    return list(found.values())


def guests_from(seed: int, count: int, only: Collection[str] = frozenset()) -> Sequence[int]:
    """Return the seeds of guests (:func:`mxamp.probe.kernels.draw_guest`).

    Parameters
    ----------
    seed
        The first.
    count
        How many are drawn.
    only
        Operators, or families: guests of others are left out. None is, where there are none.
    """
    seeds = range(seed, seed + count)
    return [guest for guest in seeds if not only or _is_one_of(draw_guest(guest), only)]


class GraphTimes(NamedTuple):
    """What the kernels of a graph take, as :func:`mxamp.runtime.kernel_times.time_kernels` returns it.

    Attributes
    ----------
    guests
        Those that were drawn one by one, each with its seed.
    hosts
        The others, which were drawn together and are of few kinds. What is there more than once comes once,
        with the mean of its times.
    """

    guests: Sequence[tuple[int, dict[str, Any]]]
    hosts: Sequence[dict[str, Any]]


def time_guests(
    timing: KernelTiming, target: Target, guests: Sequence[int], *, seed: int
) -> Iterator[GraphTimes]:
    """Yield what guests take in graphs of other kernels, each in another graph each time, until time is up.

    Parameters
    ----------
    timing
        How they are timed.
    target
        What says which operators run in the low dtype.
    guests
        Their seeds. All are timed as often, give or take one.
    seed
        Of the first graph.

    Raises
    ------
    TargetError
        When the processes keep dying.
    """
    random = np.random.default_rng(seed)

    def graphs() -> Iterator[_Graph]:
        waiting: list[int] = []
        for number in itertools.count(seed) if guests else ():
            while len(waiting) < GUESTS:
                waiting.extend(random.permutation(guests).tolist())
            graph = _Graph.drawn(number, guests=waiting)
            del waiting[: len(graph.places)]
            yield graph

    for graph, timed in _timed(timing, target, graphs()):
        seated = [(guest, timed[place]) for place, guest in zip(graph.places, graph.guests)]
        yield GraphTimes(seated, _hosts(graph, timed))


def _hosts(graph: _Graph, timed: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the times of kernels that are no guests: one for what is there more than once."""
    alike: dict[int, list[dict[str, Any]]] = {}
    for place, kernel in enumerate(graph.kernels):
        if place not in graph.places:
            alike.setdefault(graph.kernels.index(kernel), []).append(timed[place])
    return [{**own[0], "us": _mean([one["us"] for one in own])} for own in alike.values()]


def _mean(times: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """Return the mean of what each dtype took, where it was timed."""
    each: dict[str, list[float]] = {}
    for one in times:
        for label, us in one.items():
            each.setdefault(label, []).append(us)
    return {label: round(fmean(own), 2) for label, own in each.items()}


def _is_one_of(one: Kernel, names: Collection[str]) -> bool:
    return one.op in names or one.family in names


@dataclass(frozen=True)
class _Graph:
    """The kernels of a graph, and what they are drawn by."""

    seed: int
    count: int
    weights: Mapping[str, float] | None
    guests: Sequence[int]
    kernels: Sequence[Kernel]
    places: Sequence[int]

    @classmethod
    def drawn(
        cls, seed: int, weights: Mapping[str, float] | None = None, guests: Sequence[int] = ()
    ) -> _Graph:
        count, random = _IN_GRAPHS[seed % len(_IN_GRAPHS)], np.random.default_rng(seed)
        kernels, places = seat_guests(draw_kernels(count, random, weights), guests, random)
        return cls(seed, count, weights, guests[: len(places)], kernels, places)

    def job(self, dtype: DType, target: Target) -> Mapping[str, Any]:
        """Return what a process is asked."""
        return {
            "seed": self.seed,
            "count": self.count,
            "weights": self.weights,
            "guests": self.guests,
            "dtype": dtype.label,
            "low": [number for number, one in enumerate(self.kernels) if _runs_low(one, target)],
        }


def _timed(
    timing: KernelTiming, target: Target, graphs: Iterable[_Graph]
) -> Iterator[tuple[_Graph, Sequence[dict[str, Any]]]]:
    """Yield graphs with what their kernels take, until time is up; those that end their process are left out.

    Raises
    ------
    TargetError
        When the processes keep dying.
    """
    deaths = 0
    process: Dialogue | None = None
    start = time.monotonic()
    try:
        for graph in graphs:
            timing.progress(time.monotonic() - start)
            if time.monotonic() >= start + timing.seconds:
                return
            process = process or Dialogue(
                timing.command,
                {
                    **timing.environment,
                    "MXNET_ENGINE_TYPE": "NaiveEngine",
                    "MXNET_SUBGRAPH_BACKEND": "MKLDNN",
                },
            )
            process.send(graph.job(timing.dtype, target))
            answer = _answer(process, timing.patience)
            if answer is not None:
                deaths = 0
                yield graph, answer["timed"]
                continue
            process.close()
            process = None
            deaths += 1
            if deaths > _MOST_DEATHS:
                raise TargetError(
                    "The process that times random kernels ended again and again. It is "
                    f"{' '.join(timing.command)}."
                )
    finally:
        if process is not None:
            process.close()


def _answer(process: Dialogue, seconds: float) -> dict[str, Any] | None:
    """Return a process's answer; None where it has died, or hangs."""
    try:
        return process.receive(seconds)
    except TimeoutError:
        return None


def _runs_low(one: Kernel, target: Target) -> bool:
    if one.op == AMP_CAST:
        return True
    if one.op == "RNN" or one.attrs.get("act_type") in _SLOW_IN_LOW:
        return False
    return target.support(FACTS.canonical(one.op), one.attrs).support is Support.WORKS


def weights_by_error(samples: Sequence[KernelSample], known: CostModel | None = None) -> Mapping[str, float]:
    """Return how often each family of :data:`mxamp.probe.kernels.FAMILIES` is to be drawn next.

    More where costs that are fitted on one half of the samples are wrong on the other: in proportion to the
    share of them that is off by more than a quarter.

    Parameters
    ----------
    samples
        Kernels that were timed.
    known
        See :func:`mxamp.probe.fit_kernels.fit_kernels`.
    """
    halves = samples[::2], samples[1::2]
    costs = fit_kernels(halves[0], known)
    off: dict[str, list[bool]] = {}
    for sample in halves[1]:
        time = sample.times[0]
        if sample.family not in costs or not time:
            continue
        tree = cost_from_document(costs[sample.family]["float32"], sample.family)
        ratio = kernel_microseconds(tree, *amounts_and_traits(sample.op, sample.work, low=False)) / time
        off.setdefault(_drawn_as(sample.family), []).append(not 0.8 <= ratio <= 1.25)
    return {
        name: share * (0.25 + sum(off[name]) / len(off[name]) if off.get(name) else 1.0)
        for name, (share, _) in FAMILIES.items()
    }


def _drawn_as(family: str) -> str:
    """Return the name in :data:`mxamp.probe.kernels.FAMILIES` that a family of kernels is drawn under."""
    for name in (family, family.split(" ")[0]):
        if name in FAMILIES:
            return name
    return ""
