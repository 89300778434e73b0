"""A comparison as text for people."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Callable, Iterator, Sequence

from mxamp.report.table import Column, format_table, paragraph, terminal_width

if TYPE_CHECKING:
    from mxamp.compare.fidelity import Fidelity, LayerFidelity, OutputFidelity
    from mxamp.compare.rounding_losses import RoundingLoss

_NAMES_SHOWN = 6
_LOSSES_SHOWN = 10
_GROWTH_SHOWN = 1.05
_WIDE = 96
_MEDIUM = 60
"""Widths, in characters, from which more columns are shown."""


def format_fidelity(fidelity: Fidelity, width: int | None = None, *, every_layer: bool = True) -> str:
    """Return a comparison as text.

    Parameters
    ----------
    fidelity
        The comparison.
    width
        The longest line, in characters; by default the terminal's width.
    every_layer
        Whether to list all layers, or only to say where the error begins and grows.

    Returns
    -------
    str
        Without a final newline.
    """
    width = terminal_width(width)
    lines = paragraph(
        f"Fidelity to FP32 on {number_of(fidelity.samples, 'sample')} ({fidelity.ctx}, batches of "
        f"{fidelity.batch_size}). This is the distance between two models on the same data, not accuracy.",
        width,
    )
    deployed = "with fusion, as deployed" if fidelity.fusion else "with fusion off, as the environment has it"
    lines += paragraph(f"FP32 outputs: fusion off. Converted outputs: {deployed}.", width)
    if fidelity.emulated:
        lines += paragraph(
            f"The converted model emulates {', '.join(fidelity.emulated)} in float32, rounding as a model "
            "that computes in it.",
            width,
        )
    lines += ["", *_output_table(fidelity.outputs, width)]
    if fidelity.latency is not None:
        lines += ["", *paragraph(str(fidelity.latency), width)]
    if fidelity.losses is not None:
        lines += ["", *loss_lines(fidelity.losses, width)]
    if fidelity.layers is not None:
        lines += ["", *_layer_lines(fidelity, fidelity.layers, width, every_layer)]
    if fidelity.notes:
        lines += ["", "Notes:"]
        for note in fidelity.notes:
            lines += paragraph(note, width, indent="  - ", hanging="    ")
    return "\n".join(lines)


def _output_table(outputs: Sequence[OutputFidelity], width: int) -> list[str]:
    columns = [
        Column("output", 16),
        Column("shape", 8),
        Column("relative L2", right=True),
        Column("max abs", right=True),
        Column("bias", right=True),
        Column("cosine", right=True),
        Column("SQNR dB", right=True),
    ]
    with_votes = any(output.top1_agreement is not None for output in outputs)
    with_non_finite = any(not output.distance.is_finite for output in outputs)
    if with_votes:
        columns.append(Column("same top-1", right=True))
    if with_non_finite:
        columns += [Column("NaN FP32/conv.", right=True), Column("Inf FP32/conv.", right=True)]
    rows = []
    for output in outputs:
        measured = output.distance
        row = [
            output.name,
            _shape(output.shape),
            format_number(measured.relative_l2),
            format_number(measured.max_abs),
            format_number(measured.mean_error, signed=True),
            "-" if measured.cosine is None else f"{measured.cosine:.6f}",
            f"{measured.sqnr_db:.1f}",
        ]
        if with_votes:
            row.append("-" if output.top1_agreement is None else f"{100 * output.top1_agreement:.1f} %")
        if with_non_finite:
            row += [
                f"{measured.reference_nan}/{measured.converted_nan}",
                f"{measured.reference_inf}/{measured.converted_inf}",
            ]
        rows.append(row)
    lines = format_table(columns, rows, width)
    if not with_non_finite:
        lines += ["", *paragraph("No NaN and no infinity in either model's outputs.", width)]
    return lines


def loss_lines(losses: Sequence[RoundingLoss], width: int) -> list[str]:
    """Return what roundings lost for want of range as text, the worst nodes first."""
    losing = [loss for loss in losses if loss.overflowed or loss.underflowed]
    if not losing:
        return paragraph(
            f"Range: none of {number_of(len(losses), 'rounding')} overflowed, and none made a value zero.",
            width,
        )
    losing.sort(key=lambda loss: (-loss.overflow_share, -loss.underflow_share))
    columns = [
        Column("node", 16),
        Column("format"),
        Column("overflowed", right=True),
        Column("became zero", right=True),
        Column("of", right=True),
        Column("largest", right=True),
    ]
    rows = [
        [
            loss.node,
            loss.format,
            _counted_share(loss.overflowed, loss.overflow_share),
            _counted_share(loss.underflowed, loss.underflow_share),
            f"{loss.elements:,}",
            format_number(loss.largest),
        ]
        for loss in losing[:_LOSSES_SHOWN]
    ]
    overflowing = sum(loss.overflowed > 0 for loss in losing)
    lines = paragraph(
        f"Range: of {number_of(len(losses), 'rounding')} {overflowing} overflowed, and "
        f"{sum(loss.underflowed > 0 for loss in losing)} made values zero:",
        width,
    )
    lines += format_table(columns, rows, width, indent="  ")
    if len(losing) > _LOSSES_SHOWN:
        lines += paragraph(f"and {len(losing) - _LOSSES_SHOWN} more.", width, indent="  ")
    return lines


def _counted_share(count: int, share: float) -> str:
    if not count:
        return "0"
    percent = 100 * share
    # 99.96 is not all of it, and 576 of 576 is not 1e+02 %.
    shown = f"{percent:.2g}" if percent < 10 else f"{math.floor(percent)}"
    return f"{count:,} ({shown} %)"


def _layer_lines(
    fidelity: Fidelity, layers: Sequence[LayerFidelity], width: int, every_layer: bool
) -> list[str]:
    if not every_layer:
        return _verdict(fidelity, width)
    lines = paragraph(
        "Layer by layer, in topological order, both models with fusion off, on the first "
        f"{_first(fidelity.layer_samples)}:",
        width,
    )
    first = fidelity.first_above_threshold
    jumps = fidelity.largest_jumps()
    columns: list[tuple[int, Column, Callable[[LayerFidelity], str]]] = [
        (0, Column("entry", 16), lambda layer: layer.name),
        (_WIDE, Column("operator", 10), lambda layer: layer.op),
        (_MEDIUM, Column("dtype"), lambda layer: layer.dtype or "?"),
        (0, Column("relative L2", right=True), lambda layer: format_number(layer.distance.relative_l2)),
        (_WIDE, Column("max abs", right=True), lambda layer: format_number(layer.distance.max_abs)),
        (_MEDIUM, Column("growth", right=True), _growth),
        (0, Column("mark"), lambda layer: ", ".join(_marks(layer, first, jumps))),
    ]
    # A narrow table of what matters reads better than one that wraps.
    shown = [(column, cell) for needed, column, cell in columns if width >= needed]
    rows = [[cell(layer) for _, cell in shown] for layer in layers]
    columns_shown = [column for column, _ in shown]
    lines += format_table(columns_shown, rows, width, indent="  ") if rows else ["  (no entries in common)"]
    lines += ["", *_verdict(fidelity, width)]
    return lines


def _growth(layer: LayerFidelity) -> str:
    return f"x{format_number(layer.jump)}" if layer.jump >= _GROWTH_SHOWN else ""


def _marks(
    layer: LayerFidelity, first: LayerFidelity | None, jumps: Sequence[LayerFidelity]
) -> Iterator[str]:
    if layer is first:
        yield "first"
    if any(layer is jump for jump in jumps):
        yield "jump"


def _verdict(fidelity: Fidelity, width: int) -> list[str]:
    start, first = fidelity.first_difference, fidelity.first_above_threshold
    if start is None:
        lines = paragraph("No layer differs: every entry is bit for bit the same value.", width)
    else:
        lines = paragraph(
            f"Starts to differ at {start.name} ({start.op}, {start.dtype or '?'}): relative L2 "
            f"{format_number(start.distance.relative_l2)}.",
            width,
            hanging="  ",
        )
    threshold = f"{fidelity.threshold:.3g}"
    if first is None:
        lines += paragraph(f"No entry exceeds the threshold of {threshold}.", width)
    else:
        lines += paragraph(
            f"First above the threshold of {threshold}: {first.name} ({first.op}, {first.dtype or '?'}) with "
            f"{format_number(first.distance.relative_l2)}.",
            width,
            hanging="  ",
        )
    jumps = fidelity.largest_jumps()
    if jumps:
        named = ", ".join(f"{layer.name} (x{format_number(layer.jump)})" for layer in jumps)
        lines += paragraph(f"The error grows most at: {named}.", width, hanging="  ")
    if fidelity.unmatched:
        more = len(fidelity.unmatched) - _NAMES_SHOWN
        lines += paragraph(
            f"Not in the converted model under their names: {', '.join(fidelity.unmatched[:_NAMES_SHOWN])}"
            f"{f' and {more} more' if more > 0 else ''}.",
            width,
            hanging="  ",
        )
    return lines


def number_of(number: int, noun: str) -> str:
    """Return ``1 sample``, ``2 samples``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _first(samples: int) -> str:
    return "sample" if samples == 1 else f"{samples} samples"


def _shape(shape: Sequence[int]) -> str:
    return "x".join(str(size) for size in shape) or "scalar"


def format_number(value: float, *, signed: bool = False) -> str:
    """Return a number with three digits; infinities and NaN by name."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:+.3g}" if signed else f"{value:.3g}"
