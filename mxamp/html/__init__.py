"""One HTML file about a model, to be read and forwarded: what was done to it, what that costs, and why."""

from mxamp.html.measured import Accuracy, CurvePoint, accuracy_section, curve_section
from mxamp.html.page import Findings, html_page, write_html
from mxamp.html.sections import Figure, Plot, Point, Section, Table

__all__ = [
    "Accuracy",
    "CurvePoint",
    "Figure",
    "Findings",
    "Plot",
    "Point",
    "Section",
    "Table",
    "accuracy_section",
    "curve_section",
    "html_page",
    "write_html",
]
