"""The file: the model around an ONNX graph, checked, and written with its parameters one after another."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, BinaryIO, Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from mxamp.errors import ExportError
from mxamp.files import atomic_write
from mxamp.onnx.package import import_onnx
from mxamp.onnx.tensor import ONNX_CODES
from mxamp.onnx.walk import OnnxGraph
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.version import __version__

MOST_IN_ONE_FILE = (1 << 31) - (1 << 20)
"""Bytes that fit into one file: protobuf reads messages of less than 2 GiB. Beyond, parameters are beside."""

_ALIGNMENT = 4096
"""External data begins at multiples of a page, so that it can be mapped into memory."""

_CHECKED_WITH_VALUES = 1 << 16
"""Constants of so many bytes are part of what is checked: shapes follow from their values."""

Progress = Callable[[int, int], None]


def data_path(path: Path) -> Path:
    """Return where the parameters of a model beyond 2 GB are."""
    return Path(f"{path}.data")  # which is something for "." too, that is refused later


def write_file(
    graph: OnnxGraph,
    path: Path,
    metadata: Mapping[str, str],
    *,
    progress: Progress | None = None,
    most_in_one_file: int = MOST_IN_ONE_FILE,
) -> list[Path]:
    """Check a graph and write it with its parameters.

    Parameters
    ----------
    graph
        The graph.
    path
        The file.
    metadata
        What the file's ``metadata_props`` say.
    progress
        Called with the bytes of parameters written so far and in all.
    most_in_one_file
        Bytes beyond which the parameters go into ``path + ".data"``.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    ExportError
        When the graph does not pass ONNX's checker, or a file cannot be written; nothing is left behind then.

    Notes
    -----
    The message is put together from its parts, so that only parts of a parameter are in memory at a time
    (https://protobuf.dev/programming-guides/encoding/): a ``GraphProto`` may hold its ``initializer`` s after
    everything else.
    """
    tensors: dict[str, Parameter] = {
        **graph.parameters,
        **{name: ArrayParameter(values) for name, values in graph.constants.items()},
    }
    for name, value in tensors.items():
        if value.is_sparse:
            raise ExportError(f"The parameter {name!r} is sparse, which ONNX files are not written with.")
    model = _model(graph, metadata)
    _check(model, graph, tensors)
    sizes = {name: math.prod(value.shape) * value.dtype.itemsize for name, value in tensors.items()}
    total = sum(sizes.values())
    beside = data_path(path)
    graph_bytes = model.graph.SerializeToString()
    is_external = total + len(graph_bytes) > most_in_one_file
    # A tensor that is a bool or two is not worth a page.
    moved = {name for name, size in sizes.items() if is_external and size >= _ALIGNMENT}
    offsets, end = {}, 0
    for name in tensors:
        if name in moved:
            offsets[name] = end
            end = -(-(end + sizes[name]) // _ALIGNMENT) * _ALIGNMENT
    heads = {
        name: _head(name, value, sizes[name], offsets.get(name), beside.name)
        for name, value in tensors.items()
    }
    model.graph.Clear()
    shell = model.SerializeToString()
    inside = sum(
        len(head) + 1 + len(_varint(len(head))) if name in moved else _raw_size(head, sizes[name])
        for name, head in heads.items()
    )
    written = _Counter(total, progress)
    paths = [path, beside] if is_external else [path]
    with atomic_write(*paths, remove=[] if is_external else [beside]) as files:
        file = files[0]
        file.write(shell + _field(7) + _varint(len(graph_bytes) + inside))
        file.write(graph_bytes)
        for name, head in heads.items():
            if name in moved:
                file.write(_field(5) + _varint(len(head)) + head)
                continue
            size = sizes[name]
            length = len(head) + 1 + len(_varint(size)) + size
            file.write(_field(5) + _varint(length) + head + _field(9) + _varint(size))
            written.write(file, tensors[name].parts())
        position = 0
        for name, offset in offsets.items():
            files[1].write(bytes(offset - position))
            written.write(files[1], tensors[name].parts())
            position = offset + sizes[name]
    return paths


class _Counter:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total, self._progress, self._done = total, progress, 0

    def write(self, file: BinaryIO, parts: Iterable[NDArray[Any]]) -> None:
        for part in parts:
            array = np.ascontiguousarray(part)
            file.write(array.view(np.uint8).data if array.ndim else array.tobytes())
            self._done += array.nbytes
            if self._progress is not None:
                self._progress(self._done, self._total)


def _model(graph: OnnxGraph, metadata: Mapping[str, str]) -> Any:
    helper = import_onnx().helper
    model = helper.make_model(
        helper.make_graph(list(graph.nodes), "mxamp", list(graph.inputs), list(graph.outputs)),
        opset_imports=[
            helper.make_opsetid("", graph.opset),
            *(helper.make_opsetid(domain, 1) for domain in sorted(graph.writer.domains)),
        ],
        ir_version=graph.writer.ir_version,
        producer_name="mxamp",
        producer_version=__version__,
    )
    helper.set_model_props(model, dict(metadata))
    return model


def _check(model: Any, graph: OnnxGraph, tensors: Mapping[str, Parameter]) -> None:
    """Run ONNX's checker with its shape inference over the graph, with parameters as inputs."""
    onnx = import_onnx()
    checked = onnx.ModelProto()
    checked.CopyFrom(model)
    for name, value in tensors.items():
        code = ONNX_CODES[value.dtype]
        values = graph.constants.get(name)
        if values is not None and values.nbytes <= _CHECKED_WITH_VALUES:
            tensor = onnx.helper.make_tensor(name, code, values.shape, values.tobytes(), raw=True)
            checked.graph.initializer.append(tensor)
        else:
            checked.graph.input.append(onnx.helper.make_tensor_value_info(name, code, value.shape))
    try:
        onnx.checker.check_model(checked, full_check=True)
    except Exception as error:  # ValidationError and InferenceError have no common class of their own
        raise ExportError(
            f"The graph does not pass ONNX's checker: {' '.join(str(error).split())[:600]} This is a "
            "fault of the exporter (or of a mapping you registered); please report it. Nothing was written."
        ) from error


def _head(name: str, value: Parameter, size: int, offset: int | None, location: str) -> bytes:
    """Return a ``TensorProto`` without its values."""
    onnx = import_onnx()
    tensor = onnx.TensorProto(name=name, data_type=ONNX_CODES[value.dtype], dims=list(value.shape))
    if offset is not None:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, text in (("location", location), ("offset", str(offset)), ("length", str(size))):
            tensor.external_data.add(key=key, value=text)
    data: bytes = tensor.SerializeToString()
    return data


def _raw_size(head: bytes, size: int) -> int:
    """Return the bytes of an initializer that holds its values, with its own tag and length."""
    length = len(head) + 1 + len(_varint(size)) + size
    return 1 + len(_varint(length)) + length


def _field(number: int) -> bytes:
    """Return the tag of a field of bytes: wire type 2."""
    return _varint(number << 3 | 2)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
