"""A parameter with more channels, computed when its values are wanted."""

from __future__ import annotations

from functools import cached_property
from types import MappingProxyType
from typing import Any, Mapping

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.params.parameter import ArrayParameter, Parameter


class PaddedParameter(Parameter):
    """A parameter that goes on around its values, along some axes, with one value.

    Parameters
    ----------
    parameter
        The parameter, of a floating-point dtype.
    added
        Axis -> how many entries are added.
    fill
        What they hold.
    first
        Axis -> how many of them are in front of what is there; the others, and all where it is not named, are
        at its end.

    Notes
    -----
    The values are computed once, when they are first asked for, and kept: in memory, also where the parameter
    is in a file.
    """

    def __init__(
        self,
        parameter: Parameter,
        added: Mapping[int, int],
        fill: float = 0.0,
        *,
        first: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._parameter = parameter
        self._added = added
        self._fill = fill
        self._first = first

    @property
    def shape(self) -> tuple[int, ...]:
        """See :class:`Parameter`."""
        return tuple([size + self._added.get(axis, 0) for axis, size in enumerate(self._parameter.shape)])

    @property
    def dtype(self) -> DType:
        """See :class:`Parameter`."""
        return self._parameter.dtype

    @cached_property
    def _values(self) -> NDArray[Any]:
        values = self._parameter.values()
        padded = np.full(self.shape, self._fill, values.dtype)
        begins = [self._first.get(axis, 0) for axis in range(values.ndim)]
        padded[tuple([slice(begin, begin + size) for begin, size in zip(begins, values.shape)])] = values
        return padded

    def values(self) -> NDArray[Any]:
        """See :class:`Parameter`."""
        return self._values

    def allocate(self, dtype: DType) -> tuple[Parameter, NDArray[Any]]:
        """See :class:`Parameter`."""
        out: NDArray[Any] = np.empty(self.shape, dtype.numpy)
        return ArrayParameter(out), out
