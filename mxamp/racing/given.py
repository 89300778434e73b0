"""What was given to a race, checked: models and files, data, runtimes."""

from __future__ import annotations

import importlib.util
import math
import os
from typing import Any, Mapping, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from mxamp.compare.inputs import expected_input_shapes, input_names, prepare_inputs
from mxamp.compare.sample_inputs import sample_inputs
from mxamp.convert import convert_model
from mxamp.dtypes import DType
from mxamp.errors import DataError, ModelFileNotFoundError, nearest_names
from mxamp.graph.shapes import InputShapes, named_input_shapes
from mxamp.measuring.machine import leaves_amx_unused
from mxamp.messages.installation import install_hint
from mxamp.model import Model, load
from mxamp.model.accepted import Block, ModelOrTriple
from mxamp.onnx import OnnxSession
from mxamp.racing.competitor import MXNET, ONNX_RUNTIME, OPENVINO, RUNTIMES
from mxamp.racing.lineup import Contender
from mxamp.targets import Target

RacingModel = Union[ModelOrTriple, Block, Contender, str, "os.PathLike[str]"]
"""What can race: see :func:`as_contender`."""


_SHORT = {DType.BFLOAT16: "bf16", DType.FLOAT16: "fp16"}


_EXTRAS = {MXNET: "mxnet", ONNX_RUNTIME: "onnx", OPENVINO: "openvino"}


