"""The result of tuning: the curve as a value, and what was chosen on it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Tuple

from mxamp.errors import DataError
from mxamp.evaluation import MetricComparison
from mxamp.model import Model
from mxamp.report.curve import CurvePointReport, CurveReport
from mxamp.report.model import Report
from mxamp.report.table import Column, format_table, paragraph, terminal_width
from mxamp.tuning.plot import plot_tuning

Interval = Tuple[float, float]


@dataclass(frozen=True)
class Measured:
    """What a point does on some samples.

    Attributes
    ----------
    samples
        How many.
    error
        The relative L2 error of the outputs; of several the root of the mean square.
    interval
        Its interval of 95 %, over samples.
    metric
        The metric, beside FP32's; None without labels.
    """

    samples: int
    error: float
    interval: Interval
    metric: MetricComparison | None = None


@dataclass(frozen=True)
class Point:
    """One conversion on the curve.

    Attributes
    ----------
    float32
        The nodes in FP32 that could be low.
    estimated_us
        What a forward pass takes, as estimated.
    estimated_speed
        How many times as fast as FP32, as estimated.
    predicted
        The relative L2 error that prices predict.
    on_choosing, on_reporting
        What was measured on the samples to choose on, and on the others.
    speed
        How many times as fast as FP32, as measured by turns on this machine; None where it was not.
    speed_interval
        Between which values the true median lies with 95 % confidence.
    is_today
        Whether it is what a conversion without tuning gives.
    """

    float32: tuple[str, ...]
    estimated_us: float
    estimated_speed: float
    predicted: float
    on_choosing: Measured
    on_reporting: Measured
    speed: float | None = None
    speed_interval: Interval | None = None
    is_today: bool = False

    @property
    def best_speed(self) -> float:
        """The speed that counts: measured where it was."""
        return self.estimated_speed if self.speed is None else self.speed


@dataclass(frozen=True)
class Tuning:
    """A model's trade-off of speed and error.

    Attributes
    ----------
    points
        The points that were converted, the fastest by estimate first.
    chosen
        The number of the one that was chosen; None where nothing was asked for, or nothing does.
    goal
        What was asked for, in words.
    is_promised
        Whether the samples that were kept apart confirm it, with 95 % confidence.
    corners
        How many placements the whole curve has.
    target
        What was converted for.
    how
        Whether errors were executed or emulated.
    notes
        What the user should know.
    """

    points: tuple[Point, ...]
    chosen: int | None
    goal: str
    is_promised: bool | None
    corners: int
    target: str
    how: str
    notes: tuple[str, ...] = ()
    models: tuple[Model, ...] = field(default=(), repr=False, compare=False)

    @property
    def model(self) -> Model:
        """The chosen model.

        Raises
        ------
        DataError
            When none was chosen.
        """
        if self.chosen is None:
            raise DataError(
                "No point was chosen: give max_error, max_drop or min_speed, or take one of `models`, which "
                "has one for each of `points`."
            )
        return self.models[self.chosen]

    def recorded(self, number: int, report: Report) -> Report:
        """Return the report of a point's model with the curve, by the samples that were kept apart."""
        points = []
        for own, point in enumerate(self.points):
            found = point.on_reporting
            points.append(
                CurvePointReport(
                    float32_nodes=len(point.float32),
                    speed=point.best_speed,
                    error=found.error,
                    interval=found.interval if math.isfinite(found.interval[1]) else None,
                    difference=None if found.metric is None else found.metric.difference,
                    difference_interval=None if found.metric is None else found.metric.difference_interval,
                    is_today=point.is_today,
                    is_this=own == number,
                )
            )
        metric = self.points[0].on_reporting.metric
        curve = CurveReport(
            points=tuple(points),
            goal=self.goal,
            is_promised=self.is_promised,
            samples=self.points[0].on_reporting.samples,
            how=self.how,
            is_timed=all(point.speed is not None for point in self.points),
            metric=None if metric is None else metric.name,
        )
        return replace(report, curve=curve)

    def to_mapping(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "goal": self.goal,
            "chosen": self.chosen,
            "is_promised": self.is_promised,
            "target": self.target,
            "corners": self.corners,
            "errors": self.how,
            "points": [asdict(point) for point in self.points],
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(self.to_mapping(), indent=1, allow_nan=False)

    def plot(self, path: str | Path) -> None:
        """Draw the curve as a file; PNG or SVG, by its suffix.

        Raises
        ------
        MxampError
            When matplotlib is not installed, or the file cannot be written.
        """
        plot_tuning(self, path)

    def __str__(self) -> str:
        first = self.points[0].on_choosing
        width = terminal_width()
        lines = paragraph(
            f"{self.corners} placements on the curve for {self.target}, {len(self.points)} of them "
            f"converted. Errors are {self.how}, on {first.samples} samples to choose on; 'at most' and "
            "'at worst' are the worse bounds of 95 % intervals.",
            width,
        )
        titles = ["speed", "estimated", "error", "at most", "predicted", "float32"]
        if first.metric is not None:
            titles += [first.metric.name, "at worst"]
        columns = [Column(""), *(Column(title, right=True) for title in titles)]
        rows = [self._row(number) for number in range(len(self.points))]
        lines += ["", *format_table(columns, rows, width)]
        if self.chosen is not None:
            lines += ["", *paragraph(self._verdict(self.points[self.chosen]), width)]
        for note in self.notes:
            lines += paragraph(f"note: {note}", width, hanging="  ")
        return "\n".join(lines)

    def _row(self, number: int) -> list[str]:
        point = self.points[number]
        own = point.on_choosing
        row = [
            "chosen" if number == self.chosen else "today" if point.is_today else "",
            "-" if point.speed is None else f"{point.speed:.2f}",
            f"{point.estimated_speed:.2f}",
            f"{own.error:.2e}",
            f"{own.interval[1]:.2e}",
            f"{point.predicted:.2e}",
            str(len(point.float32)),
        ]
        metric = own.metric
        if metric is not None and metric.difference is not None and metric.difference_interval is not None:
            row += [f"{100 * metric.difference:+.2f}", f"{100 * metric.difference_interval[0]:+.2f}"]
        return row

    def _verdict(self, point: Point) -> str:
        other = point.on_reporting
        said = (
            f"Chosen for {self.goal}. On the {other.samples} samples that were kept apart its error is "
            f"{other.error:.2e} ({other.interval[0]:.1e} to {other.interval[1]:.1e})"
        )
        if other.metric is not None:
            said += f", {other.metric.name} {_points(other.metric)}"
        if self.is_promised is None:
            return said + "."
        return said + (": that is kept." if self.is_promised else ": that is NOT sure to be kept.")


def _points(metric: MetricComparison | None) -> str:
    if metric is None or metric.difference is None or metric.difference_interval is None:
        return "-"
    low, high = metric.difference_interval
    return f"{100 * metric.difference:+.2f} ({100 * low:+.2f} to {100 * high:+.2f}) points"
