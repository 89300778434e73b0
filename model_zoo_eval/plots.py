"""Plots of a run, as SVG: the error by model, and the speed by model."""

from __future__ import annotations

import io
import math
from typing import Any, Mapping

from model_zoo_eval.job import FP32
from model_zoo_eval.rows import OK, worst_error

__all__ = ["error_plot", "speed_plot"]

_COLOURS = {"bfloat16": "#c44e52", "float16": "#4c72b0", "float16 on a GPU": "#55a868", FP32: "#8c8c8c"}
_LABELS = {FP32: "FP32, fused against not fused"}


def error_plot(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the relative L2 error of every model, sorted, as SVG; empty where there is nothing to show."""
    series: dict[str, list[float]] = {}
    for row in rows.values():
        for dtype, found in row.get("results", {}).items():
            error = worst_error(found)
            if math.isfinite(error) and error > 0:
                series.setdefault(dtype, []).append(error)
    if not series:
        return ""
    figure, axes = _figure()
    for dtype, errors in series.items():
        how = _LABELS.get(dtype, f"{dtype}, {_how(rows, dtype)}")
        axes.plot(range(1, len(errors) + 1), sorted(errors), ".", label=how, color=_COLOURS.get(dtype))
    axes.set(yscale="log", xlabel="models, sorted by their error", ylabel="relative L2 error to FP32")
    axes.legend()
    return _svg(figure)


def speed_plot(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how many times as fast every converted model is, sorted, as SVG; empty where none was timed."""
    timed = sorted(
        (found["latency"]["ratio"], found["latency"]["ratio_low"], found["latency"]["ratio_high"])
        for row in rows.values()
        if row["status"] == OK
        for found in row["results"].values()
        if "latency" in found
    )
    if not timed:
        return ""
    figure, axes = _figure()
    places = range(1, len(timed) + 1)
    low = [max(0.0, ratio - below) for ratio, below, _ in timed]
    high = [max(0.0, above - ratio) for ratio, _, above in timed]
    axes.errorbar(
        places, [ratio for ratio, _, _ in timed], yerr=[low, high], fmt=".", color="#c44e52", ecolor="#e4b4b6"
    )
    axes.axhline(1.0, color="#444444", linewidth=0.8)
    axes.set(yscale="log", xlabel="models, sorted by their speed", ylabel="times as fast as FP32")
    return _svg(figure)


def _how(rows: Mapping[str, Mapping[str, Any]], dtype: str) -> str:
    for row in rows.values():
        found = row.get("results", {}).get(dtype)
        if found and "how" in found:
            return str(found["how"])
    return ""


def _figure() -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes: Any = figure.subplots()
    axes.grid(alpha=0.3)
    return figure, axes


def _svg(figure: Any) -> str:
    import matplotlib

    text = io.StringIO()
    # The same file for the same numbers: no date, and no random names within.
    with matplotlib.rc_context({"svg.hashsalt": "mxamp", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :]
