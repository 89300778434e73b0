"""Which parameters hold NaN or infinity."""

from __future__ import annotations

import math
from typing import Any, Mapping

import numpy as np
from numpy.typing import NDArray

from mxamp.params.parameter import Parameter
from mxamp.params.ranges import magnitude_range

_SMALL = 1 << 16
"""A vector on disk of so many elements (a bias, a statistic) is read for this; others as they are written."""


def not_finite(params: Mapping[str, Parameter], *, read_all: bool = False) -> list[str]:
    """Return the names of the parameters that hold a NaN or an infinity.

    Parameters
    ----------
    params
        Parameters by name.
    read_all
        Whether all that lie on disk are looked at as well, and not vectors alone.

    Notes
    -----
    A sum of squares is finite only where all terms are; BLAS adds them up at the speed of memory. One that is
    not may have overflowed, and is looked at again.
    """
    with np.errstate(all="ignore"):
        return [
            name
            for name, parameter in params.items()
            if parameter.dtype.is_float
            and not parameter.is_sparse
            and (read_all or is_looked_at(parameter))
            and not all(_is_finite(part) for part in parameter.parts())
        ]


def is_looked_at(parameter: Parameter) -> bool:
    """Whether a parameter is read for this alone, and not when its values are needed anyway."""
    is_small = len(parameter.shape) < 2 and math.prod(parameter.shape) <= _SMALL
    return is_small or not parameter.is_on_disk


def is_finite(values: NDArray[Any]) -> bool:
    """Whether all values are finite."""
    with np.errstate(all="ignore"):
        return _is_finite(values)


def _is_finite(values: NDArray[Any]) -> bool:
    if values.dtype == np.float32 and values.flags.c_contiguous:
        flat = values.reshape(-1)
        if math.isfinite(float(np.dot(flat, flat))):
            return True
    magnitudes = magnitude_range(values)
    return not (magnitudes.nans or magnitudes.infs)


def not_finite_warning(names: list[str], what: str = "parameter") -> str:
    """Return what is to be said of parameters, or inputs, that are not finite."""
    some = ", ".join(repr(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
    many = f"{len(names)} {what}s hold" if len(names) > 1 else f"The {what} {some} holds"
    listed = f": {some}" if len(names) > 1 else ""
    return (
        f"{many} NaN or infinity{listed}. They stay so, in float32 as in low precision, and an operator such "
        "as relu may hide them from the outputs."
    )
