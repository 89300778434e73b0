"""Who races: every model in every runtime that it can be brought to."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.errors import MxampError
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.measuring.machine import AMX_SETTING, has_bfloat16_instructions, leaves_amx_unused
from mxamp.model import Model
from mxamp.openvino.session import BFLOAT16, FLOAT32
from mxamp.racing.competitor import MXNET, ONNX_RUNTIME, OPENVINO

FP32 = "float32"

_NO_BFLOAT16 = "ONNX Runtime's CPU provider has no kernels for bfloat16"


@dataclass(frozen=True)
class Contender:
    """A model that is to race, or a file.

    Attributes
    ----------
    label
        What the user calls it.
    model
        The model; None for an ONNX file or one of OpenVINO's.
    path
        The file; for a model the prefix where it lies, empty where it lies nowhere.
    epoch
        The number of the parameter file.
    runtimes
        The runtimes it is for; all where that is empty.
    """

    label: str
    model: Model | None = None
    path: str = ""
    epoch: int = 0
    runtimes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entrant:
    """A model in a runtime, ready to be started.

    Attributes
    ----------
    contender
        The number of the model among those that race.
    runtime
        Where it runs.
    precision
        In what it computes, in words.
    how
        What to do to deploy it so.
    job
        What the competitor is told to load; empty where ``failure`` says why it does not run.
    environment
        Variables of its process.
    failure
        Why it cannot run.
    """

    contender: int
    runtime: str
    precision: str
    how: str = ""
    job: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    failure: str | None = None


def low_dtype(model: Model) -> DType | None:
    """Return the low dtype that a model computes in; None for a float32 model."""
    stored = {name: value.dtype for name, value in {**model.arg_params, **model.aux_params}.items()}
    dtypes = infer_dtypes(model.graph, variable_dtypes(model.graph, stored))
    low = {dtype for entries in dtypes for dtype in entries if dtype is not None and dtype.is_low_precision}
    return min(low, key=str) if low else None


def line_up(
    contenders: Sequence[Contender],
    shapes: Mapping[str, Sequence[int]],
    runtimes: Sequence[str],
    folder: Path,
) -> list[Entrant]:
    """Return every model in every runtime that it can be brought to.

    Parameters
    ----------
    contenders
        The models.
    shapes
        Input name -> shape, the batch included: ONNX files say their shapes.
    runtimes
        The runtimes that are to race.
    folder
        Where files go that have to be made.
    """
    entrants: list[Entrant] = []
    for number, contender in enumerate(contenders):
        wanted = [name for name in runtimes if not contender.runtimes or name in contender.runtimes]
        if contender.model is None:
            entrants += _of_file(number, contender, wanted)
        else:
            entrants += _of_model(number, contender, contender.model, shapes, wanted, folder)
    return entrants


def _of_model(
    number: int,
    contender: Contender,
    model: Model,
    shapes: Mapping[str, Sequence[int]],
    wanted: Sequence[str],
    folder: Path,
) -> list[Entrant]:
    low = low_dtype(model)
    own = folder / str(number)
    own.mkdir()
    prefix = contender.path
    if not prefix:
        prefix = os.fspath(own / "model")
        model.save(prefix, provenance=False)
    files = {"path": prefix, "epoch": contender.epoch}
    entrants = []
    if MXNET in wanted:
        # Without this variable MXNet does not use AMX; it changes nothing of float32.
        setting = dict([AMX_SETTING]) if leaves_amx_unused() else {}
        told = "".join(f", with {name}={value} in the environment" for name, value in setting.items() if low)
        job = {"runtime": MXNET, **files, "fusion": True}
        entrants.append(
            Entrant(number, MXNET, str(low or FP32), f"load the files in MXNet{told}", job, setting)
        )
    if low is None and {ONNX_RUNTIME, OPENVINO}.intersection(wanted):
        return entrants + _exported(number, contender, model, shapes, wanted, own)
    if ONNX_RUNTIME in wanted:
        if low is DType.BFLOAT16:
            entrants.append(Entrant(number, ONNX_RUNTIME, str(low), failure=_NO_BFLOAT16))
        else:
            entrants += _exported(number, contender, model, shapes, [ONNX_RUNTIME], own)
    if OPENVINO in wanted:
        job = {
            "runtime": OPENVINO,
            **files,
            "precision": None,
            "shapes": {name: list(shape) for name, shape in shapes.items()},
            "to": os.fspath(own / "model.xml"),
        }
        how = (
            "mxamp export PREFIX --for openvino-bf16 -o model.xml; openvino.Core().compile_model with "
            "INFERENCE_PRECISION_HINT=bf16"
        )
        entrants.append(Entrant(number, OPENVINO, f"{low} as mxamp decided", how, job))
    return entrants


def _exported(
    number: int,
    contender: Contender,
    model: Model,
    shapes: Mapping[str, Sequence[int]],
    wanted: Sequence[str],
    folder: Path,
) -> list[Entrant]:
    """Return a model as an ONNX file in the runtimes that read it."""
    low = low_dtype(model)
    path = folder / "model.onnx"
    try:
        model.export_onnx(path, input_shapes=shapes)
    except MxampError as error:
        return [
            Entrant(number, runtime, str(low or FP32), failure=f"it cannot be exported: {error}")
            for runtime in wanted
            if runtime != MXNET
        ]
    return _of_onnx(number, os.fspath(path), low, wanted, f"mxamp export {contender.label} -o model.onnx; ")


def _of_file(number: int, contender: Contender, wanted: Sequence[str]) -> list[Entrant]:
    if contender.path.lower().endswith(".onnx"):
        return _of_onnx(number, contender.path, _low_dtype_of_file(contender.path), wanted, "")
    if OPENVINO not in wanted:
        return []
    return [_openvino(number, contender.path, None, "as the file says", "")]


def _of_onnx(number: int, path: str, low: DType | None, wanted: Sequence[str], export: str) -> list[Entrant]:
    entrants = []
    if ONNX_RUNTIME in wanted:
        if low is DType.BFLOAT16:
            entrants.append(Entrant(number, ONNX_RUNTIME, str(low), failure=_NO_BFLOAT16))
        else:
            entrants.append(
                Entrant(
                    number,
                    ONNX_RUNTIME,
                    FP32 if low is None else f"{low} weights, computing in float32",
                    f"{export}onnxruntime.InferenceSession",
                    {"runtime": ONNX_RUNTIME, "path": path},
                )
            )
    if OPENVINO in wanted:
        words = FP32 if low is None else f"{low} as the file says"
        entrants.append(_openvino(number, path, FLOAT32, words, export))
        if low is None and has_bfloat16_instructions():
            entrants.append(_openvino(number, path, BFLOAT16, "bfloat16 as its hint decides", export))
    return entrants


def _openvino(number: int, path: str, precision: str | None, words: str, export: str) -> Entrant:
    hint = "" if precision is None else f" with INFERENCE_PRECISION_HINT={precision}"
    return Entrant(
        number,
        OPENVINO,
        words,
        f"{export}openvino.Core().compile_model{hint}",
        {"runtime": OPENVINO, "path": path, "precision": precision},
    )


def _low_dtype_of_file(path: str) -> DType | None:
    """Return the low dtype of an ONNX file's parameters; None where all are of others."""
    from mxamp.onnx.package import import_onnx
    from mxamp.onnx.tensor import DTYPE_OF_CODE

    onnx = import_onnx()
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:  # a damaged file, which the runtimes will say
        return None
    codes = {tensor.data_type for tensor in model.graph.initializer}
    low = {DTYPE_OF_CODE[code] for code in codes if code in DTYPE_OF_CODE}
    return next((dtype for dtype in sorted(low, key=str) if dtype.is_low_precision), None)
