"""Several models beside each other, as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence

from mxamp.compare.text import format_number, loss_lines, number_of
from mxamp.report.table import Column, format_table, paragraph, terminal_width

if TYPE_CHECKING:
    from mxamp.compare.candidates import CandidateComparison
    from mxamp.compare.fidelity import Fidelity, OutputFidelity

FP32 = "FP32"
"""What the FP32 model itself is called among the candidates."""


def format_candidates(comparison: CandidateComparison, width: int | None = None) -> str:
    """Return a comparison of several models as text.

    Parameters
    ----------
    comparison
        The comparison.
    width
        The longest line, in characters; by default the terminal's width.

    Returns
    -------
    str
        Without a final newline.
    """
    width = terminal_width(width)
    first = comparison.fidelities[FP32]
    samples = number_of(first.samples, "sample")
    lines = paragraph(
        f"Fidelity to FP32 on {samples} ({first.ctx}, batches of {first.batch_size}). This is the distance "
        "between models on the same data, not accuracy.",
        width,
    )
    lines += paragraph(
        f"{FP32} is the model itself, fused as deployed, against the reference, which has fusion off.", width
    )
    for number, output in enumerate(first.outputs):
        rows = [_row(name, fidelity.outputs[number]) for name, fidelity in comparison.fidelities.items()]
        columns = [
            Column(output.name, 10),
            Column("relative L2", right=True),
            Column("max abs", right=True),
            Column("SQNR dB", right=True),
            Column("same top-1", right=True),
            Column("NaN", right=True),
            Column("Inf", right=True),
        ]
        lines += ["", *format_table(columns, rows, width)]
    for name, fidelity in comparison.fidelities.items():
        if fidelity.losses is not None:
            lines += ["", *paragraph(f"{name} emulates {', '.join(fidelity.emulated)}.", width)]
            lines += loss_lines(fidelity.losses, width)
        lines += _growth_lines(name, fidelity, width)
    notes = [*comparison.notes]
    for name, fidelity in comparison.fidelities.items():
        notes += [f"{name}: {note}" for note in fidelity.notes if name != FP32]
    if notes:
        lines += ["", "Notes:"]
        for note in notes:
            lines += paragraph(note, width, indent="  - ", hanging="    ")
    return "\n".join(lines)


def _row(name: str, output: OutputFidelity) -> Sequence[str]:
    measured = output.distance
    return [
        name,
        format_number(measured.relative_l2),
        format_number(measured.max_abs),
        f"{measured.sqnr_db:.1f}",
        "-" if output.top1_agreement is None else f"{100 * output.top1_agreement:.1f} %",
        str(measured.converted_nan),
        str(measured.converted_inf),
    ]


def _growth_lines(name: str, fidelity: Fidelity, width: int) -> list[str]:
    jumps = fidelity.largest_jumps()
    if not jumps:
        return []
    named = ", ".join(
        f"{layer.name} ({layer.op}, to {format_number(layer.distance.relative_l2)})" for layer in jumps
    )
    return paragraph(f"The error of {name} grows most at: {named}.", width, hanging="  ")
