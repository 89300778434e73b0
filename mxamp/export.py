"""The front door of the ONNX exporter: any kind of model to a file, and the file held against the model."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.compare.inputs import with_labels
from mxamp.conversion.emulation import emulate_model
from mxamp.dtypes import DType
from mxamp.errors import DataError, ExportError, TargetError
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.messages.installation import why_no_mxnet
from mxamp.model import Model, PathLike
from mxamp.model.accepted import AnyModel, BlockShapes
from mxamp.onnx import OnnxExport, OnnxSession
from mxamp.openvino.export import OpenvinoExport
from mxamp.ops.rounding import is_rounding
from mxamp.passes import Emulation
from mxamp.passes.edit import GraphEdit
from mxamp.passes.regions_of_no_image import zero_regions_of_no_image
from mxamp.targets import MXNET, RUNTIMES, Target


def export_onnx(
    model: AnyModel,
    path: PathLike,
    *,
    input_shapes: BlockShapes | None = None,
    opset: int | None = None,
    dynamic_batch: bool = False,
    explicit_casts: bool = False,
) -> OnnxExport:
    """Write a model as an ONNX file: FP32 as it is, a converted one with its casts.

    Parameters
    ----------
    model
        A :class:`mxamp.Model`, the triple ``(sym, args, auxs)``, or a Gluon block (also one that
        :func:`mxamp.convert_block` returned). Not changed. Models need no MXNet.
    path
        The file, replaced where it exists. Parameters beyond 2 GB go into ``path + ".data"``.
    input_shapes
        The shapes of the inputs. By name, such as ``{"data": (1, 3, 224, 224)}``; for a block as
        :func:`mxamp.convert_block` takes them. Inputs whose variable states its shape may be left out.
    opset
        The version of ONNX's operators, 13 to 22. By default 17, or the first that the model can be written
        with; the result says which, and why.
    dynamic_batch
        Whether the batch is left open: the first axis of every input, or the second of what a recurrent
        operator reads. Not every model can be written so: one whose shapes follow from the batch in ways that
        ONNX cannot say is an error that names the node.
    explicit_casts
        Whether to write the float32 model whose every rounding is a Cast to the low dtype and back. A CPU
        runs it with the roundings that the low precision model has on a GPU; ONNX Runtime's own FP16 on CPUs
        drops most of them. For measuring, not for deploying.

    Returns
    -------
    OnnxExport
        The files, the opset, how many nodes.

    Raises
    ------
    ExportError
        When an operator has no mapping (the message names the nodes), the opset is too old for the model,
        the graph does not pass ONNX's checker, or the file cannot be written. Nothing half-written is left
        behind.
    DataError, UnknownNameError
        When the shape of an input is missing or does not fit, or one is given for what is no input.
    TracingError
        When a block cannot be turned into a graph.
    OnnxMissingError
        When onnx is not installed: ``pip install '.[onnx]'`` in a checkout.

    Examples
    --------
    >>> mxamp.export_onnx((sym, args, auxs), "net.onnx", input_shapes={"data": (1, 3, 224, 224)})
    ... # doctest: +SKIP
    """
    given, shapes = _as_model(model, input_shapes)
    if not isinstance(explicit_casts, (bool, np.bool_)):
        raise ExportError(f"explicit_casts must be True or False, not {explicit_casts!r:.80}.")
    if explicit_casts:
        given = explicit_casts_of(given)
    return given.export_onnx(path, input_shapes=shapes, opset=opset, dynamic_batch=dynamic_batch)


def export_openvino(
    model: AnyModel,
    path: PathLike,
    *,
    input_shapes: BlockShapes | None = None,
    dynamic_batch: bool = False,
) -> OpenvinoExport:
    """Write a model as OpenVINO's ``.xml`` and ``.bin``, with the decisions that were made for it.

    The file is float32 without casts. What was decided to compute in float32 is marked; under the hint that
    the result names OpenVINO computes all else in the low dtype (:mod:`mxamp.openvino.plain` says why).

    Parameters
    ----------
    model, input_shapes, dynamic_batch
        As for :func:`export_onnx`. Convert for the target ``openvino-bf16``.
    path
        The ``.xml``; the parameters go into the ``.bin`` beside it. Both are replaced where they exist.

    Returns
    -------
    OpenvinoExport
        The files, the hint, what stays float32.

    Raises
    ------
    ExportError, DataError, UnknownNameError, TracingError, OnnxMissingError
        As for :func:`export_onnx`.
    OpenvinoMissingError
        When OpenVINO is not installed: ``pip install '.[openvino]'`` in a checkout.

    Examples
    --------
    >>> model = mxamp.convert_model(sym, args, auxs, target="openvino-bf16")  # doctest: +SKIP
    >>> mxamp.export_openvino(model, "net.xml", input_shapes={"data": (1, 3, 224, 224)})  # doctest: +SKIP
    """
    given, shapes = _as_model(model, input_shapes)
    return given.export_openvino(path, input_shapes=shapes, dynamic_batch=dynamic_batch)


@dataclass(frozen=True)
class RuntimeFit:
    """Whether what was decided of a model was decided for the runtime that is to read its file.

    Attributes
    ----------
    target
        The target whose runtime that is; None where nothing was said of it.
    decided_for
        The target that the model was converted for; None for a float32 model, or where that is not known.
    warning
        What the user should know; None where all is as it should be.
    """

    target: str | None
    decided_for: str | None
    warning: str | None


def runtime_fit(model: Model, target: Target | None) -> RuntimeFit:
    """Return whether a model was decided for the runtime that is to read its file.

    Parameters
    ----------
    model
        The model.
    target
        A target of that runtime; None where the user did not say.

    Raises
    ------
    TargetError
        When the target is one of MXNet's, or the model computes in another dtype than the target.
    """
    low = low_dtypes(model)
    if target is not None:
        if target.runtime == MXNET:
            raise TargetError(
                f"{target.name} is a target of MXNet's, which reads no such files. Those of other runtimes "
                f"are: {', '.join(_names_of_other_runtimes())}."
            )
        others = sorted(str(dtype) for dtype in low - {target.dtype})
        if others:
            raise TargetError(
                f"The model computes in {' and '.join(others)}, and {target.name} is "
                f"{target.backend.label} in {target.dtype}. Convert the float32 model for it: "
                f"--dtype {target.dtype} --target {target.name} (target={target.name!r})."
            )
    name = model.decided_for if low else None
    wanted = None if target is None else target.name
    if not low:
        return RuntimeFit(wanted, None, None)
    if name is None:
        unknown = (
            f"for which target it was decided what is {min(map(str, low))} is not known; that it was "
            f"{wanted} is taken on trust."
        )
        return RuntimeFit(wanted, None, None if target is None else unknown)
    decided = Target.builtin(name).runtime if name in Target.builtin_names() else MXNET
    if (decided == MXNET) if target is None else (decided != target.runtime):
        where = "the runtime that reads the file" if target is None else target.backend.label
        best = "a target of that runtime" if target is None else f"--target {target.name}"
        return RuntimeFit(
            wanted,
            name,
            f"what is low precision was decided for {name}, a target of {RUNTIMES[decided]}'s; {where} may "
            f"have other kernels, and cast where it has none. Convert with {best}.",
        )
    return RuntimeFit(wanted, name, None)


def _names_of_other_runtimes() -> list[str]:
    return [name for name in Target.builtin_names() if Target.builtin(name).runtime != MXNET]


def _as_model(given: Any, input_shapes: Any) -> tuple[Model, Mapping[str, Sequence[int]] | None]:
    """Return any kind of model as one, and its inputs' shapes by name."""
    if isinstance(given, Model):
        return given, input_shapes
    if isinstance(given, (tuple, list)) and len(given) == 3:
        return Model.of(*given), input_shapes
    if isinstance(getattr(given, "model", None), Model):  # what convert_block returned
        return given.model, _shapes_by_name(given.input_names, input_shapes)
    if hasattr(given, "collect_params"):
        from mxamp.runtime.trace import check_block, trace_block

        check_block(given)
        traced = trace_block(given, input_shapes=input_shapes)
        return Model.of(traced.graph, traced.args, traced.auxs), traced.input_shapes
    raise ExportError(
        "export_onnx takes an mxamp.Model, a triple (sym, args, auxs) or a Gluon block, not "
        f"{type(given).__name__}. A symbol alone has no parameters to write; files are read with mxamp.load."
    )


