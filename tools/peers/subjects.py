"""The models that are exported: of the zoo and of ``tools.networks``, with random weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Tuple

import numpy as np
from numpy.typing import NDArray

import mxamp
from model_zoo_eval.build import build_model
from model_zoo_eval.registry import PRIMITIVE, Case, find_entry
from mxamp.model import Model
from tools.networks.catalogue import find_network
from tools.networks.names import NETWORK_NAMES
from tools.zoo_graphs import before_ranking, first_rankings

__all__ = ["BEFORE_RANKING", "Subject", "build_subject"]

BEFORE_RANKING = ":before-ranking"
"""After a detector's name: the tensors that enter its first ranking are its outputs, not the detections."""

Shape = Tuple[int, ...]


@dataclass(frozen=True)
class Subject:
    """A model with its inputs.

    Attributes
    ----------
    name
        What it is called, ``NAME[+primitive][:before-ranking]``.
    model
        FP32.
    low
        The same, converted to float16.
    data
        Input name -> values.
    """

    name: str
    model: Model
    low: Model
    data: Mapping[str, NDArray[np.float32]]

    @property
    def shapes(self) -> dict[str, Shape]:
        """Input name -> shape."""
        return {name: values.shape for name, values in self.data.items()}

    def write(self, folder: Path) -> tuple[Path, Path, Path]:
        """Write FP32 and FP16 as ONNX files, and the inputs, and return their paths."""
        paths = folder / "fp32.onnx", folder / "fp16.onnx", folder / "data.npz"
        self.model.export_onnx(paths[0], input_shapes=self.shapes)
        self.low.export_onnx(paths[1], input_shapes=self.shapes)
        np.savez(paths[2], **self.data)
        return paths


def build_subject(name: str, *, seed: int = 0, batch: int = 1) -> Subject:
    """Build a model and convert it to float16, by default but for the shapes of its inputs.

    Parameters
    ----------
    name
        A model of the zoo, with ``+primitive`` for that graph form of a detector and ``:before-ranking`` for
        the tensors that enter its first ranking; or a network of ``tools.networks``.
    seed
        Of weights and inputs.
    batch
        Samples, for models of the zoo.
    """
    bare, _, cut = name.partition(BEFORE_RANKING[0])
    zoo_name, _, form = bare.partition("+")
    generator = np.random.default_rng(seed)
    if zoo_name in NETWORK_NAMES:
        model, data = _network(zoo_name, seed)
    else:
        built = build_model(Case(zoo_name, form or _form_of(zoo_name)), pretrained=False, seed=seed)
        model = built.model
        data = {
            key: generator.standard_normal((batch, *shape), np.float32) for key, shape in built.shapes.items()
        }
    if cut:
        model = before_ranking(model, first_rankings(model.graph))
    shapes = {key: values.shape for key, values in data.items()}
    low = mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "float16", input_shapes=shapes)
    return Subject(name, model, low, data)


def _form_of(name: str) -> str:
    forms = find_entry(name).forms
    return PRIMITIVE if PRIMITIVE in forms else ""


def _network(name: str, seed: int) -> tuple[Model, Mapping[str, NDArray[np.float32]]]:
    from tools.networks.build import build_network, draw_inputs

    network = find_network(name)
    model = build_network(network, seed=seed)
    (data,) = draw_inputs(network.inputs, 1, samples=1, seed=seed)
    return model, data
