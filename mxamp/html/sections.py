"""What a page is made of: figures, tables and plots, as values that know nothing of HTML."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Any

_SENTENCE, _MANY = 30, 200
"""Cells with more characters make a column too wide for a phone; tables with more rows are none to read."""

_TOP = 1e3
"""Where what is infinite is drawn; relative errors are far below."""


@dataclass(frozen=True)
class Figure:
    """One of the few numbers at the top of a page.

    Attributes
    ----------
    title
        What it is.
    value
        The number with its unit.
    detail
        What it has to be read with: bounds, where it was measured.
    is_bad
        Whether it is what the reader must not miss.
    """

    title: str
    value: str
    detail: str = ""
    is_bad: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    columns
        The headings. One that begins with ``>`` is of numbers, and aligned to the right.
    rows
        One text a column.
    caption
        What it shows, where the section does not say so.
    folded
        Whether it is shown only when the reader asks for it.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    folded: bool = False

    @property
    def stacks(self) -> bool:
        """Whether each row becomes a card where the page is too narrow for the columns."""
        has_sentences = any(len(cell) > _SENTENCE for row in self.rows for cell in row)
        return len(self.columns) > 2 and (has_sentences or len(self.columns) > 4) and len(self.rows) < _MANY


@dataclass(frozen=True)
class Point:
    """A point of a plot.

    Attributes
    ----------
    x, y
        Where it is.
    label
        What is said of it when it is pointed at.
    kind
        Which kind it is of: its color.
    bounds
        Between which values of y it lies; drawn as a bar.
    name
        What stands beside it.
    """

    x: float
    y: float
    label: str
    kind: str = ""
    bounds: tuple[float, float] | None = None
    name: str = ""


@dataclass(frozen=True)
class Plot:
    """Points over two axes.

    Attributes
    ----------
    x_title, y_title
        What the axes are.
    points
        The points. On a logarithmic axis zero stands on its lower end.
    log_y
        Whether the vertical axis is logarithmic.
    has_line
        Whether neighbours are joined.
    limit
        A value of y that is drawn as a line; None without one.
    """

    x_title: str
    y_title: str
    points: tuple[Point, ...]
    log_y: bool = False
    has_line: bool = False
    limit: float | None = None

    def to_mapping(self) -> dict[str, Any]:
        """Return it as plain data for the page."""
        return {
            "x": self.x_title,
            "y": self.y_title,
            "points": [_finite(point) for point in self.points],
            "log": self.log_y,
            "line": self.has_line,
            "limit": self.limit,
        }


@dataclass(frozen=True)
class Section:
    """One part of a page, with a heading of its own.

    Attributes
    ----------
    title
        The heading.
    paragraphs
        Sentences above everything else.
    tables
        Tables, one below the other.
    plot
        A plot, between both.
    notes
        Remarks below, one an item.
    """

    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    plot: Plot | None = None
    notes: tuple[str, ...] = ()


def _finite(point: Point) -> list[Any]:
    """Return a point as JSON can hold it: an infinite value stands at the top, without bounds."""
    plain = list(astuple(point))
    if not math.isfinite(point.y):
        plain[1] = _TOP
    if point.bounds is not None and not all(map(math.isfinite, point.bounds)):
        plain[4] = None
    return plain
