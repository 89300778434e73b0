"""Latency of two models, measured alternately in one run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Mapping, Sequence

import numpy as np

from mxamp.compare.race import race
from mxamp.measuring.machine import cpu_and_threads
from mxamp.measuring.race import FEWEST_TELLING_ROUNDS, MOST_ROUNDS, Ratio
from mxamp.model import Model


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


@dataclass(frozen=True)
class Latency:
    """How long one forward pass of a model and of its conversion takes, and where that was measured.

    Attributes
    ----------
    float32_ms, converted_ms
        The median times, in milliseconds, both fused as deployed.
    ratio
        How many times as fast the converted model is: the median over rounds.
    low, high
        The 10th and the 90th percentile of that ratio.
    median_low, median_high
        The bounds between which its true median lies with 95 % confidence.
    rounds
        How often each ran, by turns.
    batch_size
        The samples of a forward pass.
    machine
        The device, or the CPU and its threads.
    """

    float32_ms: float
    converted_ms: float
    ratio: float
    low: float
    high: float
    median_low: float
    median_high: float
    rounds: int
    batch_size: int
    machine: str

    def __str__(self) -> str:
        verdict = ""
        if self.median_high < 1:
            verdict = " It is SLOWER than float32."
        elif self.median_low <= 1:
            verdict = " Neither is clearly faster."
        return (
            f"Latency of one forward pass, batch {self.batch_size}, by turns on {self.machine}: float32 "
            f"{self.float32_ms:.2f} ms, converted {self.converted_ms:.2f} ms: {self.ratio:.2f} times as fast "
            f"({self.low:.2f} to {self.high:.2f}, {self.rounds} rounds).{verdict}"
        )


def time_models(
    reference: Model,
    converted: Model,
    batch: Mapping[str, Any],
    *,
    ctx: Any,
    seconds: float,
    batch_size: int,
) -> Latency:
    """Time a model and its conversion by turns.

    Parameters
    ----------
    reference, converted
        The models.
    batch
        Input name -> values, of one batch.
    ctx
        The device.
    seconds
        About how long forward passes may take in all; it ends early where the answer is clear.
    batch_size
        How many samples the batch has.

    Raises
    ------
    DeviceError, OperatorError
        When a model cannot run there, fused as deployed.
    """
    timed = race(
        [reference, converted],
        batch,
        rounds=MOST_ROUNDS,
        seconds=seconds,
        at_least=FEWEST_TELLING_ROUNDS,
        ctx=ctx,
        labels=["the FP32 model", "the converted model"],
    )
    float32_ms, converted_ms = timed.median_ms
    cpu, threads = cpu_and_threads()
    on_cpu = f"{cpu}, {threads} thread{'' if threads == '1' else 's'}"
    return Latency(
        float32_ms=round(float32_ms, 4),
        converted_ms=round(converted_ms, 4),
        **timed.ratio(1).rounded(),
        batch_size=batch_size,
        machine=on_cpu if str(ctx).startswith("cpu") else str(ctx),
    )
