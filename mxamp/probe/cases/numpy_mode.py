"""Operators of MXNet's NumPy mode."""

from __future__ import annotations

from typing import Any, Iterator

from mxamp.probe.case import PER_CHANNEL, PER_IMAGE, X2, X3, X5, Case, Dims, Input, X, of, single


def numpy_cases() -> Iterator[Case]:
    """Yield those that a policy may want low."""
    few = (Dims(1, 64, 56),)
    for newshape in ((-1,), (-1, 14, 14), (-1, "c")):
        shape: Any = newshape if "c" not in newshape else lambda dims: (-1, dims.c)
        yield single(f"_np_reshape {newshape}", X, "_np_reshape", newshape=shape, timing=few)
    yield single("_npx_reshape (-2, -2, -1)", X, "_npx_reshape", newshape=(-2, -2, -1), timing=few)
    yield single("_npx_reshape (-2, -1)", X, "_npx_reshape", newshape=(-2, -1), timing=few)
    yield single("_np_squeeze", PER_IMAGE, "_np_squeeze", axis=(2, 3), timing=(Dims(1, 4096, 1),))
    # What has no axes left oneDNN cannot cast, and no shape says beforehand that some are.
    yield single("_np_squeeze to a number", of(1, 1), "_np_squeeze", timing=())
    yield single("_np_transpose (0, 2, 3, 1)", X, "_np_transpose", axes=(0, 2, 3, 1), timing=few)
    yield single("_np_transpose (0, 2, 1)", X3, "_np_transpose", axes=(0, 2, 1), timing=())
    yield single("_np_moveaxis", X, "_np_moveaxis", source=(1,), destination=(3,), timing=few)
    yield single("_np_roll", X, "_np_roll", shift=(3,), axis=(2,), timing=few)
    yield single("_np_copy", X, "_np_copy", timing=few)
    yield single("_npi_flip", X, "_npi_flip", axis=(3,), timing=few)
    yield single("_npi_rot90", X, "_npi_rot90", k=1, axes=(2, 3), timing=few)
    yield single("_npi_tril", of("c", "c"), "_npi_tril", timing=(Dims(1, 512, 1),))
    shape = of("n", "c", 14, 14)
    yield single("_npi_broadcast_to", PER_IMAGE, "_npi_broadcast_to", shape=shape, timing=())
    widths = ((0, 0), (0, 0), (1, 1), (1, 1))
    yield single("_npi_pad constant", X, "_npi_pad", pad_width=widths, timing=few)
    yield single("_npi_pad edge", X, "_npi_pad", pad_width=widths, mode="edge", timing=few)
    joined: dict[str, Any] = {"num_args": 2}
    for axis in (1, 0, 3):
        name = f"_npi_concatenate axis={axis}"
        yield single(name, X, "_npi_concatenate", Input(X), axis=axis, timing=few, **joined)
    for rank, shape in ((2, X2), (3, X3), (5, X5)):
        name = f"_npi_concatenate {rank}-D"
        yield single(name, shape, "_npi_concatenate", Input(shape), axis=1, timing=(), **joined)
    yield single("_npi_stack", X, "_npi_stack", Input(X), axis=1, num_args=2, timing=few)
    moves: tuple[tuple[str, dict[str, Any]], ...] = (
        ("_np_reshape", {"newshape": (-1,)}),
        ("_npx_reshape", {"newshape": (-2, -1)}),
        ("_np_transpose", {"axes": (0, 2, 3, 4, 1)}),
        ("_np_moveaxis", {"source": (1,), "destination": (4,)}),
        ("_np_roll", {"shift": (3,), "axis": (2,)}),
        ("_np_copy", {}),
        ("_npi_flip", {"axis": (3,)}),
        ("_npi_rot90", {"k": 1, "axes": (2, 3)}),
        ("_npi_pad", {"pad_width": (*widths, (0, 0))}),
        ("_npi_hsplit", {"indices": (0, 7), "axis": 1}),
    )
    for op, attrs in moves:
        yield single(f"{op} 5-D", X5, op, timing=(), **attrs)
    for op in ("_npi_vstack", "_npi_column_stack"):
        yield single(op, X, op, Input(X), num_args=2, timing=few)
    yield single("_npi_hsplit", X, "_npi_hsplit", indices=(0, 7), axis=1, timing=few)
    yield single("_npi_dsplit", X, "_npi_dsplit", indices=(0, 7), axis=2, timing=few)
    yield single("_npi_where", Input(X, "fp32", "binary"), "_npi_where", Input(X), Input(X), timing=few)
    yield single(
        "_npi_where_lscalar", Input(X, "fp32", "binary"), "_npi_where_lscalar", Input(X), scalar=0, timing=few
    )
    for op in ("_npi_add", "_npi_subtract", "_npi_multiply"):
        yield single(f"{op} same shape", X, op, Input(X), timing=few)
        yield single(f"{op} parameter per channel", X, op, Input(PER_CHANNEL, "weight"), timing=few)
        yield single(f"{op}_scalar", X, f"{op}_scalar", scalar=0.3, is_int=False, timing=few)
    yield single("_npi_rsubtract_scalar", X, "_npi_rsubtract_scalar", scalar=1, timing=few)
    yield single("_npi_copysign", X, "_npi_copysign", Input(X), timing=few)
    yield single("_npi_greater", X, "_npi_greater", Input(PER_IMAGE), timing=few)
    yield single("_npi_greater_scalar", X, "_npi_greater_scalar", scalar=0.5, is_int=False, timing=few)
    for op in ("_npx_relu", "_npx_sigmoid", "_npi_tanh", "_npi_absolute", "_npi_negative", "_npi_sign"):
        yield single(op, X, op, timing=few)
    yield single("_npi_sqrt", Input(X, values="positive"), "_npi_sqrt", timing=few)
    for op in ("_np_max", "_np_min"):
        yield single(op, X, op, axis=(2, 3), timing=few)
    yield single("_npi_diff", X, "_npi_diff", timing=few)
    yield single("_np_dot", of(24, "c"), "_np_dot", Input(of("c", 40)), timing=())
    yield single("_npi_matmul", of("n", "s", "c"), "_npi_matmul", Input(of("n", "c", "s")), timing=())
    yield single(
        "_npi_tensordot_int_axes", X2, "_npi_tensordot_int_axes", Input(of("c", 5)), axes=1, timing=()
    )
    yield single(
        *("_npi_tensordot", X2, "_npi_tensordot", Input(of(5, "c"))),
        a_axes_summed=(1,),
        b_axes_summed=(1,),
        timing=(),
    )
    yield single(
        "_npi_einsum", X2, "_npi_einsum", Input(of(5, "c")), num_args=2, subscripts="nc,dc->nd", timing=()
    )
