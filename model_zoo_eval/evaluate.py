"""Evaluate one model in this process: FP32 against BF16 executed, FP16 emulated, FP16 on a GPU.

What was measured is published after every stage, so that a process which dies halfway leaves what it had.
"""

from __future__ import annotations

import math
import os
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from numpy.typing import NDArray

from model_zoo_eval.build import BuiltModel, build_model
from model_zoo_eval.fidelity import HeadMeter, TaskMeter, rounded
from model_zoo_eval.heads import entries_before, first_rankings
from model_zoo_eval.job import FP32, ON_GPU, Job
from model_zoo_eval.photographs import photographs
from model_zoo_eval.registry import Entry
from mxamp.compare.race import race
from mxamp.convert import convert_model
from mxamp.errors import DataError, OperatorError
from mxamp.export import defined_reference
from mxamp.graph.output_names import output_names
from mxamp.model import Model
from mxamp.runtime.device import gpu_count
from mxamp.runtime.executor import BoundModel, is_fusion_on
from mxamp.runtime.mxnet import import_mxnet

__all__ = ["evaluate"]

Array = NDArray[Any]
Publish = Callable[[Mapping[str, Any]], None]

_LATENCY_SECONDS = 20.0
"""About how long to time one conversion."""

_FEWEST_ROUNDS = 3

_HOW = {"executed": "executed", "emulated": "emulated", "gpu": "executed on a GPU"}


def evaluate(job: Job, publish: Publish = lambda _: None) -> dict[str, Any]:
    """Evaluate a model.

    Parameters
    ----------
    job
        What to evaluate.
    publish
        Called with what is known so far, as the work proceeds; ``stage`` says what comes next.

    Returns
    -------
    dict
        Plain data for JSON. ``results`` maps ``float32`` and every dtype to its measures; a conversion that
        failed has its ``error`` there, and the others are measured all the same. ``skipped`` says why what
        this machine cannot run was not.

    Raises
    ------
    MxampError
        When the model cannot be built, or does not run in FP32.
    """
    row: dict[str, Any] = {"stage": "build"}
    publish(row)
    built = build_model(
        job.case,
        size=job.size,
        params=Path(job.params) if job.params else None,
        pretrained=job.pretrained,
        seed=job.seed,
    )
    samples = job.samples or _suitable_samples(built.entry)
    inputs = photographs(built.entry, built.shapes, samples)
    row.update(
        weights=built.weights,
        weights_from=built.origin,
        inputs={name: [1, *shape] for name, shape in built.shapes.items()},
        samples=samples,
        notes=notes_of(built),
        nodes=sum(not node.is_variable for node in built.model.graph.nodes),
        parameter_bytes=built.model.parameter_bytes,
        skipped={},
        stage="float32",
        results={},
    )
    publish(row)
    built, reference = repeatable_reference(built, inputs, row["notes"])
    row["results"][FP32] = as_deployed(lambda: reference.compare(built.model), row["notes"])
    for dtype in job.dtypes:
        for key, way in _ways(dtype):
            obstacle = _gpu_obstacle() if way == "gpu" else ""
            if obstacle:
                row["skipped"][key] = obstacle
                continue
            row["stage"] = key
            publish(row)
            try:
                row["results"][key] = _convert_and_compare(built, reference, dtype, way, job.rounds)
            except Exception as error:
                # Whatever it is, it is this conversion's result, and the next is measured all the same.
                traceback.print_exc()
                said = " ".join(str(error).split())
                row["results"][key] = {"how": _HOW[way], "error": f"{type(error).__name__}: {said[:600]}"}
    row["stage"] = "done"
    publish(row)
    return row


def _ways(dtype: str) -> Sequence[tuple[str, str]]:
    """Return what results call each way to run a dtype, and the way: FP16 runs on GPUs alone."""
    if dtype == "bfloat16":
        return [(dtype, "executed")]
    return [(dtype, "emulated"), (ON_GPU, "gpu")]


def _gpu_obstacle() -> str:
    """Return why nothing can be run on a GPU here; empty where it can."""
    if gpu_count():
        return ""
    mx = import_mxnet()
    if not mx.runtime.Features().is_enabled("CUDA"):
        return f"this build of MXNet {mx.__version__} has no CUDA"
    return f"MXNet {mx.__version__} sees no GPU"


def _suitable_samples(entry: Entry) -> int:
    if entry.has_frames or entry.batch == 1:
        return 1
    return 8 if entry.task == "classification" else 2


def notes_of(built: BuiltModel) -> list[str]:
    notes = [built.entry.note] if built.entry.note else []
    usual = {name: tuple(shape) for name, shape in built.entry.inputs.items()}
    if dict(built.shapes) != usual:
        said = ", ".join("x".join(map(str, shape)) for shape in usual.values())
        sizes = [sum(math.prod(shape) for shape in shapes.values()) for shapes in (usual, built.shapes)]
        how = "smaller" if sizes[1] < sizes[0] else "larger" if sizes[1] > sizes[0] else "other"
        notes.append(f"{how} input than the model's own, {said}")
    return notes


def as_deployed(compare: Callable[[], dict[str, Any]], notes: list[str]) -> dict[str, Any]:
    """Return what the FP32 model differs from itself, fused; where MXNet cannot run it so, not fused.

    Then nothing is fused from here on: the process evaluates this model alone.
    """
    try:
        return {"how": "executed, fused as deployed", **compare()}
    except OperatorError as error:
        if not is_fusion_on():
            raise
        os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
        found = {"how": "executed, fusion off", **compare()}
        notes.append(f"MXNet's fusion fails on the FP32 model, so everything ran without it. {error}")
        return found


