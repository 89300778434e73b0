"""Measure all variants of one model: errors on samples first, then times by turns.

Errors are measured against FP32 with fusion off, because MXNet's fusion is wrong in FP32 for some graphs. A
detector's outputs come out of a ranking, where candidates that nearly tie change places: of a model that
ranks, what enters the first ranking is compared.

With random weights the error of one model is partly luck: roundings of different layers may cancel. So models
are drawn several times, and converted anew each time, for their errors alone.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace
from typing import Any, Callable, Mapping, Sequence

import mxnet as mx
from numpy.typing import NDArray

from model_zoo_eval.build import RANDOM
from model_zoo_eval.fidelity import HeadMeter, rounded
from model_zoo_eval.heads import entries_before, first_rankings
from mxamp.compare.race import race
from mxamp.errors import DataError, MxampError
from mxamp.model import Model
from mxamp.ops.casts import AMP_MULTICAST, CAST_OPERATORS
from mxamp.runtime.executor import BoundModel
from tools.benchmark_conversion import alternate_conversions, one_line, symbol_converters
from tools.benchmark_models.job import Job
from tools.benchmark_models.names import (
    FP32,
    MXAMP,
    MXAMP_NO_SHAPES,
    MXAMP_PROFILED,
    NOT_AVAILABLE,
    STOCK,
    STOCK_CAST_ONCE,
)
from tools.benchmark_models.subject import Subject, build_subject
from tools.benchmark_models.variants import can_profile, converters, first_equals

__all__ = ["measure_conversions", "measure_variants"]

FEWEST_ROUNDS, MOST_ROUNDS = 9, 200
"""From 8 rounds on the median is known with some confidence (:class:`mxamp.measuring.race.Ratio`)."""

_BINDINGS, _ROUNDS_A_BINDING = 5, 3
"""How often the variants are bound, and for how many rounds at least. Where its memory comes to lie
makes a model some percent faster or slower, for as long as it is bound."""

CONVERSION_ROUNDS = 101
"""A conversion takes a few milliseconds, and how fast a processor is changes from one second to the next, not
alike for both converters: 31 rounds gave 1.65 times as long for a model, and 2.08 an hour later."""

_DRAWN = (STOCK, STOCK_CAST_ONCE, MXAMP_NO_SHAPES, MXAMP, MXAMP_PROFILED)
"""The variants whose errors are compared with each other."""

_CASTS = frozenset({*CAST_OPERATORS, AMP_MULTICAST})

Publish = Callable[[Mapping[str, Any]], None]


def measure_variants(job: Job, publish: Publish = lambda _: None) -> dict[str, Any]:
    """Measure all variants of a model.

    Parameters
    ----------
    job
        What to measure.
    publish
        Called with what is known so far; ``stage`` says what comes next, and ``variant`` which variant that
        is for.

    Returns
    -------
    dict
        Plain data for JSON. ``results`` has for every variant either its figures, with the time of every
        round (those at one place were taken in one round), or its ``failure``. Where a variant came out as
        the same model as an earlier one, both have the times of the one race, and ``timed_as`` names it.

    Raises
    ------
    MxampError
        When the model cannot be built, or does not run in FP32.
    """
    row: dict[str, Any] = {"stage": "build", "results": {}}
    publish(row)
    built = build_subject(job)
    shapes, samples = built.shapes, built.samples
    row.update(
        weights=built.weights,
        weights_from=built.origin,
        inputs={name: list(shape) for name, shape in shapes.items()},
        samples=job.batch * len(samples),
        nodes=sum(not node.is_variable for node in built.model.graph.nodes),
    )
    results: dict[str, dict[str, Any]] = row["results"]
    errors = _Errors(built.model, samples)
    models: dict[str, Model] = {FP32: built.model}
    bound: dict[str, BoundModel] = {}
    row["stage"] = FP32
    publish(row)
    bound[FP32], results[FP32] = _prepare(built.model, FP32, errors)
    excluded = dict(job.without)
    if not can_profile():
        excluded.setdefault(MXAMP_PROFILED, NOT_AVAILABLE)
    for variant, convert in converters(built.model, shapes).items():
        row.update(stage=variant, variant=variant)
        publish(row)
        if variant in excluded:
            results[variant] = {"failure": excluded[variant]}
            continue
        try:
            started = time.perf_counter()
            model = convert()
            tuple(model)
            mx.nd.waitall()
            seconds = time.perf_counter() - started
            bound[variant], results[variant] = _prepare(model, variant, errors)
            models[variant] = model
        except (MxampError, mx.base.MXNetError, ValueError, TypeError, KeyError, AssertionError) as error:
            # What MXNet's converter raises is of any kind. A variant that fails is a result.
            results[variant] = {"failure": one_line(error)}
            continue
        results[variant]["conversion_seconds"] = rounded(seconds, 4)
    row["stage"] = "errors of other weights"
    publish(row)
    _draw_errors(built, job, results)
    del row["variant"]
    row["stage"] = "time"
    publish(row)
    timed_as = first_equals(models)
    distinct = {variant: models[variant] for variant in models if timed_as[variant] == variant}
    for variant in models.keys() - distinct.keys():
        del bound[variant]
    times = _race(distinct, bound, samples[0], job)
    for variant, first in timed_as.items():
        results[variant]["milliseconds"] = [rounded(1e3 * own, 5) for own in times[first]]
        if first != variant:
            results[variant]["timed_as"] = first
    row["stage"] = "done"
    publish(row)
    return row


def _draw_errors(built: Subject, job: Job, results: Mapping[str, dict[str, Any]]) -> None:
    """Add to each variant's figures its ``errors``: one for each draw of the weights, the first included.

    A larger batch has the same weights, and so one draw is enough for it.
    """
    drawn = [variant for variant in _DRAWN if "relative_l2" in results.get(variant, ())]
    errors = {variant: [_finite_error(results[variant])] for variant in drawn}
    draws = job.draws if built.weights == RANDOM and job.batch == 1 else 1
    for seed in range(job.seed + 1, job.seed + draws):
        again = build_subject(replace(job, seed=seed))
        meter = _Errors(again.model, again.samples)
        makers = converters(again.model, again.shapes)
        for variant in drawn:
            model = makers[variant]()
            errors[variant].append(_finite_error(meter.of(model, BoundModel(model, label=variant))))
    for variant, found in errors.items():
        results[variant]["errors"] = found


def _finite_error(figures: Mapping[str, Any]) -> float | str:
    return figures["relative_l2"] if figures["finite"] else "inf"


def measure_conversions(job: Job, publish: Publish = lambda _: None) -> dict[str, Any]:
    """Time the conversion itself, by MXNet's converter at its best setting and by mxamp, by turns.

    Parameters
    ----------
    job
        What to measure; ``rounds`` conversions by each, :data:`CONVERSION_ROUNDS` by default.
    publish
        Called with what is known so far.

    Returns
    -------
    dict
        Plain data for JSON; ``results`` has the milliseconds of each converter.
    """
    row: dict[str, Any] = {"stage": "build", "results": {}}
    publish(row)
    built = build_subject(job)
    row.update(weights=built.weights, weights_from=built.origin, stage="convert")
    publish(row)
    sym, args, auxs = built.model
    mx.nd.waitall()
    times, failures = alternate_conversions(
        symbol_converters(sym, args, auxs, "bfloat16", input_shapes=built.shapes),
        job.rounds or CONVERSION_ROUNDS,
    )
    names = {"stock": STOCK_CAST_ONCE}
    for converter, own in times.items():
        row["results"][names.get(converter, converter)] = {"milliseconds": [rounded(ms, 5) for ms in own]}
    for converter, failure in failures.items():
        row["results"][names.get(converter, converter)] = {"failure": failure}
    row["stage"] = "done"
    return row


class _Errors:
    """What FP32 computes of every sample, fusion off, for others to be compared with."""

    def __init__(self, model: Model, samples: Sequence[Mapping[str, NDArray[Any]]]) -> None:
        self._samples = samples
        self._rankings = first_rankings(model.graph)
        self._expected = self._run(self._bound(model, fusion=False))

    def of(self, model: Model, ready: BoundModel) -> dict[str, Any]:
        """Return the largest relative L2 error of an output, or of what enters a ranking.

        Parameters
        ----------
        model
            The model.
        ready
            The same, bound for its outputs.
        """
        computed = self._run(self._bound(model) if self._rankings else ready)
        meters = [HeadMeter(str(number)) for number in range(len(self._expected[0]))]
        for expected, found in zip(self._expected, computed):
            for meter, left, right in zip(meters, expected, found):
                if left.shape != right.shape:
                    raise DataError(f"A tensor has the shape {right.shape}, and {left.shape} in FP32.")
                (meter.add_candidates if self._rankings else meter.add)(left, right)
        heads = [meter.result() for meter in meters]
        errors = [float(head["relative_l2"]) for head in heads]
        return {
            "relative_l2": rounded(max(errors, default=math.nan), 4),
            "finite": all(
                head["nan"] <= head["fp32_nan"] and head["inf"] <= head["fp32_inf"] for head in heads
            ),
        }

    def _bound(self, model: Model, *, fusion: bool = True) -> BoundModel:
        entries = entries_before(model.graph, self._rankings) if self._rankings else None
        return BoundModel(model, fusion=fusion, entries=entries)

    def _run(self, bound: BoundModel) -> list[list[NDArray[Any]]]:
        return [bound.run(sample) for sample in self._samples]


def _prepare(model: Model, label: str, errors: _Errors) -> tuple[BoundModel, dict[str, Any]]:
    """Bind a model, and return it with its figures."""
    bound = BoundModel(model, label=label)
    figures = {
        **errors.of(model, bound),
        "casts": sum(node.op in _CASTS for node in model.graph.nodes),
        "parameter_bytes": model.parameter_bytes,
    }
    return bound, figures


def _race(
    models: Mapping[str, Model], bound: dict[str, BoundModel], sample: Mapping[str, NDArray[Any]], job: Job
) -> Mapping[str, Sequence[float]]:
    """Return the seconds that every variant took in each round; ``bound`` is used, and bound anew."""
    for ready in bound.values():
        _prepare_kernels(ready, sample)
    lap = sum([_timed(ready) for ready in bound.values()])
    affordable = int(job.seconds / max(lap, 1e-6))
    rounds = job.rounds or min(MOST_ROUNDS, max(FEWEST_ROUNDS, affordable))
    taken: dict[str, list[float]] = {variant: [] for variant in models}
    parts = min(_BINDINGS, max(1, rounds // _ROUNDS_A_BINDING))
    order = list(models)
    for part in range(parts):
        if part:
            bound.clear()  # all first: two of each need not fit into memory
            random.Random(job.seed + part).shuffle(order)
            for variant in order:
                bound[variant] = BoundModel(models[variant], label=variant)
                _prepare_kernels(bound[variant], sample)
        found = race(
            list(models.values()),
            rounds=rounds * (part + 1) // parts - rounds * part // parts,
            warmup=1,
            labels=list(models),
            seed=job.seed + part,
            is_clear=None,
            bind=lambda _, variant: lambda: _timed(bound[variant]),
        )
        for variant, seconds in zip(models, found.seconds):
            taken[variant] += seconds
    return taken


def _prepare_kernels(bound: BoundModel, sample: Mapping[str, NDArray[Any]]) -> None:
    """Let oneDNN choose and prepare its kernels, which it does in the first forward pass."""
    bound.load(sample)
    bound.forward()


def _timed(bound: BoundModel) -> float:
    started = time.perf_counter()
    bound.forward()
    return time.perf_counter() - started
