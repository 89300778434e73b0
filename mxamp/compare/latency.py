"""Latency of a model and its conversion, timed by turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from mxamp.compare.race import race
from mxamp.measuring.machine import cpu_and_threads
from mxamp.measuring.race import FEWEST_TELLING_ROUNDS, MOST_ROUNDS
from mxamp.model import Model


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
