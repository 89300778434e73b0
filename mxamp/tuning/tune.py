"""Tune a conversion: the fastest that errs no more than it may, or the most exact that is fast enough."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.calibration import Calibration, Compensation
from mxamp.calibration.compensate import as_compensation
from mxamp.calibration.placing import left_of_weights
from mxamp.calibration.prices import Prices
from mxamp.calibration.pricing import price_roundings
from mxamp.calibration.subject import any_model
from mxamp.compare.checked import checked_number, checked_progress, checked_seed
from mxamp.compare.inputs import counted
from mxamp.compare.race import race
from mxamp.conversion.emulation import emulate_model
from mxamp.dtypes import GivenDType
from mxamp.errors import DataError, DeviceError, MxampError
from mxamp.evaluation import find_metric
from mxamp.evaluation.evaluation import compared
from mxamp.evaluation.metrics import GivenMetric, Metric
from mxamp.evaluation.statistics import bootstrap_intervals
from mxamp.guard.machine import why_not_here
from mxamp.guard.options import Guard
from mxamp.measuring.race import Race
from mxamp.model import Model
from mxamp.model.accepted import AnyModel, Device, GivenSamples, Labels
from mxamp.passes import Emulation
from mxamp.policy.resolve import GivenPolicy
from mxamp.targets import GivenTarget
from mxamp.tuning.curve import Curve, explore
from mxamp.tuning.samples import Part, split
from mxamp.tuning.tuning import Measured, Point, Tuning

POINTS = 12
"""The most points of the curve that are converted and measured."""

_RUN = 8
"""Samples a forward pass, where errors are measured."""

Progress = Callable[[str, int, int], None]
"""Called with the stage, what is done of it, and all of it."""


def tune(
    model: AnyModel,
    data: GivenSamples,
    labels: Labels | None = None,
    *,
    target_dtype: GivenDType = "bfloat16",
    target: GivenTarget = None,
    policy: GivenPolicy = None,
    exclude: Sequence[str] = (),
    max_error: float | None = None,
    max_drop: float | None = None,
    min_speed: float | None = None,
    metric: GivenMetric | None = None,
    points: int = POINTS,
    batch_size: int = 1,
    max_samples: int | None = None,
    latency_seconds: float = 20.0,
    calibration: Calibration | None = None,
    compensate: str | Compensation | None = None,
    weights: float | None = None,
    prices: Prices | None = None,
    seed: int = 0,
    ctx: Device = None,
    progress: Progress | None = None,
) -> Tuning:
    """Find the conversion that is as fast as it may be, or the whole curve of speed and error.

    Parameters
    ----------
    model
        The FP32 model: :class:`mxamp.Model`, ``(sym, args, auxs)``, a Gluon block, or the prefix of a pair of
        files.
    data
        Samples, as for :func:`mxamp.calibrate`. One half of them, drawn at random, serves to choose and the
        other to report on.
    labels
        An array with a label for each sample, where the data do not hold them; ``max_drop`` needs them.
    target_dtype, target, policy, exclude
        As for :func:`mxamp.convert_model`.
    max_error
        Choose the fastest point whose relative L2 error is at most this.
    max_drop
        Choose the fastest point that loses at most so much of the metric: 0.005 is half a point.
    min_speed
        Choose the most exact point that is at least so many times as fast as FP32. One of the three, or none
        for the curve alone.
    metric
        As for :func:`mxamp.evaluate`; top-1 where ``labels`` or ``max_drop`` are given and this is not.
    points
        The most points of the curve that are converted and measured.
    batch_size
        Samples of the forward pass whose time counts.
    max_samples
        Use only so many samples, the first ones.
    latency_seconds
        About how long to time all points by turns, where this machine is what is converted for; 0 leaves it
        out, and the speeds are estimates.
    calibration, compensate
        As for :func:`mxamp.convert_model`, of every point. Best made of other samples than those here.
    weights
        The share of the weights' squared error that is left, for predictions: by default 1, and 0.05 with
        ``compensate="full"``.
    prices
        What :func:`mxamp.calibration.price_roundings` returned; by default it is called.
    seed
        Of what is drawn.
    ctx
        Where to run; the CPU by default.
    progress
        ``progress(stage, done, total)``.

    Returns
    -------
    Tuning
        The curve, what was chosen, and its model.

    Raises
    ------
    DataError
        When data, labels and model do not fit together, or more than one thing is asked for.
    TargetError
        When the target says nothing of costs.
    DeviceError, OperatorError, MxnetMissingError
        When a model cannot run.

    Notes
    -----
    A point is chosen by the bound of its 95 % interval on the samples to choose on that is the worse one, and
    confirmed by the same bound on the others. Where no point reaches it, the most exact one is returned, and
    a note says so.

    Examples
    --------
    >>> tuned = mxamp.tune("resnet50", "val.npz", max_error=2e-3)  # doctest: +SKIP
    >>> tuned.model.save("resnet50-tuned")  # doctest: +SKIP
    """
    goal = _goal(max_error, max_drop, min_speed)
    points, batch_size = counted(points, "points"), counted(batch_size, "The batch size")
    latency_seconds = checked_number(latency_seconds, "latency_seconds")
    compensation = as_compensation(compensate)
    weights = left_of_weights(compensation) if weights is None else checked_number(weights, "weights")
    seed = checked_seed(seed)
    if weights == math.inf:
        raise DataError("weights must be finite: the share of the weights' error that compensation leaves.")
    if prices is not None and not isinstance(prices, Prices):
        raise DataError(f"prices are what price_roundings returned, not {type(prices).__name__}.")
    if metric is not None:
        find_metric(metric)
    model = any_model(model)
    report = checked_progress(progress) or (lambda stage, done, total: None)
    choosing, reporting = split(
        model, data, labels, needs_labels=max_drop is not None, max_samples=max_samples, seed=seed
    )
    shapes = {name: (batch_size, *values.shape[1:]) for name, values in choosing.arrays.items()}
    if prices is None and isinstance(calibration, Calibration):
        prices = calibration.prices
    if prices is None:
        prices = price_roundings(
            model,
            dict(choosing.arrays),
            max_samples=32,
            seed=seed,
            ctx=ctx,
            progress=lambda done, total: report("pricing", done, total or done),
        )
    curve = explore(
        model,
        prices,
        shapes,
        target_dtype=target_dtype,
        target=target,
        policy=policy,
        exclude=exclude,
        weights=weights,
        calibration=calibration,
        compensate=compensation,
    )
    placed = curve.selected(max(2, points - 1))
    if curve.today.low not in {point.low for point in placed}:
        placed = sorted([*placed, curve.today], key=lambda point: point.time)
    models = [curve.convert(point) for point in placed]
    asks_for_accuracy = metric is not None or max_drop is not None or labels is not None
    is_measured = choosing.labels is not None and asks_for_accuracy
    metrics = find_metric("top-1" if metric is None else metric) if is_measured else None
    runner = _Runner(model, models, curve, ctx)
    measured = [
        runner.measure(part, metrics, seed, partial(report, stage))
        for part, stage in ((choosing, "measuring"), (reporting, "measuring on other samples"))
    ]
    timed, why_not = _times(model, models, curve, shapes, choosing, batch_size, latency_seconds, ctx)
    everything = frozenset().union(*(point.low for point in placed))
    found = []
    for number, point in enumerate(placed):
        ratio = None if timed is None else timed.ratio(number + 1)
        found.append(
            Point(
                float32=curve.names(everything - point.low),
                estimated_us=curve.microseconds(point),
                estimated_speed=curve.float32_us / max(curve.microseconds(point), 1e-9),
                predicted=curve.error(point),
                on_choosing=measured[0][number],
                on_reporting=measured[1][number],
                speed=None if ratio is None else ratio.median,
                speed_interval=None if ratio is None else (ratio.median_low, min(ratio.median_high, 1e9)),
                is_today=point.low == curve.today.low,
            )
        )
    notes = [*why_not, *_notes_on(prices, curve)]
    chosen, is_promised = _choose(found, max_error, max_drop, min_speed, notes)
    tuned = Tuning(
        points=tuple(found),
        chosen=chosen,
        goal=goal,
        is_promised=is_promised,
        corners=len(curve.corners),
        target=curve.options.target.name,
        how=runner.how,
        notes=tuple(notes),
    )
    recording = [own._with_report(partial(tuned.recorded, number)) for number, own in enumerate(models)]
    origin = model._history, curve.options.policy
    return replace(tuned, models=tuple([own._made_from(*origin) for own in recording]))


def _goal(max_error: float | None, max_drop: float | None, min_speed: float | None) -> str:
    given = {
        name: value
        for name, value in (("max_error", max_error), ("max_drop", max_drop), ("min_speed", min_speed))
        if value is not None
    }
    if len(given) > 1:
        raise DataError(f"Give one of {' and '.join(given)}: each chooses another point of the curve.")
    for name, value in given.items():
        if isinstance(value, bool) or not 0 < checked_number(value, name) < math.inf:
            raise DataError(f"{name} must be a number above 0, not {value!r:.80}.")
    if max_error is not None:
        return f"the fastest with an error of at most {max_error:g}"
    if max_drop is not None:
        return f"the fastest that loses at most {100 * max_drop:g} points"
    if min_speed is not None:
        return f"the most exact that is at least {min_speed:g} times as fast as float32"
    return ""


class _Runner:
    """Runs all points on the same samples."""

    def __init__(self, model: Model, models: Sequence[Model], curve: Curve, ctx: Any) -> None:
        from mxamp.runtime.executor import BoundModel

        self._reference = BoundModel(model, ctx=ctx, fusion=False, label="the FP32 model")
        self.how = "executed"
        try:
            self._bound = [BoundModel(own, ctx=ctx, label="a converted model") for own in models]
        except DeviceError:
            self.how = "emulated"
            emulated = [emulate_model(own, curve.options.target, Emulation()) for own in models]
            self._bound = [BoundModel(own, ctx=ctx, label="an emulated model") for own in emulated]
        self._size = _RUN

    def measure(
        self,
        part: Part,
        metric: Callable[[], Metric] | None,
        seed: int,
        report: Callable[[int, int], None],
    ) -> list[Measured]:
        """Return what each point does on some samples."""
        squares: list[NDArray[np.float64]] = []  # samples x points x outputs: of errors; then of values
        norms: list[NDArray[np.float64]] = []
        own = None if metric is None else metric()
        others = [] if metric is None else [metric() for _ in self._bound]
        done = 0
        while done < part.samples:
            numbers = np.arange(done, min(done + self._size, part.samples))
            batch = part.drawn(numbers)
            expected = self._reference.run(batch.arrays)
            if self._size > 1 and any(out.shape[:1] != (len(numbers),) for out in expected):
                self._size = 1  # outputs are not cut by samples
                continue
            floats = [i for i, out in enumerate(expected) if out.dtype.kind == "f"]
            if not floats:
                raise DataError(
                    "No output of the model is a floating-point one, so it has no relative error."
                )
            norms.append(np.stack([_square(expected[i], len(numbers)) for i in floats], axis=-1))
            of_batch = []
            if own is not None:
                own.add(expected, batch.labels)  # type: ignore[arg-type]
            for number, bound in enumerate(self._bound):
                outputs = bound.run(batch.arrays)
                of_batch.append(
                    np.stack([_square(outputs[i] - expected[i], len(numbers)) for i in floats], axis=-1)
                )
                if own is not None:
                    others[number].add(outputs, batch.labels)  # type: ignore[arg-type]
            squares.append(np.stack(of_batch, axis=1))
            done += len(numbers)
            report(done, part.samples)
        errors, values = np.concatenate(squares), np.concatenate(norms)

        def relative(drawn: NDArray[np.int64]) -> NDArray[np.float64]:
            shares = errors[drawn].sum(0) / np.maximum(values[drawn].sum(0), 1e-30)
            return np.asarray(np.sqrt(shares.mean(-1)))

        whole = relative(np.arange(len(errors)))
        if len(errors) > 1:
            intervals = bootstrap_intervals(relative, len(errors), seed=seed)
        else:
            intervals = [(0.0, math.inf)] * len(whole)
        return [
            Measured(
                part.samples,
                float(error),
                interval,
                None if own is None else compared(own, others[number], seed=seed),
            )
            for number, (error, interval) in enumerate(zip(whole, intervals))
        ]


def _square(values: NDArray[Any], samples: int) -> NDArray[np.float64]:
    rows = values.astype(np.float64).reshape(samples, -1)
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def _times(
    model: Model,
    models: Sequence[Model],
    curve: Curve,
    shapes: Mapping[str, tuple[int, ...]],
    part: Part,
    batch_size: int,
    seconds: float,
    ctx: Any,
) -> tuple[Race | None, list[str]]:
    """Return the times of all points by turns, or why they were not measured."""
    if seconds <= 0:
        return None, ["Speeds are estimates: measuring them was left out."]
    target = curve.options.target
    why = why_not_here(Guard(), model, target, shapes)
    if why is not None:
        return None, [f"Speeds are estimates for {target.name}: {why}."]
    numbers = np.arange(batch_size) % part.samples
    try:
        timed = race(
            [model, *models],
            dict(part.drawn(numbers).arrays),
            rounds=1000,
            seconds=seconds,
            at_least=6,
            ctx=ctx,
            labels=["the FP32 model", *(f"point {number + 1}" for number in range(len(models)))],
        )
    except MxampError as error:
        return None, [f"Speeds are estimates for {target.name}: {error}"]
    return timed, []


def _notes_on(prices: Prices, curve: Curve) -> list[str]:
    outputs = len(curve.source.graph.heads)
    names = [curve.source.graph.describe(head) for head in curve.source.graph.heads]
    if len(prices.heads) == outputs and all(head.node in name for head, name in zip(prices.heads, names)):
        return []
    return [
        "Outputs are ranked or compared, which has no gradient: predictions are of what enters that "
        f"({', '.join(map(str, prices.heads[:3]))}), and measured errors of the outputs."
    ]


def _choose(
    points: Sequence[Point],
    max_error: float | None,
    max_drop: float | None,
    min_speed: float | None,
    notes: list[str],
) -> tuple[int | None, bool | None]:
    """Return the point for a goal, and whether the other samples confirm it."""
    if max_error is None and max_drop is None and min_speed is None:
        return None, None
    order = sorted(range(len(points)), key=lambda number: -points[number].best_speed)
    exact = min(range(len(points)), key=lambda number: points[number].on_choosing.error)
    if min_speed is not None:
        fast = [number for number in order if points[number].best_speed >= min_speed]
        if not fast:
            notes.append(
                f"No point is {min_speed:g} times as fast as float32; this is the fastest, at "
                f"{points[order[0]].best_speed:.2f}."
            )
            return order[0], False
        return min(fast, key=lambda number: points[number].on_choosing.error), None

    def worst(measured: Measured) -> float:
        """Return the worse bound of what was asked about."""
        if max_error is not None:
            return measured.interval[1]
        assert measured.metric is not None  # max_drop needs labels
        assert measured.metric.difference_interval is not None  # there are two models
        return -measured.metric.difference_interval[0]

    limit = max_error if max_error is not None else max_drop
    assert limit is not None  # one of the three was given
    fit = [number for number in order if worst(points[number].on_choosing) <= limit]
    if not fit:
        notes.append(_too_few(points[exact].on_choosing, max_drop, max_error))
        return exact, False
    return fit[0], worst(points[fit[0]].on_reporting) <= limit


def _too_few(measured: Measured, max_drop: float | None, max_error: float | None) -> str:
    """Say why no point fits: too few samples, or a goal that low precision does not reach."""
    if max_drop is not None and measured.metric is not None:
        difference, interval = measured.metric.difference, measured.metric.difference_interval
        assert difference is not None  # there are two models
        assert interval is not None  # there are two models
        if -difference <= max_drop:
            width = difference - interval[0]
            needed = math.ceil(measured.samples * (width / max(max_drop + difference, 1e-6)) ** 2)
            return (
                f"{measured.samples} samples are too few to promise a drop of at most {100 * max_drop:g} "
                f"points: even of the most exact point they only say that it loses at most "
                f"{-100 * interval[0]:.2f}. About {needed} samples to choose on would do, "
                "twice as many in all."
            )
        return f"Even the most exact point loses {-100 * difference:.2f} points; it is what is returned."
    if max_error is not None and measured.error <= max_error:
        return (
            f"{measured.samples} samples are too few to promise an error of at most {max_error:g}: of the "
            f"most exact point they say that it is at most {measured.interval[1]:.2e}."
        )
    return (
        f"No point has an error of at most {max_error:g}: the most exact one has {measured.error:.2e}. What "
        "is left are roundings that the target or a rule keeps low, and those of inputs."
    )
