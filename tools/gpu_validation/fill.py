"""Make the ONNX files of a folder that holds graphs and seeds; needs no MXNet.

    python3 -m tools.gpu_validation.fill FOLDER

A folder of all models has gigabytes. Their weights are random, so what has to travel to the machine that
measures is how to draw them (``make gpu-validation ARGS=--seeds``): each model's graph, the small parameters
as they are, and the shapes and the seed of the large ones. This draws them, converts, and writes the files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

import mxamp
from mxamp.errors import ExportError
from mxamp.graph.symbol_reader import read_symbol
from mxamp.graph.symbol_writer import write_symbol
from mxamp.model import Model
from mxamp.ops import FACTS
from mxamp.runtime.random_weights import random_parameters

__all__ = ["LOW", "Recipe", "fill_folder", "manifest_of", "write_manifest"]

LOW: Mapping[str, Mapping[str, str]] = {
    "FP16": {"target_dtype": "float16"},
    "FP16 for CUDA": {"target_dtype": "float16", "target": "onnx-cuda-fp16"},
    "BF16 for CUDA": {"target_dtype": "bfloat16", "target": "onnx-cuda-bf16"},
}
"""Variant -> what `mxamp.convert_model` is told."""

_LARGE = 1 << 14
"""Elements from which on a weight is drawn where the model is filled in, rather than carried there."""

_WEIGHTS = {"Convolution": 1, "Deconvolution": 1, "FullyConnected": 1, "Embedding": 1}


class Recipe(NamedTuple):
    """How to make an FP32 model.

    Attributes
    ----------
    model
        The model, whose large weights were drawn by :func:`~mxamp.runtime.random_weights.random_parameters`.
    drawn
        Their names and shapes.
    seed
        What they were drawn with.
    """

    model: Model
    drawn: Mapping[str, tuple[int, ...]]
    seed: int

    @classmethod
    def of(cls, model: Model, *, seed: int) -> Recipe:
        """Draw the large weights of a model anew."""
        graph = model.graph
        weights = {
            graph.nodes[node.inputs[_WEIGHTS[op]].node].name
            for node in graph.nodes
            if (op := FACTS.canonical(node.op)) in _WEIGHTS
        }
        drawn = {
            name: tuple(value.shape)
            for name, value in model.arg_params.items()
            if name in weights and np.prod(value.shape) >= _LARGE
        }
        return cls._made(model, drawn, seed)

    @classmethod
    def _made(cls, model: Model, drawn: Mapping[str, tuple[int, ...]], seed: int) -> Recipe:
        values = random_parameters(model.graph, drawn, seed=seed)
        return cls(Model.of(model.graph, {**model.arg_params, **values}, model.aux_params), drawn, seed)

    def write(self, folder: Path) -> None:
        """Write the recipe into a folder."""
        (folder / "graph.json").write_text(write_symbol(self.model.graph), "utf-8")
        kept = {
            name: value.numpy() for name, value in self.model.arg_params.items() if name not in self.drawn
        }
        np.savez_compressed(folder / "arguments.npz", **kept)
        auxiliary = {name: value.numpy() for name, value in self.model.aux_params.items()}
        np.savez_compressed(folder / "auxiliary.npz", **auxiliary)
        (folder / "drawn.json").write_text(json.dumps({"seed": self.seed, "shapes": self.drawn}), "utf-8")

    @classmethod
    def read(cls, folder: Path) -> Recipe:
        """Read the recipe of a folder and follow it."""
        graph = read_symbol(folder / "graph.json")
        model = Model.of(graph, _arrays(folder / "arguments.npz"), _arrays(folder / "auxiliary.npz"))
        drawn = json.loads((folder / "drawn.json").read_text("utf-8"))
        return cls._made(
            model, {name: tuple(shape) for name, shape in drawn["shapes"].items()}, drawn["seed"]
        )


def converted(model: Model, variant: str, data: Mapping[str, NDArray[Any]]) -> Model:
    """Return one of `LOW` of a model."""
    shapes = {name: values.shape for name, values in data.items()}
    told: Any = LOW[variant]
    return mxamp.convert_model(model.graph, model.arg_params, model.aux_params, input_shapes=shapes, **told)


def fill_folder(folder: Path) -> None:
    """Write the files of every model of a folder that has none yet."""
    manifest = manifest_of(folder)
    for entry in manifest["models"]:
        if entry["variants"]:
            continue
        place = folder / entry["folder"]
        data = _arrays(place / "data.npz")
        model = Recipe.read(place).model
        for variant in ("FP32", *LOW):
            made = model if variant == "FP32" else converted(model, variant, data)
            files = _files(made, data, place / variant.lower().replace(" ", "-"), entry["batches"])
            entry["variants"][variant] = {
                str(batch): f"{entry['folder']}/{path.name}" for batch, path in files.items()
            }
        write_manifest(folder, manifest)
        print(f"{entry['name']}: {', '.join(entry['variants'])}", file=sys.stderr, flush=True)


def manifest_of(folder: Path) -> dict[str, Any]:
    """Read ``manifest.json``."""
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text("utf-8"))
    return found


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write ``manifest.json``."""
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")


def _files(
    model: Model, data: Mapping[str, NDArray[Any]], start: Path, batches: Sequence[int]
) -> dict[int, Path]:
    """Write a model for every batch: one file where its batch can be left open, and otherwise one each."""
    shapes = {name: values.shape for name, values in data.items()}
    if list(batches) != [1]:
        path = start.with_name(f"{start.name}.onnx")
        try:
            model.export_onnx(path, input_shapes=shapes, dynamic_batch=True)
        except ExportError:
            pass
        else:
            return dict.fromkeys(batches, path)
    found = {}
    for batch in batches:
        path = start.with_name(f"{start.name}-batch{batch}.onnx")
        model.export_onnx(
            path,
            input_shapes={name: (batch * shape[0], *shape[1:]) for name, shape in shapes.items()},
        )
        found[batch] = path
    return found


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path) as file:
        return dict(file)


if __name__ == "__main__":
    fill_folder(Path(sys.argv[1]))
