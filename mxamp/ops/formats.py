"""The formats that float32 values can be rounded to, MXNet's own and those that exist in emulation only.

IEEE 754-2019 (float16); NVIDIA, "A100 Tensor Core GPU architecture", 2020 (tfloat32: the exponent of float32,
the significand of float16); Micikevicius et al., "FP8 formats for deep learning", 2022 (both float8).
"""

from __future__ import annotations

import enum

from mxamp.dtypes import EMULATED_ONLY, DType
from mxamp.errors import OperatorError, TargetError, nearest_names

FORMATS = (DType.FLOAT16, DType.BFLOAT16, *EMULATED_ONLY)
"""The formats, in the order of their codes; a label is what ``_mxamp_round(format=...)`` takes."""


def as_format(value: object) -> DType:
    """Read a format from itself, its label, or a NumPy dtype.

    Raises
    ------
    OperatorError
        When it is no format.
    """
    try:
        found: DType | None = DType.parse(value, emulated=True, aliases=False)
    except TargetError:
        found = None
    if found is None or found not in FORMATS:
        labels = [known.label for known in FORMATS]
        raise OperatorError(
            f"{value!r} is not a format to round to.{nearest_names(value, labels)} "
            f"Use one of: {', '.join(labels)}."
        )
    return found


def format_code(format: DType) -> int:
    """Return the number the native kernels know a format by (``mxamp/ops/src/kernels.h``)."""
    return FORMATS.index(format)


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
