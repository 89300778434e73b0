"""One HTML file about a model, to be read and forwarded: what was done to it, what that costs, and why."""

from mxamp.html.page import Findings, html_page, write_html
from mxamp.html.sections import Figure, Plot, Point, Section, Table

__all__ = [
    "Figure",
    "Findings",
    "Plot",
    "Point",
    "Section",
    "Table",
    "html_page",
    "write_html",
]
