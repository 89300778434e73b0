"""What a run measured as Markdown: a summary by model, and the table of everything."""

from __future__ import annotations

import math
import statistics
import textwrap
from pathlib import Path
from typing import Any, Collection, Mapping, Sequence

import numpy as np

from model_zoo_eval.tables import Heading, Paragraph, Table, to_markdown
from mxamp.errors import DataError
from mxamp.files import atomic_write
from mxamp.measuring.race import Ratio
from tools.benchmark_models.bounds import Bound
from tools.benchmark_models.group_bounds import ratios_in
from tools.benchmark_models.names import (
    FP32,
    GROUPS,
    MXAMP,
    MXAMP_PROFILED,
    NOT_AVAILABLE,
    STOCK_CAST_ONCE,
    TITLES,
    VARIANTS,
)
from tools.benchmark_models.results import Benchmark, Figures, Measured

__all__ = ["BEGIN", "END", "document", "insert_between_markers"]

BEGIN = "<!-- benchmark: what follows is written by make bench -->"
END = "<!-- end of benchmark -->"

_CONVERTED = tuple(variant for variant in VARIANTS if variant != FP32)

_SHAPES = "mxamp, shapes"
"""What :func:`tools.benchmark_conversion.symbol_converters` calls mxamp that is given input shapes."""


def document(benchmark: Benchmark, bounds: Sequence[Bound], machine: Sequence[str], *, level: int = 1) -> str:
    """Return the benchmark as Markdown.

    Parameters
    ----------
    benchmark
        What was measured.
    bounds
        What was to be shown.
    machine
        Lines that say what it was measured with.
    level
        The level of its first heading.
    """
    weights = sorted({measured.weights_from for measured in benchmark.models if measured.weights_from})
    parts = [
        Heading("Summary", level),
        Paragraph("```text\n" + "\n".join(machine) + "\n```"),
        Paragraph(f"Weights: {'; '.join(weights) or 'none'}."),
        _means(benchmark),
        _summary(benchmark),
        Heading("Bounds", level),
        _bounds_table(bounds),
        Heading("Everything", level),
        _everything(benchmark),
    ]
    if benchmark.conversions:
        parts += [Heading("Conversion", level), _conversions(benchmark)]
    failures = _failures(benchmark)
    if failures:
        parts += [Heading("Failures", level), Paragraph("\n".join(map(_item, failures)))]
    return to_markdown(parts)


def _item(text: str) -> str:
    """Return an item of a list, wrapped as the documents are."""
    return textwrap.fill(f"- {text}", 120, subsequent_indent="  ", break_long_words=False)


def insert_between_markers(path: Path, text: str) -> None:
    """Replace what stands between the markers of a document.

    Parameters
    ----------
    path
        The document; it holds :data:`BEGIN` and, further down, :data:`END`.
    text
        What shall stand there.

    Raises
    ------
    DataError
        When a marker is missing.
    """
    before = path.read_text("utf-8")
    head, begin, rest = before.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise DataError(f"{str(path)!r} lacks a marker: it must hold {BEGIN!r} and, after it, {END!r}.")
    with atomic_write(path) as (file,):
        file.write(f"{head}{BEGIN}\n\n{text.strip()}\n\n{END}{tail}".encode())


# ---------------------------------------------------------------------- tables


def _means(benchmark: Benchmark) -> Table:
    """One line a group and batch size: how many times as fast as FP32 its models are, and the slowest one."""
    rows = []
    for group, names in GROUPS.items():
        models = [measured for measured in benchmark.models if measured.name in names]
        for batch in sorted({measured.batch for measured in models}):
            own = Benchmark([measured for measured in models if measured.batch == batch])
            cells = []
            for variant in _CONVERTED:
                cells.append(_mean_and_least(ratios_in(own, group, variant).values(), len(own.models)))
            rows.append([group, str(batch), str(len(own.models)), *cells])
    titles = [TITLES[variant] for variant in _CONVERTED]
    return Table(["geometric mean", "batch", "models", *titles], rows)


def _mean_and_least(ratios: Collection[float], models: int) -> str:
    if not ratios:
        return "-"
    some = f", {len(ratios)} run" if len(ratios) < models else ""
    return f"{statistics.geometric_mean(ratios):.2f} (least {min(ratios):.2f}{some})"


def _summary(benchmark: Benchmark) -> Table:
    """One line a model and batch size: how many times as fast as FP32, and two errors."""
    judged = MXAMP_PROFILED if benchmark.has(MXAMP_PROFILED) else MXAMP
    rows = []
    for measured in benchmark.models:
        fp32 = f"{measured.figures[FP32].median_ms:.2f}" if measured.ran(FP32) else "fails"
        speeds = [_speed(measured, variant) for variant in _CONVERTED]
        stock_errors = measured.stock_errors
        rows.append(
            [
                measured.name,
                str(measured.batch),
                fp32,
                *speeds,
                _mean_error(stock_errors),
                _mean_error(measured.figures[judged].errors) if measured.ran(judged) else "-",
            ]
        )
    titles = [
        TITLES[variant] if not _is_unavailable(benchmark, variant) else f"{TITLES[variant]} ({NOT_AVAILABLE})"
        for variant in _CONVERTED
    ]
    return Table(["model", "batch", "FP32, ms", *titles, "error, stock", f"error, {TITLES[judged]}"], rows)


