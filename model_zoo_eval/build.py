"""Build a model of the zoo with weights: trained ones, a file's, or random ones."""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping
from unittest import mock

import numpy as np

from model_zoo_eval.registry import PRIMITIVE, Case, Entry, Shape, find_entry
from mxamp.errors import ModelFileNotFoundError, ParamsError, TracingError
from mxamp.model import Model
from mxamp.params.parameter import ArrayParameter
from mxamp.runtime.random_weights import RESIDUAL_SCALE
from mxamp.runtime.zoo import import_gluoncv, model_of_network, models_folder, weights_obstacle

__all__ = ["FROM_FILE", "RANDOM", "TRAINED", "BuiltModel", "build_model"]

TRAINED, FROM_FILE, RANDOM = "trained", "file", "random"

_RAW_SCALE = 128.0
"""About the root mean square of a photograph's values from 0 to 255."""

_DECODER_USERS = (
    "gluoncv.model_zoo.ssd.ssd",
    "gluoncv.model_zoo.rcnn.rcnn",
    "gluoncv.model_zoo.rcnn.rpn.proposal",
)
"""Where GluonCV's detectors look up ``NormalizedBoxCenterDecoder``."""


@dataclass(frozen=True)
class BuiltModel:
    """A model of the zoo, ready to convert.

    Attributes
    ----------
    entry
        What the registry says of it.
    model
        Graph and FP32 parameters.
    shapes
        Input name -> shape without the batch.
    weights
        ``trained``, ``file`` or ``random``.
    origin
        Where the weights come from, for the reader of a result.
    """

    entry: Entry
    model: Model
    shapes: Mapping[str, Shape]
    weights: str
    origin: str


def build_model(
    case: Case,
    *,
    size: int | None = None,
    params: Path | None = None,
    pretrained: bool = True,
    seed: int = 0,
    residual_scale: float = RESIDUAL_SCALE,
    smaller: bool = True,
) -> BuiltModel:
    """Build a model.

    Parameters
    ----------
    case
        The model and its graph form.
    size
        Height and width of the input, instead of the registry's.
    params
        A folder with ``NAME.params`` or ``NAME-HASH.params`` as GluonCV names them. A model that it does not
        have gets other weights.
    pretrained
        Whether to use trained weights, where they are in the cache or can be downloaded.
    seed
        Seed of random weights.
    residual_scale
        How large residual branches end with random weights, relative to their trunk.
    smaller
        Whether a model whose own input is too much to evaluate with gets the registry's smaller one.

    Raises
    ------
    ParamsError
        When a file of weights does not fit, or is damaged.
    TracingError
        When GluonCV cannot build the network, or it cannot be traced.
    MxnetMissingError
        When MXNet or GluonCV is not here.
    UnknownNameError
        When the zoo has no such model.
    """
    entry = find_entry(case.name)
    import_gluoncv()
    shapes = entry.shapes(size) if smaller or size is not None else dict(entry.inputs)
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        # MXNet warns of parameters that a constructor initialised, and of types it infers later.
        warnings.filterwarnings("ignore", module=r"mxnet(\..*)?")
        warnings.filterwarnings("ignore", module=r"gluoncv(\..*)?")
        with graph_form(case.form):
            net = zoo_network(entry, shapes)
        file, weights, origin = _weights(entry, params, pretrained)
        if file is not None:
            _load(net, file, entry)
        elif weights == RANDOM:
            scale = (
                "" if residual_scale == RESIDUAL_SCALE else f", residual branches times {residual_scale:g}"
            )
            origin = f"random, seed {seed}{scale}{origin}"
        batched = {name: (1, *shape) for name, shape in shapes.items()}
        drawn = seed if weights == RANDOM else None
        model, _ = model_of_network(net, batched, seed=drawn, residual_scale=residual_scale)
    if weights == RANDOM and entry.pixels == "raw":
        model = _for_raw_pixels(model)
    return BuiltModel(entry, model, shapes, weights, origin)


