"""What makes the difference, as text and as a section of an HTML report."""

from __future__ import annotations

from typing import Sequence

from mxamp.compare.text import format_number
from mxamp.debug.run import Suspect, Suspects
from mxamp.html.sections import Section, Table
from mxamp.messages.counts import count_of
from mxamp.report.table import Column, format_table, paragraph, terminal_width

_SHOWN = 10


def format_suspects(found: Suspects, width: int | None = None) -> str:
    """Return what was found as text, without a final newline.

    Parameters
    ----------
    found
        What was found.
    width
        The longest line, in characters; by default the terminal's width.
    """
    width = terminal_width(width)
    lines: list[str] = []
    for sentence in _sentences(found):
        lines += paragraph(sentence, width)
    columns = (
        Column("share", right=True),
        Column("alone", right=True),
        Column("nodes", right=True),
        Column("which", 16),
    )
    lines += ["", *format_table(columns, [_row(suspect) for suspect in found.suspects[:_SHOWN]], width)]
    if len(found.suspects) > _SHOWN:
        lines.append(f"and {len(found.suspects) - _SHOWN} more parts with less.")
    lines += ["", *paragraph(_advice(found), width, hanging="  ")]
    return "\n".join(lines)


def suspects_section(found: Suspects) -> Section:
    """Return what was found as a section of an HTML report."""
    rows = tuple(_row(suspect) for suspect in found.suspects[:_SHOWN])
    table = Table((">Share", ">Error alone", ">Nodes", "Which"), rows)
    return Section(
        "Which nodes make the difference", tuple(_sentences(found)), (table,), notes=(_advice(found),)
    )


def _sentences(found: Suspects) -> Sequence[str]:
    how = "emulated" if found.is_emulated else "run"
    return (
        f"Relative L2 error of the worst output on {count_of(found.samples, 'sample')}: "
        f"{format_number(found.converted)} as converted, {format_number(found.together)} with the same "
        f"{count_of(found.low_nodes, 'node')} in {found.dtype} here ({found.trials} models, {how}).",
        "Each part alone in low precision, the rest in float32, and its share of their squared errors:",
    )


def _row(suspect: Suspect) -> tuple[str, str, str, str]:
    share = "-" if suspect.share is None else f"{100 * suspect.share:.1f} %"
    names = suspect.nodes
    which = ", ".join(names) if len(names) <= 3 else f"{names[0]} ... {names[-1]}"
    return share, format_number(suspect.error), str(len(names)), which


def _advice(found: Suspects) -> str:
    first = found.suspects[0]
    names = first.nodes
    what = " ".join(f"--exclude {name}" for name in names[:3]) + (" ..." if len(names) > 3 else "")
    is_better = found.without_first < found.together
    return (
        f"With the first part in float32 ({what}) the error is {format_number(found.without_first)} instead "
        f"of {format_number(found.together)}"
        f"{'.' if is_better else ', which is no better: errors cancel here, or others do as much.'}"
    )
