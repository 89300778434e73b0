"""A tensor of the ONNX graph that is being written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, Tuple, Union

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


class OpenSize(NamedTuple):
    """A size that is known only when the model runs.

    Attributes
    ----------
    tensor
        The tensor whose sizes tell it.
    axes
        The axes whose sizes it is the product of.
    times
        What that is multiplied by.
    """

    tensor: Tensor
    axes: tuple[int, ...]
    times: int = 1


Size = Union[int, OpenSize]
"""The size of an axis."""


def product(first: Size, second: Size) -> Size:
    """Return the size of two axes that become one; of two open ones both are of the same tensor."""
    if isinstance(first, int):
        first, second = second, first
    if isinstance(first, int):
        assert isinstance(second, int)
        return first * second
    if isinstance(second, int):
        return first._replace(times=first.times * second)
    assert first.tensor is second.tensor
    return OpenSize(first.tensor, (*first.axes, *second.axes), first.times * second.times)
