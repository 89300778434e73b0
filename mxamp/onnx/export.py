"""Export a graph with its parameters to an ONNX file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence

from mxamp.errors import ExportError
from mxamp.graph.graph import Graph
from mxamp.graph.unfused import unfused
from mxamp.onnx.file import MOST_IN_ONE_FILE, Progress, write_file
from mxamp.onnx.runtime_gaps import NO_GAPS, RuntimeGaps
from mxamp.onnx.walk import write_graph
from mxamp.params.one_dtype import in_one_dtype
from mxamp.params.parameter import Parameter


@dataclass(frozen=True)
class OnnxExport:
    """What was exported.

    Attributes
    ----------
    path
        The file.
    files
        All files: the model, and beyond 2 GB its parameters beside it.
    opset
        The version of ONNX's operators.
    opset_reason
        Why it is newer than the default; empty where it is not.
    nodes
        How many nodes the file holds.
    inputs, outputs
        Their names, in order.
    bytes
        The size of all files.
    """

    path: Path
    files: tuple[Path, ...]
    opset: int
    opset_reason: str
    nodes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bytes: int

    def __str__(self) -> str:
        why = f" ({self.opset_reason})" if self.opset_reason else ""
        files = ", ".join(map(str, self.files))
        return f"{files}: {self.nodes} nodes, opset {self.opset}{why}"


def export_graph(
    graph: Graph,
    params: Mapping[str, Parameter],
    path: str | os.PathLike[str],
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    opset: int | None = None,
    dynamic_batch: bool = False,
    gaps: RuntimeGaps = NO_GAPS,
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    most_in_one_file: int = MOST_IN_ONE_FILE,
) -> OnnxExport:
    """Write a graph with its parameters to an ONNX file. Needs no MXNet.

    Parameters
    ----------
    graph, params, input_shapes, opset, dynamic_batch, gaps
        See :func:`mxamp.onnx.walk.write_graph`.
    path
        The file; it is replaced where it exists.
    metadata
        What the file's ``metadata_props`` say.
    progress, most_in_one_file
        See :func:`mxamp.onnx.file.write_file`.

    Raises
    ------
    ExportError, DataError, UnknownNameError, OnnxMissingError
        See :func:`mxamp.export_onnx`. Nothing half-written is left behind.
    """
    _check_path(path)
    if not isinstance(dynamic_batch, bool):
        raise ExportError(f"dynamic_batch must be True or False, not {dynamic_batch!r:.80}.")
    graph = unfused(graph).graph
    written = write_graph(
        graph,
        in_one_dtype(graph, params)[0],
        input_shapes=input_shapes,
        opset=opset,
        dynamic_batch=dynamic_batch,
        gaps=gaps,
    )
    files = write_file(
        written, Path(path), metadata or {}, progress=progress, most_in_one_file=most_in_one_file
    )
    return OnnxExport(
        Path(path),
        tuple(files),
        written.opset,
        written.opset_reason,
        len(written.nodes),
        tuple(value.name for value in written.inputs),
        tuple(value.name for value in written.outputs),
        sum(file.stat().st_size for file in files),
    )


def _check_path(path: str | os.PathLike[str]) -> None:
    """Raise ExportError for what cannot be the path of a file."""
    try:
        is_path = isinstance(path, (str, os.PathLike)) and bool(str(path)) and b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:  # half of a surrogate pair
        is_path = False
    if not is_path:
        raise ExportError(f"path must be the path of a file such as 'model.onnx', not {path!r:.80}.")
    if not Path(path).name or os.path.isdir(path):
        raise ExportError(f"path names a folder, {str(path)!r}, and must name a file such as 'model.onnx'.")
