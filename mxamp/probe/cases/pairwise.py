"""Operators of several tensors, and casts."""

from __future__ import annotations

from typing import Any, Iterator

from mxamp.probe.case import (
    LOW,
    PER_CHANNEL,
    PER_ENTRY,
    PER_IMAGE,
    TIME_DIMS,
    X2,
    X3,
    X5,
    Case,
    Dims,
    Input,
    X,
    of,
    single,
    step,
)


def pairwise_cases() -> Iterator[Case]:
    """Yield operators of several data inputs."""
    ranks = (("4-D", X, TIME_DIMS), ("5-D", X5, (Dims(1, 64, 28),)), ("3-D", X3, (Dims(1, 256, 512),)))
    for label, shape, timing in (
        *ranks,
        ("2-D", X2, (Dims(1, 4096, 1),)),
        ("1-D", PER_ENTRY, (Dims(1, 4096, 1),)),
    ):
        yield single(f"elemwise_add {label}", shape, "elemwise_add", Input(shape), timing=timing)
    for op in ("elemwise_sub", "elemwise_mul"):
        yield single(op, X, op, Input(X))
    yield single("elemwise_mul 2-D", X2, "elemwise_mul", Input(X2), timing=(Dims(1, 4096, 1),))
    yield single("elemwise_div", X, "elemwise_div", Input(X, values="positive"))
    for op in ("broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_minimum", "broadcast_maximum"):
        yield single(f"{op} same shape", X, op, Input(X))
        yield single(f"{op} per image and channel", X, op, Input(PER_IMAGE))
        yield single(f"{op} parameter per channel", X, op, Input(PER_CHANNEL, "weight"))
    yield single(
        "broadcast_div per image and channel", X, "broadcast_div", Input(PER_IMAGE, values="positive")
    )
    yield single(
        "broadcast_mod", Input(X, values="positive"), "broadcast_mod", Input(PER_IMAGE, values="gamma")
    )
    for relation in ("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal"):
        yield single(f"broadcast_{relation}", X, f"broadcast_{relation}", Input(PER_IMAGE))
        yield single(f"_{relation}", X, f"_{relation}", Input(X))
    for op in ("_maximum", "_minimum"):
        yield single(op, X, op, Input(X))
    yield single("broadcast_axis", PER_IMAGE, "broadcast_axis", axis=(2, 3), size=(14, 14))
    yield single("broadcast_like", PER_IMAGE, "broadcast_like", Input(X), lhs_axes=(2, 3), rhs_axes=(2, 3))
    for number in (2, 3, 4):
        others = [Input(X)] * (number - 1)
        yield single(f"add_n {number}", X, "add_n", *others, num_args=number)
    yield single("where", Input(X, values="binary"), "where", Input(X), Input(X))
    yield single("where, float32 condition", Input(X, "fp32", "binary"), "where", Input(X), Input(X))
    yield single("dot", of(24, "c"), "dot", Input(of("c", 40)), timing=(Dims(1, 1024, 1),))
    attention: dict[str, Any] = {"check": (Dims(2, 32, 14), Dims(1, 20, 14)), "timing": (Dims(12, 64, 196),)}
    rows = of("n", "s", "c")
    yield single("batch_dot", rows, "batch_dot", Input(of("n", "c", "s")), **attention)
    yield single("batch_dot transpose_b", rows, "batch_dot", Input(rows), transpose_b=True, **attention)
    yield single("_contrib_div_sqrt_dim", rows, "_contrib_div_sqrt_dim", **attention)
    square = of("c", "c")
    yield single("_linalg_gemm2", square, "_linalg_gemm2", Input(square), timing=(Dims(1, 512, 1),))


def cast_cases() -> Iterator[Case]:
    """Yield casts; the FP32 graph of ``down`` and ``up`` has none."""
    # The rate is a slope between sizes, which two alone would leave to chance.
    sizes = (*TIME_DIMS, Dims(1, 512, 56))
    for op in ("amp_cast", "Cast"):
        down, up = (step(op, dtype=dtype, low_only=True) for dtype in (LOW, "float32"))
        yield Case(f"{op} down", Input(X, "fp32", "unrounded"), (down,), timing=sizes)
        yield Case(f"{op} up", Input(X), (up,), timing=sizes)
    yield single("Cast to int32", Input(X, values="positive"), "Cast", dtype="int32")
    yield single("amp_multicast two low", X, "amp_multicast", Input(X), num_outputs=2)
    yield single("amp_multicast low and float32", X, "amp_multicast", Input(X, "fp32"), num_outputs=2)
    narrow: dict[str, Any] = {"num_outputs": 2, "cast_narrow": True}
    yield single("amp_multicast narrow", X, "amp_multicast", Input(X, "fp32", "unrounded"), **narrow)
