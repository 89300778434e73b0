"""Tables and paragraphs that a report is made of, written as Markdown or as HTML."""

from __future__ import annotations

import html
import re
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
    groups
        What stands above several columns: for each group its name, which may be empty, and how many columns
        it has. Empty where nothing does. Markdown has one line of names, and there the name of the group
        stands before the column's.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    groups: Sequence[tuple[str, int]] = ()

    def full_header(self) -> list[str]:
        """Return the columns' names, each with its group's."""
        above = [name for name, columns in self.groups for _ in range(columns)]
        above += [""] * (len(self.header) - len(above))
        return [f"{group} {name}".strip() for group, name in zip(above, self.header)]


_STYLE = """\
body { font: 15px/1.45 system-ui, sans-serif; color: #222; margin: 2em auto; max-width: 84em; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px; }
th, td { padding: 2px 7px; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
thead { position: sticky; top: 0; background: #fff; }
th { border-bottom: 2px solid #888; vertical-align: bottom; white-space: normal; }
tr.groups th { border-bottom: 1px solid #bbb; text-align: center; }
td.group, th.group { border-left: 1px solid #bbb; }
td.left, th.left { text-align: left; white-space: normal; }
td.left:first-child { white-space: nowrap; }
tr:hover td { background: #f4f6fa; }
nav { columns: 3 16em; margin: 1em 0; }
nav a { display: block; }
figure { margin: 1em 0; }
figcaption { font-weight: bold; }
svg { max-width: 100%; height: auto; }
"""


def to_markdown(parts: Sequence[Heading | Paragraph | Image | Table]) -> str:
    """Return a report as Markdown; a list of its sections follows the title."""
    sections = [part for part in parts if isinstance(part, Heading) and part.level == 2]
    contents = " ·\n".join(f"[{part.text}](#{_anchor(part.text)})" for part in sections)
    texts = [_markdown(part) for part in parts]
    if contents and parts and isinstance(parts[0], Heading):
        texts.insert(1, contents)
    return "\n\n".join(texts) + "\n"


def _anchor(text: str) -> str:
    """Return what GitHub calls a heading in a link, which the HTML does too."""
    return re.sub(r"[^a-z0-9 -]", "", text.lower()).replace(" ", "-")


def _markdown(part: Heading | Paragraph | Image | Table) -> str:
    if isinstance(part, Heading):
        return f"{'#' * part.level} {part.text}"
    if isinstance(part, Image):
        return f"![{part.text}]({part.file})"
    if isinstance(part, Paragraph):
        return part.text
    rule = [":--" if number < part.left else "--:" for number in range(len(part.header))]
    rows = [part.full_header(), rule, *part.rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


def to_html(title: str, parts: Sequence[Heading | Paragraph | Image | Table]) -> str:
    """Return a report as one HTML file that needs no other."""
    sections = [part for part in parts if isinstance(part, Heading) and part.level == 2]
    links = "".join(f'<a href="#{_anchor(part.text)}">{html.escape(part.text)}</a>' for part in sections)
    pieces = [_html(part) for part in parts]
    if links and isinstance(parts[0], Heading):
        pieces.insert(1, f"<nav>{links}</nav>")
    body = "\n".join(pieces)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _html(part: Heading | Paragraph | Image | Table) -> str:
    if isinstance(part, Heading):
        return f'<h{part.level} id="{_anchor(part.text)}">{html.escape(part.text)}</h{part.level}>'
    if isinstance(part, Paragraph):
        return f"<p>{html.escape(part.text)}</p>"
    if isinstance(part, Image):
        text = html.escape(part.text)
        return f'<figure role="img" aria-label="{text}"><figcaption>{text}</figcaption>{part.svg}</figure>'
    return _html_table(part)


def _html_table(table: Table) -> str:
    borders: set[int] = set()
    lines = ["<table>", "<thead>"]
    if table.groups:
        cells = []
        column = 0
        for name, columns in table.groups:
            border = " class=group" if column else ""
            cells.append(f"<th{border} colspan={columns}>{html.escape(name)}</th>")
            column += columns
            borders.add(column)
        rest = len(table.header) - column
        if rest > 0:
            cells.append(f"<th class=group colspan={rest}></th>")
        lines.append(f"<tr class=groups>{''.join(cells)}</tr>")
    lines += [_html_row(table.header, table.left, "th", borders), "</thead>"]
    lines += [_html_row(row, table.left, "td", borders) for row in table.rows]
    return "\n".join([*lines, "</table>"])


def _html_row(cells: Sequence[str], left: int, tag: str, borders: set[int]) -> str:
    made = []
    for number, cell in enumerate(cells):
        classes = [name for name, holds in (("left", number < left), ("group", number in borders)) if holds]
        attribute = f' class="{" ".join(classes)}"' if classes else ""
        made.append(f"<{tag}{attribute}>{html.escape(cell)}</{tag}>")
    return f"<tr>{''.join(made)}</tr>"
