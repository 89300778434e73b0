"""Linear algebra and Fourier transforms."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.ops.roles import SameAsData, ValueKind
from mxamp.ops.tables._notation import record

COMPUTE = ValueKind.COMPUTE
MOVE = ValueKind.MOVE
WIDE = SameAsData.FLOAT32_OR_FLOAT64

_NUMPY_NAMES = {"inverse": " _npi_inv"}

# Type inference lets most of these have any dtype, but the kernels take FP32 and FP64 alone
# (MSHADOW_SGL_DBL_TYPE_SWITCH in src/operator/tensor/la_op.h).
RECORDS = (
    *(
        record(
            f"_linalg_{name} linalg_{name}{_NUMPY_NAMES.get(name, '')}",
            *(inputs, COMPUTE),
            out=WIDE,
            multiplies=name.startswith("gemm"),
        )
        for name, inputs in (
            ("gemm", "fp32 fp32 fp32"),
            ("gemm2", "fp32 fp32"),
            ("trmm", "fp32 fp32"),
            ("trsm", "fp32 fp32"),
            ("syrk", "fp32"),
            ("potrf", "fp32"),
            ("potri", "fp32"),
            ("gelqf", "fp32"),
            ("inverse", "fp32"),
            ("sumlogdiag", "fp32"),
        )
    ),
    # The factors of the matrix and the pivots are hidden outputs.
    record("_linalg_det linalg_det _npi_det", "fp32", COMPUTE, out=(WIDE, WIDE, DType.INT32)),
    record(
        "_linalg_slogdet linalg_slogdet _npi_slogdet", "fp32", COMPUTE, out=(WIDE, WIDE, WIDE, DType.INT32)
    ),
    record("_linalg_syevd", "fp32", COMPUTE, out=WIDE),
    *(
        record(f"_linalg_{name} linalg_{name}", "fp32", MOVE, out=WIDE)
        for name in ("extractdiag", "extracttrian", "makediag", "maketrian")
    ),
    # They exist on GPUs alone, where cuFFT reads the buffer as FP32 whatever type inference allows.
    record("_contrib_fft", "fp32", COMPUTE, out=WIDE),
    record("_contrib_ifft", "fp32", COMPUTE, out=WIDE),
)
