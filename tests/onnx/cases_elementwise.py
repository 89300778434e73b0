"""Arithmetic, comparison, functions, reductions."""

from __future__ import annotations

from typing import Iterator

import numpy as np

from tests.onnx.operators import Case, case

__all__ = ["elementwise_cases"]

X = (2, 3, 4)
WIDE = (1, 3, 1)
GRID = np.random.default_rng(1).integers(-3, 4, X).astype(np.float32)
OTHER = np.random.default_rng(2).integers(-3, 4, X).astype(np.float32)
ROW = np.array([-2, 0, 3], np.float32).reshape(1, 3, 1)
POSITIVE = np.random.default_rng(3).uniform(0.05, 3, X).astype(np.float32)
UNIT = np.random.default_rng(4).uniform(-0.95, 0.95, X).astype(np.float32)
TINY = (UNIT * 1e-4).astype(np.float32)
HALVES = np.arange(-6, 6, dtype=np.float32).reshape(3, 4) / 2


def elementwise_cases() -> Iterator[Case]:
    yield from arithmetic_cases()
    yield from function_cases()
    yield from reduction_cases()


def arithmetic_cases() -> Iterator[Case]:
    for name in ("add", "sub", "mul", "div"):
        yield case(f"elemwise_{name}", X, X)
        yield case(f"broadcast_{name}", X, WIDE)
    for name in ("maximum", "minimum", "hypot"):
        yield case(f"_{name}", X, X)
        yield case(f"broadcast_{name}", X, WIDE)
    yield case("broadcast_power", POSITIVE, WIDE)
    yield case("_power", POSITIVE, X)
    yield case("_mod", GRID, OTHER)
    yield case("broadcast_mod", X, ROW)
    for name in ("plus", "minus", "rminus", "mul", "div", "maximum", "minimum", "mod", "hypot"):
        yield case(f"_{name}_scalar", X, scalar=-1.5)
    yield case("_rdiv_scalar", POSITIVE, scalar=-1.5)
    yield case("_rmod_scalar", POSITIVE, scalar=1.5)
    yield case("_power_scalar", POSITIVE, scalar=2.5)
    yield case("_rpower_scalar", X, scalar=2.5)
    for name in ("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal"):
        yield case(f"_{name}", GRID, OTHER)
        yield case(f"broadcast_{name}", GRID, ROW)
        yield case(f"_{name}_scalar", GRID, scalar=1)
    for name in ("and", "or", "xor"):
        yield case(f"_logical_{name}", GRID, OTHER)
        yield case(f"broadcast_logical_{name}", GRID, ROW)
        yield case(f"_logical_{name}_scalar", GRID, scalar=1)
    yield case("logical_not", GRID)
    yield case("add_n", X, X, X, num_args=3)
    yield case("where", GRID, X, X)
    yield case("where", np.array([0, 1, 2], np.float32), (3, 4), (3, 4))
    yield case("Cast", (GRID * 1.7).astype(np.float32), dtype="int32", tolerance=0)
    yield case("amp_cast", X, dtype="float32", tolerance=0)
    yield case("amp_multicast", X, X, num_outputs=2, outputs=2, tolerance=0)


def function_cases() -> Iterator[Case]:
    for name in ("negative", "abs", "floor", "ceil", "exp", "sign", "sin", "cos", "tanh", "sinh", "cosh"):
        yield case(name, X, tolerance=2e-6)
    for name in ("arctan", "arcsinh", "erf", "cbrt", "rcbrt", "square", "degrees", "radians"):
        yield case(name, X, tolerance=2e-6)
    for name in ("log", "sqrt", "reciprocal", "log2", "log10", "rsqrt"):
        yield case(name, POSITIVE, tolerance=2e-6)
    for name in ("tan", "arcsin", "arccos", "arctanh"):
        yield case(name, UNIT, tolerance=2e-6)
    for values in (X, TINY):
        yield case("expm1", values, tolerance=2e-6)
    for values in (POSITIVE, TINY):
        yield case("log1p", values, tolerance=2e-6)
    yield case(
        "log1p", np.array([1e3, 1e5, 1e7, 1e8, 1e30, np.inf, 0.4999, 0.5, -0.5], np.float32), tolerance=1e-6
    )
    yield case("log1p", np.array([-0.999999, -0.75, -0.49, 1e-7, -1e-20, 0.0], np.float32), tolerance=1e-6)
    yield case("arccosh", (POSITIVE + 1).astype(np.float32), tolerance=2e-6)
    for name in ("round", "rint", "fix", "trunc"):
        yield case(name, HALVES, tolerance=0)
    yield case("clip", X, a_min=-0.5, a_max=0.25, tolerance=0)
    yield case("smooth_l1", X, scalar=1.5)


def reduction_cases() -> Iterator[Case]:
    for name in ("sum", "mean", "max", "min", "prod"):
        yield case(name, X)
        yield case(name, X, axis=1)
        yield case(name, X, axis="(0, 2)", keepdims=True)
        yield case(name, X, axis="(1,)", exclude=True)
        yield case(name, (5,), axis=0)
        yield case(name, X, axis="(0, 1, 2)")
    holes = np.where(np.arange(24).reshape(2, 3, 4) % 5, 1.5, np.nan).astype(np.float32)
    for name in ("nansum", "nanprod"):
        yield case(name, holes, axis=1)
        yield case(name, holes)
    yield case("norm", X, axis=1)
    yield case("norm", (5,), axis=0)
    yield case("norm", X, ord=1, axis="(1, 2)", keepdims=True)
    yield case("_np_cumsum", X, axis=1)