def _for_raw_pixels(model: Model) -> Model:
    """Divide the weights that read pixels, as a network trained on values up to 255 has them.

    Random weights are drawn for inputs of unit scale. With others every activation would be a hundred times
    too large, and float16 would overflow where no trained network does.
    """
    graph = model.graph
    reading = {
        graph.nodes[node.inputs[1].node].name
        for node in graph.nodes
        if node.op == "Convolution"
        and graph.nodes[node.inputs[0].node].is_variable
        and graph.nodes[node.inputs[0].node].name not in model.arg_params
    }
    divided = {
        name: ArrayParameter(model.arg_params[name].numpy() / np.float32(_RAW_SCALE)) for name in reading
    }
    return Model(graph, {**model.arg_params, **divided}, model.aux_params)


def zoo_network(entry: Entry, shapes: Mapping[str, Shape]) -> Any:
    gluoncv = import_gluoncv()
    arguments = dict(entry.arguments)
    sizes = next(iter(shapes.values()))[-2:]
    if entry.baked:
        if sizes[0] != sizes[1]:
            raise TracingError(f"{entry.name!r} takes square images, not {sizes[0]} by {sizes[1]}.")
        arguments.update(dict.fromkeys(entry.baked, sizes[0]))
    try:
        if entry.constructor:
            module, _, name = entry.constructor.rpartition(".")
            return getattr(importlib.import_module(module), name)(**arguments)
        return gluoncv.model_zoo.get_model(entry.name, pretrained=False, **arguments)
    except Exception as error:
        # GluonCV raises whatever its layers raise, and requests' errors where it downloads after all.
        last = [line.strip() for line in str(error).splitlines() if line.strip()][-1:]
        raise TracingError(
            f"GluonCV cannot build {entry.name!r} with {arguments}: {type(error).__name__}: "
            f"{' '.join(last)[:300]}"
        ) from error


@contextlib.contextmanager
def graph_form(form: str) -> Iterator[None]:
    """Let detectors be built in the form that they have with trained weights, though these are not here."""
    if form != PRIMITIVE:
        yield
        return
    from gluoncv.nn.coder import NormalizedBoxCenterDecoder

    def elementary(*args: Any, **kwargs: Any) -> Any:
        return NormalizedBoxCenterDecoder(*args, **{**kwargs, "minimal_opset": True})

    with contextlib.ExitStack() as patches:
        for name in _DECODER_USERS:
            module = importlib.import_module(name)
            patches.enter_context(mock.patch.object(module, "NormalizedBoxCenterDecoder", elementary))
        yield


def _weights(entry: Entry, folder: Path | None, pretrained: bool) -> tuple[Path | None, str, str]:
    """Return the file to read, what kind of weights that makes, and what to say about them."""
    if folder is not None:
        file = _file_in(folder, entry.name)
        if file is not None:
            return file, FROM_FILE, f"from the file {file.name}"
    if not pretrained:
        return None, RANDOM, ""
    obstacle = weights_obstacle(entry.name)
    if obstacle:
        return None, RANDOM, f", because {obstacle}"
    from gluoncv.model_zoo.model_store import get_model_file

    file = Path(get_model_file(entry.name, root=str(models_folder())))
    return file, TRAINED, "trained, from GluonCV's model store"


def _file_in(folder: Path, name: str) -> Path | None:
    if not folder.is_dir():
        raise ModelFileNotFoundError(
            f"There is no folder {str(folder)!r}. It should hold parameter files as GluonCV names them: "
            f"{name}.params, or {name}- and eight digits and .params."
        )
    exact = folder / f"{name}.params"
    if exact.is_file():
        return exact
    hashed = sorted(folder.glob(f"{name}-????????.params"))
    return hashed[0] if hashed else None


def _load(net: Any, file: Path, entry: Entry) -> None:
    import mxnet as mx

    try:
        net.load_parameters(str(file))
    except (mx.MXNetError, AssertionError, ValueError, KeyError, OSError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ParamsError(
            f"The parameters of {entry.name!r} cannot be read from {str(file)!r}: the file is damaged, or "
            f"belongs to another model. MXNet says: {(lines or [type(error).__name__])[-1][:300]}"
        ) from error
