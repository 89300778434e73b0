"""A calibration as text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Sequence

from mxamp.calibration.statistics import DTYPES
from mxamp.messages.counts import count_of
from mxamp.report.table import Column, format_bytes, format_table, paragraph, terminal_width

if TYPE_CHECKING:
    from mxamp.calibration.calibration import Calibration

_SHOWN = 12


def calibration_text(calibration: Calibration, width: int | None = None) -> str:
    """Return what a calibration holds: its samples, the entries with the largest values, what is unknown.

    Parameters
    ----------
    calibration
        The calibration.
    width
        Characters of a line; by default the terminal's.
    """
    width = terminal_width(width)
    lines = []
    for description in calibration.data:
        shapes = ", ".join(
            f"{name} {'x'.join(map(str, shape[1:]))}" for name, shape in description.shapes.items()
        )
        lines += paragraph(
            f"Calibrated with {count_of(description.samples, 'sample')} of {description.source} ({shapes}).",
            width,
            hanging="  ",
        )
    layers = calibration.layers.values()
    divided = sum(len(moments.blocks) > 1 for moments in layers)
    blocks = f", in blocks for {divided} of them" if divided else ""
    lines += paragraph(
        f"{count_of(len(calibration.entries), 'tensor')} observed; moments of "
        f"{count_of(len(calibration.layers), 'layer')}{blocks}, {format_bytes(calibration.moment_bytes)}.",
        width,
        hanging="  ",
    )
    lines += paragraph(_priced(calibration), width, hanging="  ")
    for dtype in DTYPES:
        beyond = [
            name for name, found in calibration.entries.items() if found.beyond.get(dtype.label, 0.0) > 0.0
        ]
        if beyond:
            some = ", ".join(map(str, beyond[:5])) + (", ..." if len(beyond) > 5 else "")
            lines += paragraph(
                f"Beyond the range of {dtype}: {count_of(len(beyond), 'tensor')} ({some}).",
                width,
                hanging="  ",
            )
    if calibration.unseen:
        first, why = next(iter(calibration.unseen.items()))
        lines += paragraph(
            f"Nothing is known of {count_of(len(calibration.unseen), 'node')}, such as {first!r}: {why}.",
            width,
            hanging="  ",
        )
    return "\n".join([*lines, "", *entry_table(calibration, width, most=_SHOWN)])


def _priced(calibration: Calibration) -> str:
    """Say what is known of the prices of roundings."""
    prices = calibration.prices
    if prices is None:
        why = f": {calibration.why_unpriced}" if calibration.why_unpriced else ""
        return f"What roundings cost in accuracy is not known{why if why.endswith('.') else f'{why}.'}"
    of_entries, of_parameters = prices.entries["bfloat16"], prices.parameters["bfloat16"]
    total = sum(of_entries.values()) + sum(of_parameters.values()) or 1.0
    dearest = sorted([*of_entries.items(), *of_parameters.items()], key=lambda item: -item[1])[:3]
    some = ", ".join(f"{name} {price / total:.0%}" for name, price in dearest)
    return (
        f"{count_of(len(of_entries) + len(of_parameters), 'rounding')} priced with "
        f"{count_of(prices.samples, 'sample')}; the dearest to bfloat16 by their share of the squared error: "
        f"{some}."
    )


def entry_table(calibration: Calibration, width: int | None = None, *, most: int | None = None) -> list[str]:
    """Return the lines of a table of the entries, those with the largest magnitudes first.

    Parameters
    ----------
    calibration
        The calibration.
    width
        Characters of a line; by default the terminal's.
    most
        How many entries to show; by default all.
    """
    columns = (
        Column("tensor", 12),
        Column("largest", right=True),
        Column("minimum", right=True),
        Column("maximum", right=True),
        Column("mean", right=True),
        Column("root mean square", right=True),
        Column("zero in float16", right=True),
        Column("sample", right=True),
    )
    ordered = sorted(calibration.entries.items(), key=lambda item: -item[1].largest)
    rows: list[Sequence[str]] = [
        (
            str(name),
            f"{found.largest:.4g}",
            f"{found.minimum:.4g}",
            f"{found.maximum:.4g}",
            f"{found.mean:.3g}",
            f"{math.sqrt(found.mean_square):.3g}",
            f"{found.below.get('float16', 0.0):.2%}",
            str(found.sample),
        )
        for name, found in ordered[:most]
    ]
    left = len(ordered) - len(rows)
    more = [f"and {count_of(left, 'tensor')} more with smaller values"] if left else []
    return [*format_table(columns, rows, terminal_width(width)), *more]
