"""The output dtype of arithmetic between an array and a number."""

from __future__ import annotations

from typing import Mapping

from mxamp.dtypes import DType
from mxamp.ops.attributes import is_true
from mxamp.ops.roles import FromData, OutputRule

_WITH_INTEGER = (FromData({DType.BOOL: DType.INT64}),)
_WITH_FRACTION = (
    FromData(
        dict.fromkeys((DType.BOOL, DType.INT8, DType.UINT8, DType.INT32, DType.INT64), DType.FLOAT64),
    ),
)


def beside_scalar(attrs: Mapping[str, str]) -> tuple[OutputRule, ...]:
    """Return the rule of operators with the attributes ``scalar`` and ``is_int``.

    Floating-point data keep their dtype. Integers beside a fraction become FP64, and truth values beside an
    integer INT64 (``NumpyBinaryScalarType``, src/operator/tensor/elemwise_binary_scalar_op.h).
    """
    return _WITH_INTEGER if is_true(attrs, "is_int", default=True) else _WITH_FRACTION
