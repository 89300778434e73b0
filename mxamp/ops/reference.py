"""NumPy twins of the operators that decide precision: what they compute, value by value.

``round_to`` and ``observe`` are the twins of mxamp's own operators, ``_mxamp_round`` and
``_mxamp_observe``, bit for bit. ``amp_cast`` has the type rules of MXNet's operator
(src/operator/tensor/amp_cast.h, MXNet 1.9.1) and rounds as IEEE 754 does, once, to nearest, ties to even,
with subnormals.

MXNet's operators do not always do so. Measured with MXNet 1.9.1 on an x86-64 CPU with avx512_bf16, and held
by tests/ops/test_reference_against_mxnet.py:

- ``amp_cast`` and ``amp_multicast`` use oneDNN, but for ``amp_cast`` from and to float16. It takes subnormal
  float32 inputs for zeros on their way to bfloat16 (a processor without avx512_bf16 need not), and rounds
  floats to the *nearest* integer and saturates. It raises an error for float64, int64 and bool, which should
  pass through, for arrays of 0, 7 or more dimensions, and for float16 in ``amp_multicast``.
- ``Cast`` to bfloat16 truncates, which makes some NaN infinite.
- Payloads of NaN differ.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import FLOAT8_E4M3FN, FLOAT8_E5M2, TFLOAT32, DType
from mxamp.errors import OperatorError
from mxamp.ops.casts import CASTABLE
from mxamp.ops.formats import Overflow, as_format
from mxamp.ops.observation import EXPONENTS, Observation

_NUMPY = {
    DType.FLOAT16: np.dtype(np.float16),
    DType.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    FLOAT8_E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    FLOAT8_E5M2: np.dtype(ml_dtypes.float8_e5m2),
}
"""The dtypes whose casts define the formats; nothing in NumPy is tfloat32."""
_TFLOAT32_DROPPED_BITS = 13
_SIGN = 0x8000_0000
_QUIET_NAN = 0x7FC0_0000


def round_to(
    data: NDArray[Any], format: DType | str, overflow: Overflow | str = Overflow.INF
) -> NDArray[np.float32]:
    """Return float32 values rounded to the nearest values of a format, ties to even.

    Parameters
    ----------
    data
        float32, any shape and layout; not changed.
    format
        What to round to.
    overflow
        What becomes of magnitudes that round beyond the largest finite value: ``"inf"`` or ``"saturate"``.

    Returns
    -------
    numpy.ndarray
        A new float32 array of the same shape.

    Raises
    ------
    OperatorError
        When the data is not float32, or there is no such format or way to overflow.

    Notes
    -----
    Subnormals of the format are kept. NaN stays NaN and keeps its sign; its payload becomes what NumPy's cast
    to float16 or the cast of ml_dtypes makes of it, and is lost in tfloat32.
    """
    values = _float32(data, "round_to")
    format, overflow = as_format(format), Overflow.parse(overflow)
    if overflow is Overflow.SATURATE:
        limit = np.float32(format.max_finite)
        # Not np.clip, which may change the payload of a NaN: no comparison with NaN holds.
        values = np.where(values > limit, limit, np.where(values < -limit, -limit, values))
    if format is TFLOAT32:
        return _round_to_tfloat32(values)
    # Overflow and underflow are answers here, and NumPy flags even a NaN on its way to another dtype.
    with np.errstate(all="ignore"):
        rounded: NDArray[np.float32] = values.astype(_NUMPY[format]).astype(np.float32)
    return rounded


def observe(data: NDArray[Any]) -> Observation:
    """Return counts and magnitudes of float32 values.

    Parameters
    ----------
    data
        float32, any shape and layout; not changed.

    Raises
    ------
    OperatorError
        When the data is not float32.
    """
    values = _float32(data, "observe").reshape(-1)
    magnitudes = np.abs(values)
    # Comparing keeps NaN out of both.
    finite = magnitudes < np.inf
    nonzero = finite & (magnitudes > 0)
    exponents = np.bincount((values.view(np.uint32) >> 23) & 0xFF, minlength=EXPONENTS)
    return Observation(
        count=values.size,
        nan=int(np.isnan(values).sum()),
        inf=int(np.isinf(values).sum()),
        zero=int((values == 0).sum()),
        minimum=float(values.min(where=finite, initial=np.inf)),
        maximum=float(values.max(where=finite, initial=-np.inf)),
        largest=float(magnitudes.max(where=finite, initial=0)),
        smallest_nonzero=float(magnitudes.min(where=nonzero, initial=np.inf)),
        exponents=tuple(exponents.tolist()),
    )


def amp_cast(data: NDArray[Any], dtype: DType | str) -> NDArray[Any]:
    """Return what MXNet's ``amp_cast`` is meant to return.

    float32, float16 and bfloat16 are cast; float64, integers and booleans pass through, whatever ``dtype``
    says.

    Parameters
    ----------
    data
        Any dtype of MXNet, any shape; not changed.
    dtype
        The dtype to cast to. Any but bool, which MXNet's operator does not take. Integers are cut off
        toward zero.

    Returns
    -------
    numpy.ndarray
        A new array, or ``data`` itself where it has the dtype already or passes through.

    Raises
    ------
    TargetError
        When ``dtype`` or the dtype of the data is none of MXNet's.
    OperatorError
        When ``dtype`` is bool.
    """
    target = DType.parse(dtype)
    if target is DType.BOOL:
        raise OperatorError("amp_cast casts to numbers, not to bool. Compare with zero instead.")
    source, values = _mxnet_array(data)
    return _cast(values, source, target if source in CASTABLE else source)


def _float32(data: NDArray[Any], what: str) -> NDArray[np.float32]:
    array = np.asarray(data)
    if array.dtype.newbyteorder("=") != np.float32:
        raise OperatorError(f"{what} takes float32 values, not {array.dtype}. Cast them to float32 first.")
    # In native byte order and C order, so that the bits can be viewed; a copy only where they are not so
    # already.
    return np.require(array, np.float32, "C").reshape(array.shape)


def _round_to_tfloat32(values: NDArray[np.float32]) -> NDArray[np.float32]:
    bits = values.view(np.uint32)
    nan = np.isnan(values)
    # Half an ulp, less one where the last bit that stays is even: a tie then carries into odd significands
    # only. A carry into the exponent is right, up to infinity; NaN is put aside, for it could carry into
    # the sign.
    last = bits >> _TFLOAT32_DROPPED_BITS & 1
    carried = np.where(nan, 0, bits) + (last + (1 << _TFLOAT32_DROPPED_BITS - 1) - 1)
    rounded = carried >> _TFLOAT32_DROPPED_BITS << _TFLOAT32_DROPPED_BITS
    result = np.where(nan, bits & _SIGN | _QUIET_NAN, rounded).astype(np.uint32)
    return result.view(np.float32)


def _mxnet_array(data: NDArray[Any]) -> tuple[DType, NDArray[Any]]:
    array = np.asarray(data)
    dtype = DType.from_numpy(array.dtype)
    # MXNet's structured bfloat16 has the bits of ml_dtypes'.
    return dtype, array if array.dtype == dtype.numpy else array.view(dtype.numpy)


def _cast(values: NDArray[Any], source: DType, target: DType) -> NDArray[Any]:
    if source is target:
        return values
    with np.errstate(all="ignore"):
        # Through float32, which holds every value of the 16-bit dtypes: one rounding, whatever the two are.
        wide = values if source is DType.FLOAT64 else values.astype(np.float32, copy=False)
        return wide.astype(target.numpy)
