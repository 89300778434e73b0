"""A model in three lines, and as the table that a notebook shows."""

from __future__ import annotations

from html import escape
from typing import Mapping

from mxamp.errors import MxampError
from mxamp.graph.graph import Graph
from mxamp.messages.counts import count_of, some_of
from mxamp.params.parameter import Parameter
from mxamp.report.inspection import Inspection, inspect_model
from mxamp.report.model import Report
from mxamp.report.table import format_bytes


def describe_model(
    graph: Graph, params: Mapping[str, Parameter], report: Report | None
) -> tuple[tuple[str, str], ...]:
    """Return what a model is, as three pairs of a title and a text.

    Parameters
    ----------
    graph, params
        The model; no value of a parameter is read.
    report
        What its conversion did, where that is known.
    """
    size = format_bytes(sum(value.nbytes for value in params.values()))
    stored = f"{size} in {count_of(len(params), 'array')}"
    try:
        found = inspect_model(graph, params, inputs=() if report is None else tuple(report.inputs))
    except MxampError as error:
        # A model that cannot run must still be shown while one looks for the reason.
        return (
            ("computes", f"{count_of(graph.operator_count, 'operator node')}, and is broken: {error}"),
            ("takes and returns", f"{some_of([n for n in graph.variables if n not in params])} -> ?"),
            ("parameters", stored),
        )
    if report is not None and report.parameter_bytes_before:
        stored += f", {format_bytes(report.parameter_bytes_before)} before conversion"
    return (
        ("computes", _computes(found, report)),
        ("takes and returns", f"{_named(found.inputs)} -> {_named(found.outputs)}"),
        ("parameters", stored),
    )


def _computes(found: Inspection, report: Report | None) -> str:
    counts: dict[str, int] = {}
    for node in found.nodes:
        counts[node.compute] = counts.get(node.compute, 0) + 1
    dtypes = ", ".join(f"{count:,} in {dtype}" for dtype, count in sorted(counts.items())) or "no operators"
    text = f"{dtypes}, {count_of(len(found.casts), 'cast')}"
    if report is None:
        return text
    how = "converted" if report.emulated is None else "emulates a conversion"
    return f"{text}; {how} to {report.target_dtype} for {report.target}"


def _named(dtypes: Mapping[str, str]) -> str:
    return some_of([f"{name} {dtype}" for name, dtype in dtypes.items()]) or "nothing"


def model_text(kind: str, described: tuple[tuple[str, str], ...]) -> str:
    """Return what :func:`describe_model` says of an object of that kind in lines, as ``repr`` shows it."""
    first, *rest = (f"{title}: {text}" for title, text in described)
    return "\n".join([f"<{kind}, {first}", *(f"  {line}" for line in rest)]) + ">"


def model_html(kind: str, described: tuple[tuple[str, str], ...]) -> str:
    """Return what :func:`describe_model` says of an object of that kind as a table for a notebook."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(title)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for title, text in described
    )
    return f"<table><caption>{kind}</caption><tbody>{rows}</tbody></table>"
