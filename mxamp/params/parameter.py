"""A parameter as the converter handles it, wherever its values live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.params.cast import cast_array
from mxamp.params.ranges import (
    magnitude_bound,
    magnitude_range,
    overflow_limit,
    overflows,
    underflow_fraction,
    underflows_beyond,
)

__all__ = ["ArrayParameter", "Parameter", "RangeLoss"]

_MOST = 0.5
"""A parameter that loses more than this share of its non-zero values has lost its meaning."""


@dataclass(frozen=True)
class RangeLoss:
    """What a narrower dtype would do to the values of a parameter.

    Attributes
    ----------
    largest
        The largest finite magnitude, where it would become infinite; otherwise None.
    zeroed
        The share of the non-zero values that would become zero, where it is more than half; otherwise None.
    """

    largest: float | None
    zeroed: float | None


class Parameter(ABC):
    """A named tensor of the model; values may stay where they are until something asks for them."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    @abstractmethod
    def dtype(self) -> DType:
        """The dtype it is stored in."""

    @abstractmethod
    def values(self) -> NDArray[Any]:
        """Return the values to be read at once: possibly a view, which must not outlive the parameter."""

    @abstractmethod
    def allocate(self, dtype: DType) -> tuple[Parameter, NDArray[Any]]:
        """Return a new parameter of this shape, in memory of the same kind, and its values to fill in."""

    def numpy(self) -> NDArray[Any]:
        """Return the values as a NumPy array (ml_dtypes' bfloat16); read-only for the caller."""
        return self.values()

    @cached_property
    def magnitude_bound(self) -> float:
        """A number that no finite magnitude exceeds, found in one pass over the values."""
        return magnitude_bound(self.values())

    def range_loss(self, dtype: DType) -> RangeLoss | None:
        """Return what casting to ``dtype`` would lose for want of range; None when it keeps what matters.

        bfloat16 has float32's exponents: what it makes zero is subnormal in float32 already.
        """
        if not self.dtype.is_float:
            return None
        values = self.values()
        largest = zeroed = None
        if self.magnitude_bound >= overflow_limit(dtype) and overflows(values, dtype):
            largest = magnitude_range(values).largest
        if dtype.smallest_normal > self.dtype.smallest_normal and underflows_beyond(values, dtype, _MOST):
            zeroed = underflow_fraction(values, dtype)
        return None if largest is None and zeroed is None else RangeLoss(largest, zeroed)

    def cast(self, dtype: DType) -> Parameter:
        """Return the parameter in another dtype, rounded to nearest, ties to even; itself in its own."""
        if dtype is self.dtype:
            return self
        result, out = self.allocate(dtype)
        cast_array(self.values(), dtype, out=out)
        return result


class ArrayParameter(Parameter):
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

    def values(self) -> NDArray[Any]:
        """See :class:`Parameter`."""
        return self._array

    def allocate(self, dtype: DType) -> tuple[Parameter, NDArray[Any]]:
        """See :class:`Parameter`."""
        out: NDArray[Any] = np.empty(self._array.shape, dtype.numpy)
        return ArrayParameter(out), out

    def __repr__(self) -> str:
        return f"ArrayParameter({self._dtype}, shape={self.shape})"
