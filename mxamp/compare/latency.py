"""Latency of two models, measured alternately in one run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Sequence

import numpy as np

from mxamp.compare.race import Ratio, race

__all__ = ["LatencyComparison", "alternate_latency", "summarize_latency"]


@dataclass(frozen=True)
class LatencyComparison:
    """How long one forward pass of two models takes.

    Attributes
    ----------
    median_a_ms, median_b_ms
        The median time of a forward pass, in milliseconds.
    ratio_median
        The median over rounds of A's time divided by B's: how many times as fast B is.
    ratio_low, ratio_high
        The 10th and the 90th percentile of that ratio.
    rounds
        How often each was timed.
    """

    median_a_ms: float
    median_b_ms: float
    ratio_median: float
    ratio_low: float
    ratio_high: float
    rounds: int

    def to_mapping(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.median_a_ms:.2f} ms -> {self.median_b_ms:.2f} ms: {self.ratio_median:.2f} times as fast "
            f"({self.ratio_low:.2f} to {self.ratio_high:.2f}, {self.rounds} rounds)"
        )


def alternate_latency(
    model_a: Any,
    model_b: Any,
    data: Any,
    *,
    ctx: Any = None,
    rounds: int = 30,
    warmup: int = 5,
) -> LatencyComparison:
    """Time two models alternately, fused as deployed, all samples in one batch.

    What else the machine does then falls on both alike, and the ratio of a round means something even where
    the times drift. Which model goes first alternates too.

    Parameters
    ----------
    model_a, model_b
        :class:`mxamp.Model` or ``(sym, args, auxs)``: usually FP32 and converted.
    data
        Input name -> array, or one array for a model with one input.
    ctx
        ``"cpu"`` (the default), ``"gpu(0)"``, or an ``mx.Context``.
    rounds
        How often to time each.
    warmup
        Forward passes of each before; the first one lets oneDNN choose and prepare its kernels.

    Returns
    -------
    LatencyComparison
        Times of the forward pass alone: inputs are on the device before, outputs stay there.

    Raises
    ------
    DataError
        When ``rounds`` is below 1, or data and models do not fit together.
    DeviceError, OperatorError
        When a model cannot run there.
    """
    timed = race(
        [model_a, model_b],
        data,
        rounds=rounds,
        warmup=warmup,
        ctx=ctx,
        labels=["model A", "model B"],
        is_clear=None,
    )
    return summarize_latency(*timed.seconds)


def summarize_latency(seconds_a: Sequence[float], seconds_b: Sequence[float]) -> LatencyComparison:
    """Return medians and spread of times taken in pairs.

    Parameters
    ----------
    seconds_a, seconds_b
        Seconds; the two numbers at one place were taken in one round.
    """
    ratio = Ratio.of(seconds_a, seconds_b)
    return LatencyComparison(
        median_a_ms=1e3 * float(np.median(seconds_a)),
        median_b_ms=1e3 * float(np.median(seconds_b)),
        ratio_median=ratio.median,
        ratio_low=ratio.low,
        ratio_high=ratio.high,
        rounds=ratio.rounds,
    )
