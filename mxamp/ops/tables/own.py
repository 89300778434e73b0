"""mxamp's own operators, which the operator library adds to MXNet (``mxamp/ops/src/operators.cc``)."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.ops.roles import ValueKind
from mxamp.ops.rounding import OBSERVE, ROUND, ROUND_BOTH_WAYS
from mxamp.ops.tables._notation import record

FP32 = DType.FLOAT32

RECORDS = (
    # float32 alone: the library refuses every other dtype. Rounding keeps a coordinate a coordinate.
    *(record(name, "fp32", ValueKind.AFFINE, out=FP32) for name in (ROUND, ROUND_BOTH_WAYS)),
    # The data, and float64 counts and magnitudes of it.
    record(OBSERVE, "fp32", ValueKind.MOVE, out=(FP32, DType.FLOAT64), seeds=(1,)),
)
