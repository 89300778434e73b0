"""A parameter whose values stand in another order, moved when they are wanted."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.params.parameter import ArrayParameter, Parameter


class RearrangedParameter(Parameter):
    """A parameter with its axes in another order, and then of another shape.

    Parameters
    ----------
    parameter
        The parameter.
    axes
        Which of its axes comes first, second, ...
    shape
        The shape of the result, of as many values.

    Notes
    -----
    The values are moved once, when they are first asked for, and kept: in memory, also where the parameter is
    in a file.
    """

    def __init__(self, parameter: Parameter, axes: Sequence[int], shape: Sequence[int]) -> None:
        self._parameter = parameter
        self._axes = tuple(axes)
        self._new_shape = tuple(shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """See :class:`Parameter`."""
        return self._new_shape

    @property
    def dtype(self) -> DType:
        """See :class:`Parameter`."""
        return self._parameter.dtype

    @cached_property
    def _values(self) -> NDArray[Any]:
        moved = self._parameter.values().transpose(self._axes)
        return np.ascontiguousarray(moved).reshape(self._new_shape)

    def values(self) -> NDArray[Any]:
        """See :class:`Parameter`."""
        return self._values

    def allocate(self, dtype: DType) -> tuple[Parameter, NDArray[Any]]:
        """See :class:`Parameter`."""
        out: NDArray[Any] = np.empty(self.shape, dtype.numpy)
        return ArrayParameter(out), out
