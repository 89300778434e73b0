"""The dtypes that MXNet knows, with their codes, NumPy twins and numerical ranges."""

from __future__ import annotations

import enum
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from mxamp.errors import TargetError, nearest_names

__all__ = ["LOW_PRECISION", "DType"]


class DType(enum.Enum):
    """One MXNet dtype.

    The value of a member is its mshadow type flag, the number that ``symbol.json`` (``__dtype__``) and
    ``.params`` files store (``include/mxnet/tensor_blob.h`` and ``3rdparty/mshadow/mshadow/base.h``,
    MXNet 1.9.1).
    """

    FLOAT32 = 0
    FLOAT64 = 1
    FLOAT16 = 2
    UINT8 = 3
    INT32 = 4
    INT8 = 5
    INT64 = 6
    BOOL = 7
    BFLOAT16 = 12

    # Equality of members is identity, so identity is the right (and the fastest) hash.
    __hash__ = object.__hash__

    @property
    def label(self) -> str:
        """MXNet's spelling, as in ``amp_cast(dtype=...)``: ``"float32"``, ``"bfloat16"`` ..."""
        return _LABELS[self]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that holds it (ml_dtypes' for bfloat16)."""
        return _NUMPY[self]

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(_NUMPY[self].itemsize)

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point dtype."""
        return self in _FLOATS

    @property
    def is_low_precision(self) -> bool:
        """Whether it is a 16-bit floating-point dtype."""
        return self in LOW_PRECISION

    @property
    def max_finite(self) -> float:
        """The largest finite value. Floating-point dtypes only."""
        return float(ml_dtypes.finfo(_NUMPY[self]).max)

    @property
    def smallest_normal(self) -> float:
        """The smallest positive value with full precision. Floating-point dtypes only."""
        return float(ml_dtypes.finfo(_NUMPY[self]).smallest_normal)

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive value. Floating-point dtypes only."""
        return float(ml_dtypes.finfo(_NUMPY[self]).smallest_subnormal)

    @property
    def max_exact_integer(self) -> int:
        """Every integer up to this magnitude is exact: 2**(stored mantissa bits + 1)."""
        return int(2 ** (int(ml_dtypes.finfo(_NUMPY[self]).nmant) + 1))

    @classmethod
    def parse(cls, value: object) -> DType:
        """Read a dtype from a member, a name, a NumPy dtype or type, or MXNet's bfloat16 structured dtype.

        Parameters
        ----------
        value
            ``DType.FLOAT16``, ``"float16"``, ``np.float16``, ``np.dtype("float16")``, ...

        Raises
        ------
        TargetError
            When MXNet has no such dtype.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            found = _BY_LABEL.get(value.strip().lower())
            if found is None:
                raise TargetError(
                    f"{value!r} is not a dtype of MXNet.{nearest_names(value, _BY_LABEL)} "
                    f"Use one of: {', '.join(_LABELS.values())}."
                )
            return found
        return cls.from_numpy(value)  # type: ignore[arg-type]

    @classmethod
    def from_numpy(cls, value: DTypeLike) -> DType:
        """Return the member for a NumPy dtype; MXNet's ``[('bfloat16', uint16)]`` is bfloat16."""
        try:
            # NumPy takes None for float64; and it refuses a dict or a list with a ValueError.
            dtype = np.dtype(value) if value is not None else None
        except (TypeError, ValueError):
            dtype = None
        if dtype is not None:
            if dtype.names == ("bfloat16",):
                return cls.BFLOAT16
            found = _BY_NUMPY.get(dtype)
            if found is not None:
                return found
        raise TargetError(f"{value!r} is not a dtype of MXNet. Use one of: {', '.join(_LABELS.values())}.")

    @classmethod
    def from_code(cls, code: int) -> DType:
        """Return the member for a mshadow type flag.

        Raises
        ------
        TargetError
            When no dtype has this code.
        """
        try:
            return cls(code)
        except ValueError:
            known = ", ".join(f"{member.value} ({member.label})" for member in cls)
            raise TargetError(f"{code} is not a dtype code of MXNet. The codes are: {known}.") from None

    def __str__(self) -> str:
        return _LABELS[self]


_LABELS = {member: member.name.lower() for member in DType}
_NUMPY = {
    member: np.dtype(ml_dtypes.bfloat16 if member is DType.BFLOAT16 else member.name.lower())
    for member in DType
}
_BY_LABEL = {label: member for member, label in _LABELS.items()}
_BY_NUMPY = {dtype: member for member, dtype in _NUMPY.items()}
_FLOATS = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64})

LOW_PRECISION = frozenset({DType.FLOAT16, DType.BFLOAT16})
"""The dtypes a model can be converted to."""
