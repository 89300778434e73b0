"""Time kernels of random shapes, each a guest among others of all kinds, in another graph each time.

    python -m tools.kernel_costs.collect TARGET.json --timings kernels.jsonl --seconds 3600

`make bench-estimates` times those that it judges by in the same way, with other seeds. The others are kept
as well, each once a graph: a graph has few kinds of them, so they are less than guests, but they are timed
anyway, and are more. Timings are added to the file every few minutes: what an hour on one core gives is added
to the next hour's, and a run that is cut off loses little. Nothing else may run on the core meanwhile; two of
these on two cores, into a file each and with seeds of their own, do not disturb each other.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any, Collection, Iterator, Mapping, Sequence

from mxamp.probe.time_kernels import JUDGE_SEED, GraphTimes, KernelTiming, guests_from, time_guests
from tools.kernel_costs.timings import add_arguments, add_timings, read_target, read_timings
from tools.machine import prepare_environment, use_amx

_GUESTS_A_SECOND = 12
"""How many kernels are drawn: some more than can be timed (AMD EPYC, Intel Xeon, one thread: 6 to 8)."""

_RARE = 8
"""How many more, where only some operators are timed."""

_AT_A_TIME = 300.0
"""Seconds, after which what was timed is written."""

_SEEDS = 10_000_000
"""Between one start and the next, so that no two draw the same."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Time and keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--seconds", type=float, default=3600, help="for how long to time")
    parser.add_argument(
        "--seed",
        type=int,
        help=f"of the first kernel, below {JUDGE_SEED}; by default behind those that were timed already",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="OP",
        help="time kernels of these operators or families alone",
    )
    given = parser.parse_args(arguments)
    prepare_environment()
    use_amx()
    _, target = read_target(parser, given.target)
    timed = read_timings(given.timings) if given.timings.exists() else ()
    seeds = {one["seed"] for one in timed if "seed" in one}
    first = _behind(seeds) if given.seed is None else given.seed
    past = first + round(_SEEDS * (1 + given.seconds / _AT_A_TIME))
    if past > JUDGE_SEED:
        parser.error(f"--seed {first}: seeds from {JUDGE_SEED} on are kept to judge by")
    again = [seed for seed in seeds if first <= seed < past]
    if again:
        parser.error(f"--seed {first}: {given.timings} has {len(again)} kernels of the same seeds already")
    end, seed = time.monotonic() + given.seconds, first
    while (left := end - time.monotonic()) > 0:
        seconds = min(left, _AT_A_TIME)
        timing = KernelTiming(target.dtype, dict(os.environ), seconds)
        count = max(1, round((_RARE if given.only else 1) * _GUESTS_A_SECOND * seconds))
        guests = guests_from(seed, count, given.only)
        graphs = time_guests(timing, target, guests, seed=seed + count)
        found = [one for graph in graphs for one in _lines(graph, given.only)]
        add_timings(given.timings, found)
        own = sum(one["guest"] for one in found)
        print(f"{own} kernels timed, of seeds from {seed} on, and {len(found) - own} beside them", flush=True)
        seed += _SEEDS


def _behind(seeds: Collection[int]) -> int:
    """Return where the next seeds begin."""
    return (1 + max(seeds) // _SEEDS) * _SEEDS if seeds else 0


def _lines(graph: GraphTimes, only: Collection[str]) -> Iterator[Mapping[str, Any]]:
    """Yield what is kept of a graph."""
    for seed, one in graph.guests:
        yield {"guest": True, "seed": seed, **one}
    for one in graph.hosts:
        if not only or one["op"] in only or one["family"] in only:
            yield {"guest": False, **one}


if __name__ == "__main__":
    main()
