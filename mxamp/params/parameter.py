"""A parameter as the converter handles it, wherever its values live."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Iterator

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

PART = 1 << 20
"""Values of a parameter on disk that are in memory at a time: 4 MiB of float32.

From a quarter to four times as many convert a large file in the same time.
"""

MOST_ZEROED = 0.5
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

    @property
    def nbytes(self) -> int:
        """The bytes of its values, if all of them are stored."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_sparse(self) -> bool:
        """Whether it is stored sparsely: it is then handed on as it is, and never cast."""
        return False

    @property
    def is_on_disk(self) -> bool:
        """Whether its values lie in a file: read part by part, and cast when the result is written."""
        return False

    def numpy(self) -> NDArray[Any]:
        """Return the values as a NumPy array (ml_dtypes' bfloat16); read-only for the caller."""
        return self.values()

    def stored(self) -> Any:
        """Return what a parameter file holds of it: the values, or a :class:`mxamp.params.SparseTensor`."""
        return self.numpy()

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
        if dtype.smallest_normal > self.dtype.smallest_normal and underflows_beyond(
            values, dtype, MOST_ZEROED
        ):
            zeroed = underflow_fraction(values, dtype)
        return None if largest is None and zeroed is None else RangeLoss(largest, zeroed)

    def cast(self, dtype: DType) -> Parameter:
        """Return the parameter in another dtype, rounded to nearest, ties to even; itself in its own."""
        if dtype is self.dtype:
            return self
        result, out = self.allocate(dtype)
        self.cast_into(out)
        return result

    def cast_into(self, out: NDArray[Any]) -> None:
        """Fill ``out``, C-contiguous and of this shape, with the values rounded to its dtype."""
        cast_array(self.values(), DType.from_numpy(out.dtype), out=out)

    def source(self) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
        """Return what the values are made from: stored values, and None or factors for their rows.

        The factors are as many as there are rows when the stored values are divided into rows evenly. Like
        :meth:`values`, the arrays are to be used at once.
        """
        return self.values(), None

    def part(self, start: int, stop: int, buffer: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """Return the values from one position to another of the flattened parameter.

        Parameters
        ----------
        start, stop
            The positions.
        buffer
            C-contiguous memory that the result may be put into; long enough for it.
        """
        return np.ascontiguousarray(self.values()).reshape(-1)[start:stop]

    def parts(self) -> Iterator[NDArray[Any]]:
        """Yield all values in order: on disk a part at a time, flat; in memory at once.

        A part is to be used before the next is asked for.
        """
        if not self.is_on_disk:
            yield self.values()
            return
        size = math.prod(self.shape)
        buffer = np.empty(min(PART, size) * self.dtype.itemsize, np.uint8)
        for start in range(0, size, PART):
            yield self.part(start, min(start + PART, size), buffer)

    @property
    def row_factors(self) -> NDArray[np.float32] | None:
        """None, or factors for the rows of :meth:`source_part`, as many as there are rows."""
        return None

    def source_part(self, start: int, stop: int, buffer: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """Return what :meth:`part` is made from with :attr:`row_factors`."""
        return self.part(start, stop, buffer)


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


class DerivedParameter(Parameter):
    """A parameter made of another: of its shape, dtype and place, unless a subclass says otherwise."""

    def __init__(self, parameter: Parameter) -> None:
        self._parameter = parameter

    @property
    def shape(self) -> tuple[int, ...]:
        """See :class:`Parameter`."""
        return self._parameter.shape

    @property
    def dtype(self) -> DType:
        """See :class:`Parameter`."""
        return self._parameter.dtype

    @property
    def is_on_disk(self) -> bool:
        """See :class:`Parameter`."""
        return self._parameter.is_on_disk

    def allocate(self, dtype: DType) -> tuple[Parameter, NDArray[Any]]:
        """See :class:`Parameter`."""
        return self._parameter.allocate(dtype)
