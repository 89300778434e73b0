"""A parameter multiplied by one factor a channel, computed when its values are wanted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.params.cast import BLOCK, cast_array
from mxamp.params.parameter import DerivedParameter, Parameter


class ScaledParameter(DerivedParameter):
    """``parameter * factors`` along one axis, rounded once when cast.

    Parameters
    ----------
    parameter
        The parameter, float32.
    factors
        float64, one a channel: reshaped so that it broadcasts against the parameter.

    Notes
    -----
    The product is formed in float32 and then rounded to the low dtype. The first rounding is 2^-24 of the
    value, and can only matter to the second within that distance of a tie: the result is within
    0.5 + 2^-15 ulp of bfloat16, and 0.5 + 2^-12 ulp of float16, of the exact product.
    """

    def __init__(self, parameter: Parameter, factors: NDArray[np.float64]) -> None:
        super().__init__(parameter)
        self._factors = factors

    def values(self) -> NDArray[Any]:
        """See :class:`Parameter`."""
        scaled: NDArray[Any] = (self._parameter.values() * self._factors).astype(np.float32)
        return scaled

    def cast(self, dtype: DType) -> Parameter:
        """See :class:`Parameter`; always a new one."""
        result, out = self.allocate(dtype)
        self.cast_into(out)
        return result

    def source(self) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
        """See :class:`Parameter`."""
        return self._parameter.values(), self.row_factors

    @property
    def row_factors(self) -> NDArray[np.float32]:
        """See :class:`Parameter`."""
        return self._factors.astype(np.float32).reshape(-1)

    def source_part(self, start: int, stop: int, buffer: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """See :class:`Parameter`."""
        return self._parameter.part(start, stop, buffer)

    def part(self, start: int, stop: int, buffer: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """See :class:`Parameter`."""
        factors = self._factors.reshape(-1)
        columns = max(1, math.prod(self.shape) // factors.size)
        part = self._parameter.part(start, stop, buffer)
        scaled: NDArray[Any] = (part * factors[np.arange(start, stop) // columns]).astype(np.float32)
        return scaled

    def cast_into(self, out: NDArray[Any]) -> None:
        """See :class:`Parameter`."""
        dtype = DType.from_numpy(out.dtype)
        if dtype is DType.FLOAT32:
            np.copyto(out, self.values())
            return
        values = self._parameter.values()
        factors = self._factors.astype(np.float32)
        # A few output channels at a time, so that the products never leave the processor's cache.
        rows = max(1, 4 * BLOCK * len(values) // max(values.size, 1))
        products = np.empty((min(rows, len(values)), *values.shape[1:]), np.float32)
        with np.errstate(all="ignore"):
            for start in range(0, len(values), rows):
                chunk = values[start : start + rows]
                factor = factors[start : start + rows] if len(factors) > 1 else factors
                product = np.multiply(chunk, factor, out=products[: len(chunk)])
                cast_array(product, dtype, out=out[start : start + rows])


class ColumnScaledParameter(DerivedParameter):
    """``parameter * factors`` along everything but the first axis.

    Parameters
    ----------
    parameter
        The parameter, float32.
    factors
        float64, one for each value of a row.
    """

    def __init__(self, parameter: Parameter, factors: NDArray[np.float64]) -> None:
        super().__init__(parameter)
        self._factors = factors

    def values(self) -> NDArray[Any]:
        """See :class:`Parameter`."""
        factors = self._factors.reshape(1, *self.shape[1:])
        scaled: NDArray[Any] = (self._parameter.values() * factors).astype(np.float32)
        return scaled

    def part(self, start: int, stop: int, buffer: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """See :class:`Parameter`."""
        part = self._parameter.part(start, stop, buffer)
        factors = self._factors[np.arange(start, stop) % self._factors.size]
        scaled: NDArray[Any] = (part * factors).astype(np.float32)
        return scaled
