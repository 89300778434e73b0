"""The operators of MXNet's NumPy mode, scalars included."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np

from tests.onnx.cases_elementwise import GRID, HALVES, OTHER, POSITIVE, ROW, UNIT, X
from tests.onnx.operators import Case, case

__all__ = ["numpy_cases"]

INTEGERS = np.random.default_rng(9).integers(1, 9, (2, 3, 4)).astype(np.int32)

MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)
EXTREME = np.array([[np.nan, np.inf, -np.inf], [0.0, -1.5, 3e38]], np.float32)


def np_case(op: str, *inputs: Any, **options: Any) -> Case:
    return case(op, *inputs, numpy=True, **options)


def numpy_cases() -> Iterator[Case]:
    for name in ("add", "subtract", "multiply", "true_divide"):
        yield np_case(f"_npi_{name}", X, ROW + 5)
        yield np_case(f"_npi_{name}", INTEGERS, X)
        yield np_case(f"_npi_{name}_scalar", X, scalar=1.5)
    # Integers beside a fraction are float64 in MXNet.
    for name in ("add", "subtract", "rsubtract", "multiply", "power", "rpower", "mod", "rmod"):
        yield np_case(f"_npi_{name}_scalar", INTEGERS, scalar=1.5, is_int=False)
        yield np_case(f"_npi_{name}_scalar", INTEGERS, scalar=2, tolerance=0)
    yield np_case("_maximum_scalar", INTEGERS, scalar=2.5, is_int=False)
    yield np_case("_npi_multiply_scalar", INTEGERS.astype(np.uint8), scalar=1 / 255, is_int=False)
    yield np_case("_npi_mean", INTEGERS, axis=1)
    yield np_case("_npi_mean", INTEGERS.astype(np.uint8))
    for name in ("equal", "greater", "less_equal"):
        yield np_case(f"_npi_{name}_scalar", INTEGERS, scalar=3.5, is_int=False, tolerance=0)
    yield np_case("_npi_true_divide", INTEGERS, INTEGERS[:1])
    yield np_case("_npi_true_divide_scalar", INTEGERS, scalar=2)
    yield np_case("_npi_rtrue_divide_scalar", POSITIVE, scalar=2)
    yield np_case("_npi_rsubtract_scalar", X, scalar=2)
    yield np_case("_npi_mod", X, OTHER)
    yield np_case("_npi_mod_scalar", X, scalar=1.5)
    yield np_case("_npi_rmod_scalar", POSITIVE, scalar=1.5)
    yield np_case("_npi_power", POSITIVE, X)
    yield np_case("_npi_power_scalar", POSITIVE, scalar=1.5)
    yield np_case("_npi_rpower_scalar", X, scalar=1.5)
    for name in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"):
        yield np_case(f"_npi_{name}", GRID, OTHER, tolerance=0)
        yield np_case(f"_npi_{name}_scalar", GRID, scalar=1, tolerance=0)
    for name in (
        "negative",
        "absolute",
        "floor",
        "ceil",
        "exp",
        "sign",
        "sin",
        "cos",
        "tanh",
        "sinh",
        "cosh",
    ):
        yield np_case(f"_npi_{name}", X, tolerance=2e-6)
    for name in ("arctan", "arcsinh", "cbrt", "square", "degrees", "radians", "expm1"):
        yield np_case(f"_npi_{name}", X, tolerance=2e-6)
    for name in ("log", "sqrt", "reciprocal", "log2", "log10", "log1p"):
        yield np_case(f"_npi_{name}", POSITIVE, tolerance=2e-6)
    for name in ("tan", "arcsin", "arccos", "arctanh"):
        yield np_case(f"_npi_{name}", UNIT, tolerance=2e-6)
    yield np_case("_npi_arccosh", (POSITIVE + 1).astype(np.float32), tolerance=2e-6)
    for name in ("fix", "trunc"):
        yield np_case(f"_npi_{name}", HALVES, tolerance=0)
    yield np_case("_npi_logical_not", GRID, tolerance=0)
    yield np_case("_npi_where", GRID, X, X, tolerance=0)
    for name in ("_npx_relu", "_npx_sigmoid", "_np_copy"):
        yield np_case(name, X)
    for name in ("_np_sum", "_npi_mean", "_np_max", "_np_min", "_np_prod"):
        yield np_case(name, X)
        yield np_case(name, X, axis="(1,)")
        yield np_case(name, X, axis="(0, 2)", keepdims=True)
    for name in ("_npi_argmax", "_npi_argmin"):
        yield np_case(name, GRID + UNIT, axis=1, tolerance=0)
        yield np_case(name, GRID + UNIT, tolerance=0)
    yield np_case("_np_reshape", X, newshape="(-1, 4)", tolerance=0)
    yield np_case("_np_reshape", (1, 1), newshape="()", tolerance=0)
    for shape in ("(-2, -5)", "(-5, -4)", "(-2, -2, -6, 2, -1)", "(-1, 4)"):
        yield np_case("_npx_reshape", X, newshape=shape, tolerance=0)
    yield np_case("_npx_reshape", (1, 3, 4), newshape="(-3, -2, -2)", tolerance=0)
    yield np_case("_np_squeeze", (2, 1, 3, 1), tolerance=0)
    yield np_case("_np_squeeze", (2, 1, 3, 1), axis="(1,)", tolerance=0)
    yield np_case("_np_squeeze", (1, 1), tolerance=0)
    yield np_case("_np_transpose", X, tolerance=0)
    yield np_case("_np_transpose", X, axes="(1, 0, 2)", tolerance=0)
    yield np_case("_np_moveaxis", X, source="(0,)", destination="(2,)", tolerance=0)
    yield np_case("_np_moveaxis", X, source="(0, 1)", destination="(-1, 0)", tolerance=0)
    yield np_case("_npi_flip", X, axis="(0, 2)", tolerance=0)
    yield np_case("_npi_concatenate", X, X, axis=1, num_args=2, tolerance=0)
    yield np_case("_npi_stack", X, X, axis=1, num_args=2, tolerance=0)
    yield np_case("_npi_broadcast_to", (3, 1), shape="(2, 3, 4)", tolerance=0)
    yield np_case("_npi_arange", start=1, stop=4, step=0.5, dtype="float32", tolerance=0)
    yield np_case("_npi_zeros", shape="(2, 3)", dtype="float32", tolerance=0)
    yield np_case("_npi_ones", shape="(2,)", dtype="float32", tolerance=0)
    yield np_case("_npi_full_like", X, fill_value=2.5, tolerance=0)
    yield np_case("_npi_matmul", (2, 3, 4), (4, 5))
    yield np_case("_np_dot", (3, 4), (4, 5))
    yield np_case("_np_cumsum", X)
    yield from _stacks_and_parts()
    for name in ("isnan", "isinf", "isposinf", "isneginf", "isfinite"):
        yield np_case(f"_npi_{name}", EXTREME, tolerance=0)
    yield np_case("_npi_nan_to_num", EXTREME, tolerance=0)
    yield np_case("_npi_nan_to_num", EXTREME, nan=2.5, posinf=7.0, neginf=-8.0, tolerance=0)
    for side in "lr":
        yield np_case(f"_npi_where_{side}scalar", GRID, X, scalar=-1.5, tolerance=0)
    yield np_case("_npi_eye", N=3, M=5, k=1, dtype="float32", tolerance=0)
    yield np_case("_npi_hypot", X, OTHER)
    yield np_case("_npi_arctan2", X, OTHER)
    yield np_case("_npi_arctan2", GRID, OTHER)
    quadrants = np.array([0.0, -0.0, 2.0, -3.0], np.float32)
    yield np_case("_npi_arctan2", np.repeat(quadrants, 4), np.tile(quadrants, 4))
    yield np_case("_npi_copysign", X, OTHER, tolerance=0)
    yield np_case("_npi_copysign", np.repeat(quadrants, 4), np.tile(quadrants, 4), tolerance=0)
    yield np_case("_npi_rint", np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.4, 2.6], np.float32), tolerance=0)
    yield np_case("_contrib_round_ste", HALVES, tolerance=0)
    yield np_case("_contrib_sign_ste", GRID, tolerance=0)
    for name in ("_np_any", "_np_all"):
        yield np_case(name, GRID, tolerance=0)
        yield np_case(name, GRID, axis="(1,)", keepdims=True, tolerance=0)
        yield np_case(name, EXTREME, axis="(-1,)", tolerance=0)
    yield np_case("_contrib_quadratic", X, a=0.5, b=-2, c=0.25)


def _stacks_and_parts() -> Iterator[Case]:
    rows = np.arange(4, dtype=np.float32)
    for name in ("vstack", "hstack", "dstack", "column_stack"):
        yield np_case(f"_npi_{name}", rows, rows + 4, num_args=2, tolerance=0)
        yield np_case(f"_npi_{name}", MATRIX, MATRIX + 1, num_args=2, tolerance=0)
    for name in ("vstack", "hstack", "dstack"):
        yield np_case(f"_npi_{name}", X, X, X, num_args=3, tolerance=0)
    for mode in ("constant", "edge", "reflect"):
        widths = "((1, 0), (2, 1), (0, 3))"
        yield np_case("_npi_pad", X, pad_width=widths, mode=mode, constant_value=1.5, tolerance=0)
    for offset in (-1, 0, 1):
        yield np_case("_np_diag", rows, k=offset, tolerance=0)
        yield np_case("_np_diag", MATRIX, k=offset, tolerance=0)
        yield np_case("_np_diagflat", MATRIX, k=offset, tolerance=0)
        yield np_case("_np_diagonal", X, offset=offset, axis1=2, axis2=0, tolerance=0)
        yield np_case("_np_trace", X, offset=offset, axis1=0, axis2=1)
    yield np_case("_npi_identity", shape="(3, 3)", dtype="float32", tolerance=0)
    yield np_case("_npi_hsplit", X, indices="()", sections=3, axis=1, outputs=3, tolerance=0)
    yield np_case("_npi_hsplit", rows, indices="(0, 1, 3)", axis=0, outputs=3, tolerance=0)
    yield np_case("_npi_dsplit", X, indices="()", sections=2, axis=2, outputs=2, tolerance=0)
    yield np_case("_np_roll", X, shift="(3,)", axis="(1,)", tolerance=0)
    yield np_case("_np_roll", X, shift="(1, -1)", axis="(0, -1)", tolerance=0)
    yield np_case("_np_roll", X, shift="(5,)", tolerance=0)
    for above in (-1, 0, 2):
        yield np_case("_npi_tril", X, k=above, tolerance=0)
    yield np_case("_npi_diff", X)
    yield np_case("_npi_diff", X, n=2, axis=1)
    yield np_case("_npi_tensordot_int_axes", (2, 3, 4), (3, 4, 5), axes=2)
    yield np_case("_npi_tensordot_int_axes", (2, 3), (4, 5), axes=0)
    yield np_case("_npi_tensordot", (2, 3, 4), (4, 5, 2), a_axes_summed="(0, -1)", b_axes_summed="(2, 0)")
