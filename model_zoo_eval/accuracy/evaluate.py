"""Evaluate one network's accuracy in this process: FP32, BF16 executed, FP16 emulated, mixed and pure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from model_zoo_eval.accuracy.meters import Meter, Truth
from mxamp.convert import convert_model
from mxamp.emulate import emulate
from mxamp.errors import MxampError
from mxamp.evaluation.statistics import (
    bootstrap_intervals,
    count_flips,
    mcnemar,
    newcombe_paired,
    wilson,
)
from mxamp.model import Model
from mxamp.runtime.executor import BoundModel

__all__ = ["FP32", "VARIANTS", "Subject", "Variant", "measure"]

Array = NDArray[Any]
Publish = Callable[[Mapping[str, Any]], None]
Sample = Tuple[Mapping[str, Array], Truth]
"""A sample's inputs, with a batch of 1, and what is true of it."""

FP32 = "float32"

_DIGITS = 6


@dataclass(frozen=True)
class Variant:
    """One way to run a model in low precision.

    Attributes
    ----------
    key
        What results call it.
    dtype
        ``bfloat16`` or ``float16``.
    how
        ``executed`` or ``emulated``.
    policy
        None for mxamp's own, ``pure`` for as low as can be.
    """

    key: str
    dtype: str
    how: str
    policy: str | None = None

    def make(self, model: Model, shapes: Mapping[str, tuple[int, ...]]) -> Model:
        """Return the converted model."""
        parts = (model.graph, model.arg_params, model.aux_params, self.dtype)
        if self.how == "emulated":
            return emulate(*parts, input_shapes=shapes, policy=self.policy)
        return convert_model(*parts, input_shapes=shapes, policy=self.policy)


VARIANTS = (
    Variant("bfloat16", "bfloat16", "executed"),
    Variant("float16", "float16", "emulated"),
    Variant("float16 pure", "float16", "emulated", "pure"),
)


@dataclass(frozen=True)
class Subject:
    """A model, and samples to judge it by.

    Attributes
    ----------
    model
        In FP32.
    samples
        Called for every variant; gives the same samples each time.
    meter
        Makes a meter.
    """

    model: Model
    samples: Callable[[], Iterable[Sample]]
    meter: Callable[[], Meter]


def measure(
    subject: Subject,
    *,
    variants: Sequence[Variant] = VARIANTS,
    seed: int = 0,
    publish: Callable[[str, Mapping[str, Any]], None] = lambda stage, results: None,
) -> tuple[dict[str, Any], int]:
    """Measure FP32 and its variants on the same samples.

    Parameters
    ----------
    subject
        What to measure.
    variants
        The conversions.
    seed
        Of the bootstrap.
    publish
        Told what comes next and what is known, as the work proceeds.

    Returns
    -------
    results : dict
        Key -> plain data: ``metrics``; for a variant also ``difference``, ``interval`` and, where items
        can be counted, ``flips`` and McNemar's ``p``. A conversion that failed has its ``error``.
    samples : int
        How many samples there are.
    """
    results: dict[str, Any] = {}
    publish(FP32, results)
    started = time.perf_counter()
    reference = subject.meter()
    samples = _run(subject.model, subject, reference)
    metrics = reference.metrics()
    results[FP32] = {"how": "executed", "metrics": _rounded(metrics), **_own_interval(reference)}
    results[FP32]["seconds"] = round(time.perf_counter() - started, 2)
    meters: dict[str, Meter] = {}
    for variant in variants:
        publish(variant.key, results)
        started = time.perf_counter()
        try:
            shapes = {name: value.shape for name, value in next(iter(subject.samples()))[0].items()}
            converted = variant.make(subject.model, shapes)
            meter = subject.meter()
            _run(converted, subject, meter)
        except MxampError as error:
            results[variant.key] = {"how": variant.how, "error": f"{type(error).__name__}: {error}"}
            continue
        meters[variant.key] = meter
        report = converted.report
        assert report is not None  # a conversion returns one
        results[variant.key] = {
            "how": variant.how,
            "casts": len(report.casts),
            "low_nodes": report.low_nodes,
            "metrics": _rounded(meter.metrics()),
            "seconds": round(time.perf_counter() - started, 2),
        }
    publish("statistics", results)
    for key, found in _differences(reference, meters, samples, seed).items():
        results[key].update(found)
    return results, samples


def _run(model: Model, subject: Subject, meter: Meter) -> int:
    bound = BoundModel(model)
    count = 0
    for inputs, truth in subject.samples():
        meter.add([_real(output) for output in bound.run(inputs)], truth)
        count += 1
    return count


def _real(output: Array) -> Array:
    """Return an output as metrics take it: float32."""
    return np.asarray(output, np.float32)


def _own_interval(meter: Meter) -> dict[str, Any]:
    """Return what FP32's own metric may be by chance, where it is a share of samples."""
    if meter.items != "images":
        return {}
    right = meter.right()
    return {"interval_of_metric": _pair(wilson(int(right.sum()), len(right)))}


def _differences(
    reference: Meter, meters: Mapping[str, Meter], samples: int, seed: int
) -> dict[str, dict[str, Any]]:
    """Compare each variant with FP32: the difference of the first metric, its interval, and what flipped."""
    found: dict[str, dict[str, Any]] = {}
    first, value = next(iter(reference.metrics().items()))
    for key, meter in meters.items():
        found[key] = {"difference": round(meter.metrics()[first] - value, _DIGITS)}
        if reference.items:
            flips = count_flips(reference.right(), meter.right())
            found[key]["flips"] = {
                "items": reference.items,
                "count": flips.samples,
                "lost": flips.lost,
                "gained": flips.gained,
            }
            found[key]["p"] = round(mcnemar(flips), _DIGITS)
            if reference.items == "images":
                found[key]["interval"] = _pair(newcombe_paired(flips))
    drawn = [key for key in meters if "interval" not in found[key]]
    if drawn and samples > 1:

        def statistic(indices: NDArray[np.int64]) -> NDArray[np.float64]:
            base = reference.resampled(indices)
            return np.array([meters[key].resampled(indices) - base for key in drawn])

        if not np.isnan(statistic(np.arange(samples))).any():
            for key, interval in zip(drawn, bootstrap_intervals(statistic, samples, seed=seed)):
                found[key]["interval"] = _pair(interval)
    for one in found.values():
        interval = one.get("interval")
        if interval is not None:
            one["inside"] = interval[0] <= 0.0 <= interval[1]
    return found


def _pair(interval: tuple[float, float]) -> list[float]:
    return [round(end, _DIGITS) for end in interval]


def _rounded(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, _DIGITS) for name, value in metrics.items()}
