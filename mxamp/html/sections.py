"""What a page is made of: figures, tables and plots, as values that know nothing of HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Figure", "Plot", "Point", "Section", "Table"]


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


@dataclass(frozen=True)
class Point:
    """A point of a plot: where it is, what it is called, and which kind it is of (its color)."""

    x: float
    y: float
    label: str
    kind: str = ""


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
    labels
        Whether every point has its label beside it, or shows it only when pointed at.
    """

    x_title: str
    y_title: str
    points: tuple[Point, ...]
    log_y: bool = False
    has_line: bool = False
    limit: float | None = None
    labels: bool = False

    def to_mapping(self) -> dict[str, Any]:
        """Return it as plain data for the page."""
        return {
            "x": self.x_title,
            "y": self.y_title,
            "points": [[point.x, point.y, point.label, point.kind] for point in self.points],
            "log": self.log_y,
            "line": self.has_line,
            "limit": self.limit,
            "labels": self.labels,
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
