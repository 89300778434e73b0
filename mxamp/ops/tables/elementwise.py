"""Element-wise arithmetic, comparison, reductions and casts."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.ops.roles import Averaging, FromData, ValueKind
from mxamp.ops.tables._notation import SAME, attribute, record
from mxamp.ops.tables._scalars import beside_scalar

AFFINE = ValueKind.AFFINE
COMPARE = ValueKind.COMPARE
COMPUTE = ValueKind.COMPUTE
MOVE = ValueKind.MOVE

_COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal")
_LOGICAL = ("and", "or", "xor")

_SPARSE_UNARY = (
    *("exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt", "square", "sign", "sin"),
    *("cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"),
    *("degrees", "radians"),
)
"""Functions that MXNet registers a second time, as ``_sparse_exp`` ..."""


def _camel(name: str) -> str:
    """Return ``not_equal`` as ``NotEqual``."""
    return name.title().replace("_", "")


RECORDS = (
    record("elemwise_add _plus _Plus _add _sparse_elemwise_add", "data data", AFFINE),
    record("elemwise_sub _minus _Minus _sub _sparse_elemwise_sub", "data data", AFFINE),
    record("elemwise_mul _mul _Mul _sparse_elemwise_mul", "data data", AFFINE),
    record("elemwise_div _div _Div _sparse_elemwise_div", "data data", AFFINE),
    record("_grad_add", "data data", AFFINE),
    record("_scatter_elemwise_div", "data data", AFFINE),
    record("add_n ElementWiseSum _sparse_add_n _sparse_ElementWiseSum", "data*", AFFINE),
    *(
        record(
            f"broadcast_{name} broadcast_{word} _sparse_broadcast_{name} _sparse_broadcast_{word}",
            *("data data", AFFINE),
        )
        for name, word in (("add", "plus"), ("sub", "minus"))
    ),
    record("broadcast_mul _sparse_broadcast_mul", "data data", AFFINE),
    record("broadcast_div _sparse_broadcast_div", "data data", AFFINE),
    record("broadcast_mod", "data data", AFFINE),
    record("broadcast_power", "data data", COMPUTE),
    record("broadcast_maximum _npi_maximum", "data data", AFFINE),
    record("broadcast_minimum _npi_minimum", "data data", AFFINE),
    record("broadcast_hypot", "data data", COMPUTE),
    record("_maximum _Maximum", "data data", AFFINE),
    record("_minimum _Minimum", "data data", AFFINE),
    record("_mod _Mod", "data data", AFFINE),
    record("_power _Power", "data data", COMPUTE),
    record("_hypot _Hypot", "data data", COMPUTE),
    *(record(f"broadcast_{name}", "data data", COMPARE) for name in _COMPARISONS),
    *(record(f"_{name} _{name.title()}", "data data", COMPARE) for name in _COMPARISONS),
    *(
        record(f"_{name}_scalar _{_camel(name)}Scalar", "data", COMPARE, out_by=beside_scalar)
        for name in _COMPARISONS
    ),
    *(record(f"broadcast_logical_{name}", "data data", COMPARE) for name in _LOGICAL),
    *(record(f"_logical_{name} _Logical_{name.title()}", "data data", COMPARE) for name in _LOGICAL),
    *(
        record(f"_logical_{name}_scalar _Logical{name.title()}Scalar", "data", COMPARE, out_by=beside_scalar)
        for name in _LOGICAL
    ),
    record("logical_not", "data", COMPARE),
    record("_plus_scalar _PlusScalar", "data", AFFINE, out_by=beside_scalar),
    record("_scatter_plus_scalar", "data", AFFINE, out_by=beside_scalar),
    record("_minus_scalar _MinusScalar", "data", AFFINE, out_by=beside_scalar),
    record("_scatter_minus_scalar", "data", AFFINE, out_by=beside_scalar),
    record("_rminus_scalar _RMinusScalar", "data", AFFINE, out_by=beside_scalar),
    record("_mul_scalar _MulScalar", "data", AFFINE, out_by=beside_scalar),
    record("_div_scalar _DivScalar", "data", AFFINE, out_by=beside_scalar),
    record("_rdiv_scalar _RDivScalar", "data", AFFINE, out_by=beside_scalar),
    record("_mod_scalar _ModScalar", "data", AFFINE, out_by=beside_scalar),
    record("_rmod_scalar _RModScalar", "data", AFFINE, out_by=beside_scalar),
    record("_maximum_scalar _MaximumScalar _npi_maximum_scalar", "data", AFFINE, out_by=beside_scalar),
    record("_minimum_scalar _MinimumScalar _npi_minimum_scalar", "data", AFFINE, out_by=beside_scalar),
    record("_power_scalar _PowerScalar", "data", COMPUTE, out_by=beside_scalar),
    record("_rpower_scalar _RPowerScalar", "data", COMPUTE, out_by=beside_scalar),
    record("_hypot_scalar _HypotScalar _npi_hypot_scalar", "data", COMPUTE, out_by=beside_scalar),
    record("clip _sparse_clip _npi_clip", "data", AFFINE),
    *(
        record(f"{name} _sparse_{name}", "data", AFFINE)
        for name in ("negative", "abs", "floor", "ceil", "round", "rint", "fix", "trunc")
    ),
    *(record(f"{name} _sparse_{name}", "data", COMPUTE) for name in _SPARSE_UNARY),
    *(record(f"{name} _sparse_{name} _npx_{name}", "data", COMPUTE) for name in ("gamma", "gammaln")),
    *(record(f"{name} _npx_{name}", "data", COMPUTE) for name in ("erf", "erfinv", "smooth_l1")),
    *(record(name, "data", COMPUTE) for name in ("rcbrt", "reciprocal")),
    record("_contrib_quadratic", "data", COMPUTE),
    # Both differ from the plain function in their gradient only.
    record("_contrib_round_ste _sparse__contrib_round_ste", "data", AFFINE),
    record("_contrib_sign_ste _sparse__contrib_sign_ste", "data", COMPUTE),
    record("_contrib_gradientmultiplier", "data", MOVE),
    record("_copy identity", "data", MOVE),
    record("BlockGrad stop_gradient _sparse_stop_gradient", "data", MOVE),
    record("_identity_with_attr_like_rhs", "data like_same", MOVE),
    record("cast_storage _sparse_cast_storage", "data", MOVE),
    # Rounds what it moves: a position stays a position.
    record("Cast cast _npi_cast _npx_cast", "free", AFFINE, out=attribute("dtype", DType.FLOAT32)),
    record("where _sparse_where", "free data data", MOVE),
    record("sum sum_axis _sparse_sum", "data", COMPUTE),
    record("mean _sparse_mean", "data", COMPUTE, averaging=Averaging.IMAGE),
    record("prod", "data", COMPUTE),
    record("nansum", "data", COMPUTE),
    record("nanprod", "data", COMPUTE),
    record("max max_axis", "data", MOVE),
    record("min min_axis", "data", MOVE),
    record("norm _sparse_norm", "data", COMPUTE, out=attribute("out_dtype", SAME)),
    record("moments", "data", COMPUTE),
    # MXNet saves `cumsum` under its NumPy-mode name.
    record(
        *("_np_cumsum cumsum", "data", AFFINE),
        out=attribute("dtype", FromData({DType.BOOL: DType.INT64})),
    ),
    record("_square_sum", "data", COMPUTE),
)
