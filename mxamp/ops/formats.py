"""The formats that float32 values can be rounded to, MXNet's own and those that exist in emulation only."""

from __future__ import annotations

import enum

from mxamp.dtypes import DType
from mxamp.errors import OperatorError, TargetError, nearest_names

__all__ = ["Format", "Overflow"]


class Format(enum.Enum):
    """A binary floating-point format.

    The value of a member is its name, the one that ``_mxamp_round(format=...)`` takes. MXNet stores arrays in
    ``FLOAT16`` and ``BFLOAT16`` (see :attr:`dtype`); the others can be emulated and nothing else.

    References ---------- IEEE 754-2019 (float16); NVIDIA, "A100 Tensor Core GPU architecture", 2020
    (tfloat32: the exponent of float32, the significand of float16); Micikevicius et al., "FP8 formats for
    deep learning", 2022 (both float8).
    """

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    TFLOAT32 = "tfloat32"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E5M2 = "float8_e5m2"

    # Equality of members is identity, so identity is the right (and the fastest) hash.
    __hash__ = object.__hash__

    @property
    def label(self) -> str:
        """The name: ``"float16"``, ``"float8_e5m2"`` ..."""
        return str(self.value)

    @property
    def code(self) -> int:
        """The number the native kernels know it by (``mxamp/ops/src/kernels.h``)."""
        return _CODES[self]

    @property
    def dtype(self) -> DType | None:
        """MXNet's dtype of this format; None for those that MXNet does not have."""
        return _DTYPES.get(self)

    @property
    def significand_bits(self) -> int:
        """Bits of the significand with the implicit one: a result is off by 2**-bits of itself at most."""
        return _SIGNIFICAND_BITS[self]

    @property
    def exponent_bits(self) -> int:
        """Bits of the exponent."""
        return _EXPONENT_BITS[self]

    @property
    def bits(self) -> int:
        """Bits of a value that matter. tfloat32 has 19, and is stored in 32."""
        return self.significand_bits + self.exponent_bits

    @property
    def has_infinity(self) -> bool:
        """Whether it has infinities. float8_e4m3fn has none, and overflows to NaN."""
        return self is not Format.FLOAT8_E4M3FN

    @property
    def max_finite(self) -> float:
        """The largest finite value."""
        # In float8_e4m3fn the highest exponent holds numbers too, and only the highest significand there is
        # NaN.
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

    @classmethod
    def parse(cls, value: object) -> Format:
        """Read a format from a member, its name, a DType, or a NumPy dtype.

        Raises
        ------
        OperatorError
            When it is no format.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            found = _BY_LABEL.get(value.strip().lower())
        elif isinstance(value, DType):
            found = _BY_LABEL.get(value.label)
        else:
            try:
                found = _BY_LABEL.get(DType.parse(value).label)
            except TargetError:
                found = None
        if found is None:
            raise OperatorError(
                f"{value!r} is not a format to round to.{nearest_names(value, _BY_LABEL)} "
                f"Use one of: {', '.join(_BY_LABEL)}."
            )
        return found

    def __str__(self) -> str:
        return self.label


class Overflow(enum.Enum):
    """What becomes of magnitudes that round beyond a format's largest finite value."""

    INF = "inf"
    """Infinite, as IEEE 754 rounds; NaN in a format without infinities."""

    SATURATE = "saturate"
    """The largest finite value; an infinite input too. NaN stays NaN."""

    __hash__ = object.__hash__

    @property
    def label(self) -> str:
        """The name, the one that ``_mxamp_round(overflow=...)`` takes."""
        return str(self.value)

    @property
    def code(self) -> int:
        """The number the native kernels know it by (``mxamp/ops/src/kernels.h``)."""
        return 0 if self is Overflow.INF else 1

    @classmethod
    def parse(cls, value: object) -> Overflow:
        """Read a member or its name.

        Raises
        ------
        OperatorError
            When it is neither.
        """
        try:
            return cls(value)
        except ValueError:
            raise OperatorError(f"{value!r} says nothing about overflow. Use 'inf' or 'saturate'.") from None

    def __str__(self) -> str:
        return self.label


_CODES = {format_: code for code, format_ in enumerate(Format)}
_BY_LABEL = {format_.label: format_ for format_ in Format}
_DTYPES = {Format.FLOAT16: DType.FLOAT16, Format.BFLOAT16: DType.BFLOAT16}
_SIGNIFICAND_BITS = {
    Format.FLOAT16: 11,
    Format.BFLOAT16: 8,
    Format.TFLOAT32: 11,
    Format.FLOAT8_E4M3FN: 4,
    Format.FLOAT8_E5M2: 3,
}
_EXPONENT_BITS = {
    Format.FLOAT16: 5,
    Format.BFLOAT16: 8,
    Format.TFLOAT32: 8,
    Format.FLOAT8_E4M3FN: 4,
    Format.FLOAT8_E5M2: 5,
}
