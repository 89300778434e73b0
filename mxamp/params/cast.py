"""Cast parameters between floating-point dtypes, rounding to nearest, ties to even."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mxamp.dtypes import LOW_PRECISION, DType
from mxamp.errors import ParamsError, TargetError
from mxamp.ops.kernels import Kernels, kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 1 << 16
"""Elements handled at a time: temporaries stay in the processor's cache, and never grow with the tensor."""

_MAGNITUDE = 0x7FFF_FFFF
_EXPONENT = 0x7F80_0000
_INFINITY = 0x7F80_0000
_FLOAT16_SMALLEST_NORMAL = 0x3880_0000
"""2**-14 as float32 bits."""
_FLOAT16_PAST_OVERFLOW = 0x4780_0000
"""2**16 as float32 bits; everything from there on becomes infinite in float16."""
_FLOAT16_INFINITY = 0x7C00
_NATIVE_FROM = 1 << 12
"""Elements from which on a call of the native kernels is worth its cost."""
_CAST_BY_ML_DTYPES = {DType.BFLOAT16: DType.FLOAT32}
"""Target -> the source from which ml_dtypes rounds correctly and fast."""


def cast_array(array: NDArray[Any], dtype: DType, *, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the values of ``array`` in another floating-point dtype.

    Parameters
    ----------
    array
        float16, bfloat16, float32 or float64; any layout, never changed.
    dtype
        The dtype to cast to.
    out
        A C-contiguous array of that dtype and of the shape of ``array``, to hold the result.

    Returns
    -------
    numpy.ndarray
        ``out``; without one a new C-contiguous array, or ``array`` itself when it has the dtype already.

    Raises
    ------
    ParamsError
        When source or target is not a floating-point dtype: integers are indices or quantized values, which
        low precision would corrupt.

    Notes
    -----
    Every value is rounded once, to nearest, ties to even, subnormals included, whatever the source: float64
    does not round through float32 first. Beyond the largest finite value by half an ulp or more the result is
    infinite. NaN stays NaN and keeps its sign. From float32 to float16 it also keeps the upper 10 bits of its
    payload (one that would be lost becomes 1), and in bfloat16 it is the quiet NaN; otherwise the payload may
    change.

    float32 to a 16-bit dtype has three routes, with the same bits. Measured on two cores of an AMD EPYC
    (Turin), for 32 Mi values and as a share of the bandwidth of a copy by NumPy in the same process (bytes
    read and written; ``python -m tools.benchmark_operators`` measures it anywhere):

    ========================= ======= ========
    route                     float16 bfloat16
    ========================= ======= ========
    the native kernels        0.86    0.92
    ml_dtypes                         0.42
    NumPy, as done here       0.11
    ========================= ======= ========

    So the native kernels do what they can, from 4096 contiguous values on: a call costs 5 to 10 microseconds,
    in which ml_dtypes casts as many. Without them, or for other arrays, bfloat16 is ml_dtypes' cast, and
    float16 is done here, because NumPy's own cast reports every inexact subnormal to the floating-point unit:
    with NumPy 1.23.5 it takes 1.9 ns an element on ordinary weights and 70 ns where all results are
    subnormal; this takes 1.8 ns on either.
    """
    source, array = as_float_array(array)
    if not dtype.is_float:
        raise ParamsError(f"Parameters are cast between floating-point dtypes only, not to {dtype}.")
    if source is dtype and out is None:
        return array
    if out is None:
        out = np.empty(array.shape, dtype.numpy)
    # Overflow and underflow are answers here, and NumPy flags even a NaN on its way to another dtype.
    native = _native_kernels(source, array, dtype, out)
    if native is not None:
        native.cast(array, dtype, out=out)
        return out
    with np.errstate(all="ignore"):
        if dtype.is_low_precision and source not in (dtype, _CAST_BY_ML_DTYPES.get(dtype)):
            _cast_blocks(array, dtype, out)
        else:
            # Widening is exact; float64 to float32, and float32 to bfloat16 by ml_dtypes, round once.
            np.copyto(out, array, casting="unsafe")
    return out


def _native_kernels(source: DType, array: NDArray[Any], dtype: DType, out: NDArray[Any]) -> Kernels | None:
    """Return the native kernels where they are the best route."""
    if array.size < _NATIVE_FROM or source is not DType.FLOAT32 or dtype not in LOW_PRECISION:
        return None
    if not (
        array.flags.c_contiguous and array.flags.aligned and out.flags.c_contiguous and out.flags.aligned
    ):
        return None
    return kernels()


def as_float_array(array: NDArray[Any]) -> tuple[DType, NDArray[Any]]:
    """Return the dtype of a floating-point array and the array in native byte order.

    MXNet's structured bfloat16 is viewed as that of ml_dtypes.

    Raises
    ------
    ParamsError
        When it holds no floating-point numbers.
    """
    try:
        native = array.dtype.newbyteorder("=")
        dtype = DType.from_numpy(native)
    except TargetError as error:
        raise ParamsError(str(error)) from None
    if not dtype.is_float:
        raise ParamsError(f"An array of {dtype} holds no floating-point numbers; leave it as it is.")
    if array.dtype != dtype.numpy:
        array = array.view(dtype.numpy) if dtype is DType.BFLOAT16 else array.astype(native)
    return dtype, array


def _cast_blocks(array: NDArray[Any], dtype: DType, out: NDArray[Any]) -> None:
    values, rounded = np.ascontiguousarray(array).reshape(-1), out.reshape(-1)
    scratch = np.empty((2, min(BLOCK, values.size)), np.uint32)
    for start in range(0, values.size, BLOCK):
        block = _as_float32(values[start : start + BLOCK])
        if dtype is DType.BFLOAT16:
            rounded[start : start + BLOCK] = block
        else:
            _round_to_float16(block, rounded[start : start + BLOCK], scratch[:, : block.size])


def _as_float32(block: NDArray[Any]) -> NDArray[np.float32]:
    """Return float32 values that round to a 16-bit dtype as the values of ``block`` themselves would."""
    if block.dtype != np.float64:
        return block.astype(np.float32, copy=False)
    return float32_rounded_to_odd(block)


def float32_rounded_to_odd(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return float64 values as float32 values that round to a 16-bit dtype as the former would.

    Truncated, and the last bit set if anything was lost: that keeps a value on its side of every tie of a
    format at least two bits shorter, so that the second rounding decides correctly.

    Parameters
    ----------
    values
        float64, any shape.

    References
    ----------
    Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008.
    """
    rounded: NDArray[np.float32] = values.astype(np.float32)
    bits = rounded.view(np.uint32)
    inexact = (rounded != values) & ~np.isnan(values) & (bits & 1 == 0)
    away = np.abs(rounded) > np.abs(values)
    bits[inexact & away] -= 1
    bits[inexact & ~away] += 1
    return rounded


def _round_to_float16(
    values: NDArray[np.float32], result: NDArray[np.float16], scratch: NDArray[np.uint32]
) -> None:
    """Round one block into ``result``, with the same few vector instructions for every value.

    Adding a power of two, the anchor, to a magnitude makes the processor round at the right place when the
    anchor's ulp is the distance between float16 numbers there; for subnormal results that distance is
    constant. The sum holds the exponent in its upper bits, and in its lowest 12 the rounded significand with
    its implicit bit.
    """
    bits, out = values.view(np.uint32), result.view(np.uint16)
    magnitude, anchor = scratch
    np.bitwise_and(bits, _MAGNITUDE, out=magnitude)
    largest = int(magnitude.max())
    if largest > _FLOAT16_PAST_OVERFLOW:
        np.minimum(magnitude, _FLOAT16_PAST_OVERFLOW, out=magnitude)
    np.bitwise_and(magnitude, _EXPONENT, out=anchor)
    np.maximum(anchor, _FLOAT16_SMALLEST_NORMAL, out=anchor)
    # The significand of float16 is 13 bits shorter.
    anchor += 13 << 23
    magnitude_values = magnitude.view(np.float32)
    magnitude_values += anchor.view(np.float32)
    # The exponent field of the result is that of the sum, moved into place, less 126: the difference of the
    # biases (112), 13, and one because the implicit bit is added to it.
    np.right_shift(magnitude, 13, out=anchor)
    magnitude += anchor
    magnitude -= 126 << 10
    # The upper half of the sum is left over; the sign comes where the bits above the result begin.
    np.right_shift(bits, 16, out=anchor)
    anchor &= 0x8000
    magnitude |= anchor
    np.copyto(out, magnitude, casting="unsafe")
    if largest > _INFINITY:
        nan = np.isnan(values)
        payload = (bits[nan] >> 13) & 0x3FF
        out[nan] = anchor[nan] | _FLOAT16_INFINITY | np.maximum(payload, 1)
