"""Compare what ONNX files return, with each other or with a model."""

from __future__ import annotations

from typing import Any, Union

import numpy as np

from mxamp.compare.fidelity import Fidelity
from mxamp.compare.inputs import Inputs, not_finite_inputs, prepare_inputs
from mxamp.compare.measure import Progress, compare_outputs, rounding_threshold
from mxamp.errors import DataError
from mxamp.graph.output_names import output_names
from mxamp.messages.warn import warn_user
from mxamp.model import Model
from mxamp.onnx import OnnxSession

ComparedModel = Union[Model, OnnxSession]
"""A model, which MXNet runs, or an ONNX file, which ONNX Runtime does."""


def compare_onnx(
    reference: ComparedModel,
    other: ComparedModel,
    data: Any,
    *,
    ctx: Any = None,
    max_samples: int | None = None,
    threshold: float | None = None,
    progress: Progress | None = None,
) -> Fidelity:
    """Measure how far the outputs of two models are apart, at least one of which is an ONNX file.

    Parameters
    ----------
    reference, other
        Models or ONNX files. A model is run by MXNet, the reference with fusion off; a file by ONNX Runtime,
        on its CPU provider. Two files need no MXNet.
    data
        Input name -> array, samples along the first axis; or one array for a model with one input.
    ctx
        Where MXNet runs a model.
    max_samples, threshold, progress
        As for :func:`mxamp.compare_models`.

    Returns
    -------
    Fidelity
        Of the outputs; layers are not compared.

    Raises
    ------
    DataError
        When data and models do not fit together.
    OperatorError
        When a runtime cannot run its model.
    """
    inputs = _inputs(reference, other, data, max_samples)
    size = _batch_size([side for side in (reference, other) if isinstance(side, OnnxSession)], inputs)
    names, theirs = _names(reference), _names(other)
    for warning in inputs.warnings:
        warn_user(warning)
    notes = [*inputs.warnings, *inputs.notes]
    if len(names) != len(theirs):
        raise DataError(
            f"The models have {len(names)} and {len(theirs)} outputs ({', '.join(names)}; "
            f"{', '.join(theirs)}), so they are not one model."
        )
    if names != theirs:
        notes.append(f"The outputs are called otherwise ({', '.join(theirs)}); they are compared in order.")
    left, right = _runner(reference, ctx, fusion=False), _runner(other, ctx, fusion=True)
    outputs, _ = compare_outputs(left, right, names, inputs, size, progress)
    return Fidelity(
        outputs=outputs,
        layers=None,
        unmatched=(),
        samples=inputs.samples,
        batch_size=min(size or 1, inputs.samples),
        layer_samples=0,
        ctx="cpu" if ctx is None else str(ctx),
        low_dtype=None,
        threshold=rounding_threshold(None) if threshold is None else threshold,
        fusion=True,
        notes=(*notes, "ONNX files are run by ONNX Runtime, on its CPU provider; layers are not compared."),
    )


def _names(side: ComparedModel) -> list[str]:
    return list(output_names(side.graph)) if isinstance(side, Model) else list(side.output_names)


def _runner(side: ComparedModel, ctx: Any, *, fusion: bool) -> Any:
    if isinstance(side, OnnxSession):
        return side
    from mxamp.runtime.executor import BoundModel

    return BoundModel(side, ctx=ctx, fusion=fusion)


def _inputs(reference: ComparedModel, other: ComparedModel, data: Any, max_samples: int | None) -> Inputs:
    """Return the data under the names of the inputs; a model says most about what does not fit."""
    for side in (reference, other):
        if isinstance(side, Model):
            return prepare_inputs(side, data, max_samples=max_samples)
    assert isinstance(reference, OnnxSession)
    names = list(reference.input_shapes)
    if isinstance(data, np.ndarray):
        if len(names) != 1:
            raise DataError(
                f"{reference.path} has the inputs {', '.join(names)}; give an array for each, by name."
            )
        data = {names[0]: data}
    missing = [name for name in names if name not in data]
    if missing:
        raise DataError(
            f"The data has no array for the input {missing[0]!r} of {reference.path}; it has: "
            f"{', '.join(data) or '(nothing)'}."
        )
    arrays = {name: np.asarray(data[name])[:max_samples] for name in names}
    counts = {len(values) for values in arrays.values()}
    return Inputs(arrays, min(counts), len(counts) == 1, warnings=not_finite_inputs(arrays))


def _batch_size(sessions: list[OnnxSession], inputs: Inputs) -> int | None:
    """Return how many samples the files take at a time; all of them where that is open."""
    fixed = {shape[0] for session in sessions for shape in session.input_shapes.values() if shape} - {0}
    if not inputs.batched or not fixed:
        return None
    if len(fixed) > 1 or inputs.samples % min(fixed):
        raise DataError(
            f"The ONNX files take {' and '.join(map(str, sorted(fixed)))} samples at a time, and the data "
            f"has {inputs.samples}. Export with --dynamic-batch, or give as many samples."
        )
    return fixed.pop()
