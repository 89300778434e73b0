"""Clamp what a narrower dtype cannot hold to its largest finite value, and say what that lost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.params.parameter import DerivedParameter, Parameter
from mxamp.params.ranges import magnitude_range, overflow_limit


@dataclass(frozen=True)
class Saturation:
    """What clamping a parameter lost.

    Attributes
    ----------
    count
        How many finite values were clamped: those that would have become infinite.
    largest
        The largest magnitude among them; 0.0 where there are none.
    limit
        What they were clamped to: the dtype's largest finite value.
    infs, nans
        How many values were infinite or NaN already. They stay what they are.
    """

    count: int
    largest: float
    limit: float
    infs: int = 0
    nans: int = 0


class SaturatedParameter(DerivedParameter):
    """A parameter whose casts clamp its finite values to the range of the dtype; infinities stay.

    Parameters
    ----------
    parameter
        The parameter; itself, unclamped, in its own dtype.
    dtype
        The dtype whose range its values are clamped to.
    """

    def __init__(self, parameter: Parameter, dtype: DType) -> None:
        super().__init__(parameter)
        self._limit = dtype.max_finite

    @cached_property
    def magnitude_bound(self) -> float:
        """See :class:`Parameter`."""
        return min(self._parameter.magnitude_bound, self._limit)

    def values(self) -> NDArray[Any]:
        """See :class:`Parameter`; clamped, in the parameter's own dtype."""
        return self._clamped(self._parameter.values())

    def part(self, start: int, stop: int, buffer: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """See :class:`Parameter`."""
        return self._clamped(self._parameter.part(start, stop, buffer))

    def _clamped(self, values: NDArray[Any]) -> NDArray[Any]:
        clamped: NDArray[Any] = np.clip(values, -self._limit, self._limit)
        infinite = np.isinf(values)
        if infinite.any():
            np.copyto(clamped, values, where=infinite)
        return clamped

    def cast(self, dtype: DType) -> Parameter:
        """See :class:`Parameter`."""
        return self._parameter.cast(dtype) if dtype is self.dtype else super().cast(dtype)


def saturate(parameter: Parameter, dtype: DType) -> tuple[Parameter, Saturation | None]:
    """Return a parameter that casts to ``dtype`` without overflow, and what that loses.

    Parameters
    ----------
    parameter
        A floating-point parameter.
    dtype
        The dtype it will be cast to.

    Returns
    -------
    parameter
        A :class:`SaturatedParameter`, or the parameter itself where nothing overflows.
    saturation
        None where no value overflows, is infinite or NaN.

    Notes
    -----
    A value overflows from half an ulp beyond the largest finite value; what lies between rounds to that.
    """
    limit = overflow_limit(dtype)
    count = infs = nans = 0
    largest = 0.0
    for part in parameter.parts():
        found = magnitude_range(part)
        infs, nans = infs + found.infs, nans + found.nans
        if found.largest >= limit:
            largest = max(largest, found.largest)
            count += int(np.count_nonzero(np.abs(part) >= limit)) - found.infs
    if count:
        saturated = SaturatedParameter(parameter, dtype)
        return saturated, Saturation(count, largest, dtype.max_finite, infs, nans)
    return parameter, Saturation(0, 0.0, dtype.max_finite, infs, nans) if infs or nans else None


def saturate_parameters(
    params: Mapping[str, Parameter], dtypes: Mapping[str, Sequence[DType]]
) -> tuple[dict[str, Parameter], dict[str, Saturation]]:
    """Make parameters fit the dtypes they will be cast to.

    Parameters
    ----------
    params
        Parameters by name.
    dtypes
        For each name the dtypes to cast that parameter to.

    Returns
    -------
    params
        The same names in the same order.
    saturations
        Name -> what was lost, for those with values that overflow, are infinite or NaN.
    """
    fitting: dict[str, Parameter] = dict(params)
    saturations: dict[str, Saturation] = {}
    for name, wanted in dtypes.items():
        for dtype in wanted:
            if dtype.is_low_precision and params[name].dtype.is_float:
                fitting[name], saturation = saturate(params[name], dtype)
                if saturation is not None:
                    saturations[name] = saturation
    return fitting, saturations
