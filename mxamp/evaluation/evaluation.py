"""The result of an evaluation."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Tuple

import numpy as np
from numpy.typing import NDArray

from mxamp.compare.latency import Latency
from mxamp.evaluation.metrics import Metric
from mxamp.evaluation.statistics import (
    bootstrap_intervals,
    count_flips,
    mcnemar,
    newcombe_paired,
    wilson,
)
from mxamp.report.table import paragraph, terminal_width

Interval = Tuple[float, float]


@dataclass(frozen=True)
class MetricComparison:
    """One metric of one model, and of a second on the same samples.

    Attributes
    ----------
    name
        The metric.
    samples
        How many samples.
    value
        The first model's, from 0 to 1.
    interval
        Its interval of 95 %.
    converted
        The second model's; None without one.
    difference
        The second's less the first's.
    difference_interval
        The paired interval of 95 % of the difference.
    lost, gained
        Samples that only the first, and only the second gets right; None for metrics that count no samples.
    p_value
        McNemar's exact test: how likely flips are so uneven if either direction were as likely.
    """

    name: str
    samples: int
    value: float
    interval: Interval
    converted: float | None = None
    difference: float | None = None
    difference_interval: Interval | None = None
    lost: int | None = None
    gained: int | None = None
    p_value: float | None = None


def compared(first: Metric, second: Metric | None, *, seed: int = 0) -> MetricComparison:
    """Return what two models' metrics on the same samples are, and how sure that is.

    Parameters
    ----------
    first, second
        The metric of both; None for a single model.
    seed
        Of the bootstrap.

    Notes
    -----
    Shares of right samples have Wilson's interval, Newcombe's of their paired difference and McNemar's exact
    test; other metrics the bootstrap over samples, the same draw for both.
    """
    right = first.right()
    others = None if second is None else second.right()
    value = first.value()
    if right is not None:
        interval = wilson(int(right.sum()), len(right))
        if others is None:
            return MetricComparison(first.name, len(right), value, interval)
        flips = count_flips(right, others)
        return MetricComparison(
            first.name,
            len(right),
            value,
            interval,
            float(others.mean()),
            flips.difference,
            newcombe_paired(flips),
            flips.lost,
            flips.gained,
            mcnemar(flips),
        )

    def drawn(samples: NDArray[np.int64]) -> NDArray[np.float64]:
        own = first.value(samples)
        return np.array([own] if second is None else [own, second.value(samples) - own])

    if first.samples < 2:
        intervals: list[Interval] = [(0.0, 1.0), (-1.0, 1.0)]
    else:
        intervals = bootstrap_intervals(drawn, first.samples, seed=seed)
    if second is None:
        return MetricComparison(first.name, first.samples, value, intervals[0])
    converted = second.value()
    return MetricComparison(
        first.name, first.samples, value, intervals[0], converted, converted - value, intervals[1]
    )


@dataclass(frozen=True)
class Evaluation:
    """How well a model does, beside its conversion.

    Attributes
    ----------
    metrics
        Each metric; the first is the main one.
    samples
        How many samples they are of.
    latency
        How long both take, by turns; None where that was not measured.
    notes
        What the user should know of it.
    """

    metrics: tuple[MetricComparison, ...]
    samples: int
    latency: Latency | None = None
    notes: tuple[str, ...] = ()

    def to_mapping(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "samples": self.samples,
            "metrics": [asdict(metric) for metric in self.metrics],
            "latency": None if self.latency is None else asdict(self.latency),
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(self.to_mapping(), indent=1, allow_nan=False)

    def __str__(self) -> str:
        lines = [f"{self.samples} samples; intervals are of 95 %"]
        for metric in self.metrics:
            low, high = metric.interval
            line = f"{metric.name}: {_percent(metric.value)} ({_percent(low)} to {_percent(high)})"
            if metric.converted is not None and metric.difference_interval is not None:
                low, high = metric.difference_interval
                line += (
                    f" -> {_percent(metric.converted)}: {100 * (metric.difference or 0):+.2f} points "
                    f"({100 * low:+.2f} to {100 * high:+.2f})"
                )
            if metric.p_value is not None:
                line += f"; {metric.lost} lost, {metric.gained} gained, p = {metric.p_value:.2g} (McNemar)"
            lines.append(line)
        if self.latency is not None:
            lines += paragraph(str(self.latency), terminal_width())
        width = terminal_width()
        for note in self.notes:
            lines += paragraph(f"note: {note}", width, hanging="  ")
        return "\n".join(lines)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
