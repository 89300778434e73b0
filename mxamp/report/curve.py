"""The curve of speed and error that a model was chosen on, for the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Tuple

Interval = Tuple[float, float]


@dataclass(frozen=True)
class CurvePointReport:
    """One conversion on the curve.

    Attributes
    ----------
    float32_nodes
        How many nodes it has in FP32 that could be low.
    speed
        How many times as fast as FP32 it is.
    error
        The relative L2 error of its outputs.
    interval
        Its interval of 95 %, over samples; None for a single one.
    difference
        Its metric less FP32's; None without labels.
    difference_interval
        The paired interval of 95 % of that.
    is_today
        Whether it is what a conversion without tuning gives.
    is_this
        Whether it is the model that has the report.
    """

    float32_nodes: int
    speed: float
    error: float
    interval: Interval | None
    difference: float | None = None
    difference_interval: Interval | None = None
    is_today: bool = False
    is_this: bool = False


@dataclass(frozen=True)
class CurveReport:
    """The curve, from the fastest conversion to the most exact one.

    Attributes
    ----------
    points
        The points that were converted, the fastest by estimate first.
    goal
        What was asked for, in words; empty where only the curve was.
    is_promised
        Whether samples that were kept apart confirm that the goal is reached, with 95 % confidence; None
        where nothing was to be confirmed.
    samples
        How many samples errors and metric were measured on.
    how
        Whether errors were executed or emulated.
    is_timed
        Whether speeds were measured by turns, or are estimates.
    metric
        What the metric is called; None without labels.
    """

    points: tuple[CurvePointReport, ...]
    goal: str
    is_promised: bool | None
    samples: int
    how: str
    is_timed: bool
    metric: str | None = None

    @classmethod
    def from_mapping(cls, document: Mapping[str, Any]) -> CurveReport:
        """Return what :func:`dataclasses.asdict` made a mapping of."""
        return cls(**{**document, "points": tuple(CurvePointReport(**point) for point in document["points"])})
