"""What a conversion did, and what the model is, as sections of a page."""

from __future__ import annotations

from typing import Sequence

from mxamp.html.sections import Figure, Section, Table
from mxamp.messages.counts import count_of, some_of
from mxamp.model.provenance import Provenance
from mxamp.model.source_files import FileRecord
from mxamp.report.casts_text import cast_groups
from mxamp.report.inspection import Inspection
from mxamp.report.model import Report
from mxamp.report.table import format_bytes
from mxamp.report.text import preparation_lines, range_lines, reason_groups

_NAMES_SHOWN = 4
_LONG, _FEW = 40, 15
"""Tables with more rows are folded: of casts, and of operators."""


def headline(report: Report | None, inspection: Inspection) -> str:
    """Return in one sentence what the model is."""
    if report is None:
        return (
            f"{count_of(len(inspection.nodes), 'operator node')}, {inspection.low_nodes} of them in low "
            f"precision, with {count_of(len(inspection.casts), 'cast')}. How it was converted is not known."
        )
    if report.nothing_low is not None:
        return f"Nothing was converted to {report.target_dtype} ({report.target}): {report.nothing_low}."
    what = "Converted to" if report.emulated is None else "Emulates in float32 a conversion to"
    return (
        f"{what} {report.target_dtype} for the target {report.target}: {report.low_nodes:,} of "
        f"{count_of(len(report.nodes), 'operator node')} compute in {report.target_dtype}, with "
        f"{count_of(len(report.casts), 'cast')} at run time."
    )


def low_figure(report: Report | None, inspection: Inspection) -> Figure:
    """Return how much of the model is low."""
    if report is None:
        low, count, dtype = inspection.low_nodes, len(inspection.nodes), "16 bits"
    else:
        low, count, dtype = report.low_nodes, len(report.nodes), report.target_dtype
    detail = f"{low:,} of {count_of(count, 'node')}"
    share = None if report is None else report.low_multiply_add_share
    if share is not None:
        detail += f", {100 * share:.1f} % of the multiply-adds"
    return Figure(f"In {dtype}", f"{100 * low / count:.0f} %" if count else "-", detail, is_bad=low == 0)


def size_figure(report: Report | None, inspection: Inspection) -> Figure:
    """Return how large the parameters are."""
    after = inspection.parameter_bytes
    if report is None or not report.parameter_bytes_before or report.emulated is not None:
        return Figure("Parameters", format_bytes(after))
    before = report.parameter_bytes_before
    return Figure(
        "Parameters", format_bytes(after), f"of {format_bytes(before)}: {100 * after / before:.1f} %"
    )


def size_section(report: Report | None, inspection: Inspection) -> Section:
    """Return what is stored in which dtype, before and after."""
    before: dict[str, list[int]] = {}
    for parameter in () if report is None else report.parameters:
        total = before.setdefault(parameter.dtype_before, [0, 0])
        total[0] += 1
        total[1] += parameter.bytes_before
    rows = []
    for dtype in dict.fromkeys([*before, *inspection.parameters]):
        arrays, size = before.get(dtype, [0, 0])
        now = inspection.parameters.get(dtype)
        had = (f"{arrays:,}", format_bytes(size)) if report is not None else ()
        has = ("0", "0 bytes") if now is None else (f"{now.arrays:,}", format_bytes(now.bytes))
        rows.append((dtype, *had, *has))
    total_before = () if report is None else ("", format_bytes(report.parameter_bytes_before))
    rows.append(("all", *total_before, "", format_bytes(inspection.parameter_bytes)))
    had_columns = () if report is None else (">Arrays before", ">Size before")
    table = Table(("Stored in", *had_columns, ">Arrays", ">Size"), tuple(rows))
    interface = (
        f"Inputs: {_named(inspection.inputs.items())}. Outputs: {_named(inspection.outputs.items())}.",
    )
    return Section("Size and interface", interface, (table,))


def _named(pairs: object) -> str:
    return some_of([f"{name} {dtype}" for name, dtype in pairs]) or "none"  # type: ignore[attr-defined]