def check_numbers(threads: Any, seconds: Any, batch_size: Any, tolerance: Any) -> None:
    """Check the numbers that a race was asked for; DataError says which is wrong."""
    for name, value in (("threads", threads), ("batch_size", batch_size)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise DataError(f"{name} must be a whole number from 1 on, not {value!r:.40}.")
    for name, value in (("seconds", seconds), ("tolerance", tolerance)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise DataError(f"{name} must be a number above 0, not {value!r:.40}.")


def runtimes_of(asked: Sequence[str] | None, interpreters: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the runtimes to race, and what is to be said of those that are not installed."""
    for name in (*interpreters, *(asked or ())):
        if name not in RUNTIMES:
            raise DataError(
                f"There is no runtime {name!r}.{nearest_names(name, RUNTIMES)} There are: "
                f"{', '.join(RUNTIMES)}."
            )
    found: list[str] = []
    missing: list[str] = []
    for name in RUNTIMES if asked is None else dict.fromkeys(asked):
        here = name in interpreters or _is_installed(name)
        (found if here else missing).append(name)
    if missing and (asked is not None or not found):
        words = " ".join(install_hint(_EXTRAS[name]) for name in missing)
        raise DataError(
            f"{' and '.join(RUNTIMES[name] for name in missing)} cannot race, not being installed. {words} "
            "Or name the interpreter of an environment that has it: --python openvino=PATH."
        )
    notes = [f"{RUNTIMES[name]} is not installed. {install_hint(_EXTRAS[name])}" for name in missing]
    return found, notes


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # it was put into sys.modules as None
        return False


def contenders_of(models: Any) -> list[Contender]:
    """Return the models and files that were given, each with what it is called."""
    if not isinstance(models, Mapping):
        if isinstance(models, (str, os.PathLike)):
            models = [models]
        paths = isinstance(models, (list, tuple)) and all(
            isinstance(one, (str, os.PathLike)) for one in models
        )
        models = {os.fspath(one): one for one in models} if paths else {"model": models}
    if not models:
        raise DataError("There is nothing to race. Name a model: race('resnet50'), race({'fp32': model}).")
    return [as_contender(str(label), given) for label, given in models.items()]


def as_contender(label: str, given: Any) -> Contender:
    """Return anything that can race: see :func:`race`.

    Raises
    ------
    DataError
        When it cannot.
    ModelFileNotFoundError, SymbolFormatError, ParamsError
        When a file is not there or damaged.
    """
    if isinstance(given, Contender):
        return given
    if not isinstance(given, (str, os.PathLike)):
        return Contender(label, _as_any_model(given))
    path = os.fspath(given)
    if not path.lower().endswith((".onnx", ".xml")):
        return Contender(label, load(path), path)
    if not os.path.isfile(path):
        raise ModelFileNotFoundError(f"There is no file {path!r}.")
    return Contender(label, None, path)


def _as_any_model(given: Any) -> Model:
    if isinstance(given, Model):
        return given
    if isinstance(getattr(given, "model", None), Model):  # what convert_block returned
        model: Model = given.model
        return model
    if isinstance(given, (tuple, list)) and len(given) == 3:
        return Model.of(*given)
    raise DataError(
        "What races is an mxamp.Model, a triple (sym, args, auxs), what convert_block returned, or the path "
        f"of files, not {type(given).__name__}. A Gluon block that is not converted is first exported."
    )


def data_of(
    first: Contender,
    data: Any,
    input_shapes: InputShapes,
    batch_size: int,
    seed: int,
) -> tuple[dict[str, NDArray[Any]], dict[str, tuple[int, ...]], list[str]]:
    """Return the data under the names of the inputs, the shapes of a batch, and notes."""
    notes = []
    if first.model is not None:
        if data is None:
            params = {**first.model.arg_params, **first.model.aux_params}
            given = named_input_shapes(first.model.graph, input_shapes, params) or {}
            known = {**expected_input_shapes(first.model), **given}
            batch = {name: (batch_size, *shape[1:]) for name, shape in known.items() if len(shape)}
            arrays: dict[str, NDArray[Any]] = dict(sample_inputs(first.model, batch, seed=seed))
        else:
            inputs = prepare_inputs(first.model, data)
            arrays, notes = dict(inputs.arrays), list(inputs.notes)
        names: Sequence[str] = input_names(first.model)
    else:
        shapes = _shapes_of_file(first.path)
        names = list(shapes)
        if not isinstance(input_shapes, Mapping):
            raise DataError("A shape without a name goes with a model; a file says the shapes of its inputs.")
        if data is None:
            generator = np.random.default_rng(seed)
            sizes = {name: tuple(input_shapes.get(name, shape)) for name, shape in shapes.items()}
            arrays = {
                name: generator.standard_normal([size or batch_size for size in shape]).astype(np.float32)
                for name, shape in sizes.items()
            }
        else:
            arrays = {names[0]: np.asarray(data)} if not isinstance(data, Mapping) else {**data}
    if data is None:
        notes.append(f"The inputs are random numbers (seed {seed}), not real data.")
    missing = [name for name in names if name not in arrays]
    if missing:
        raise DataError(f"The data has no array for the input {missing[0]!r}; it has {', '.join(arrays)}.")
    arrays = {name: arrays[name] for name in names}
    counts = {len(values) for values in arrays.values()}
    if len(counts) > 1 or any(count % batch_size for count in counts):
        raise DataError(
            f"The data has {' and '.join(map(str, sorted(counts)))} samples, which are no batches of "
            f"{batch_size}: every input needs as many samples, a multiple of the batch size."
        )
    return arrays, {name: (batch_size, *values.shape[1:]) for name, values in arrays.items()}, notes


def _shapes_of_file(path: str) -> Mapping[str, Sequence[int]]:
    if path.lower().endswith(".onnx"):
        return OnnxSession(path).input_shapes
    from mxamp.openvino.session import OpenvinoSession

    return OpenvinoSession(path).input_shapes


def conversions_of(
    first: Contender, dtype: DType, shapes: Mapping[str, tuple[int, ...]], wanted: Sequence[str]
) -> list[Contender]:
    """Return the first model, converted for each runtime."""
    if first.model is None:
        raise DataError(
            f"Only models of MXNet can be converted to {dtype}, and {first.path} is a file of another kind."
        )
    model = first.model
    found = []
    # MXNet's processes are told to use AMX where there is any.
    here = "cpu-bf16-amx" if dtype is DType.BFLOAT16 and leaves_amx_unused() else "auto"
    for runtime, target in ((MXNET, here), (OPENVINO, f"openvino-{_SHORT.get(dtype, dtype)}")):
        if runtime in wanted and (target == here or target in Target.builtin_names()):
            converted = convert_model(
                model.graph, model.arg_params, model.aux_params, dtype, target=target, input_shapes=shapes
            )
            found.append(Contender(f"{first.label}, {dtype} by mxamp", converted, runtimes=(runtime,)))
    return found
