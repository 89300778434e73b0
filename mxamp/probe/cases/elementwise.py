"""Functions of one tensor, element by element."""

from __future__ import annotations

from typing import Iterator

from mxamp.probe.case import PER_ENTRY, X2, X3, X5, Case, Dims, Input, X, of, single

_COMPARISONS = (
    "_maximum_scalar",
    "_minimum_scalar",
    "_greater_scalar",
    "_greater_equal_scalar",
    "_lesser_scalar",
    "_lesser_equal_scalar",
    "_equal_scalar",
    "_not_equal_scalar",
)


def activation_cases() -> Iterator[Case]:
    """Yield functions of one tensor."""
    for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
        yield single(f"Activation {kind}", X, "Activation", act_type=kind)
    yield single("Activation relu 5-D", X5, "Activation", act_type="relu", timing=(Dims(1, 64, 28),))
    yield single("Activation relu 3-D", X3, "Activation", act_type="relu", timing=(Dims(1, 256, 512),))
    yield single("Activation relu 2-D", X2, "Activation", act_type="relu", timing=(Dims(1, 4096, 1),))
    yield single("Activation sigmoid 2-D", X2, "Activation", act_type="sigmoid", timing=(Dims(1, 4096, 1),))
    for op in ("relu", "sigmoid", "tanh", "softsign", "hard_sigmoid", "exp", "square", "abs", "floor", "erf"):
        yield single(op, X, op)
    for op in ("sqrt", "log2", "log", "rsqrt"):
        yield single(op, Input(X, values="positive"), op)
    for op in ("_copy", "BlockGrad", "ones_like", "zeros_like", "shape_array", "Flatten", "negative"):
        yield single(op, X, op)
    for kind in ("leaky", "elu", "selu", "gelu"):
        yield single(f"LeakyReLU {kind}", X, "LeakyReLU", act_type=kind, slope=0.1)
    yield single("LeakyReLU prelu", X, "LeakyReLU", Input(PER_ENTRY, "weight", "gamma"), act_type="prelu")
    yield single(
        "LeakyReLU prelu one slope", X, "LeakyReLU", Input(of(1), "weight", "gamma"), act_type="prelu"
    )
    yield single("Dropout", X, "Dropout", p=0.5)
    yield single("clip 0..6", X, "clip", a_min=0, a_max=6)
    yield single("clip 0..0.3 (bound not a bfloat16)", X, "clip", a_min=0, a_max=0.3)


def scalar_cases() -> Iterator[Case]:
    """Yield operators with a scalar, one that 16-bit dtypes hold (3) and one that they do not (0.3)."""
    for op in ("_plus_scalar", "_minus_scalar", "_rminus_scalar", "_mul_scalar", "_div_scalar"):
        for scalar in (3, 0.3):
            yield single(f"{op} {scalar}", X, op, scalar=scalar)
    for op in _COMPARISONS:
        yield single(f"{op} 0.5", X, op, scalar=0.5)
    yield single("_rdiv_scalar 1", Input(X, values="positive"), "_rdiv_scalar", scalar=1)
    yield single("_power_scalar 2", X, "_power_scalar", scalar=2)
