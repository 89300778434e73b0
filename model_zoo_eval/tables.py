"""Tables and paragraphs that a report is made of, written as Markdown or as HTML."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Sequence

__all__ = ["Heading", "Image", "Paragraph", "Table", "to_html", "to_markdown"]


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Plain text."""

    text: str


@dataclass(frozen=True)
class Image:
    """A plot.

    Attributes
    ----------
    file
        Its name beside the report.
    text
        What it shows.
    svg
        The image itself, which HTML holds.
    """

    file: str
    text: str
    svg: str


@dataclass(frozen=True)
class Table:
    """Cells of text.

    Attributes
    ----------
    header
        The columns' names.
    rows
        The cells.
    left
        How many columns are aligned to the left; the others hold numbers.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1


_STYLE = """\
body { font: 15px/1.45 system-ui, sans-serif; color: #222; margin: 2em auto; max-width: 90em; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px; }
th, td { padding: 3px 9px; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #888; position: sticky; top: 0; background: #fff; }
td.left, th.left { text-align: left; white-space: normal; }
tr:hover td { background: #f4f6fa; }
svg { max-width: 100%; height: auto; }
"""


def to_markdown(parts: Sequence[Heading | Paragraph | Image | Table]) -> str:
    """Return a report as Markdown."""
    return "\n\n".join(_markdown(part) for part in parts) + "\n"


def _markdown(part: Heading | Paragraph | Image | Table) -> str:
    if isinstance(part, Heading):
        return f"{'#' * part.level} {part.text}"
    if isinstance(part, Image):
        return f"![{part.text}]({part.file})"
    if isinstance(part, Paragraph):
        return part.text
    rule = [":--" if number < part.left else "--:" for number in range(len(part.header))]
    rows = [part.header, rule, *part.rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


def to_html(title: str, parts: Sequence[Heading | Paragraph | Image | Table]) -> str:
    """Return a report as one HTML file that needs no other."""
    body = "\n".join(_html(part) for part in parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _html(part: Heading | Paragraph | Image | Table) -> str:
    if isinstance(part, Heading):
        return f"<h{part.level}>{html.escape(part.text)}</h{part.level}>"
    if isinstance(part, Paragraph):
        return f"<p>{html.escape(part.text)}</p>"
    if isinstance(part, Image):
        return f'<figure role="img" aria-label="{html.escape(part.text)}">{part.svg}</figure>'
    lines = ["<table>", _html_row(part.header, part.left, "th")]
    lines += [_html_row(row, part.left, "td") for row in part.rows]
    return "\n".join([*lines, "</table>"])


def _html_row(cells: Sequence[str], left: int, tag: str) -> str:
    made = [
        f"<{tag}{' class=left' if number < left else ''}>{html.escape(cell)}</{tag}>"
        for number, cell in enumerate(cells)
    ]
    return f"<tr>{''.join(made)}</tr>"
