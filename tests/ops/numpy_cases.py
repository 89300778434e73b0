"""Hand-written calls of the operators of MXNet's NumPy mode."""

from __future__ import annotations

from typing import Any, Iterator

from mxamp.dtypes import DType
from tests.ops.operator_cases import Case, case

__all__ = ["CASES"]

COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
BITS = ("lcm", "bitwise_and", "bitwise_or", "bitwise_xor")
SCALARS = (
    *("add", "subtract", "rsubtract", "multiply", "mod", "rmod", "copysign", "rcopysign", "power", "rpower"),
    *("arctan2", "rarctan2", "ldexp", "rldexp", "true_divide", "rtrue_divide"),
)
UNARY = (
    *("absolute", "negative", "floor", "ceil", "rint", "fix", "trunc", "sign", "square", "sqrt", "cbrt"),
    *("reciprocal", "exp", "expm1", "log", "log10", "log2", "log1p", "sin", "cos", "tan", "arcsin"),
    *("arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "degrees", "radians"),
    *("bitwise_not", "logical_not", "isnan", "isinf", "isfinite", "isneginf", "isposinf", "around"),
)


def cases() -> Iterator[Case]:
    yield from elementwise_cases()
    yield from reduction_cases()
    yield from product_cases()
    yield from moving_cases()
    yield from choosing_cases()
    yield from generated_cases()
    yield from random_cases()


def elementwise_cases() -> Iterator[Case]:
    for name in ("add", "subtract", "multiply", "mod", "power", "true_divide", "copysign", "ldexp"):
        yield case(f"_npi_{name}", "lhs rhs")
    for name in ("hypot", "arctan2"):
        yield case(f"_npi_{name}", "x1 x2")
    for name in (*BITS, *COMPARISONS):
        yield case(f"_npi_{name}", "lhs rhs")
    for name in (*BITS, *COMPARISONS, *SCALARS):
        yield case(f"_npi_{name}_scalar", "data", scalar=2)
        yield case(f"_npi_{name}_scalar", "data", scalar=2.5, is_int=False)
    for name in UNARY:
        yield case(f"_npi_{name}", "x")
    yield case("_npi_nan_to_num", "data")
    yield case("_npx_relu", "data")
    yield case("_npx_sigmoid", "data")


def reduction_cases() -> Iterator[Case]:
    for name in ("_np_sum", "_np_prod", "_npi_mean", "_npi_std", "_npi_var"):
        yield case(name, "a")
        yield case(name, "a", axis=(0,), keepdims=True)
        for dtype in ("float16", "float64"):
            yield case(name, "a", dtype=dtype)
    yield case("_npi_average", "a weights")
    yield case("_npi_average", "a weights", returned=True)
    yield case("_npi_average", "a", weighted=False)
    for name in ("_np_max", "_np_min"):
        yield case(name, "a")
    for name in ("_np_all", "_np_any", "_npi_argmax", "_npi_argmin", "_npi_norm", "_np_trace"):
        yield case(name, "data")
    yield case("_npi_diff", "a")
    yield case("_npi_ediff1d", "input1")
    yield case("_npi_ediff1d", "input1", to_begin_scalar=1, to_end_scalar=1)
    yield case(*("_npi_ediff1d", "input1 input2 input3"), to_begin_arr_given=True, to_end_arr_given=True)
    yield case("_npi_percentile", "a q")
    yield case("_npi_percentile", "a", q_scalar=50)


def product_cases() -> Iterator[Case]:
    yield case("_np_dot", "a b")
    yield case("_npi_matmul", "a b")
    yield case("_npi_tensordot", "a b", a_axes_summed=(0,), b_axes_summed=(0,))
    yield case("_npi_tensordot_int_axes", "a b", axes=1)
    yield case("_npi_einsum", "v0", subscripts="ii->i")
    yield case("_npi_einsum", "v0 v1 v2", subscripts="ij,jk,kl->il")
    yield case("_npi_polyval", "p x")
    for name in ("cholesky", "eig", "eigh", "eigvals", "eigvalsh", "svd", "pinv_scalar_rcond"):
        yield case(f"_npi_{name}", "A")
    yield case("_npi_tensorinv", "a")
    yield case("_npi_solve", "A B")
    yield case("_npi_tensorsolve", "a b")
    yield case("_npi_pinv", "A rcond")


def moving_cases() -> Iterator[Case]:
    yield case("_np_reshape", "a", newshape=(-1,))
    yield case("_npx_reshape", "a", newshape=(-1,))
    yield case("_np_roll", "data", shift=1)
    yield case("_np_moveaxis", "a", source=(0,), destination=(1,))
    for name in ("squeeze", "transpose", "copy"):
        yield case(f"_np_{name}", "a")
    for name in ("diag", "diagflat", "diagonal"):
        yield case(f"_np_{name}", "data")
    for name in ("rot90", "tril"):
        yield case(f"_npi_{name}", "data")
    yield case("_npi_flip", "data", axis=(0,))
    yield case("_npi_broadcast_to", "array", shape=(2,))
    yield case("_npi_pad", "data", pad_width=((1, 1),))
    yield case("_npi_pad", "data", pad_width=((1, 1),), mode="edge")
    for name in (
        *("_np_atleast_1d", "_np_atleast_2d", "_np_atleast_3d", "_npi_concatenate", "_npi_hstack"),
        *("_npi_dstack", "_npi_stack", "_npi_vstack", "_npi_column_stack"),
    ):
        yield case(name, "v0")
        yield case(name, "v0 v1 v2")
    for name in ("_npi_hsplit", "_npi_dsplit"):
        for count in (1, 3):
            yield case(name, "data", indices=(), sections=count)
        yield case(name, "data", indices=(0, 2))


def choosing_cases() -> Iterator[Case]:
    yield case("_npi_where", "condition x y")
    yield case("_npi_where_lscalar", "condition x", scalar=1)
    yield case("_npi_where_rscalar", "condition y", scalar=1)
    yield case("_npi_where_scalar2", "condition", x=1, y=2)
    yield case("_npi_boolean_mask_assign_scalar", "data mask", value=1, start_axis=0)
    yield case("_npi_boolean_mask_assign_tensor", "data mask value", start_axis=0)
    yield case("_npi_insert_scalar", "arr values", int_ind=0)
    yield case("_npi_insert_scalar", "arr", int_ind=0, val=1)
    yield case("_npi_insert_slice", "arr values", start=0, stop=1, step=1)
    yield case("_npi_insert_slice", "arr", start=0, stop=1, step=1, val=1)
    int64 = (DType.INT64,)
    yield case("_npi_insert_tensor", "arr values obj")._replace(index_dtypes=int64)
    yield case("_npi_insert_tensor", "arr obj", val=1)._replace(index_dtypes=int64)
    yield case("_npi_delete", "arr obj")
    yield case("_npi_delete", "arr", int_ind=0)
    yield case("_npi_delete", "arr", start=0, stop=1, step=1)
    yield case("_npi_unique", "data")
    yield case("_npi_unique", "data", return_index=True, return_inverse=True, return_counts=True)
    yield case("_npx_nonzero", "x")
    yield case("_npi_bincount", "data")
    yield case("_npi_bincount", "data weights", has_weights=True)
    yield case("_npi_diag_indices_from", "data")
    yield case("_npi_share_memory", "a b")
    yield case("_npx_constraint_check", "input")


def generated_cases() -> Iterator[Case]:
    needed: dict[str, dict[str, Any]] = {
        "arange": {"start": 0, "stop": 4},
        "indices": {"dimensions": (2,)},
        "zeros": {"shape": (2,)},
        "ones": {"shape": (2,)},
        "identity": {"shape": (2, 2)},
        "eye": {"N": 2},
        "logspace": {"start": 0, "stop": 1, "num": 3},
        "blackman": {"M": 3},
        "hamming": {"M": 3},
        "hanning": {"M": 3},
    }
    for name, attrs in needed.items():
        yield case(f"_npi_{name}", "", **attrs)
        for dtype in ("float16", "int32"):
            yield case(f"_npi_{name}", "", dtype=dtype, **attrs)
    yield case("_npi_full_like", "a", fill_value=1)
    yield case("_npi_full_like", "a", fill_value=1, dtype="float16")


PARAMETERS = {
    "normal": ("loc", "scale"),
    "normal_n": ("loc", "scale"),
    "uniform": ("low", "high"),
    "uniform_n": ("low", "high"),
    "gamma": ("shape", "scale"),
    "gumbel": ("loc", "scale"),
    "logistic": ("loc", "scale"),
    "pareto": ("a",),
    "weibull": ("a",),
    "powerd": ("a",),
    "exponential": ("scale",),
    "rayleigh": ("scale",),
}
"""Distribution -> its parameters: numbers, or arrays where the attribute is None."""
WITH_DTYPE = ("normal", "normal_n", "uniform", "uniform_n", "gamma")


def random_cases() -> Iterator[Case]:
    for name, parameters in PARAMETERS.items():
        inputs = " ".join(f"input{number}" for number in range(1, len(parameters) + 1))
        yield case(f"_npi_{name}", inputs, **dict.fromkeys(parameters, None))
        yield case(f"_npi_{name}", "", size=(2,), **dict.fromkeys(parameters, 1))
        if name in WITH_DTYPE:
            yield case(f"_npi_{name}", inputs, dtype="float16", **dict.fromkeys(parameters, None))
    yield case("_npi_normal", "input1", loc=0, scale=None)
    yield case("_npi_bernoulli", "input1", prob=None, logit=None, is_logit=False)
    yield case("_npi_bernoulli", "", prob=0.5, logit=None, is_logit=False, size=(2,), dtype="bool")
    yield case("_npi_choice", "input1", a=5, size=(2,), weighted=True)
    yield case("_npi_choice", "input1 input2", a=None, size=(2,), weighted=True)
    yield case("_npi_choice", "", a=5, size=(2,))
    # The registry calls its input "a"; a graph calls it "data".
    yield case("_npi_multinomial", "data", n=3)
    yield case("_npi_multinomial", "", n=3, pvals=(0.5, 0.5))


CASES = tuple(cases())
