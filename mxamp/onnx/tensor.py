"""A tensor of the ONNX graph that is being written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Tuple

from numpy.typing import NDArray

from mxamp.dtypes import DType

Shape = Tuple[Optional[int], ...]
"""The size of every axis; None where it is known only when the model runs."""

ONNX_CODES = {
    DType.FLOAT32: 1,
    DType.UINT8: 2,
    DType.INT8: 3,
    DType.INT32: 6,
    DType.INT64: 7,
    DType.BOOL: 9,
    DType.FLOAT16: 10,
    DType.FLOAT64: 11,
    DType.BFLOAT16: 16,
}
"""The number of each dtype in ``TensorProto.DataType`` (onnx/onnx.proto)."""

DTYPE_OF_CODE = {code: dtype for dtype, code in ONNX_CODES.items()}


@dataclass(frozen=True, eq=False)
class Tensor:
    """One value of the ONNX graph.

    Attributes
    ----------
    name
        Its name while the graph is written.
    dtype
        Its dtype.
    shape
        Its shape; None where not even the rank is known.
    value
        What it holds, where that is a constant of the exporter's.
    """

    name: str
    dtype: DType
    shape: Shape | None
    value: NDArray[Any] | None = None