def repeatable_reference(
    built: BuiltModel, inputs: Mapping[str, Array], notes: list[str]
) -> tuple[BuiltModel, Reference]:
    """Run the FP32 model; where its results hang on what memory held before, what is defined in its place.

    Parameters
    ----------
    built
        The model.
    inputs
        Input name -> samples.
    notes
        Is told where the model is another one now.

    Returns
    -------
    BuiltModel, Reference
        What is to be converted, and its outputs in FP32.

    Raises
    ------
    OperatorError
        When MXNet cannot run it, or not twice.
    """
    try:
        return built, Reference(built, inputs)
    except OperatorError:
        model = defined_reference(built.model)
        if model is built.model:
            raise
        notes.append(
            "regions of no image pool zeros, as on GPUs: on CPUs MXNet leaves them undefined, and the FP32 "
            "model gave other outputs for the same data"
        )
        defined = replace(built, model=model)
        return defined, Reference(defined, inputs)


class Reference:
    """The FP32 model's outputs on every sample, fusion off, for others to be compared with."""

    def __init__(self, built: BuiltModel, inputs: Mapping[str, Array]) -> None:
        self._entry = built.entry
        self._names = output_names(built.model.graph)
        self._samples = [
            {name: values[number : number + 1] for name, values in inputs.items()}
            for number in range(len(next(iter(inputs.values()))))
        ]
        self._rankings = first_rankings(built.model.graph)
        self._outputs = self._run(built.model, fusion=False)
        self._before = self._run_before(built.model, fusion=False)
        height, width = next(iter(built.shapes.values()))[-2:]
        self._size = (height, width)

    @property
    def first_sample(self) -> Mapping[str, Array]:
        return self._samples[0]

    def compare(self, model: Model, ctx: Any = None) -> dict[str, Any]:
        """Run a model, fused as deployed, and return its fidelity."""
        task = TaskMeter(self._entry.task, self._size)
        meters = [HeadMeter(name) for name in self._labels()]
        for expected, got in zip(self._outputs, self._run(model, ctx=ctx)):
            for name, left, right in zip(self._names, expected, got):
                if left.shape != right.shape:
                    raise DataError(
                        f"The output {name!r} has the shape {right.shape} after conversion and {left.shape} "
                        "before."
                    )
            for meter, left, right in zip(meters, expected, got):
                meter.add(left, right)
            task.add(expected, got)
        found: dict[str, Any] = {"heads": [meter.result() for meter in meters]}
        if self._rankings:
            before = [HeadMeter(name) for name in self._rankings]
            for expected, got in zip(self._before, self._run_before(model, ctx=ctx)):
                for meter, left, right in zip(before, expected, got):
                    meter.add_candidates(left, right)
            found["before_ranking"] = [meter.result() for meter in before]
        measures = task.result()
        if measures:
            found["task"] = measures
        return found

    def _labels(self) -> Sequence[str]:
        fits = len(self._entry.outputs) == len(self._names)
        return self._entry.outputs if fits else self._names

    def _run(self, model: Model, *, ctx: Any = None, fusion: bool = True) -> list[list[Array]]:
        bound = BoundModel(model, ctx=ctx, fusion=fusion, label=self._entry.name)
        return [bound.run(sample) for sample in self._samples]

    def _run_before(self, model: Model, *, ctx: Any = None, fusion: bool = True) -> list[list[Array]]:
        if not self._rankings:
            return []
        entries = entries_before(model.graph, self._rankings)
        bound = BoundModel(model, ctx=ctx, fusion=fusion, entries=entries, label=self._entry.name)
        return [bound.run(sample) for sample in self._samples]


def _convert_and_compare(
    built: BuiltModel, reference: Reference, dtype: str, way: str, rounds: int
) -> dict[str, Any]:
    model = built.model
    shapes = {name: (1, *shape) for name, shape in built.shapes.items()}
    start = time.perf_counter()
    converted = convert_model(
        model.graph,
        model.arg_params,
        model.aux_params,
        dtype,
        input_shapes=shapes,
        emulate=way == "emulated",
    )
    _ = converted.args, converted.auxs  # parameters are cast when they are first asked for
    seconds = time.perf_counter() - start
    ctx = "gpu(0)" if way == "gpu" else None
    report = converted.report
    assert report is not None  # convert_model returns one
    found = {
        "how": _HOW[way],
        "casts": len(report.casts),
        "low_nodes": report.low_nodes,
        "low_multiply_adds": rounded(report.low_multiply_add_share),
        "parameter_bytes": report.parameter_bytes_after,
        "conversion_seconds": rounded(seconds, 3),
        **reference.compare(converted, ctx),
    }
    if way != "emulated" and rounds:
        found["latency"] = _latency(model, converted, reference.first_sample, ctx, rounds)
    return found


def _latency(
    model: Model, converted: Model, sample: Mapping[str, Array], ctx: Any, rounds: int
) -> dict[str, Any]:
    """Time both models alternately, more rounds for a model that takes less."""
    first = race([model, converted], sample, ctx=ctx, rounds=1, warmup=1)
    pair = sum(first.median_ms) / 1e3
    count = int(min(rounds, max(_FEWEST_ROUNDS, _LATENCY_SECONDS / max(pair, 1e-6))))
    timed = race([model, converted], sample, ctx=ctx, rounds=count, warmup=1, is_clear=None)
    ratio = timed.ratio(1)
    return {
        "fp32_ms": rounded(timed.median_ms[0], 4),
        "converted_ms": rounded(timed.median_ms[1], 4),
        "ratio": rounded(ratio.median, 4),
        "ratio_low": rounded(ratio.low, 4),
        "ratio_high": rounded(ratio.high, 4),
        "rounds": ratio.rounds,
    }
