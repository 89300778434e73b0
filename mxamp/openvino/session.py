"""Run ONNX files, and OpenVINO's own, in OpenVINO on the CPU."""

from __future__ import annotations

import os
from typing import Any, Mapping

import numpy as np
from numpy.typing import NDArray

from mxamp.errors import DataError, ModelFileNotFoundError, OperatorError
from mxamp.onnx.session import one_line
from mxamp.openvino.package import import_openvino

FLOAT32, BFLOAT16, FLOAT16 = "f32", "bf16", "f16"
"""What ``INFERENCE_PRECISION_HINT`` may be. With ``f32`` a node computes in the type that the file gives it;
with the others nodes that are float32 in the file compute low too, all but those that are marked
(:mod:`mxamp.openvino.marks`) and those behind the last heavy one."""


class OpenvinoSession:
    """A file that is loaded to run.

    Parameters
    ----------
    path
        An ONNX file, or OpenVINO's ``.xml`` with its ``.bin`` beside it.
    precision
        :data:`FLOAT32`, :data:`BFLOAT16` or :data:`FLOAT16`; None for what OpenVINO chooses.
    threads
        How many threads it may use; OpenVINO's choice for None.

    Attributes
    ----------
    input_shapes
        Input name -> shape; 0 for a size that is open.
    output_names
        The names of the outputs, in order.
    settings
        What OpenVINO was told.

    Raises
    ------
    ModelFileNotFoundError
        When there is no such file.
    OperatorError
        When OpenVINO cannot load it.
    OpenvinoMissingError
        When OpenVINO is not installed.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, precision: str | None = None, threads: int | None = None
    ) -> None:
        openvino = import_openvino()
        self.path = os.fspath(path)
        if not os.path.isfile(self.path):
            raise ModelFileNotFoundError(f"There is no file {self.path!r}.")
        self.settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
        if precision is not None:
            self.settings["INFERENCE_PRECISION_HINT"] = precision
        if threads is not None:
            self.settings["INFERENCE_NUM_THREADS"] = threads
        try:
            core = openvino.Core()
            model = core.read_model(self.path)
            self._compiled: Any = core.compile_model(model, "CPU", self.settings)
        except Exception as error:  # RuntimeError, and classes of its own
            raise OperatorError(
                f"OpenVINO {openvino.__version__} cannot load {self.path}: {one_line(error)}"
            ) from error
        self._request: Any = self._compiled.create_infer_request()
        self._inputs = {_name(port): port for port in self._compiled.inputs}
        self.input_shapes = {
            name: tuple(size.get_length() if size.is_static else 0 for size in port.get_partial_shape())
            for name, port in self._inputs.items()
        }
        self.output_names = [_name(port) for port in self._compiled.outputs]
        self._fed: dict[str, Any] = {}

    def load(self, data: Mapping[str, NDArray[Any]]) -> None:
        """Hand over inputs.

        Parameters
        ----------
        data
            Input name -> values, cast to the dtype the file takes.

        Raises
        ------
        DataError
            When an input is missing, or of a dtype that NumPy does not have.
        """
        openvino = import_openvino()
        for name, port in self._inputs.items():
            if name not in data:
                raise DataError(f"The input {name!r} of {self.path} is missing.")
            kind = port.get_element_type()
            if kind == openvino.Type.bf16:
                raise DataError(f"The input {name!r} of {self.path} is bfloat16, which cannot be fed.")
            values = np.ascontiguousarray(data[name]).astype(kind.to_dtype(), copy=False)
            self._fed[name] = openvino.Tensor(values, shared_memory=True)
            self._request.set_tensor(port, self._fed[name])

    def forward(self) -> None:
        """Run once on what :meth:`load` handed over.

        Raises
        ------
        OperatorError
            When an operator fails.
        """
        try:
            self._request.infer()
        except Exception as error:  # RuntimeError, and classes of its own
            raise OperatorError(f"OpenVINO cannot run {self.path}: {one_line(error)}") from error

    def run(self, data: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Run once on inputs, as :meth:`load` takes them; float16 results are returned as float32."""
        self.load(data)
        self.forward()
        outputs = [np.array(self._request.get_tensor(port).data) for port in self._compiled.outputs]
        return [value.astype(np.float32) if value.dtype == np.float16 else value for value in outputs]

    def precisions(self) -> dict[str, dict[str, int]]:
        """Return in what precision OpenVINO executes: kind of layer -> precision -> number of layers."""
        found: dict[str, dict[str, int]] = {}
        for node in self._compiled.get_runtime_model().get_ordered_ops():
            information = node.get_rt_info()
            kind, precision = (_text(information[key]) for key in ("layerType", "runtimePrecision"))
            counts = found.setdefault(kind, {})
            counts[precision] = counts.get(precision, 0) + 1
        return found


def _text(value: Any) -> str:
    return str(getattr(value, "value", value))


def _name(port: Any) -> str:
    """Return the name of an input or output; OpenVINO may give one tensor several."""
    names = sorted(port.get_names())
    return names[0] if names else str(port.get_node().get_friendly_name())
