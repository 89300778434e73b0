"""The plot of a run: speed at each batch size and error, a line a model."""

from __future__ import annotations

import io
import math
from typing import Any

from mxamp.errors import DataError
from tools.benchmark_models.names import (
    FP32,
    MXAMP,
    MXAMP_NO_SHAPES,
    MXAMP_PROFILED,
    PREPARED,
    STOCK,
    STOCK_CAST_ONCE,
    TITLES,
    VARIANTS,
)
from tools.benchmark_models.results import Benchmark

__all__ = ["plot"]

_STYLES = {
    PREPARED: ("#8c8c8c", "s"),
    STOCK: ("#e4b4b6", "v"),
    STOCK_CAST_ONCE: ("#c44e52", "v"),
    MXAMP_NO_SHAPES: ("#b7d7b0", "o"),
    MXAMP: ("#8fb0de", "o"),
    MXAMP_PROFILED: ("#1f4e9c", "o"),
}


def plot(benchmark: Benchmark) -> bytes:
    """Draw what was measured, as PNG.

    Parameters
    ----------
    benchmark
        What was measured.

    Raises
    ------
    DataError
        When matplotlib is not installed, or there is nothing to show.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import NullFormatter, ScalarFormatter
    except ImportError as error:
        raise DataError(f"The plot needs matplotlib: {error}. pip install matplotlib") from error
    names = list(dict.fromkeys(measured.name for measured in benchmark.models if measured.figures))
    if not names:
        raise DataError("No model was measured, so there is nothing to plot.")
    batches = sorted({measured.batch for measured in benchmark.models})
    figure = Figure(figsize=(4.2 + 3.4 * (len(batches) + 1), 1.8 + 0.3 * len(names)), layout="constrained")
    panels: Any = figure.subplots(1, len(batches) + 1, sharey=True, squeeze=False)[0]
    for axes, batch in zip(panels, batches):
        _speeds(axes, benchmark, names, batch)
        axes.set(xscale="log", title=f"times as fast as FP32, batch {batch}")
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xticks([tick for tick in (0.1, 0.25, 0.5, 1, 2, 4) if _within(tick, axes.get_xlim())])
        axes.axvline(1.0, color="#444444", linewidth=0.8)
    _errors(panels[-1], benchmark, names, batches[0])
    panels[-1].set(xscale="log", title=f"relative L2 error to FP32, batch {batches[0]}")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.5, -0.5)  # the first model at the top
    for axes in panels:
        axes.grid(alpha=0.3)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110, metadata={"Software": None})
    return drawn.getvalue()


def _within(value: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= value <= limits[1]


def _speeds(axes: Any, benchmark: Benchmark, names: list[str], batch: int) -> None:
    for variant in VARIANTS:
        if variant == FP32 or not benchmark.has(variant):
            continue
        found = [
            (names.index(measured.name), ratio)
            for measured in benchmark.models
            if measured.batch == batch
            for ratio in [measured.ratio(variant)]
            if ratio is not None
        ]
        colour, marker = _STYLES[variant]
        axes.errorbar(
            [ratio.median for _, ratio in found],
            [place for place, _ in found],
            xerr=[
                [max(0.0, ratio.median - ratio.low) for _, ratio in found],
                [max(0.0, ratio.high - ratio.median) for _, ratio in found],
            ],
            fmt=marker,
            markersize=5,
            elinewidth=0.8,
            color=colour,
            label=TITLES[variant],
        )


def _errors(axes: Any, benchmark: Benchmark, names: list[str], batch: int) -> None:
    for variant in VARIANTS:
        found = [
            (measured.figures[variant].relative_l2, names.index(measured.name))
            for measured in benchmark.models
            if measured.batch == batch and measured.ran(variant) and variant not in (FP32, PREPARED)
        ]
        shown = [(error, place) for error, place in found if math.isfinite(error) and error > 0]
        if shown:
            colour, marker = _STYLES[variant]
            errors, places = zip(*shown)
            axes.plot(errors, places, marker, markersize=5, color=colour, label=TITLES[variant])
