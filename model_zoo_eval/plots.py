"""Plots of a run, as SVG: the error by model, and the speed by model, a lane for every task."""

from __future__ import annotations

import io
import math
from typing import Any, Mapping, Sequence

from model_zoo_eval.job import FP32, ON_GPU
from model_zoo_eval.registry import registry
from model_zoo_eval.rows import OK, worst_error
from model_zoo_eval.task_tables import dtypes_of, speeds

__all__ = ["error_plot", "speed_plot"]

_COLOURS = {"bfloat16": "#c44e52", "float16": "#4c72b0", ON_GPU: "#55a868", FP32: "#8c8c8c"}

_HEIGHT = 0.8
"""How much of a lane its points take."""

_ROOM_FOR_NAMES = 12
"""How many times the largest error the axis goes to, so that names fit beside their points."""

Row = Mapping[str, Any]


def error_plot(rows: Mapping[str, Row]) -> str:
    """Return the relative L2 error of every model as SVG; empty where there is nothing to show.

    In its lane a task's models are sorted by their error, and the largest is named.
    """
    series = {}
    for dtype in (FP32, *dtypes_of(rows)):
        errors = [(key, worst_error(row.get("results", {}).get(dtype, {}))) for key, row in rows.items()]
        finite = [(key, error) for key, error in errors if math.isfinite(error) and error > 0]
        if finite:
            series[dtype] = finite
    if not series:
        return ""
    tasks = _tasks([key for points in series.values() for key, _ in points])
    figure, axes = _figure(tasks, rows)
    for dtype, points in series.items():
        label = "FP32, fused against not fused" if dtype == FP32 else f"{dtype}, {_how(rows, dtype)}"
        for number, lane in enumerate(_lanes(points, tasks)):
            x, y = [value for _, value in lane], _places(number, len(lane))
            axes.plot(x, y, ".", ms=4, color=_COLOURS.get(dtype), label=None if number else label)
            if lane and dtype not in (FP32, "float16"):
                _name(axes, lane[-1], y[-1], left=False)
    axes.set(xscale="log", xlabel="relative L2 error to FP32")
    axes.set_xlim(right=_ROOM_FOR_NAMES * max(value for points in series.values() for _, value in points))
    _legend(figure, axes, len(series))
    return _svg(figure)


def speed_plot(rows: Mapping[str, Row]) -> str:
    """Return how many times as fast every converted model is, as SVG; empty where none was timed.

    In its lane a task's models are sorted by their speed, and the slowest is named. Bars go from the 10th to
    the 90th percentile of the timed rounds.
    """
    done = {key: row for key, row in rows.items() if row["status"] == OK}
    series = {dtype: found for dtype in dtypes_of(done) for found in [speeds(done, dtype)] if found}
    if not series:
        return ""
    tasks = _tasks([key for found in series.values() for key in found])
    figure, axes = _figure(tasks, rows)
    for dtype, found in series.items():
        points = [(key, float(latency["ratio"])) for key, latency in found.items()]
        for number, lane in enumerate(_lanes(points, tasks)):
            x, y = [value for _, value in lane], _places(number, len(lane))
            spread = [
                [max(0.0, value - float(found[key]["ratio_low"])) for key, value in lane],
                [max(0.0, float(found[key]["ratio_high"]) - value) for key, value in lane],
            ]
            label = None if number else f"{dtype}, {_how(rows, dtype)}"
            axes.errorbar(
                x,
                y,
                xerr=spread,
                fmt=".",
                ms=4,
                color=_COLOURS.get(dtype),
                elinewidth=0.8,
                alpha=0.9,
                label=label,
            )
            if lane:
                key = lane[0][0]
                _name(axes, (key, float(found[key]["ratio_low"])), y[0], left=True)
    axes.axvline(1.0, color="#444444", linewidth=0.8)
    axes.set(xlabel="times as fast as FP32")
    axes.set_xlim(left=0)
    _legend(figure, axes, len(series))
    return _svg(figure)


def _tasks(keys: Sequence[str]) -> list[str]:
    """Return the tasks of the cases, in the registry's order."""
    have = {_task(key) for key in keys}
    return [task for task in dict.fromkeys(entry.task for entry in registry().values()) if task in have]


def _task(key: str) -> str:
    return registry()[key.partition("+")[0]].task


def _lanes(points: Sequence[tuple[str, float]], tasks: Sequence[str]) -> list[list[tuple[str, float]]]:
    """Return the points of every task, the smallest first."""
    lanes: dict[str, list[tuple[str, float]]] = {task: [] for task in tasks}
    for key, value in points:
        lanes[_task(key)].append((key, value))
    return [sorted(lane, key=lambda point: (point[1], point[0])) for lane in lanes.values()]


def _places(lane: int, count: int) -> list[float]:
    """Return where in a lane each of its points is, from the lower border to the upper."""
    if count == 1:
        return [float(lane)]
    return [lane + _HEIGHT * (0.5 - number / (count - 1)) for number in range(count)]


def _name(axes: Any, point: tuple[str, float], place: float, *, left: bool) -> None:
    key, value = point
    axes.annotate(
        key,
        (value, place),
        xytext=(-5 if left else 5, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        fontsize=6.5,
        color="#444444",
        annotation_clip=False,
    )


def _how(rows: Mapping[str, Row], dtype: str) -> str:
    found = (row.get("results", {}).get(dtype, {}).get("how") for row in rows.values())
    return str(next(filter(None, found), ""))


def _figure(tasks: Sequence[str], rows: Mapping[str, Row]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 1.3 + 0.75 * len(tasks)), layout="constrained")
    axes: Any = figure.subplots()
    axes.grid(axis="x", alpha=0.3)
    done = [_task(key) for key, row in rows.items() if row["status"] == OK]
    axes.set_yticks(range(len(tasks)), [f"{task}\n{done.count(task)}" for task in tasks])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(tasks) - 0.5, -0.5)
    for border in range(1, len(tasks)):
        axes.axhline(border - 0.5, color="#cccccc", linewidth=0.8)
    return figure, axes


def _legend(figure: Any, axes: Any, columns: int) -> None:
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=columns, frameon=False, fontsize=8)


def _svg(figure: Any) -> str:
    import matplotlib

    text = io.StringIO()
    # The same file for the same numbers: no date, and no random names within.
    with matplotlib.rc_context({"svg.hashsalt": "mxamp", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :]
