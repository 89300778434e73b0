"""A race between runtimes, as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxamp.compare.text import format_number
from mxamp.racing.competitor import RUNTIMES
from mxamp.report.table import Column, format_table, paragraph, terminal_width

if TYPE_CHECKING:
    from mxamp.racing.result import RaceEntry, RaceResult


def format_race(result: RaceResult, width: int | None = None) -> str:
    """Return what a race found as text.

    Parameters
    ----------
    result
        What it found.
    width
        The longest line, in characters; by default the terminal's width.

    Returns
    -------
    str
        Without a final newline.
    """
    width = terminal_width(width)
    threads = result.machine["threads"]
    lines = paragraph(
        f"One forward pass, batch {result.batch_size}, by turns on {result.machine['cpu']}, {threads} "
        f"thread{'' if threads == '1' else 's'}. Errors are relative L2 of the worst output against "
        f"{result.reference}: the distance between models, not accuracy.",
        width,
    )
    columns = [
        Column("model", 10),
        Column("runtime", 8),
        Column("precision", 10),
        Column("ms", right=True),
        Column("times as fast", right=True),
        Column("error", right=True),
    ]
    lines += ["", *format_table(columns, [_row(result, entry) for entry in result.entries], width)]
    failed = [entry for entry in result.entries if entry.failure is not None]
    if failed:
        lines += ["", "Did not run:"]
        for entry in failed:
            lines += paragraph(f"{entry.label}: {entry.failure}", width, indent="  - ", hanging="    ")
    lines += ["", *paragraph(_verdict(result), width)]
    if result.notes:
        lines += ["", "Notes:"]
        for note in result.notes:
            lines += paragraph(note, width, indent="  - ", hanging="    ")
    return "\n".join(lines)


def _row(result: RaceResult, entry: RaceEntry) -> list[str]:
    runtime = f"{RUNTIMES[entry.runtime]} {entry.version}".strip()
    error = "-" if entry.error is None else format_number(entry.error)
    if entry.milliseconds is None or entry.ratio is None:
        return [entry.model, runtime, entry.precision, "-", "-", error]
    ratio = entry.ratio
    spread = f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    beyond = "" if result.is_allowed(entry) else " !"
    return [entry.model, runtime, entry.precision, f"{entry.milliseconds:.2f}", spread, error + beyond]


def _verdict(result: RaceResult) -> str:
    best = result.best
    if best is None:
        return f"Nothing that ran is within the tolerance of {result.tolerance:g}: deploy none of these."
    assert best.ratio is not None
    first = result.ran[0]
    than = "" if best is first else f", {best.ratio.median:.2f} times as fast as {first.label}"
    close = [entry.label for entry in result.as_fast_as(best) if entry is not best]
    same = f" As fast, within 2 %: {'; '.join(close)}." if close else ""
    return f"Deploy {best.label}: {best.milliseconds:.2f} ms{than}. How: {best.how}.{same}"
