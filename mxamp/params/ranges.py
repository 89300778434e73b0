"""How large and how small the values of a parameter are, and what a narrower dtype would do to them.

Every ``array`` is float16, bfloat16, float32 or float64, and every ``dtype`` a floating-point one;
anything else is a ParamsError.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Iterator

import numpy as np

from mxamp.errors import ParamsError
from mxamp.params.cast import BLOCK, as_float_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mxamp.dtypes import DType

_UNSIGNED: dict[int, np.dtype[Any]] = {2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}

_IN_BLAS = (np.dtype(np.float32), np.dtype(np.float64))
"""The dtypes whose dot product BLAS computes."""


@dataclass(frozen=True)
class Range:
    """The magnitudes that an array holds.

    Attributes
    ----------
    count
        The number of elements.
    largest
        The largest finite magnitude; 0.0 when there is none.
    smallest
        The smallest magnitude that is neither zero nor infinite; inf when there is none.
    nans, infs
        How many elements are NaN, and how many are infinite.
    """

    count: int
    largest: float
    smallest: float
    nans: int
    infs: int


def magnitude_range(array: NDArray[Any]) -> Range:
    """Measure the magnitudes of a floating-point array in one pass over memory.

    Notes
    -----
    Without its sign bit the pattern of an IEEE number is an unsigned integer in the same order, so integer
    minimum and maximum do all the work; NaNs come last, after infinity. Temporaries have a fixed size.
    """
    dtype, array = as_float_array(array)
    infinity = _bits(math.inf, dtype)
    largest = nans = infs = 0
    # Patterns minus one: zero becomes the largest of all, and the minimum passes it over.
    smallest = infinity - 1
    for block in _magnitudes(array, dtype):
        top = int(block.max())
        if top >= infinity:
            infs += int(np.count_nonzero(block == infinity))
            nans += int(np.count_nonzero(block > infinity))
            top = int(block[block < infinity].max(initial=0))
        largest = max(largest, top)
        block -= block.dtype.type(1)
        smallest = min(smallest, int(block.min()))
    return Range(array.size, _value(largest, dtype), _value(smallest + 1, dtype), nans, infs)


def overflows(array: NDArray[Any], dtype: DType) -> bool:
    """Tell whether a finite value of ``array`` becomes infinite when it is cast to ``dtype``.

    NaNs and infinities do not count: they stay what they are. The limit is :func:`overflow_limit`.
    """
    source, array = as_float_array(array)
    limit = overflow_limit(dtype)
    if source.max_finite < limit or not array.size:
        return False
    top = _largest_pattern(array, source)
    if top < _bits(math.inf, source):
        return _value(top, source) >= limit
    return magnitude_range(array).largest >= limit


def underflow_fraction(array: NDArray[Any], dtype: DType) -> float:
    """Return the share of the non-zero values of ``array`` that become zero when cast to ``dtype``.

    It is 0.0 where every value is zero. NaN and infinity count as non-zero.
    """
    nonzero, lost = underflow_counts(array, dtype)
    return lost / nonzero if nonzero else 0.0


def underflow_counts(array: NDArray[Any], dtype: DType) -> tuple[int, int]:
    """Return how many values of ``array`` are not zero, and how many of them become zero in ``dtype``."""
    source, array = as_float_array(array)
    _require_float(dtype)
    # Half the smallest subnormal is a tie, and rounds to the even one: zero. A source dtype that is too
    # coarse for the limit rounds it to zero here, and has no value below it either.
    limit = _bits(dtype.smallest_subnormal / 2, source)
    nonzero = lost = 0
    for block in _magnitudes(array, source):
        nonzero += int(np.count_nonzero(block))
        block -= block.dtype.type(1)
        lost += int(np.count_nonzero(block < limit))
    return nonzero, lost


def underflows_beyond(array: NDArray[Any], dtype: DType, share: float) -> bool:
    """Tell whether more than ``share`` of the non-zero values become zero when cast to ``dtype``.

    The same as ``underflow_fraction(array, dtype) > share``, but it stops as soon as enough values are known
    to survive, which for ordinary weights is after ``1 - share`` of them.
    """
    source, array = as_float_array(array)
    _require_float(dtype)
    limit = _UNSIGNED[source.itemsize].type(_bits(dtype.smallest_subnormal / 2, source))
    enough = (1.0 - share) * array.size
    kept = 0
    survives = np.empty(min(BLOCK, array.size), bool)
    for block in _magnitudes(array, source):
        kept += int(np.count_nonzero(np.greater(block, limit, out=survives[: block.size])))
        if kept >= enough:
            return False
    return underflow_fraction(array, dtype) > share


def magnitude_bound(array: NDArray[Any]) -> float:
    """Return a number that no finite magnitude in ``array`` exceeds.

    It is the Euclidean norm where BLAS can compute it, at the speed of memory, and the largest finite
    magnitude elsewhere. The norm of a weight is far below what overflows, so that nearly always this is all
    there is to know.

    Notes
    -----
    A sum of non-negative numbers, rounded to nearest, is never less than any of them rounded, in whatever
    order BLAS adds; the margin covers the rounding of the largest square. Squares that underflow to zero
    belong to magnitudes below 1e-22.
    """
    _, array = as_float_array(array)
    if array.dtype in _IN_BLAS and array.flags.c_contiguous:
        flat = array.reshape(-1)
        with np.errstate(all="ignore"):
            square = float(np.dot(flat, flat))
        if math.isfinite(square):
            return math.sqrt(square) * (1.0 + 1e-6) + 1e-22
    return magnitude_range(array).largest


def _largest_pattern(array: NDArray[Any], dtype: DType) -> int:
    """Return the largest pattern without its sign bit, in two passes without temporaries.

    As signed integers the largest pattern belongs to the largest positive value (or a positive NaN), as
    unsigned ones to the negative value that is furthest from zero.
    """
    sign = 1 << (8 * dtype.itemsize - 1)
    most_positive = int(array.view(f"i{dtype.itemsize}").max())
    most_negative = int(array.view(_UNSIGNED[dtype.itemsize]).max()) & ~sign
    return max(most_positive, most_negative)


def _magnitudes(array: NDArray[Any], dtype: DType) -> Iterator[NDArray[Any]]:
    """Yield the array block by block as patterns without the sign bit.

    The caller may change a block, and must be done with it when it asks for the next: they share one buffer.
    """
    unsigned = _UNSIGNED[dtype.itemsize]
    mask = unsigned.type((1 << (8 * dtype.itemsize - 1)) - 1)
    patterns = array.view(unsigned) if array.ndim else array.reshape(1).view(unsigned)
    if patterns.flags.c_contiguous:
        flat = patterns.reshape(-1)
        buffer = np.empty(min(BLOCK, flat.size), unsigned)
        for start in range(0, flat.size, BLOCK):
            block = flat[start : start + BLOCK]
            yield np.bitwise_and(block, mask, out=buffer[: block.size])
    else:
        # A flat iterator copies block by block where reshape would copy everything.
        for start in range(0, patterns.size, BLOCK):
            yield patterns.flat[start : start + BLOCK] & mask


@lru_cache(maxsize=None)
def overflow_limit(dtype: DType) -> float:
    """Return the smallest magnitude that becomes infinite when it is cast to ``dtype``.

    It is half an ulp beyond the largest finite value; the tie itself rounds to infinity.
    """
    _require_float(dtype)
    if dtype.label == "float8_e4m3fn":
        # It has no infinity, so 480 would be its next value; the tie at 464 rounds to 448, the even one.
        return float(np.nextafter(np.float32(464.0), np.float32(np.inf)))
    # max_finite is (2**(n + 1) - 1) ulps for n stored significand bits.
    return dtype.max_finite + dtype.max_finite / (dtype.max_exact_integer - 1) / 2


def _require_float(dtype: DType) -> None:
    if not dtype.is_float:
        raise ParamsError(f"{dtype} is not a floating-point dtype, so values have no range in it.")


@lru_cache(maxsize=64)
def _bits(value: float, dtype: DType) -> int:
    with np.errstate(all="ignore"):
        number = np.array([value]).astype(dtype.numpy)
    return int(number.view(_UNSIGNED[dtype.itemsize])[0])


def _value(bits: int, dtype: DType) -> float:
    pattern = np.array([bits], _UNSIGNED[dtype.itemsize])
    return float(pattern.view(dtype.numpy)[0])
