"""Lay out text for a terminal of any width: wrapped paragraphs, and tables that never run over.

Nothing is cut off: a name that is shown can be copied into a policy. What does not fit is wrapped, and a
table that would need columns too narrow to read turns into one short block a row.
"""

from __future__ import annotations

import io
import shutil
from dataclasses import dataclass
from typing import Sequence

MIN_WIDTH = 20
"""Narrower than this nothing is readable; lines are then this long."""

_GAP = 2


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes
    ----------
    title
        Its heading.
    minimum
        The narrowest it may be made, in characters; 0 for a column that is never wrapped.
    right
        Whether it is aligned to the right, as numbers are.
    """

    title: str
    minimum: int = 0
    right: bool = False

    def narrowest(self, cells: Sequence[str]) -> int:
        """Return the narrowest that it may be made, with these cells."""
        widest = max(len(self.title), max(map(len, cells), default=0))
        return min(widest, self.minimum) if self.minimum else widest


def terminal_width(width: int | None = None) -> int:
    """Return the width to lay out for, in characters.

    Parameters
    ----------
    width
        What the user asked for; by default the terminal's width (or the variable ``COLUMNS``), and 100
        where there is no terminal.
    """
    if width is None:
        width = shutil.get_terminal_size(fallback=(100, 24)).columns
    return max(width, MIN_WIDTH)


def format_bytes(count: float) -> str:
    """Return a size in MB (10**6 bytes), in GB where it is larger, or in kB and bytes where it is smaller."""
    if count >= 1e9:
        return f"{count / 1e9:.2f} GB"
    if count >= 1e5:
        return f"{count / 1e6:.1f} MB"
    if count >= 1e3:
        return f"{count / 1e3:.1f} kB"
    return f"{int(count)} bytes"


def paragraph(text: str, width: int, *, indent: str = "", hanging: str | None = None) -> list[str]:
    """Wrap one paragraph.

    Parameters
    ----------
    text
        The words.
    width
        The longest line, in characters.
    indent
        Put before the first line.
    hanging
        Put before the others; by default ``indent``.
    """
    hanging = indent if hanging is None else hanging
    room = max(width - max(len(indent), len(hanging)), 8)
    lines = wrap_cell(text, room)
    return [(hanging if number else indent) + line for number, line in enumerate(lines)]


def wrap_cell(text: str, width: int) -> list[str]:
    """Wrap text into lines of at most ``width`` characters; long names break after ``_`` or ``/``."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        if len(line) + (1 if line else 0) + len(word) <= width:
            line = f"{line} {word}" if line else word
            continue
        if line:
            lines.append(line)
        while len(word) > width:
            cut = max(word.rfind("_", 0, width), word.rfind("/", 0, width)) + 1
            if cut < width // 2:
                cut = width
            lines.append(word[:cut])
            word = word[cut:]
        line = word
    return [*lines, line] if line or not lines else lines


def format_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, *, indent: str = ""
) -> list[str]:
    """Return the lines of a table.

    Parameters
    ----------
    columns
        Its columns.
    rows
        One string a column, a row at a time.
    width
        The longest line, in characters.
    indent
        Put before every line.

    Returns
    -------
    list of str
        No line is longer than ``width``, except where a column that may not be wrapped is itself wider.
    """
    room = max(width, MIN_WIDTH) - len(indent)
    if not _fits(columns, rows, room):
        return [indent + line for line in _stacked(columns, rows, room)]
    return [(indent + line).rstrip() for line in _laid_out(columns, rows, room)]


def _fits(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> bool:
    """Whether the columns fit beside each other, as narrow as they may be made."""
    widths = [column.narrowest([row[number] for row in rows]) for number, column in enumerate(columns)]
    return sum(widths) + _GAP * (len(columns) - 1) <= room


def _laid_out(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[str]:
    # It takes longer to import than mxamp itself, and only tables need it.
    import rich.console
    import rich.rule
    import rich.table
    import rich.text

    table = rich.table.Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="none")
    for number, column in enumerate(columns):
        title = rich.text.Text(column.title, justify="right" if column.right else "left")
        table.add_column(
            rich.console.Group(title, rich.rule.Rule(characters="-", style="none")),
            min_width=column.narrowest([row[number] for row in rows]),
            no_wrap=not column.minimum,
            justify="right" if column.right else "left",
            overflow="fold",
        )
    for row in _broken_at_names(columns, rows, room):
        table.add_row(*map(rich.text.Text, row))
    # A file, whatever the terminal is: what is returned is text.
    console = rich.console.Console(file=io.StringIO(), width=room, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n").split("\n")


def _broken_at_names(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int
) -> Sequence[Sequence[str]]:
    """Break names where they have joints, in the only column that is wrapped: rich breaks them anywhere."""
    wrapped = [number for number, column in enumerate(columns) if column.minimum]
    if len(wrapped) != 1:
        return rows
    own = wrapped[0]
    others = [
        column.narrowest([row[number] for row in rows])
        for number, column in enumerate(columns)
        if number != own
    ]
    left = room - sum(others) - _GAP * len(others)
    return [
        [
            "\n".join(wrap_cell(cell, left)) if number == own and len(cell) > left else cell
            for number, cell in enumerate(row)
        ]
        for row in rows
    ]


def _stacked(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[str]:
    lines = []
    for row in rows:
        lines.extend(wrap_cell(row[0], room))
        for column, text in zip(columns[1:], row[1:]):
            if text:
                lines.extend(paragraph(f"{column.title}: {text}", room, indent="  ", hanging="    "))
    return lines
