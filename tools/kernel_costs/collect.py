"""Time kernels of random shapes, each a guest among others of all kinds, in another graph each time.

    python -m tools.kernel_costs.collect TARGET.json --timings kernels.jsonl --seconds 3600

`make bench-estimates` times those that it judges by in the same way, with other seeds. Timings are added to
the file every few minutes: what an hour on one core gives is added to the next hour's, and a run that is cut
off loses little. Nothing else may run on the core meanwhile; two of these on two cores, with seeds of their
own, do not disturb each other.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Sequence

from mxamp.probe.time_kernels import JUDGE_SEED, KernelTiming, time_in_surroundings
from tools.kernel_costs.timings import add_arguments, add_timings, read_target
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
        "--seed", type=int, default=0, help=f"of the first kernel, below {JUDGE_SEED}; by default 0"
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
    if given.seed + _SEEDS * (1 + given.seconds / _AT_A_TIME) > JUDGE_SEED:
        parser.error(f"--seed {given.seed}: seeds from {JUDGE_SEED} on are kept to judge by")
    end, seed = time.monotonic() + given.seconds, given.seed
    while (left := end - time.monotonic()) > 0:
        seconds = min(left, _AT_A_TIME)
        timing = KernelTiming(target.dtype, dict(os.environ), seconds)
        count = max(1, round((_RARE if given.only else 1) * _GUESTS_A_SECOND * seconds))
        each = time_in_surroundings(timing, target, count, seed=seed, only=given.only)
        add_timings(given.timings, [{"guest": True, **kernel} for times in each for kernel in times])
        print(f"{sum(map(len, each))} kernels timed, of seeds from {seed} on", flush=True)
        seed += _SEEDS


if __name__ == "__main__":
    main()
