"""Latency of two models, measured alternately in one run."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mxamp.compare.inputs import as_model, prepare_inputs
from mxamp.errors import DataError

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
    if rounds < 1 or warmup < 0:
        raise DataError(f"rounds must be at least 1 and warmup at least 0, not {rounds} and {warmup}.")
    from mxamp.runtime.executor import BoundModel

    bound = []
    for model, label in (
        (as_model(model_a, "model A"), "model A"),
        (as_model(model_b, "model B"), "model B"),
    ):
        ready = BoundModel(model, ctx=ctx, label=label)
        ready.load(prepare_inputs(model, data).arrays)
        bound.append(ready)
    for ready in bound:
        for _ in range(warmup):
            ready.forward()
    seconds: tuple[list[float], list[float]] = ([], [])
    for round_number in range(rounds):
        for which in (0, 1) if round_number % 2 == 0 else (1, 0):
            start = time.perf_counter()
            bound[which].forward()
            seconds[which].append(time.perf_counter() - start)
    return summarize_latency(*seconds)


def summarize_latency(seconds_a: list[float], seconds_b: list[float]) -> LatencyComparison:
    """Return medians and spread of times taken in pairs.

    Parameters
    ----------
    seconds_a, seconds_b
        Seconds; the two numbers at one place were taken in one round.
    """
    ratios = np.asarray(seconds_a) / np.asarray(seconds_b)
    low, middle, high = np.percentile(ratios, (10, 50, 90))
    return LatencyComparison(
        median_a_ms=1e3 * float(np.median(seconds_a)),
        median_b_ms=1e3 * float(np.median(seconds_b)),
        ratio_median=float(middle),
        ratio_low=float(low),
        ratio_high=float(high),
        rounds=len(seconds_a),
    )
