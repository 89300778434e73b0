"""An inspection as text for people."""

from __future__ import annotations

import fnmatch
from types import MappingProxyType
from typing import Mapping, Sequence

from mxamp.messages.counts import count_of, some_of
from mxamp.report.inspection import CastInspection, Inspection, NodeInspection
from mxamp.report.table import Column, format_bytes, format_table, paragraph, terminal_width

_CASTS_SHOWN = 12
_LOW_FIRST = ("bfloat16", "float16", "float32", "float64")


def inspection_summary(inspection: Inspection, width: int | None = None) -> str:
    """Return what runs in which precision, the casts and the sizes.

    Parameters
    ----------
    inspection
        What :func:`mxamp.report.inspection.inspect_model` found.
    width
        The longest line, in characters; by default the terminal's width.

    Returns
    -------
    str
        Without a final newline. A long list of casts is shortened and says so; :func:`cast_table` is whole.
    """
    width = terminal_width(width)
    lines = paragraph(_headline(inspection), width)
    if inspection.emulates:
        rounded = ", ".join(
            f"{label} ({count_of(count, 'rounding')})" for label, count in inspection.emulates.items()
        )
        lines += paragraph(
            f"Emulates {rounded}: values are float32, rounded where it would store them.", width
        )
    if inspection.needs_library:
        lines += paragraph(
            "Needs mxamp's operator library: stock MXNet does not load this model. mxamp.load and mxamp "
            "compare do.",
            width,
        )
    for title, named in (("Inputs", inspection.inputs), ("Outputs", inspection.outputs)):
        text = ", ".join(f"{name} {dtype}" for name, dtype in named.items()) or "none"
        lines += paragraph(f"{title}: {text}.", width, hanging="  ")
    lines += ["", *_operator_lines(inspection, width), "", *_cast_lines(inspection, width)]
    lines += ["", *_parameter_lines(inspection, width)]
    return "\n".join(lines)


def inspected_node_table(
    nodes: Sequence[NodeInspection],
    width: int | None = None,
    *,
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return a table of nodes: operator, what it computes in, what it reads and hands on.

    Parameters
    ----------
    nodes
        The nodes.
    width
        The longest line, in characters; by default the terminal's width.
    reasons
        Node name -> why it computes in what it does; a column, where anything is known.
    """
    rows = [
        (node.name, node.op, node.compute, _dtype_list(node.inputs), _dtype_list(node.outputs))
        + ((reasons.get(node.name, ""),) if reasons else ())
        for node in nodes
    ]
    columns = (
        Column("Node", 16),
        Column("Operator", 12),
        Column("Computes in", 8),
        Column("Reads", 10),
        Column("Hands on", 10),
        *((Column("Why", 24),) if reasons else ()),
    )
    return "\n".join(format_table(columns, rows, terminal_width(width)))


def cast_table(casts: Sequence[CastInspection], width: int | None = None) -> str:
    """Return a table of casts: what is cast, how, and who reads it."""
    return "\n".join(_cast_rows(casts, terminal_width(width), shown=None))


def select_nodes(inspection: Inspection, glob: str) -> Sequence[NodeInspection]:
    """Return the nodes whose name or operator fits a shell pattern."""
    return [
        node
        for node in inspection.nodes
        if fnmatch.fnmatchcase(node.name, glob) or fnmatch.fnmatchcase(node.op, glob)
    ]


def _headline(inspection: Inspection) -> str:
    total = count_of(len(inspection.nodes), "operator node")
    if inspection.emulates and not inspection.low_nodes:
        return f"{total} in float32."
    if not inspection.low_nodes:
        return f"{total}, none in low precision: this is a full-precision model."
    dtypes = [
        f"{count} in {dtype}"
        for dtype in _sorted_dtypes(inspection)
        for count in [sum(node.compute == dtype for node in inspection.nodes)]
    ]
    return f"{total}: {', '.join(dtypes)}."


def _sorted_dtypes(inspection: Inspection) -> list[str]:
    found = {node.compute for node in inspection.nodes}
    return [dtype for dtype in _LOW_FIRST if dtype in found] + sorted(found.difference(_LOW_FIRST))


def _operator_lines(inspection: Inspection, width: int) -> list[str]:
    dtypes = _sorted_dtypes(inspection)
    rows = [
        (op, *(str(counts[dtype]) if dtype in counts else "" for dtype in dtypes))
        for op, counts in inspection.operators().items()
    ]
    if not rows:
        return ["No operator nodes."]
    columns = (Column("Operator", 12), *(Column(dtype, right=True) for dtype in dtypes))
    return format_table(columns, rows, width)


def _cast_lines(inspection: Inspection, width: int) -> list[str]:
    casts = inspection.casts
    if not casts:
        return ["No casts."]
    kinds = [
        f"{count} {direction}"
        for direction in ("down", "up", "none", "other")
        for count in [sum(cast.direction == direction for cast in casts)]
        if count
    ]
    heading = f"{count_of(len(casts), 'cast')}: {', '.join(kinds)}"
    return [*paragraph(heading, width), *_cast_rows(casts, width, shown=_CASTS_SHOWN, indent="  ")]


def _cast_rows(
    casts: Sequence[CastInspection], width: int, *, shown: int | None, indent: str = ""
) -> list[str]:
    rows = [
        (
            cast.entry,
            f"{cast.from_dtype} -> {cast.to_dtype}",
            ", ".join(cast.consumers) if shown is None else some_of(cast.consumers, 3),
        )
        for cast in casts[:shown]
    ]
    columns = (Column("Entry", 14), Column("Cast"), Column("Read by", 14))
    lines = format_table(columns, rows, width, indent=indent)
    if shown is not None and len(casts) > shown:
        lines += paragraph(f"and {len(casts) - shown} more; --casts shows all of them.", width, indent=indent)
    return lines


def _parameter_lines(inspection: Inspection, width: int) -> list[str]:
    if not inspection.parameters:
        return ["No parameters."]
    rows = [
        (dtype, f"{total.arrays:,}", f"{total.elements:,}", format_bytes(total.bytes))
        for dtype, total in sorted(inspection.parameters.items(), key=lambda item: -item[1].bytes)
    ]
    columns = (
        Column("Stored in"),
        Column("Arrays", right=True),
        Column("Numbers", right=True),
        Column("Size", right=True),
    )
    return [
        *paragraph(f"Parameters: {format_bytes(inspection.parameter_bytes)}", width),
        *format_table(columns, rows, width, indent="  "),
    ]


def _dtype_list(dtypes: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(dtypes)) or "nothing"
