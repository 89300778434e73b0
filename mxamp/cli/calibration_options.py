"""Options of commands that convert with a calibration."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from mxamp.calibration import Calibration, Compensation
from mxamp.calibration.compensate import FULL, MEAN
from mxamp.calibration.placing import TIME_BUDGET, check_time_budget
from mxamp.calibration.ranges import HEADROOM, check_headroom
from mxamp.cli.console import Mistakes, Steps
from mxamp.errors import PolicyError


class Calibrated(NamedTuple):
    """What the options say, as ``convert_model`` takes it."""

    calibration: Calibration | None
    compensate: Compensation | None
    headroom: float
    time_budget: float | None


def add_calibration_options(parser: Any, *, of_a_curve: bool = False) -> None:
    """Add the options.

    Parameters
    ----------
    parser
        The parser of the command.
    of_a_curve
        Whether the command converts with many placements, so that none is asked for.
    """
    group = parser.add_argument_group(
        "what samples tell", "What `mxamp calibrate` found out about the model's values."
    )
    group.add_argument("--calibration", metavar="FILE", help="the file that mxamp calibrate wrote")
    group.add_argument(
        "--compensate",
        nargs="?",
        const=FULL,
        choices=(FULL, MEAN),
        help="round the weights of each layer so that what it computes changes least on those samples (full, "
        "the default), or move its bias by what rounding changes in the mean (mean); needs --calibration",
    )
    if of_a_curve:
        parser.set_defaults(headroom=HEADROOM, time_budget=None)
        return
    group.add_argument(
        "--headroom",
        type=float,
        default=HEADROOM,
        metavar="X",
        help="values may be so many times larger than on those samples, and must fit the dtype; what may not "
        "fit is scaled where that changes nothing, and stays float32 elsewhere (default: %(default)g)",
    )
    group.add_argument(
        "--time-budget",
        type=float,
        metavar="SHARE",
        help="how much longer than the fastest placement it may take, by estimate, for the least error that "
        f"those samples predict; needs --calibration (default with one: {TIME_BUDGET:g}, and a file "
        "larger by a quarter at most)",
    )


def calibrated(args: argparse.Namespace, steps: Steps, mistakes: Mistakes) -> Calibrated:
    """Return what the options say; what is wrong with them is noted."""
    compensate = None
    if args.compensate is not None:

        def progress(layer: str, done: int, total: int) -> None:
            steps.now(f"compensating {layer} ({done + 1} of {total})")

        compensate = Compensation(args.compensate, progress=progress)
        if args.calibration is None:
            mistakes.note(
                PolicyError("--compensate needs --calibration FILE, which mxamp calibrate makes of samples.")
            )
    calibration = None
    if args.calibration is not None:
        calibration = mistakes.check(lambda: Calibration.load(args.calibration))
    headroom = mistakes.check(lambda: check_headroom(args.headroom))
    budget = mistakes.check(lambda: check_time_budget(args.time_budget))
    return Calibrated(calibration, compensate, headroom or HEADROOM, budget)