def _shapes_by_name(names: Sequence[str], given: Any) -> Any:
    """Return the shapes of a block's inputs by name, where they are given in order, or as the only one."""
    if given is None or isinstance(given, Mapping):
        return given
    shapes = [given] if all(isinstance(size, (int, np.integer)) for size in given) else list(given)
    if len(shapes) != len(names):
        raise DataError(
            f"input_shapes has {len(shapes)} shapes, and the block {len(names)} inputs: {', '.join(names)}."
        )
    return dict(zip(names, shapes))


def explicit_casts_of(model: Model) -> Model:
    """Return the float32 model that rounds where a converted model does.

    Raises
    ------
    ExportError
        When the model is float32 throughout.
    """
    low = low_dtypes(model)
    if not low:
        raise ExportError(
            "explicit_casts writes the roundings of low precision, and this model is float32 throughout. "
            "Convert it first, or leave explicit_casts out."
        )
    if len(low) > 1:
        raise ExportError(
            f"This model computes in {' and '.join(sorted(map(str, low)))}; emulation knows one."
        )
    history = model._history
    emulated = emulate_model(model, Target.for_dtype(low.pop()), Emulation())
    object.__setattr__(emulated, "_history", history)
    return emulated


def low_dtypes(model: Model) -> set[DType]:
    """Return the low dtypes that a model computes in, whatever its parameters are stored in."""
    stored = {name: value.dtype for name, value in {**model.arg_params, **model.aux_params}.items()}
    dtypes = infer_dtypes(model.graph, variable_dtypes(model.graph, stored))
    return {dtype for entries in dtypes for dtype in entries if dtype is not None and dtype.is_low_precision}


