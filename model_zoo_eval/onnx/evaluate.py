"""Export one model, run it in ONNX Runtime and in MXNet, and say how far apart all outputs are.

Weights are random and inputs standard normal: what is compared is arithmetic, not accuracy. What MXNet leaves
undefined on CPUs is defined first (`mxamp.export.defined_reference`).
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from model_zoo_eval.build import build_model
from model_zoo_eval.heads import first_rankings
from model_zoo_eval.job import FP32
from model_zoo_eval.onnx.job import AMPLIFIES, LIMIT, ONNX, PASSES, RANKS, OnnxJob
from model_zoo_eval.onnx.stages import staged_errors
from mxamp.dtypes import DType
from mxamp.export import defined_reference, relative_error
from mxamp.model import Model
from mxamp.onnx import OnnxSession
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.runtime.executor import run_outputs

__all__ = ["evaluate_onnx"]

_AMPLIFIED = 10
"""How much larger an error may be than what MXNet's own output moves by for other last bits."""

_RAW = 128.0
"""What inputs of a model that reads pixels up to 255 are multiplied by: their weights are divided by it."""

Publish = Callable[[Mapping[str, Any]], None]


def evaluate_onnx(job: OnnxJob, publish: Publish = lambda row: None) -> dict[str, Any]:
    """Export a model and compare ONNX Runtime with MXNet, fusion off.

    Parameters
    ----------
    job
        The case.
    publish
        Told what is known after every stage.

    Returns
    -------
    dict
        The row. Its result passes where every output is within `LIMIT`. Where one is not, MXNet's own outputs
        for inputs, or parameters, changed in their last bits are looked at: a network that amplifies those as
        much, within a factor of 10, is said to amplify. One that ranks is compared piece by piece, where near
        ties decide nothing; all else is an error.
    """
    row: dict[str, Any] = {"kind": ONNX, "stage": "build"}
    publish(row)
    built = build_model(job.case, pretrained=False, seed=job.seed)
    shapes = {name: (1, *shape) for name, shape in built.shapes.items()}
    row.update(
        stage="export",
        task=built.entry.task,
        weights=built.weights,
        weights_from=built.origin,
        inputs={name: list(shape) for name, shape in shapes.items()},
        samples=1,
    )
    publish(row)
    generator = np.random.default_rng(job.seed)
    scale = np.float32(_RAW if built.entry.pixels == "raw" else 1)
    data = {name: scale * generator.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        export = built.model.export_onnx(Path(folder, "model.onnx"), input_shapes=shapes)
        result: dict[str, Any] = {
            "export_seconds": round(time.perf_counter() - began, 2),
            "nodes": export.nodes,
            "opset": export.opset,
            "bytes": export.bytes,
            "outputs": list(export.outputs),
        }
        row.update(stage="ONNX Runtime")
        publish(row)
        found = OnnxSession(export.path, threads=1).run(data)
    row.update(stage="MXNet")
    publish(row)
    reference = defined_reference(built.model)
    expected = run_outputs(reference, data, fusion=False)
    result["errors"] = _errors(found, expected)
    result["verdict"] = PASSES
    if max(result["errors"]) > LIMIT:
        result["amplified"] = own_movement(reference, data, expected)
        error = _more_than_its_own(result, found, expected)
        result["verdict"] = AMPLIFIES
        if error is not None and first_rankings(reference.graph):
            row.update(stage="stages")
            publish(row)
            result["stages"] = staged_errors(reference, data)
            if max(result["stages"].values()) <= LIMIT:
                result["verdict"], error = RANKS, None
        if error is not None:
            result["error"] = error
    row.update(results={FP32: result}, stage="done")
    return row


def _more_than_its_own(
    result: Mapping[str, Any], found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]
) -> str | None:
    """Return which output differs by more than the network itself amplifies."""
    names, errors = result["outputs"], result["errors"]
    for name, ours, theirs, error, own in zip(names, found, expected, errors, result["amplified"]):
        if ours.shape != theirs.shape:
            return f"the output {name!r} has the shape {ours.shape}, and MXNet's {theirs.shape}"
        if not error <= max(LIMIT, _AMPLIFIED * own):
            return (
                f"the output {name!r} is off by {error:.1e}; MXNet's own moves by {own:.1e} when the last "
                "bits of inputs or parameters change"
            )
    return None


def own_movement(
    model: Model, data: Mapping[str, NDArray[np.float32]], expected: Sequence[NDArray[Any]]
) -> list[float]:
    """Return how far MXNet's own outputs move where the last bits of inputs, or of parameters, change."""
    moved = {name: values * _last_bits(values.shape) for name, values in data.items()}
    of_inputs = _errors(run_outputs(model, moved, fusion=False), expected)
    of_parameters = _errors(run_outputs(other_last_bits(model), data, fusion=False), expected)
    return [max(errors) for errors in zip(of_inputs, of_parameters)]


def other_last_bits(model: Model) -> Model:
    """Return a model whose float32 parameters differ in the last bits."""

    def changed(params: Mapping[str, Parameter]) -> dict[str, Parameter]:
        found = dict(params)
        for seed, (name, parameter) in enumerate(params.items()):
            if parameter.dtype is DType.FLOAT32:
                found[name] = ArrayParameter(parameter.numpy() * _last_bits(parameter.shape, seed))
        return found

    return Model(model.graph, changed(model.arg_params), changed(model.aux_params))


def _last_bits(shape: Sequence[int], seed: int = 1) -> NDArray[np.float32]:
    """Return factors that change float32 values by about a unit in the last place, up or down."""
    signs = np.random.default_rng(seed).choice([-1, 1], shape)
    return (1 + signs * 2.0**-23).astype(np.float32)


def _errors(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> list[float]:
    """Return the error of each output; 1e9, which JSON can say, where it has another shape."""
    return [
        1e9 if ours.shape != theirs.shape else float(f"{relative_error(ours, theirs):.2e}")
        for ours, theirs in zip(found, expected)
    ]
