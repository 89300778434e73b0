"""The dtypes that MXNet knows, with their codes, NumPy twins and numerical ranges; and formats beyond them.

:data:`EMULATED_ONLY` are floating-point formats that MXNet does not have. A model can be emulated in them
(:func:`mxamp.emulate`), and that is all: no parameter file and no graph holds them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Union

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from mxamp.errors import TargetError, nearest_names

GivenDType = Union["DType", str, type, "np.dtype[Any]"]
"""A dtype as users name it: see :meth:`DType.parse`."""


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format, as IEEE 754 makes one out of two numbers.

    Attributes
    ----------
    exponent_bits
        Bits of the exponent.
    significand_bits
        Bits of the significand with the implicit one: a result is off by 2**-bits of itself at most.
    has_infinity
        Whether it has infinities. float8_e4m3fn has none: there the highest exponent holds numbers too, and
        only the highest significand is NaN.
    """

    exponent_bits: int
    significand_bits: int
    has_infinity: bool = True

    @property
    def max_finite(self) -> float:
        """The largest finite value."""
        exponent, lost = (self._bias, 1) if self.has_infinity else (self._bias + 1, 2)
        return float(2.0**exponent * (2.0 - lost * 2.0 ** (1 - self.significand_bits)))

    @property
    def smallest_normal(self) -> float:
        """The smallest positive value with full precision."""
        return float(2.0 ** (1 - self._bias))

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive value."""
        return float(2.0 ** (2 - self._bias - self.significand_bits))

    @property
    def _bias(self) -> int:
        return int(2 ** (self.exponent_bits - 1) - 1)


class DType(enum.Enum):
    """One MXNet dtype.

    The value of a member is its mshadow type flag, the number that ``symbol.json`` (``__dtype__``) and
    ``.params`` files store (``include/mxnet/tensor_blob.h`` and ``3rdparty/mshadow/mshadow/base.h``,
    MXNet 1.9.1). The formats of :data:`EMULATED_ONLY` are instances too, with negative values that no file
    holds; iteration does not list them.
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

    # Members are equal only to themselves; tables and sets of dtypes are asked for every input of every node.
    __hash__ = object.__hash__

    @property
    def label(self) -> str:
        """MXNet's spelling, as in ``amp_cast(dtype=...)``: ``"float32"``, ``"bfloat16"`` ..."""
        return _LABELS[self]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that holds it: ml_dtypes' for bfloat16, float32 for what is only emulated."""
        return _NUMPY[self]

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(_NUMPY[self].itemsize)

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point dtype."""
        return self in _FORMATS

    @property
    def is_low_precision(self) -> bool:
        """Whether it has fewer digits than float32: the 16-bit dtypes, and what is only emulated."""
        return self in LOW_PRECISION or self.is_emulated_only

    @property
    def is_emulated_only(self) -> bool:
        """Whether MXNet does not have it, so that it exists in emulation only."""
        return self in EMULATED_ONLY

    @property
    def format(self) -> FloatFormat:
        """Its bits. Floating-point dtypes only, here and below."""
        return _FORMATS[self]

    @property
    def max_finite(self) -> float:
        """The largest finite value."""
        return self.format.max_finite

    @property
    def smallest_normal(self) -> float:
        """The smallest positive value with full precision."""
        return self.format.smallest_normal

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive value."""
        return self.format.smallest_subnormal

    @property
    def max_exact_integer(self) -> int:
        """Every integer up to this magnitude is exact: 2**(bits of the significand)."""
        return int(2**self.format.significand_bits)

    @classmethod
    def parse(cls, value: object, *, emulated: bool = False, aliases: bool = True) -> DType:
        """Read a dtype from a member, a name, a NumPy dtype or type, or MXNet's bfloat16 structured dtype.

        Parameters
        ----------
        value
            ``DType.FLOAT16``, ``"float16"``, ``"fp16"``, ``np.float16``, ``np.dtype("float16")``, ...
        emulated
            Whether a format that exists in emulation only will do.
        aliases
            Whether short names will do (``bf16``, ``fp16``, ``fp32``, ``tf32``), which MXNet does not know.

        Raises
        ------
        TargetError
            When MXNet has no such dtype.
        """
        if isinstance(value, cls):
            if value.is_emulated_only and not emulated:
                raise TargetError(_only_emulated(value.label))
            return value
        if isinstance(value, str):
            text = value.strip().lower()
            if aliases is not False:
                text = _ALIASES.get(text, text)
            if text in _EMULATED_BY_LABEL:
                return cls.parse(_EMULATED_BY_LABEL[text], emulated=emulated)
            found = _BY_LABEL.get(text)
            if found is None:
                raise TargetError(
                    f"{value!r} is not a dtype of MXNet.{nearest_names(value, _BY_LABEL)} "
                    f"Use one of: {', '.join(_BY_LABEL)}."
                )
            return found
        return cls.from_numpy(value)  # type: ignore[arg-type]

    @classmethod
    def from_numpy(cls, value: DTypeLike) -> DType:
        """Return the member for a NumPy dtype; MXNet's ``[('bfloat16', uint16)]`` is bfloat16."""
        if isinstance(value, np.dtype):
            found = _BY_NUMPY.get(value)
            if found is not None:
                return found
        try:
            # NumPy takes None for float64. It refuses a list with a ValueError, and asks an object of the
            # user's for its dtype, which may raise whatever it likes.
            dtype = np.dtype(value) if value is not None else None
        except Exception:
            dtype = None
        if dtype is not None:
            if dtype.names == ("bfloat16",):
                return cls.BFLOAT16
            found = _BY_NUMPY.get(dtype)
            if found is not None:
                return found
        raise TargetError(f"{value!r:.80} is not a dtype of MXNet. Use one of: {', '.join(_BY_LABEL)}.")

    @classmethod
    def from_code(cls, code: int) -> DType:
        """Return the member for a mshadow type flag.

        Raises
        ------
        TargetError
            When no dtype has this code.
        """
        found = _BY_CODE.get(code)
        if found is None:
            known = ", ".join(f"{member.value} ({member.label})" for member in cls)
            raise TargetError(f"{code} is not a dtype code of MXNet. The codes are: {known}.")
        return found

    @classmethod
    def _missing_(cls, value: object) -> DType | None:
        # Copies and pickles of what is only emulated come here.
        return next((member for member in EMULATED_ONLY if member.value == value), None)

    def __str__(self) -> str:
        return _LABELS[self]