def _is_unavailable(benchmark: Benchmark, variant: str) -> bool:
    return any(
        measured.figures[variant].failure == NOT_AVAILABLE
        for measured in benchmark.models
        if variant in measured.figures
    )


def _everything(benchmark: Benchmark) -> Table:
    rows = []
    for measured in benchmark.models:
        for variant in VARIANTS:
            figures = measured.figures.get(variant)
            names = [measured.name, str(measured.batch), _title(variant, figures)]
            if figures is None or not figures.milliseconds:
                missing = figures is not None and figures.failure == NOT_AVAILABLE
                rows.append([*names, NOT_AVAILABLE if missing else "fails", *["-"] * 5])
                continue
            ratio = measured.ratio(variant)
            conversion = figures.conversion_seconds
            rows.append(
                [
                    *names,
                    f"{figures.median_ms:.2f}",
                    "-" if ratio is None else _spread(ratio),
                    _error(figures.relative_l2),
                    str(figures.casts),
                    f"{figures.parameter_bytes / 1e6:.1f}",
                    "-" if conversion is None else f"{conversion:.2f}",
                ]
            )
    header = [
        *("model", "batch", "variant", "ms", "times as fast as FP32 (10th to 90th percentile)"),
        *("relative L2 error", "casts", "parameters, MB", "first conversion, s"),
    ]
    return Table(header, rows)


def _title(variant: str, figures: Figures | None) -> str:
    if figures is None or figures.timed_as is None:
        return TITLES[variant]
    return f"{TITLES[variant]} (the same model as {TITLES[figures.timed_as]})"


def _conversions(benchmark: Benchmark) -> Table:
    rows = []
    for found in benchmark.conversions:
        cells = [found.name, _milliseconds(found.milliseconds, STOCK_CAST_ONCE)]
        for converter in (MXAMP, _SHAPES):
            ratio = found.ratio(converter)
            cells += [
                _milliseconds(found.milliseconds, converter),
                "-" if ratio is None else f"{ratio:.2f}",
            ]
        rows.append(cells)
    header = ["model", "stock, ms", "mxamp, ms", "over stock", "mxamp with shapes, ms", "over stock"]
    return Table(header, rows)


def _bounds_table(bounds: Sequence[Bound]) -> Table:
    rows = []
    for bound in bounds:
        demanded = f"{'at least' if bound.is_lower else 'at most'} {bound.limit:g}"
        figure = "not measured" if bound.figure is None else f"{bound.figure:.3f}"
        where = "; ".join(filter(None, (bound.where, *(f"fails: {line}" for line in bound.failing))))
        rows.append(
            [
                bound.text,
                demanded,
                figure,
                "yes" if bound.is_met else "**no**" if bound.is_broken else "-",
                where,
            ]
        )
    return Table(["bound", "demanded", "measured", "met", "where"], rows)


def _failures(benchmark: Benchmark) -> list[str]:
    """Return why figures are missing: a sentence once, with the models it holds for."""
    where: dict[tuple[str, str], list[str]] = {}
    for measured in benchmark.models:
        case = f"{measured.name} (batch {measured.batch})"
        if measured.failure:
            where.setdefault(("the model", measured.failure), []).append(case)
        for variant, figures in measured.figures.items():
            if figures.failure:
                where.setdefault((TITLES[variant], figures.failure), []).append(case)
    for found in benchmark.conversions:
        for converter, failure in found.failures.items():
            label = f"converting with {TITLES.get(converter, converter)}"
            where.setdefault((label, failure), []).append(found.name)
    everywhere = len(benchmark.models)
    return [
        f"{what}, {'everywhere' if len(cases) == everywhere > 1 else ', '.join(cases)}: {failure}"
        for (what, failure), cases in where.items()
    ]


def _speed(measured: Measured, variant: str) -> str:
    ratio = measured.ratio(variant)
    return "-" if ratio is None else f"{ratio.median:.2f}"


def _spread(ratio: Ratio) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _error(value: float) -> str:
    return f"{value:.1e}" if math.isfinite(value) else str(value)


def _mean_error(errors: Sequence[float]) -> str:
    """Return the geometric mean over draws of weights."""
    if not errors:
        return "-"
    with np.errstate(divide="ignore"):
        return _error(float(np.exp(np.mean(np.log(errors)))))


def _milliseconds(times: Mapping[str, Any], converter: str) -> str:
    return f"{float(np.median(times[converter])):.1f}" if times.get(converter) else "fails"
