"""Write a converted model of the zoo for deployment, with a signature that says how to feed it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from model_zoo_eval.build import RANDOM, build_model
from model_zoo_eval.registry import Case
from mxamp.convert import convert_model
from mxamp.errors import DataError
from mxamp.files import atomic_write
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.graph.output_names import output_names
from mxamp.model import model_paths
from mxamp.runtime.shapes import infer_shapes
from mxamp.version import __version__

__all__ = ["export_model"]

_PIXELS = {
    "imagenet": "red, green and blue, (pixel / 255 - mean) / deviation with ImageNet's mean 0.485, 0.456, "
    "0.406 and deviation 0.229, 0.224, 0.225",
    "cifar": "red, green and blue, (pixel / 255 - mean) / deviation with CIFAR-10's mean 0.4914, 0.4822, "
    "0.4465 and deviation 0.2023, 0.1994, 0.2010",
    "unit": "red, green and blue, pixel / 255",
    "raw": "pixels from 0 to 255",
}


def export_model(
    case: Case,
    dtype: str,
    folder: Path,
    *,
    size: int | None = None,
    params: Path | None = None,
    pretrained: bool = True,
    allow_random: bool = False,
    seed: int = 0,
) -> list[Path]:
    """Write ``NAME-DTYPE-symbol.json``, ``NAME-DTYPE-0000.params`` and ``NAME-DTYPE-signature.json``.

    Parameters
    ----------
    case
        The model and its graph form.
    dtype
        ``bfloat16`` or ``float16``.
    folder
        Where to; it is made.
    size, params, pretrained, seed
        As for :func:`model_zoo_eval.build.build_model`.
    allow_random
        Whether random weights may be written, where there are no trained ones.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    DataError
        When there are no trained weights.
    ExportError, ParamsError, TracingError, UnknownNameError
        As building and saving.
    """
    built = build_model(case, size=size, params=params, pretrained=pretrained, seed=seed, smaller=False)
    if built.weights == RANDOM and not allow_random:
        raise DataError(
            f"There are no trained weights of {case.name!r} ({built.origin}), and with random ones it is no "
            "model to deploy. Give a folder with its parameters (--params), or --random-weights to try the "
            "export."
        )
    shapes = {name: (1, *shape) for name, shape in built.shapes.items()}
    model = built.model
    converted = convert_model(model.graph, model.arg_params, model.aux_params, dtype, input_shapes=shapes)
    folder.mkdir(parents=True, exist_ok=True)
    prefix = folder / f"{case.key}-{dtype}"
    signature = Path(f"{prefix}-signature.json")
    converted.save(prefix)
    stored = {**converted.arg_params, **converted.aux_params}
    found_shapes = infer_shapes(converted.graph, shapes, stored)
    dtypes = infer_dtypes(
        converted.graph,
        variable_dtypes(converted.graph, {name: value.dtype for name, value in stored.items()}),
    )
    report = converted.report
    assert report is not None  # convert_model returns one
    outputs: list[dict[str, Any]] = []
    meanings = built.entry.outputs
    names = output_names(converted.graph)
    for number, (name, head) in enumerate(zip(names, converted.graph.heads)):
        shape, found = found_shapes[head.node][head.output], dtypes[head.node][head.output]
        outputs.append(
            {
                "name": name,
                "shape": None if shape is None else list(shape),
                "dtype": None if found is None else found.label,
                "meaning": meanings[number] if len(meanings) == len(names) else "",
            }
        )
    document = {
        "model": case.name,
        "graph_form": case.form,
        "task": built.entry.task,
        "dtype": dtype,
        "target": report.target,
        "weights": built.origin,
        "mxamp": __version__,
        "inputs": [
            {
                "name": name,
                "shape": list(shape),
                "dtype": report.inputs[name],
                "layout": "batch, channels, frames, height, width"
                if len(shape) == 5
                else "batch, channels, height, width",
                "values": _PIXELS[built.entry.pixels],
            }
            for name, shape in shapes.items()
        ],
        "outputs": outputs,
    }
    with atomic_write(signature) as (file,):
        file.write((json.dumps(document, indent=1) + "\n").encode("utf-8"))
    return [*model_paths(prefix), signature]
