"""Take out of timings by how much longer kernels took in one hour than in another.

    python -m tools.kernel_costs.hours TARGET.json --timings kernels.jsonl --quiet quiet.jsonl -o even.jsonl

A machine that others share is slower in one hour than in the next, by up to 1.2, and where kernels are timed
on both of its cores by a few hundredths more. Random kernels are of all kinds at any time, so how much longer
some hundreds in a row took than the target's rates say tells the hour, and their times are divided by what it
is beside an hour in which nothing else ran, or else the mean of all. Guests tell it, where there are any, for
the others of a graph are of few kinds, and take a little less. Kernels in networks stay as they are: a few
networks fill an hour, and rates may be off for these.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np

from mxamp.probe.kernel_samples import read_kernels
from mxamp.targets.cost import CostModel
from tools.kernel_costs.timings import add_arguments, add_timings, off_by, read_target, read_timings

_IN_A_ROW = 700
"""Kernels that tell an hour: on one thread they are timed in two minutes. Their median is known to 0.02."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Read, even out and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_arguments(parser)
    parser.add_argument(
        "--quiet", type=Path, help="random kernels that were timed while nothing else ran on the machine"
    )
    parser.add_argument("-o", "--out", type=Path, required=True, help="the file to write")
    given = parser.parse_args(arguments)
    if given.out.exists():
        parser.error(f"{given.out} is there already")
    _, target = read_target(parser, given.target)
    assert target.cost is not None, "read_target ends the program"
    timed = read_timings(given.timings)
    random = [one for one in timed if "network" not in one]
    quiet = None if given.quiet is None else _level(read_timings(given.quiet), target.cost)
    evened, factors = even(random, target.cost, quiet)
    add_timings(given.out, [*(one for one in timed if "network" in one), *evened])
    beside = "the mean" if quiet is None else "a quiet hour"
    slowest, fastest = max(factors, default=1.0), min(factors, default=1.0)
    print(
        f"{len(random)} random kernels of {len(factors)} times; in the slowest they took {slowest:.2f} of "
        f"{beside}, in the fastest {fastest:.2f}"
    )


def even(
    timed: Sequence[Mapping[str, Any]], cost: CostModel, quiet: float | None = None
) -> tuple[Sequence[Mapping[str, Any]], Sequence[float]]:
    """Return random kernels as they would have been timed in one hour, and by what each hour was slower.

    Parameters
    ----------
    timed
        Random kernels in the order in which they were timed, as
        :func:`mxamp.runtime.kernel_times.time_kernels` returns them.
    cost
        What says how long they take, but for a factor.
    quiet
        The logarithm of that factor in the hour that they shall be of; by default the mean of all.
    """
    guests = [number for number, one in enumerate(timed) if one.get("guest")] or range(len(timed))
    starts = [0, *guests[_IN_A_ROW::_IN_A_ROW]] if timed else []
    if len(starts) > 1 and len(guests) % _IN_A_ROW in range(1, _IN_A_ROW // 2):  # too few to tell
        starts.pop()
    rows = [timed[start:end] for start, end in zip(starts, [*starts[1:], len(timed)])]
    levels = np.array([_level(row, cost) for row in rows])
    slower = np.exp(levels - (levels.mean() if quiet is None else quiet)).tolist() if rows else []
    evened = [
        {**one, "us": {label: us / times for label, us in one["us"].items()}}
        for row, times in zip(rows, slower)
        for one in row
    ]
    return evened, slower


def _level(timed: Sequence[Mapping[str, Any]], cost: CostModel) -> float:
    """Return the median logarithm of how many times longer kernels took in float32 than their rates say."""
    guests = [one for one in timed if one.get("guest")]
    found = [
        one
        for sample in read_kernels(guests or timed)
        for trees in [cost.kernels.get(sample.family)]
        for one in [None if trees is None else off_by(trees[0], sample, low=False)]
        if one is not None
    ]
    return float(np.median(found)) if found else 0.0


if __name__ == "__main__":
    main()
