"""Run ONNX files in ONNX Runtime, on its CPU provider."""

from __future__ import annotations

import os
from typing import Any, Mapping

import numpy as np
from numpy.typing import NDArray

from mxamp.errors import DataError, ModelFileNotFoundError, OperatorError
from mxamp.onnx.package import import_onnx, import_onnxruntime

_NUMPY_OF = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
}


class OnnxSession:
    """An ONNX file, loaded to run.

    Parameters
    ----------
    path
        The file.
    threads
        How many threads an operator may use; ONNX Runtime's choice for None.
    optimized
        Whether ONNX Runtime may rewrite the graph; otherwise nodes run as they are written.

    Attributes
    ----------
    input_shapes
        Input name -> shape; 0 for a size that is open.
    output_names
        The names of the outputs, in order.

    Raises
    ------
    ModelFileNotFoundError
        When there is no such file.
    OperatorError
        When ONNX Runtime cannot load it.
    OnnxMissingError
        When ONNX Runtime is not installed.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, threads: int | None = None, optimized: bool = True
    ) -> None:
        runtime = import_onnxruntime()
        self.path = os.fspath(path)
        if not os.path.isfile(self.path):
            raise ModelFileNotFoundError(f"There is no ONNX file {self.path!r}.")
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # errors alone, which are raised too
        if not optimized:
            options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        if threads is not None:
            options.intra_op_num_threads = threads
        try:
            self._session: Any = runtime.InferenceSession(
                self.path, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its exceptions have no common class of their own
            raise OperatorError(
                f"ONNX Runtime {runtime.__version__} cannot load {self.path}: {one_line(error)}"
                f"{_hint(self.path)}"
            ) from error
        self._inputs = {entry.name: entry for entry in self._session.get_inputs()}
        self.input_shapes = {
            name: tuple(size if isinstance(size, int) else 0 for size in entry.shape)
            for name, entry in self._inputs.items()
        }
        self.output_names = [entry.name for entry in self._session.get_outputs()]
        self._binding: Any = None

    def load(self, data: Mapping[str, NDArray[Any]]) -> None:
        """Hand over inputs for :meth:`forward`.

        Parameters
        ----------
        data
            Input name -> values, cast to the dtype the file takes.

        Raises
        ------
        DataError
            When an input is missing, or of a dtype that NumPy does not have.
        """
        self._binding = self._session.io_binding()
        for name, values in self._fed(data).items():
            self._binding.bind_cpu_input(name, values)
        for name in self.output_names:
            self._binding.bind_output(name)

    def forward(self) -> None:
        """Run once on what :meth:`load` handed over; the outputs stay where they are.

        Raises
        ------
        OperatorError
            When an operator fails.
        """
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as error:  # its exceptions have no common class of their own
            raise OperatorError(f"ONNX Runtime cannot run {self.path}: {one_line(error)}") from error

    def run(self, data: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Run once.

        Parameters
        ----------
        data
            Input name -> values, cast to the dtype the file takes.

        Returns
        -------
        list of numpy.ndarray
            float16 results as float32, everything else as it is.

        Raises
        ------
        DataError
            When an input is missing, or of a dtype that NumPy does not have.
        OperatorError
            When an operator fails.
        """
        fed = self._fed(data)
        try:
            outputs = self._session.run(None, fed)
        except Exception as error:  # its exceptions have no common class of their own
            raise OperatorError(f"ONNX Runtime cannot run {self.path}: {one_line(error)}") from error
        return [value.astype(np.float32) if value.dtype == np.float16 else value for value in outputs]

    def _fed(self, data: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        fed = {}
        for name, entry in self._inputs.items():
            if name not in data:
                raise DataError(f"The input {name!r} of {self.path} is missing.")
            if entry.type not in _NUMPY_OF:
                raise DataError(f"The input {name!r} of {self.path} is a {entry.type}, which cannot be fed.")
            fed[name] = np.ascontiguousarray(data[name]).astype(_NUMPY_OF[entry.type], copy=False)
        return fed


def one_line(error: Exception) -> str:
    """Return what a runtime said, shortened, on one line."""
    return " ".join(str(error).split())[:400]


def _hint(path: str) -> str:
    """Return what to do about a file that ONNX Runtime refuses: for bfloat16, the form that it can run."""
    onnx = import_onnx()
    try:
        tensors = onnx.load(path, load_external_data=False).graph.initializer
    except Exception:  # a damaged file, which the error says
        return ""
    if all(tensor.data_type != onnx.TensorProto.BFLOAT16 for tensor in tensors):
        return ""
    return (
        ". The file is bfloat16, for which its CPU provider has few kernels. Run it where the provider has "
        "them, or export the roundings alone: --explicit-casts (explicit_casts=True)."
    )
