"""A parameter as the converter handles it, wherever its values live."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.params.cast import cast_array
from mxamp.params.ranges import magnitude_range, overflows, underflow_fraction

__all__ = ["ArrayParameter", "Parameter"]


class Parameter(Protocol):
    """A named tensor of the model; values may stay where they are until something asks for them."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def dtype(self) -> DType:
        """The dtype it is stored in."""

    def overflow(self, dtype: DType) -> float | None:
        """Return the largest finite magnitude if casting to ``dtype`` makes it infinite, else None."""

    def underflow_fraction(self, dtype: DType) -> float:
        """Return the share of the non-zero values that casting to ``dtype`` makes zero, 0 to 1."""

    def cast(self, dtype: DType) -> Parameter:
        """Return the parameter in another dtype, rounded to nearest, ties to even."""

    def numpy(self) -> NDArray[Any]:
        """Return the values as a NumPy array (ml_dtypes' bfloat16); read-only for the caller."""


class ArrayParameter:
    """A parameter held as a NumPy array.

    Parameters
    ----------
    array
        The values; bfloat16 is ml_dtypes'. Never written to.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self._dtype = DType.from_numpy(array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self._array.shape)

    @property
    def dtype(self) -> DType:
        """The dtype it is stored in."""
        return self._dtype

    def overflow(self, dtype: DType) -> float | None:
        """See :class:`Parameter`."""
        if not self._dtype.is_float or not overflows(self._array, dtype):
            return None
        return magnitude_range(self._array).largest

    def underflow_fraction(self, dtype: DType) -> float:
        """See :class:`Parameter`."""
        return underflow_fraction(self._array, dtype) if self._dtype.is_float else 0.0

    def cast(self, dtype: DType) -> ArrayParameter:
        """See :class:`Parameter`."""
        return ArrayParameter(cast_array(self._array, dtype))

    def numpy(self) -> NDArray[Any]:
        """See :class:`Parameter`."""
        return self._array

    def __repr__(self) -> str:
        return f"ArrayParameter({self._dtype}, shape={self.shape})"
