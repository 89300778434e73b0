"""Evaluate a model on labelled samples, alone or beside its conversion."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from mxamp.calibration.samples import Samples
from mxamp.calibration.subject import any_model
from mxamp.compare.checked import checked_number, checked_progress
from mxamp.compare.latency import time_models
from mxamp.errors import DataError
from mxamp.evaluation.evaluation import Evaluation, compared
from mxamp.evaluation.metrics import GivenMetric, Metric, find_metric
from mxamp.model import Model
from mxamp.model.accepted import AnyModel, Device, GivenSamples, Labels

_FEW = 100
"""Below so many samples an interval of a share is wider than five points whatever the model does."""

LATENCY_SECONDS = 10.0

Progress = Callable[[int, "int | None"], None]


def evaluate(
    model: AnyModel,
    converted: AnyModel | None = None,
    data: GivenSamples | None = None,
    labels: Labels | None = None,
    *,
    metrics: Sequence[GivenMetric] | GivenMetric | None = None,
    batch_size: int | None = None,
    max_samples: int | None = None,
    latency_seconds: float = LATENCY_SECONDS,
    ctx: Device = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Measure accuracy on labelled samples, and with two models whether they differ by more than chance.

    Parameters
    ----------
    model
        The FP32 model: :class:`mxamp.Model`, ``(sym, args, auxs)``, a Gluon block, or the prefix of a pair of
        files.
    converted
        Its conversion, or any other model of the same inputs and outputs; None to evaluate one model alone.
    data
        Samples: a mapping from input names to arrays, an array, an ``.npz`` file, a folder of them, a Gluon
        DataLoader, a DataIter, an iterable of batches, or a function that returns one.
    labels
        An array with a label for each sample; None where ``data`` holds them: an array ``label``, or batches
        of (data, label).
    metrics
        One or several of ``"top-1"``, ``"top-5"``, ``"miou"``, ``"voc-map"``, ``"coco-map"``,
        ``"module:function"``, or functions of (outputs, labels) that return one number for each sample. By
        default top-1, and top-5 where there are more than ten classes.
    batch_size
        Samples a forward pass, 8 by default; batches that come as batches are left as they are.
    max_samples
        Use only so many samples, the first ones.
    latency_seconds
        About how long to time both models by turns, on the first batch; 0 leaves it out.
    ctx
        Where to run; the CPU by default.
    progress
        ``progress(done, total)`` is called with the samples done, and their number or None.

    Returns
    -------
    Evaluation
        It prints as a few lines.

    Raises
    ------
    DataError
        When data, labels and model do not fit together, or there is no such metric.
    DeviceError, OperatorError, MxnetMissingError
        When a model cannot run.

    Examples
    --------
    >>> print(mxamp.evaluate(fp32, bf16, {"data": images}, labels))  # doctest: +SKIP
    """
    first = any_model(model)
    second = None if converted is None else any_model(converted)
    latency_seconds, progress = checked_number(latency_seconds, "latency_seconds"), checked_progress(progress)
    if isinstance(metrics, str) or callable(metrics):
        metrics = [metrics]
    elif metrics is not None and not isinstance(metrics, (list, tuple)):
        raise DataError(f"metrics are names or functions in a list, not {type(metrics).__name__}.")
    made = None if metrics is None else [find_metric(metric) for metric in metrics]
    samples = Samples(
        first, data, labels=labels, needs_labels=True, batch_size=batch_size, max_samples=max_samples
    )
    models = [first] if second is None else [first, second]
    runs, done, batch = _run(models, samples, made, ctx, progress)
    latency = None
    if second is not None and latency_seconds > 0 and batch is not None:
        latency = time_models(
            first, second, batch.arrays, ctx=ctx or "cpu", seconds=latency_seconds, batch_size=batch.samples
        )
    notes = list(samples.notes)
    if done < _FEW:
        notes.append(
            f"{done} samples tell little: the interval says how little. Some hundreds make it narrow enough "
            "for a decision."
        )
    others: Sequence[Metric | None] = [None] * len(runs[0]) if second is None else runs[1]
    found = tuple(compared(own, other) for own, other in zip(runs[0], others))
    return Evaluation(found, done, latency, tuple(notes))


def _run(
    models: Sequence[Model],
    samples: Samples,
    made: Sequence[Callable[[], Metric]] | None,
    ctx: Any,
    progress: Progress | None,
) -> tuple[list[list[Metric]], int, Any]:
    """Return the metrics of each model, how many samples they are of, and the first batch."""
    from mxamp.runtime.executor import BoundModel

    names = ("the FP32 model", "the converted model") if len(models) > 1 else ("the model",)
    bound = [BoundModel(model, ctx=ctx, label=name) for model, name in zip(models, names)]
    runs: list[list[Metric]] = []
    done, first = 0, None
    for batch in samples.batches():
        outputs = [model.run(batch.arrays) for model in bound]
        if len({len(own) for own in outputs}) > 1:
            raise DataError(
                f"The models have {len(outputs[0])} and {len(outputs[1])} outputs. Evaluate a model and its "
                "own conversion."
            )
        if first is None:
            first = batch
            wanted = made or [find_metric(name) for name in _by_default(outputs[0])]
            runs = [[metric() for metric in wanted] for _ in models]
        assert batch.labels is not None  # the samples need them
        if batch.labels.dtype.kind not in "biuf":
            raise DataError(f"The labels are of dtype {batch.labels.dtype}, and must be numbers.")
        for own, of_model in zip(outputs, runs):
            for metric in of_model:
                metric.add(own, batch.labels)
        done += batch.samples
        if progress is not None:
            progress(done, samples.total)
    return runs, done, first


def _by_default(outputs: Sequence[Any]) -> list[str]:
    """Return the metrics of a model that returns such outputs.

    Raises
    ------
    DataError
        When it is no classifier.
    """
    if outputs[0].ndim == 2 and len(outputs) == 1:
        return ["top-1", "top-5"] if outputs[0].shape[1] > 10 else ["top-1"]
    shapes = ", ".join(str(output.shape) for output in outputs)
    raise DataError(
        f"The model returns outputs of shapes {shapes}, which are no classifier's: say what is right with "
        "--metric: top-1, top-5, miou, voc-map, coco-map, or module:function."
    )