def _only_emulated(label: str) -> str:
    return (
        f"{label!r} is not a dtype of MXNet: it exists in emulation only, where float32 values are rounded "
        f"to it. Use mxamp.emulate(sym, args, auxs, {label!r}), or --emulate on the command line."
    )


def _emulated_only(name: str, value: int) -> DType:
    """Return an instance of DType that is no member, as enum.Flag makes them of combinations."""
    member = object.__new__(DType)
    member._name_, member._value_ = name, value
    return member


TFLOAT32 = _emulated_only("TFLOAT32", -2)
FLOAT8_E4M3FN = _emulated_only("FLOAT8_E4M3FN", -3)
FLOAT8_E5M2 = _emulated_only("FLOAT8_E5M2", -4)

EMULATED_ONLY = (TFLOAT32, FLOAT8_E4M3FN, FLOAT8_E5M2)
"""Formats that MXNet does not have; a model can only be emulated in them."""

LOW_PRECISION = frozenset({DType.FLOAT16, DType.BFLOAT16})
"""The dtypes a model can be converted to."""


_LABELS: dict[DType, str] = {member: member.name.lower() for member in (*DType, *EMULATED_ONLY)}
_NUMPY = {
    member: np.dtype(ml_dtypes.bfloat16 if member is DType.BFLOAT16 else member.name.lower())
    for member in DType
}
_ALIASES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "tf32": "tfloat32"}
"""What people call dtypes -> what MXNet, and mxamp everywhere else, calls them."""

_BY_LABEL = {_LABELS[member]: member for member in DType}
_BY_CODE = {member.value: member for member in DType}
_BY_NUMPY = {dtype: member for member, dtype in _NUMPY.items()}
_EMULATED_BY_LABEL = {_LABELS[member]: member for member in EMULATED_ONLY}
_NUMPY.update(dict.fromkeys(EMULATED_ONLY, np.dtype(np.float32)))
_FORMATS = {
    DType.FLOAT64: FloatFormat(11, 53),
    DType.FLOAT32: FloatFormat(8, 24),
    DType.FLOAT16: FloatFormat(5, 11),
    DType.BFLOAT16: FloatFormat(8, 8),
    TFLOAT32: FloatFormat(8, 11),
    FLOAT8_E4M3FN: FloatFormat(4, 4, has_infinity=False),
    FLOAT8_E5M2: FloatFormat(5, 3),
}
