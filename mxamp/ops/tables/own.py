"""mxamp's own operators, which the operator library adds to MXNet (``mxamp/ops/src/operators.cc``)."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.ops.facts import ValueKind
from mxamp.ops.tables._notation import record

__all__ = ["RECORDS"]

FP32 = DType.FLOAT32

RECORDS = (
    # float32 alone: the library refuses every other dtype. Rounding keeps a coordinate a coordinate.
    record("_mxamp_round", "fp32", ValueKind.AFFINE, out=FP32),
    # The data, and float64 counts and magnitudes of it.
    record("_mxamp_observe", "fp32", ValueKind.MOVE, out=(FP32, DType.FLOAT64), seeds=(1,)),
)
