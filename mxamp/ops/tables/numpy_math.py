"""MXNet's NumPy mode, arithmetic: element-wise functions, comparison, reductions, products, linear algebra.

What differs from the operators of the same meaning without ``np``: inputs of two dtypes are promoted, tests
return truth values, positions are INT64. Measured: every dtype against MXNet's type inference.
"""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.ops.roles import FromData, SameAsData, ValueKind
from mxamp.ops.tables._notation import SAME, attribute, record
from mxamp.ops.tables._scalars import beside_scalar

AFFINE = ValueKind.AFFINE
COMPARE = ValueKind.COMPARE
COMPUTE = ValueKind.COMPUTE
MOVE = ValueKind.MOVE

BOOL = DType.BOOL
INT64 = DType.INT64

_INTEGERS = (DType.INT8, DType.UINT8, DType.INT32, DType.INT64)
_FRACTIONS = FromData(dict.fromkeys((*_INTEGERS, BOOL, DType.BFLOAT16), DType.FLOAT32))
"""FP32 where the data is neither FP16 nor FP64: not for bfloat16 either."""

_COUNTS = attribute("dtype", FromData({BOOL: INT64}))
_LINEAR_ALGEBRA = SameAsData.FLOAT32_OR_FLOAT64
_ALL_FLOATS = frozenset({DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16})
_WITHOUT_BFLOAT16 = frozenset({DType.BFLOAT16, *_INTEGERS, BOOL})

_COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
_TESTS = ("logical_not", "isnan", "isinf", "isfinite", "isneginf", "isposinf")
_ROUNDINGS = ("negative", "floor", "ceil", "rint", "fix", "trunc")
_FUNCTIONS = (
    *("sign", "square", "sqrt", "cbrt", "reciprocal", "exp", "expm1", "log", "log10", "log2", "log1p"),
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh"),
    *("arctanh", "degrees", "radians"),
)

RECORDS = (
    # The inputs may differ in dtype.
    *(
        record(f"_npi_{name}", "data data", AFFINE, promotes=True)
        for name in ("add", "subtract", "multiply", "mod")
    ),
    record("_npi_power", "data data", COMPUTE, promotes=True),
    record("_npi_true_divide", "data data", AFFINE, out=_FRACTIONS, promotes=True),
    # They may not.
    record("_npi_copysign", "data data", AFFINE),
    record("_npi_ldexp", "data data", COMPUTE),
    *(
        record(f"_npi_{name}", "data data", COMPUTE, refuses=_WITHOUT_BFLOAT16)
        for name in ("hypot", "arctan2")
    ),
    *(
        record(f"_npi_{name}", "data data", COMPUTE, refuses=_ALL_FLOATS)
        for name in ("lcm", "bitwise_and", "bitwise_or", "bitwise_xor")
    ),
    *(record(f"_npi_{name}", "data data", COMPARE, out=BOOL) for name in _COMPARISONS),
    # An array and a number.
    *(
        record(f"_npi_{name}_scalar", "data", AFFINE, out_by=beside_scalar)
        for name in (*("add", "subtract", "rsubtract", "multiply", "mod", "rmod", "copysign", "rcopysign"),)
    ),
    *(
        record(f"_npi_{name}_scalar", "data", COMPUTE, out_by=beside_scalar)
        for name in ("power", "rpower", "arctan2", "rarctan2", "ldexp", "rldexp")
    ),
    *(
        record(f"_npi_{name}_scalar", "data", AFFINE, out=_FRACTIONS)
        for name in ("true_divide", "rtrue_divide")
    ),
    *(
        record(f"_npi_{name}_scalar", "data", COMPUTE, refuses=_ALL_FLOATS)
        for name in ("lcm", "bitwise_and", "bitwise_or", "bitwise_xor")
    ),
    *(record(f"_npi_{name}_scalar", "data", COMPARE, out=BOOL) for name in _COMPARISONS),
    # One array.
    record("_npi_absolute _npi_abs", "data", AFFINE),
    *(record(f"_npi_{name}", "data", AFFINE) for name in _ROUNDINGS),
    record("_npi_around", "data", AFFINE, refuses=frozenset({DType.FLOAT16})),
    *(record(f"_npi_{name}", "data", COMPUTE) for name in _FUNCTIONS),
    # Its kernel takes integers and truth values alone, though type inference does not say so.
    record("_npi_bitwise_not", "data", COMPUTE),
    *(record(f"_npi_{name}", "data", COMPARE, out=BOOL) for name in _TESTS),
    record("_npi_nan_to_num", "data", AFFINE),
    record("_npx_relu", "data", COMPUTE),
    record("_npx_sigmoid", "data", COMPUTE),
    # Reductions and differences.
    record("_np_sum", "data", COMPUTE, out=_COUNTS),
    record("_np_prod _np_product", "data", COMPUTE, out=_COUNTS),
    record("_npi_mean", "data", COMPUTE, out=attribute("dtype", _FRACTIONS)),
    # The second output is hidden: the mean, which backward needs.
    record("_npi_std", "data", COMPUTE, out=(attribute("dtype", SAME), SAME), named="std mean"),
    record("_npi_var", "data", COMPUTE, out=(attribute("dtype", SAME), SAME), named="var mean"),
    # data, weights (weighted=True)
    record("_npi_average", "data data", COMPUTE, named="output0 output1"),
    record("_np_max _np_amax", "data", MOVE),
    record("_np_min _np_amin", "data", MOVE),
    record("_np_all", "data", COMPARE, out=BOOL),
    record("_np_any _np_sometrue", "data", COMPARE, out=BOOL),
    record("_npi_argmax", "data", COMPUTE, out=INT64, seeds=(0,)),
    record("_npi_argmin", "data", COMPUTE, out=INT64, seeds=(0,)),
    record("_npi_norm", "data", COMPUTE),
    record("_np_trace", "data", COMPUTE),
    record("_npi_diff", "data", AFFINE),
    # data, what is joined to its front and to its end
    record("_npi_ediff1d", "data data data", AFFINE),
    # data, the percentages (unless q_scalar holds one)
    record(
        *("_npi_percentile", "data kept", COMPUTE),
        out=FromData(dict.fromkeys((*_INTEGERS, BOOL, DType.BFLOAT16, DType.FLOAT16), DType.FLOAT32)),
    ),
    # Products.
    record("_np_dot", "data data", COMPUTE, multiplies=True),
    record("_npi_matmul", "data data", COMPUTE, multiplies=True, named="out"),
    record("_npi_tensordot", "data data", COMPUTE, multiplies=True),
    record("_npi_tensordot_int_axes", "data data", COMPUTE, multiplies=True),
    record("_npi_einsum", "data*", COMPUTE, multiplies=True),
    record("_npi_polyval", "data data", COMPUTE),
    # Linear algebra exists in FP32 and FP64. Type inference turns other dtypes into FP64, or lets them pass.
    *(
        record(f"_npi_{name}", "fp32", COMPUTE, out=_LINEAR_ALGEBRA)
        for name in (
            *("cholesky", "eig", "eigh", "eigvals", "eigvalsh", "svd", "tensorinv", "pinv_scalar_rcond"),
        )
    ),
    *(
        record(f"_npi_{name}", "fp32 fp32", COMPUTE, out=_LINEAR_ALGEBRA)
        for name in ("solve", "tensorsolve", "pinv")
    ),
)
