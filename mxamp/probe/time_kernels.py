"""Time random kernels in processes that may die of it, for as long as there is time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.errors import TargetError
from mxamp.ops import FACTS
from mxamp.ops.casts import AMP_CAST
from mxamp.probe.fit_kernels import KernelSample, fit_kernels
from mxamp.probe.kernels import FAMILIES, Kernel, draw_kernels
from mxamp.targets import CostModel, Support, Target
from mxamp.targets.kernel_cost import kernel_microseconds, tree_from_document
from mxamp.targets.kernel_terms import amounts_and_traits

JUDGE_SEED = 900_000_000
"""Where the seeds of kernels begin that costs are judged by and never fitted on."""

_IN_GRAPHS = (24, 12, 24, 6, 24, 3)
"""Kernels in graphs, by turns. Among many a kernel's weights leave the caches until it runs again; among few,
as in a network of a handful of layers, they stay."""

_MOST_DEATHS = 20

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
    orders
        In how many orders kernels run.
    visit
        Which time it is that the same kernels are timed: each time has orders of its own.
    command
        What to start.
    """

    dtype: DType
    environment: Mapping[str, str]
    seconds: float
    orders: int = 1
    visit: int = 0
    command: tuple[str, ...] = (sys.executable, "-m", "mxamp.runtime.kernel_times")


def time_random_kernels(
    timing: KernelTiming,
    target: Target,
    *,
    seed: int = 0,
    weights: Mapping[str, float] | None = None,
    progress: Callable[[int], None] | None = None,
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
    progress
        Told how many have been timed.

    Raises
    ------
    TargetError
        When the processes keep dying.
    """
    found: list[dict[str, Any]] = []
    deaths = 0
    process: subprocess.Popen[str] | None = None
    end = time.monotonic() + timing.seconds
    try:
        while time.monotonic() < end:
            count = _IN_GRAPHS[seed % len(_IN_GRAPHS)]
            chosen = draw_kernels(count, np.random.default_rng(seed), weights)
            job = {
                "seed": seed,
                "count": count,
                "weights": weights,
                "dtype": timing.dtype.label,
                "low": [number for number, one in enumerate(chosen) if _runs_low(one, target)],
                "orders": timing.orders,
                "visit": timing.visit,
            }
            seed += 1
            process = process or _start(timing)
            answer = _ask(process, job)
            if answer is None:
                deaths += 1
                if deaths > _MOST_DEATHS:
                    raise TargetError(
                        "The process that times random kernels ended again and again. It is "
                        f"{' '.join(timing.command)}."
                    )
                process = None
                continue
            found.extend(answer["kernels"])
            if progress is not None:
                progress(len(found))
    finally:
        if process is not None:
            process.kill()
            process.wait()
    return found


def _start(timing: KernelTiming) -> subprocess.Popen[str]:
    return subprocess.Popen(
        timing.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**timing.environment, "MXNET_ENGINE_TYPE": "NaiveEngine", "MXNET_SUBGRAPH_BACKEND": "MKLDNN"},
    )


def _ask(process: subprocess.Popen[str], job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a process's answer; None where it has died."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        answer: Mapping[str, Any] = json.loads(line)
    except (OSError, ValueError):
        process.kill()
        process.wait()
        return None
    return answer


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
        tree = tree_from_document(costs[sample.family]["float32"], sample.family)
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
