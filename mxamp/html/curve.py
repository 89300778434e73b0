"""The curve of speed and error that a model was chosen on, as a section of a page."""

from __future__ import annotations

from mxamp.compare.text import format_number
from mxamp.html.sections import Figure, Plot, Point, Section, Table
from mxamp.messages.counts import count_of
from mxamp.report.curve import CurvePointReport, CurveReport

_THIS, _TODAY, _OTHER = "this model", "without tuning", "other conversions"


def curve_figures(curve: CurveReport) -> dict[str, Figure]:
    """Return what was measured of this model when the curve was: its speed, accuracy and error."""
    (point,) = [point for point in curve.points if point.is_this] or (None,)
    if point is None:
        return {}
    bounds = "" if point.interval is None else f", {' to '.join(map(format_number, point.interval))} (95 %)"
    found = {
        "error": Figure(
            "Error",
            format_number(point.error),
            f"relative L2 distance from FP32{bounds}, {count_of(curve.samples, 'sample')}, {curve.how}",
        )
    }
    if curve.is_timed:
        found["speed"] = Figure(
            "Speed, measured",
            f"{point.speed:.2f}\u00d7",
            "by turns with FP32, when tuned",
            is_bad=point.speed < 1,
        )
    if curve.metric is not None and point.difference is not None and point.difference_interval is not None:
        worst, best = point.difference_interval
        found["accuracy"] = Figure(
            f"Accuracy ({curve.metric})",
            f"{100 * point.difference:+.2f} points",
            f"less FP32's; {100 * worst:+.2f} to {100 * best:+.2f} (95 %), "
            f"{count_of(curve.samples, 'sample')}",
            is_bad=best < 0,
        )
    return found


def curve_section(curve: CurveReport) -> Section:
    """Return the curve between speed and error, with this model on it."""
    speeds = "measured by turns" if curve.is_timed else "estimated, not measured"
    said = [
        f"{count_of(len(curve.points), 'conversion')}, from the fastest to the most exact. Errors are "
        f"{curve.how}, on {count_of(curve.samples, 'sample')} that chose nothing; speeds are {speeds}. "
        "Bars are intervals of 95 %."
    ]
    if curve.goal:
        said.append(f"Asked for: {curve.goal}.{_PROMISES[curve.is_promised]}")
    return Section(
        "Speed against error",
        tuple(said),
        (Table(_columns(curve), tuple([_row(curve, point) for point in curve.points])),),
        Plot(
            "times as fast as FP32",
            "relative L2 error",
            tuple([_plotted(point) for point in curve.points]),
            log_y=all(point.error > 0 for point in curve.points),
            has_line=True,
        ),
    )


_PROMISES = {
    True: " The samples confirm it.",
    False: " The samples do not confirm that it is reached.",
    None: "",
}


def _columns(curve: CurveReport) -> tuple[str, ...]:
    metric = () if curve.metric is None else (f">{curve.metric}, points", ">95 % bounds")
    return ("", ">Times as fast", ">Relative L2", ">95 % bounds", *metric, ">Kept in FP32")


def _row(curve: CurveReport, point: CurvePointReport) -> tuple[str, ...]:
    metric: tuple[str, ...] = ()
    if curve.metric is not None:
        metric = ("", "")
        if point.difference is not None and point.difference_interval is not None:
            worst, best = point.difference_interval
            metric = (f"{100 * point.difference:+.2f}", f"{100 * worst:+.2f} to {100 * best:+.2f}")
    return (
        " and ".join(_kinds(point)),
        f"{point.speed:.2f}",
        format_number(point.error),
        " to ".join(map(format_number, point.interval or ())),
        *metric,
        count_of(point.float32_nodes, "node"),
    )


def _kinds(point: CurvePointReport) -> list[str]:
    return [_THIS] * point.is_this + [_TODAY] * point.is_today


def _plotted(point: CurvePointReport) -> Point:
    kinds = _kinds(point)
    return Point(
        point.speed,
        point.error,
        f"{count_of(point.float32_nodes, 'more node')} in FP32",
        kinds[0] if kinds else _OTHER,
        bounds=point.interval,
        name=" and ".join(kinds),
    )
