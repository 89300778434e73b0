"""What measuring on this machine does to a conversion: placement by profile, and the guard."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping, Sequence

from mxamp.conversion import Options, Source
from mxamp.errors import PolicyError
from mxamp.guard import Guard
from mxamp.guard.search import guard_conversion
from mxamp.messages.arguments import setting
from mxamp.profile import Profiling, placing_by_profile
from mxamp.report.guard import NOT_RUN, GuardReport


def measured_options(
    source: Source,
    options: Options,
    profiling: Profiling | None,
    guard: Guard | None,
    input_shapes: Mapping[str, Sequence[int]] | None,
    is_emulated: bool,
    ctx: Any,
) -> Options:
    """Return how to convert after what was asked for was measured.

    Parameters
    ----------
    source, options
        What is converted, and how.
    profiling, guard
        How to do either; None for not at all.
    input_shapes
        Input name -> shape, as far as known.
    is_emulated
        Whether the conversion is emulated, which takes other times than what it emulates.
    ctx
        The device to profile on; None for the target's.

    Raises
    ------
    PolicyError
        When a conversion is to be profiled that is emulated, or without shapes.
    DeviceError
        When the device is not there, or cannot run the dtype.
    DataError
        When the guard was given data that do not fit the model.
    """
    options = replace(options, is_trial=True)  # how weights are rounded costs no time
    if profiling is not None:
        if is_emulated:
            raise PolicyError(
                f"{setting('profile', True)} times the model that is converted, and an emulation takes other "
                "times than what it emulates. Leave one of the two out."
            )
        if not options.target.runs_nothing_low:  # else there is nothing to place
            options = replace(options, placing=placing_by_profile(profiling, source, options, ctx=ctx))
    if guard is not None and is_emulated:
        reason = "an emulated model shows what the numbers do, and not how fast they come"
        options = replace(options, guard=GuardReport(NOT_RUN, reason))
    elif guard is not None:
        options = guard_conversion(guard, source, options, input_shapes)
    return replace(options, is_trial=False)
