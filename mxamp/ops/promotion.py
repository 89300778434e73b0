"""Promotion: the dtype in which MXNet's NumPy operators compute where their inputs differ in dtype.

The type rules are those of ``np_binary_out_infer_type`` in src/common/utils.h, MXNet 1.9.1, as measured: they
are NumPy's for FP16, FP32, FP64 and integers, but bfloat16 counts for less than an integer. Features in
bfloat16 beside integers come out as integers, their fractions gone.
"""

from __future__ import annotations

from functools import reduce
from typing import Sequence

from mxamp.dtypes import EMULATED_ONLY, DType

_RANK = (
    DType.FLOAT64,
    DType.FLOAT32,
    DType.FLOAT16,
    # MXNet has no rule for what it does not have; like every float here but bfloat16 they outrank integers.
    *EMULATED_ONLY,
    DType.INT64,
    DType.INT32,
    DType.INT8,
    DType.UINT8,
    DType.BFLOAT16,
    DType.BOOL,
)
"""Of two dtypes the one that comes first here wins, but for the pairs below."""

_PAIRS = {
    frozenset({DType.INT8, DType.UINT8}): DType.INT32,
    frozenset({DType.BFLOAT16, DType.BOOL}): DType.INT8,
}


def promoted(dtypes: Sequence[DType]) -> DType:
    """Return the dtype that several are promoted to, two at a time.

    Parameters
    ----------
    dtypes
        One or more.
    """
    return reduce(_of_two, dtypes)


def _of_two(left: DType, right: DType) -> DType:
    pair = _PAIRS.get(frozenset({left, right}))
    return min(left, right, key=_RANK.index) if pair is None else pair
