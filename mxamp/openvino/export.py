"""Write a model as OpenVINO's own file, with the decisions that were made for it."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.errors import ExportError
from mxamp.files import atomic_write, check_folder
from mxamp.graph.graph import Graph
from mxamp.messages.arguments import path_fault
from mxamp.onnx.file import Progress, write_file
from mxamp.onnx.session import one_line
from mxamp.onnx.walk import write_graph
from mxamp.openvino.marks import mark_layers
from mxamp.openvino.package import import_openvino
from mxamp.openvino.plain import plain_model
from mxamp.openvino.session import BFLOAT16, FLOAT16, FLOAT32
from mxamp.params.parameter import Parameter


@dataclass(frozen=True)
class OpenvinoExport:
    """What was written.

    Attributes
    ----------
    path
        The ``.xml``.
    files
        It, and the ``.bin`` with the parameters.
    precision
        The ``INFERENCE_PRECISION_HINT`` that the file is for.
    kept
        The operators of the model that stay float32 under that hint.
    layers
        How many of OpenVINO's layers are marked for it.
    bytes
        The size of both files.
    """

    path: Path
    files: tuple[Path, ...]
    precision: str
    kept: tuple[str, ...]
    layers: int
    bytes: int

    def __str__(self) -> str:
        kept = f", {len(self.kept)} operators kept in float32" if self.precision != FLOAT32 else ""
        return f"{', '.join(map(str, self.files))}: for INFERENCE_PRECISION_HINT={self.precision}{kept}"


def weights_path(path: Path) -> Path:
    """Return where OpenVINO looks for the parameters of a file."""
    return path.with_suffix(".bin")


def export_openvino_graph(
    graph: Graph,
    params: Mapping[str, Parameter],
    path: str | os.PathLike[str],
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dynamic_batch: bool = False,
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> OpenvinoExport:
    """Write a graph with its parameters as OpenVINO's ``.xml`` and ``.bin``. Needs no MXNet.

    Parameters
    ----------
    graph, params
        The model, converted or not.
    path
        The ``.xml``; it and the ``.bin`` beside it are replaced where they exist.
    input_shapes, dynamic_batch, metadata, progress
        As for :func:`mxamp.onnx.export_graph`.

    Raises
    ------
    ExportError
        When the path does not end in ``.xml``, the model cannot be written as ONNX, which OpenVINO reads, or
        OpenVINO refuses it. Nothing half-written is left behind.
    DataError, UnknownNameError
        When the shape of an input is missing, or one is given for what is no input.
    OnnxMissingError, OpenvinoMissingError
        When a package is not installed.
    """
    fault = path_fault(path)
    if fault is not None:
        raise ExportError(f"{fault}. Give the path of the .xml file to write.")
    written = Path(path)
    if written.suffix != ".xml":
        raise ExportError(f"OpenVINO's files end in .xml, and {str(path)!r:.80} does not: name it model.xml.")
    openvino = import_openvino()
    plain = plain_model(graph, params)
    onnx = write_graph(plain.graph, plain.params, input_shapes=input_shapes, dynamic_batch=dynamic_batch)
    # Beside the destination, where there is room for what will be written there.
    folder = written.parent
    check_folder(folder)
    with tempfile.TemporaryDirectory(prefix=".mxamp-", dir=folder) as text:
        staged = Path(text) / "model.xml"
        source = Path(text) / "model.onnx"
        write_file(onnx, source, metadata or {}, progress=progress)
        try:
            model = openvino.Core().read_model(os.fspath(source))
            for key, value in (metadata or {}).items():
                model.set_rt_info(value, ["mxamp", key.replace("mxamp.", "")])
        except Exception as error:  # RuntimeError, and classes of its own
            raise ExportError(
                f"OpenVINO {openvino.__version__} cannot read the model: {one_line(error)}"
            ) from error
        try:
            openvino.save_model(model, os.fspath(staged), compress_to_fp16=False)
        except Exception as error:  # "iostream error" on a full disk
            raise ExportError(
                f"OpenVINO {openvino.__version__} cannot write {str(written)!r}: {one_line(error)}. Is there "
                "room for it? Until it has its name the model is there three times. Nothing was changed."
            ) from error
        layers = mark_layers(staged, onnx.computed_by, plain.marked)
        beside = weights_path(written)
        with atomic_write(written, beside) as files:
            for file, made in zip(files, (staged, weights_path(staged))):
                with made.open("rb") as values:
                    shutil.copyfileobj(values, file)
    hint = {None: FLOAT32, DType.BFLOAT16: BFLOAT16, DType.FLOAT16: FLOAT16}[plain.low]
    return OpenvinoExport(
        written,
        (written, beside),
        hint,
        tuple(sorted(plain.kept)),
        layers,
        written.stat().st_size + beside.stat().st_size,
    )
