"""Put a page together: one file that needs nothing from elsewhere."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Sequence

from mxamp.compare.fidelity import Fidelity
from mxamp.evaluation import Evaluation
from mxamp.files import atomic_write
from mxamp.html.converted import (
    cast_section,
    headline,
    kept_section,
    low_figure,
    operator_section,
    provenance_section,
    size_figure,
    size_section,
)
from mxamp.html.curve import curve_figures, curve_section
from mxamp.html.drawing import Drawing, draw
from mxamp.html.evaluated import accuracy_figure, accuracy_section
from mxamp.html.measured import fidelity_section, layer_section, speed_figure, speed_section, worst_error
from mxamp.html.sections import Figure, Section
from mxamp.model import Model
from mxamp.model.provenance import Provenance
from mxamp.report.inspection import inspect_model
from mxamp.report.model import Report
from mxamp.version import __version__

_ASSETS = Path(__file__).resolve().parent / "assets"


@dataclass(frozen=True)
class Findings:
    """What is known of a model besides itself. All of it may be missing.

    Attributes
    ----------
    report
        What its conversion did; by default what the model has, or the provenance.
    provenance
        What was recorded when its files were written.
    fidelity
        How far it is from the FP32 model.
    evaluation
        How well it does on labelled samples, beside the FP32 model.
    figures
        Further numbers for the top of the page.
    sections
        Further sections.
    cautions
        What the reader must know first: random weights, random data.
    """

    report: Report | None = None
    provenance: Provenance | None = None
    fidelity: Fidelity | None = None
    evaluation: Evaluation | None = None
    figures: tuple[Figure, ...] = ()
    sections: tuple[Section, ...] = ()
    cautions: tuple[str, ...] = ()


def html_page(model: Model, title: str, findings: Findings | None = None) -> str:
    """Return a page about a model, for a browser.

    Parameters
    ----------
    model
        The model; its values are not read. Needs no MXNet.
    title
        What it is called.
    findings
        What else is known of it.

    Returns
    -------
    str
        HTML that loads nothing, with the picture of the graph, the plots, and what draws them.
    """
    findings = Findings() if findings is None else findings
    report = findings.report or model.report
    if report is None and findings.provenance is not None:
        report = findings.provenance.report
    params = {**model.arg_params, **model.aux_params}
    inspection = inspect_model(model.graph, params, inputs=() if report is None else tuple(report.inputs))
    fidelity, evaluation = findings.fidelity, findings.evaluation
    timed = {
        "compared": None if fidelity is None else fidelity.latency,
        "evaluated": None if evaluation is None else evaluation.latency,
    }
    drawing = draw(
        model.graph,
        {name: value.dtype for name, value in params.items()},
        report=report,
        layers=None if fidelity is None else fidelity.layers,
    )
    curve = {} if report is None or report.curve is None else curve_figures(report.curve)
    figures = [
        low_figure(report, inspection),
        size_figure(report, inspection),
        speed_figure(report, timed, curve.get("speed")),
        curve.get("accuracy") if evaluation is None else accuracy_figure(evaluation),
        curve.get("error") if fidelity is None else worst_error(fidelity),
        *findings.figures,
    ]
    sections = [
        speed_section(report, timed),
        None if evaluation is None else accuracy_section(evaluation),
        None if fidelity is None else fidelity_section(fidelity),
        None if report is None or report.curve is None else curve_section(report.curve),
        *findings.sections,
        None if fidelity is None else layer_section(fidelity),
    ]
    details = [
        None if report is None else kept_section(report),
        cast_section(report, inspection),
        size_section(report, inspection),
        operator_section(inspection),
        provenance_section(findings.provenance, report, inspection, __version__),
    ]
    warnings = [] if report is None else report.warnings
    return _rendered(
        title=title,
        headline=headline(report, inspection),
        figures=[figure for figure in figures if figure is not None],
        cautions=list(dict.fromkeys([*findings.cautions, *warnings])),
        sections=[section for section in sections if section is not None],
        details=[section for section in details if section is not None],
        drawing=drawing,
    )


def write_html(path: str | Path, model: Model, title: str, findings: Findings | None = None) -> None:
    """Write a page about a model to a file, which changes whole or not at all.

    Parameters
    ----------
    path
        The file.
    model, title, findings
        As :func:`html_page` takes them.

    Raises
    ------
    ExportError
        When it cannot be written.
    """
    page = html_page(model, title, findings).encode("utf-8")
    with atomic_write(Path(path)) as (file,):
        file.write(page)


_UNIT = re.compile(r"(?<=\d) (?=(?:ms|\u00b5s|[kMG]B|dB|bytes|%|x)(?!\w))")


def _with_units(text: str) -> str:
    """Return text in which no line ends between a number and its unit."""
    return _UNIT.sub("\u00a0", text)


@lru_cache(maxsize=None)
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _rendered(*, drawing: Drawing, sections: Sequence[Section], **content: Any) -> str:
    # Only pages need it, and it takes longer to import than mxamp itself.
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["units"] = _with_units
    template = environment.from_string(_asset("page.html.j2"))
    plots = [section.plot.to_mapping() for section in sections if section.plot is not None]
    data = json.dumps({"drawing": drawing.to_mapping(), "plots": plots}, separators=(",", ":"))
    return template.render(
        **content,
        sections=sections,
        counts={"nodes": len(drawing.shapes), "groups": len(drawing.folding.groups)},
        # In a script element only "<" could end it early.
        data=data.replace("<", "\\u003c"),
        style=_asset("page.css"),
        script=_asset("page.js"),
        libraries=_asset("libraries.js"),
        version=__version__,
    )