def operator_section(inspection: Inspection) -> Section:
    """Return how many nodes of each operator compute in which dtype."""
    operators = inspection.operators()
    dtypes = sorted({dtype for counts in operators.values() for dtype in counts})
    rows = tuple((op, *(str(counts.get(dtype, "")) for dtype in dtypes)) for op, counts in operators.items())
    table = Table(
        ("Operator", *(f">{dtype}" for dtype in dtypes)),
        rows,
        caption="All operators",
        folded=len(rows) > _FEW,
    )
    return Section("Operators", (), (table,))


def kept_section(report: Report) -> Section:
    """Return what stayed out of low precision and why, and what became of the graph before."""
    groups = reason_groups(report)
    rows = tuple((str(len(nodes)), reason, _names([node.name for node in nodes])) for reason, nodes in groups)
    paragraphs = []
    if not groups:
        paragraphs.append(f"Nothing: every operator computes in {report.target_dtype}.")
    notes = [*preparation_lines(report), *range_lines(report), *report.approximations]
    tables = (Table((">Nodes", "Why", "Which"), rows),) if rows else ()
    return Section("What stayed in FP32, and why", tuple(paragraphs), tables, notes=tuple(notes))


def _names(names: Sequence[str]) -> str:
    return some_of(names, _NAMES_SHOWN)


def cast_section(report: Report | None, inspection: Inspection) -> Section:
    """Return the casts: why they are there."""
    if report is None:
        rows = tuple(
            (cast.entry, f"{cast.from_dtype} -> {cast.to_dtype}", some_of(cast.consumers, 3))
            for cast in inspection.casts
        )
        table = Table(("Entry", "Cast", "Read by"), rows, caption="All casts", folded=len(rows) > _LONG)
        return Section("Casts", (f"{count_of(len(rows), 'cast')}.",), (table,) if rows else ())
    if not report.casts:
        return Section("Casts", ("There are none at run time.",))
    groups = cast_groups(report)
    moved = [cast.bytes for cast in report.casts if cast.bytes is not None]
    said = f"{count_of(len(report.casts), 'cast')} at run time"
    said += f", {format_bytes(sum(moved))} read and written by a forward pass." if moved else "."
    reasons = tuple(
        (str(len(found)), kind, why, _names([cast.entry for cast in found])) for (kind, why), found in groups
    )
    return Section("Casts", (said,), (Table((">Casts", "From and to", "Why", "Of"), reasons),))


def provenance_section(
    provenance: Provenance | None, report: Report | None, inspection: Inspection, mxamp: str
) -> Section:
    """Return where the model comes from."""
    rows: list[tuple[str, str]] = []
    if provenance is not None:
        for title, record in (
            ("Symbol", provenance.symbol),
            ("Parameters", provenance.params),
            ("Converted from", provenance.source_symbol),
            ("and", provenance.source_params),
        ):
            if record is not None:
                rows.append((title, _file(record)))
        if provenance.source_symbol is None:
            rows.append(("Converted from", "a model in memory"))
        if provenance.policy is not None:
            name = "the built-in one" if provenance.policy.name == "default" else provenance.policy.name
            function = provenance.policy.color_function
            rows.append(("Policy", name if function is None else f"{name}, with the function {function}"))
        checked = provenance.read_back
        rows.append(
            (
                "Read back after writing",
                f"{checked.nodes:,} nodes, {checked.tensors:,} tensors, "
                f"{format_bytes(checked.bytes_compared)} compared",
            )
        )
    if report is not None:
        rows += [("Target", report.target), ("Dtype", report.target_dtype)]
    rows += [("Written by", f"mxamp {mxamp if provenance is None else provenance.mxamp}")]
    if inspection.needs_library:
        rows.append(("Runs in", "MXNet with mxamp's operators"))
    tables = [Table(("", ""), tuple(rows))]
    if provenance is not None and provenance.policy is not None and provenance.policy.toml:
        lines = tuple((line,) for line in provenance.policy.toml.splitlines())
        tables.append(Table(("",), lines, caption="The policy", folded=True))
    return Section("Provenance", (), tuple(tables))


def _file(record: FileRecord) -> str:
    size = f"{record.name}, {format_bytes(record.bytes)}"
    return f"{size}, {record.algorithm} {record.digest}" if record.digest else size
