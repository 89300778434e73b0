"""The operators of MXNet's NumPy mode, scalars included."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np

from tests.onnx.cases_elementwise import GRID, HALVES, OTHER, POSITIVE, ROW, UNIT, X
from tests.onnx.operators import Case, case

__all__ = ["numpy_cases"]

INTEGERS = np.random.default_rng(9).integers(1, 9, (2, 3, 4)).astype(np.int32)


def np_case(op: str, *inputs: Any, **options: Any) -> Case:
    return case(op, *inputs, numpy=True, **options)


def numpy_cases() -> Iterator[Case]:
    for name in ("add", "subtract", "multiply", "true_divide"):
        yield np_case(f"_npi_{name}", X, ROW + 5)
        yield np_case(f"_npi_{name}", INTEGERS, X)
        yield np_case(f"_npi_{name}_scalar", X, scalar=1.5)
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
