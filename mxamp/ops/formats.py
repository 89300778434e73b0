"""The formats that float32 values can be rounded to, MXNet's own and those that exist in emulation only."""

from __future__ import annotations

import enum

from mxamp.dtypes import DType
from mxamp.errors import OperatorError, TargetError, nearest_names


class Format(enum.Enum):
    """A binary floating-point format.

    The value of a member is its name, the one that ``_mxamp_round(format=...)`` takes. MXNet stores arrays in
    ``FLOAT16`` and ``BFLOAT16`` (see :attr:`dtype`); the others can be emulated and nothing else.

    References
    ----------
    IEEE 754-2019 (float16); NVIDIA, "A100 Tensor Core GPU architecture", 2020 (tfloat32: the exponent of
    float32, the significand of float16); Micikevicius et al., "FP8 formats for deep learning", 2022 (both
    float8).
    """

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    TFLOAT32 = "tfloat32"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E5M2 = "float8_e5m2"

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
        return None if self._dtype.is_emulated_only else self._dtype

    @property
    def significand_bits(self) -> int:
        """Bits of the significand with the implicit one: a result is off by 2**-bits of itself at most."""
        return self._dtype.format.significand_bits

    @property
    def exponent_bits(self) -> int:
        """Bits of the exponent."""
        return self._dtype.format.exponent_bits

    @property
    def bits(self) -> int:
        """Bits of a value that matter. tfloat32 has 19, and is stored in 32."""
        return self.significand_bits + self.exponent_bits

    @property
    def has_infinity(self) -> bool:
        """Whether it has infinities. float8_e4m3fn has none, and overflows to NaN."""
        return self._dtype.format.has_infinity

    @property
    def max_finite(self) -> float:
        """The largest finite value."""
        return self._dtype.max_finite

    @property
    def smallest_normal(self) -> float:
        """The smallest positive value with full precision."""
        return self._dtype.smallest_normal

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive value."""
        return self._dtype.smallest_subnormal

    @property
    def _dtype(self) -> DType:
        return DType.parse(self.label, emulated=True)

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
        if isinstance(value, cls):
            return value
        for member in cls:
            if isinstance(value, str) and value == member.value:
                return member
        raise OperatorError(f"{value!r:.80} says nothing about overflow. Use 'inf' or 'saturate'.")

    def __str__(self) -> str:
        return self.label


_CODES = {format_: code for code, format_ in enumerate(Format)}
_BY_LABEL = {format_.label: format_ for format_ in Format}
