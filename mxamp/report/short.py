"""The report in a few lines: what, how much low, size, speed, and where to read on."""

from __future__ import annotations

from typing import Sequence

from mxamp.messages.counts import count_of
from mxamp.report.compensation import compensation_lines
from mxamp.report.model import Report
from mxamp.report.table import format_bytes, wrap_cell
from mxamp.report.text import FOLDED, reason_groups

_LABEL = 12
"""Characters of a label with the blanks behind it."""


def short_summary(report: Report) -> list[tuple[str, str]]:
    """Return what a conversion did, a label and a sentence at a time.

    Parameters
    ----------
    report
        The report. :func:`mxamp.report.text.summary` tells all of it.
    """
    low = report.target_dtype
    what = f"{report.low_nodes:,} of {count_of(len(report.nodes), 'operator node')} in {low}"
    if report.emulated is not None:
        what += ", emulated in float32"
    what += f" for {report.target}, {count_of(len(report.casts), 'cast')} at run time"
    share = report.low_multiply_add_share
    if share is not None:
        what += f"; {100 * share:.1f} % of the multiply-adds"
    found = [("converted", f"{what}.")]
    if report.nothing_low is not None:
        found = [("converted", f"nothing to {low}: {report.nothing_low}.")]
        prepared = _prepared(report)
        if prepared:
            found.append(("prepared", f"in float32, {' and '.join(prepared)}."))
    else:
        kept = reason_groups(report)
        if kept:
            reason, nodes = kept[0]
            count = count_of(sum(len(others) for _, others in kept), "node")
            which = f"{count}: {reason}"
            if len(kept) > 1:
                which = f"{count} for {len(kept)} reasons, {len(nodes)} of them: {reason}"
            found.append(("float32", f"{which}."))
    before, after = report.parameter_bytes_before, report.parameter_bytes_after
    if before:
        size = f"{format_bytes(before)} -> {format_bytes(after)} ({100 * after / before:.1f} %)"
        found.append(("size", f"{size}{', of what it emulates' if report.emulated is not None else ''}."))
    if report.saturated_values:
        found.append(("clamped", f"{count_of(report.saturated_values, 'value')} beyond {low}'s range."))
    if report.compensation is not None:
        found.append(("calibrated", compensation_lines(report.compensation)[0]))
    found.append(("speed", f"{_speed(report)}."))
    return found


def _prepared(report: Report) -> list[str]:
    """Return what became of the graph though nothing is low."""
    changed = len({change.node for change in report.preparations})
    folded = sum(node.rule == FOLDED for node in report.nodes)
    counted = (
        (changed, "node", "dropped, merged or rewritten"),
        (folded, "BatchNorm", "folded into the layers before"),
    )
    return [f"{count_of(count, noun)} {what}" for count, noun, what in counted if count]


def _speed(report: Report) -> str:
    guard = report.guard
    if guard is not None and guard.result is not None:
        result, machine = guard.result, guard.machine or {}
        return (
            f"measured: {result.float32_ms:.2f} ms -> {result.own_ms:.2f} ms, {result.ratio:.2f} times as "
            f"fast ({result.low:.2f} to {result.high:.2f}) on {machine.get('cpu', 'this machine')}"
        )
    chosen = next((plan for plan in report.race if plan.is_chosen and plan.ratio is not None), None)
    if chosen is not None:
        return f"measured: {chosen.ratio:.2f} times as fast as float32"
    time = report.time
    if time is not None and time.mixed_us and time.measured_nodes:
        return f"{time.float32_us / time.mixed_us:.2f} times as fast as float32, as the sum of measured nodes"
    if time is not None and time.mixed_us:
        ratio = time.float32_us / time.mixed_us
        said = f"estimated for {time.machine}, not measured: {ratio:.2f} times as fast as float32"
        here = report.time_here
        if here is not None and here.mixed_us:
            said += f"; for {here.machine}, as here: {here.float32_us / here.mixed_us:.2f} times"
        return said
    why = "" if guard is None else f": {guard.reason}"
    return f"not measured{why}"


def labelled(lines: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Return lines with their labels in a column, wrapped."""
    laid_out = []
    for label, text in lines:
        wrapped = wrap_cell(text, max(width - _LABEL, 8))
        laid_out += [
            f"{f'{label}:' if not number else '':<{_LABEL}}{line}" for number, line in enumerate(wrapped)
        ]
    return laid_out