def _is_low(model: Model) -> bool:
    """Whether a model computes in one low dtype; of several, emulation knows none."""
    return len(low_dtypes(model)) == 1


def defined_reference(model: Model) -> Model:
    """Return a model whose results do not hang on what memory held before: see `zero_regions_of_no_image`."""
    graph = zero_regions_of_no_image(model.graph)
    return model if graph is model.graph else Model(graph, model.arg_params, model.aux_params)


@dataclass(frozen=True)
class OutputDifference:
    """How far an output of the file is from the model's.

    Attributes
    ----------
    name
        The output.
    error
        Relative L2: the norm of the difference over that of the reference.
    """

    name: str
    error: float


def verify_onnx(
    path: str | os.PathLike[str], model: Model, data: Mapping[str, NDArray[Any]]
) -> tuple[OutputDifference, ...]:
    """Run a file in ONNX Runtime, on its CPU provider, and compare all outputs with MXNet's, fusion off.

    A model in float16, which MXNet does not run on CPUs, is emulated there, and so it is where ONNX Runtime
    drops the roundings that the difference shows. Where there is no MXNet, `verification_reference` says what
    takes its place.

    Parameters
    ----------
    path
        The file.
    model
        What it was exported from.
    data
        Input name -> values.

    Raises
    ------
    OnnxMissingError
        When ONNX Runtime is not installed.
    DataError, OperatorError
        When either cannot run the data.
    """
    expected = _in_mxnet(model, data) if why_no_mxnet() is None else _in_float32(model, data)
    session = OnnxSession(path)
    found = session.run(data)
    differences = []
    for name, ours, theirs in zip(session.output_names, found, expected):
        if ours.shape != theirs.shape:
            raise DataError(
                f"The output {name!r} of {os.fspath(path)} has the shape {ours.shape}, and the model's "
                f"{theirs.shape}."
            )
        differences.append(OutputDifference(name, relative_error(ours, theirs)))
    return tuple(differences)


def verification_reference(model: Model) -> str:
    """Return what `verify_onnx` holds a file against, in words."""
    if why_no_mxnet() is None:
        return "MXNet"
    if _is_low(model):
        return "the same parameters in float32, without MXNet, which is not here"
    return "itself without ONNX Runtime's optimizations, for want of MXNet"


def _in_mxnet(model: Model, data: Mapping[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
    from mxamp.runtime.executor import run_outputs

    reference = explicit_casts_of(model) if _is_low(model) else model
    arrays = with_labels(reference, data, ()).arrays
    return run_outputs(defined_reference(reference), arrays, fusion=False)


def _in_float32(model: Model, data: Mapping[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
    """Return what the float32 export of a model computes, node by node as it is written."""
    wide = _without_roundings(explicit_casts_of(model)) if _is_low(model) else model
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "reference.onnx")
        wide.export_onnx(path, input_shapes={name: values.shape for name, values in data.items()})
        return OnnxSession(path, optimized=False).run(data)


def _without_roundings(model: Model) -> Model:
    """Return an emulated model that rounds nothing but its parameters."""
    edit = GraphEdit(model.graph, {})
    for position, node in enumerate(model.graph.nodes):
        if is_rounding(node.op):
            edit.drop(position, *node.inputs)
    return Model(edit.finish().graph, model.arg_params, model.aux_params)


def relative_error(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the norm of the difference over that of the reference; equal infinities and NaNs differ by 0."""
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    difference = np.where(same, 0.0, found - expected)
    size = float(np.linalg.norm(np.where(np.isfinite(expected), expected, 0.0)))
    distance = float(np.linalg.norm(difference))
    return distance / size if size else distance
