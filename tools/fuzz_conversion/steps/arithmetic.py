"""Element-wise functions of one value, of a value and a scalar, of two values; comparisons and casts."""

from __future__ import annotations

from typing import Any

import mxnet as mx

from tools.fuzz_conversion.draft import Draft

__all__ = ["STEPS"]

_SMOOTH = (
    *("relu", "sigmoid", "tanh", "softsign", "sin", "cos", "arctan", "erf", "square", "abs", "negative"),
    *("hard_sigmoid", "arcsinh", "sinh", "cosh", "exp", "expm1", "cbrt", "identity", "BlockGrad"),
    *("degrees", "radians", "smooth_l1", "gamma", "gammaln"),
)
"""Functions of any value; what grows too large is not kept."""

_POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "rcbrt", "reciprocal")

_BOUNDED = ("arcsin", "arccos", "arctanh", "erfinv")

_JUMPS = ("floor", "ceil", "round", "rint", "fix", "trunc", "sign", "logical_not")

_SCALAR = (
    *("_plus_scalar", "_minus_scalar", "_rminus_scalar", "_mul_scalar", "_div_scalar", "_maximum_scalar"),
    *("_minimum_scalar", "_hypot_scalar"),
)

_COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal")

_TWO = ("elemwise_add", "elemwise_sub", "elemwise_mul", "_maximum", "_minimum", "_hypot")

_BROADCAST = ("add", "sub", "mul", "maximum", "minimum", "hypot")


def smooth(draft: Draft) -> Any:
    """Apply a function that is defined everywhere."""
    return getattr(mx.sym, draft.choice(_SMOOTH))(draft.pick().sym)


def positive(draft: Draft) -> Any:
    """Apply a logarithm, a root or a reciprocal to something that cannot be 0."""
    x = draft.pick()
    above = mx.sym.abs(x.sym) if draft.chance() else mx.sym.square(x.sym)
    return getattr(mx.sym, draft.choice(_POSITIVE))(above + draft.choice([0.1, 0.5, 1.0, 1e-3, 1.5]))


def bounded(draft: Draft) -> Any:
    """Apply an inverse to something within its domain."""
    return getattr(mx.sym, draft.choice(_BOUNDED))(mx.sym.tanh(draft.pick().sym) * 0.9)


def jump(draft: Draft) -> Any:
    """Apply a function that jumps."""
    return getattr(mx.sym, draft.choice(_JUMPS))(draft.pick().sym)


def scalar(draft: Draft) -> Any:
    """Combine with a scalar."""
    operator = getattr(mx.sym._internal, draft.choice(_SCALAR))
    return operator(draft.pick().sym, scalar=draft.number(-4, 4))


def odd_scalar(draft: Draft) -> Any:
    """Combine with a scalar that is a hazard: tiny, large, or beyond float16."""
    x = draft.pick().sym
    return draft.choice(
        [
            lambda: x + draft.choice([1e-5, 1e-8, 1e-12]),
            lambda: mx.sym.broadcast_mul(x, mx.sym.ones((1,) * 4)) * 1e-5,
            lambda: mx.sym._internal._minimum_scalar(x, scalar=draft.choice([6.0, 1e5, 1e18])),
            lambda: mx.sym._internal._maximum_scalar(x, scalar=draft.choice([0.0, -1e5, -1e18])),
            lambda: mx.sym._internal._power_scalar(mx.sym.abs(x) + 0.1, scalar=draft.choice([0.5, 2, -1, 3])),
            lambda: mx.sym._internal._rpower_scalar(mx.sym.tanh(x), scalar=draft.choice([2.0, 0.5, 10.0])),
            lambda: mx.sym._internal._rdiv_scalar(mx.sym.abs(x) + 0.5, scalar=draft.choice([1.0, 0.1])),
            lambda: mx.sym._internal._mod_scalar(x, scalar=draft.choice([1.0, 0.5, 3.0])),
        ]
    )()


def clip(draft: Draft) -> Any:
    """Clip."""
    low, high = sorted([draft.number(-3, 1), draft.number(0, 6)])
    return mx.sym.clip(draft.pick().sym, a_min=low, a_max=high)


def clip_chain(draft: Draft) -> Any:
    """Write a hard sigmoid or a hard swish as models do, in primitive operators."""
    x = draft.pick().sym
    gate = mx.sym.clip(x + draft.choice([3.0, 3.0, 2.5]), a_min=0, a_max=6) / draft.choice([6.0, 6.0, 5.0])
    return x * gate if draft.chance() else gate


def swish(draft: Draft) -> Any:
    """Write swish or mish, or GELU in one of its forms."""
    x = draft.pick().sym
    return draft.choice(
        [
            lambda: x * mx.sym.sigmoid(x),
            lambda: x * mx.sym.tanh(mx.sym.Activation(x, act_type="softrelu")),
            lambda: x * 0.5 * (1 + mx.sym.erf(x / 1.4142135)),
            lambda: 0.5 * x * (1 + mx.sym.tanh(0.7978845608 * (x + 0.044715 * x * x * x))),
        ]
    )()


def two(draft: Draft) -> Any:
    """Combine two values of one shape."""
    x = draft.pick()
    operator = draft.choice(_TWO)
    found = getattr(mx.sym, operator, None) or getattr(mx.sym._internal, operator)
    return found(x.sym, draft.alike(x).sym)


def broadcast(draft: Draft) -> Any:
    """Combine two values that broadcast."""
    x = draft.pick(ndim=(1, 2, 3, 4, 5))
    y = draft.broadcastable(x)
    pair = (x.sym, y.sym) if draft.chance() else (y.sym, x.sym)
    return getattr(mx.sym, f"broadcast_{draft.choice(_BROADCAST)}")(*pair)


def divide(draft: Draft) -> Any:
    """Divide, or take a remainder or a power, by something away from 0."""
    x = draft.pick(ndim=(1, 2, 3, 4, 5))
    y = mx.sym.abs(draft.broadcastable(x).sym) + draft.choice([0.25, 1.0])
    operator = draft.choice(["div", "div", "mod", "power"])
    left = mx.sym.abs(x.sym) + 0.1 if operator == "power" else x.sym
    return getattr(mx.sym, f"broadcast_{operator}")(left, y)


def many(draft: Draft) -> Any:
    """Add several values up."""
    x = draft.pick()
    return mx.sym.add_n(x.sym, *(draft.alike(x).sym for _ in range(draft.integer(1, 3))))


def compare(draft: Draft) -> Any:
    """Compare with a scalar or with another value, element by element or broadcast."""
    name = draft.choice(_COMPARISONS)
    x = draft.pick(ndim=(1, 2, 3, 4, 5))
    if draft.chance():
        return getattr(mx.sym._internal, f"_{name}_scalar")(x.sym, scalar=draft.number(-1, 1))
    return getattr(mx.sym, f"broadcast_{name}")(x.sym, draft.broadcastable(x).sym)


def logic(draft: Draft) -> Any:
    """Combine truth values."""
    x = draft.pick(ndim=(1, 2, 3, 4, 5))
    y = draft.broadcastable(x)
    operator = draft.choice(["and", "or", "xor"])
    return getattr(mx.sym, f"broadcast_logical_{operator}")(x.sym > 0.0, y.sym > 0.3)


def where(draft: Draft) -> Any:
    """Choose between two values by a comparison."""
    x = draft.pick()
    other = draft.alike(x)
    chosen = draft.alike(x)
    condition = chosen.sym > draft.number(-1, 1)
    if draft.chance(0.3):
        condition = mx.sym.Cast(condition, dtype=draft.choice(["int32", "uint8", "int8"]))
    return mx.sym.where(condition, x.sym, other.sym)


def cast(draft: Draft) -> Any:
    """Cast as users do: to an integer type and back, to float32, or to a low dtype and back."""
    x = draft.pick().sym
    kind = draft.choice(["int32", "int64", "uint8", "int8", "float32", "float64", "float16", "bfloat16"])
    if kind == "bfloat16":
        return mx.sym.amp_cast(mx.sym.amp_cast(x, dtype="bfloat16"), dtype="float32")
    if kind in ("uint8", "int8"):
        x = mx.sym.clip(x * 10, a_min=0, a_max=100)
    there = mx.sym.Cast(x, dtype=kind)
    return there if kind == "float32" else mx.sym.Cast(there, dtype="float32")


def integers(draft: Draft) -> Any:
    """Compute with integers that stay integers."""
    try:
        x = draft.pick(dtype=draft.choice(["int32", "int64"])).sym
    except Exception:
        x = mx.sym.Cast(draft.pick().sym * 5, dtype=draft.choice(["int32", "int64"]))
    return draft.choice([lambda: x + 1, lambda: x * 2, lambda: mx.sym.abs(x), lambda: mx.sym.clip(x, 0, 7)])()


def from_integers(draft: Draft) -> Any:
    """Let integers become floating-point features, as pixels do."""
    x = draft.pick(dtype=draft.choice(["int32", "int64", "uint8"])).sym
    found = mx.sym.Cast(x, dtype="float32")
    return found / draft.choice([255.0, 10.0]) if draft.chance() else found


def activation(draft: Draft) -> Any:
    """Apply an activation of the neural network kind."""
    x = draft.pick().sym
    kind = draft.choice(["relu", "relu", "sigmoid", "tanh", "softrelu", "softsign", "leaky", "elu", "selu"])
    if kind in ("leaky", "elu", "selu"):
        return mx.sym.LeakyReLU(x, act_type=kind, slope=draft.choice([0.1, 0.25, 0.01]))
    return mx.sym.Activation(x, act_type=kind)


def gelu(draft: Draft) -> Any:
    """Apply GELU as an operator."""
    return mx.sym.LeakyReLU(draft.pick().sym, act_type="gelu")


def prelu(draft: Draft) -> Any:
    """Apply PReLU, whose slope is a parameter."""
    return mx.sym.LeakyReLU(draft.pick(ndim=(2, 3, 4, 5)).sym, act_type="prelu")


def made(draft: Draft) -> Any:
    """Make values from nothing, of the shape of something."""
    x = draft.pick()
    kind = draft.choice(["zeros_like", "ones_like", "_zeros", "_ones", "_full", "_arange", "eye"])
    if kind in ("zeros_like", "ones_like"):
        return getattr(mx.sym, kind)(x.sym) + x.sym * 0.5
    if kind == "_full":
        return mx.sym.full(x.shape, draft.number(-2, 2))
    if kind == "_arange":
        return mx.sym.arange(draft.integer(0, 5), draft.integer(6, 300))
    if kind == "eye":
        return mx.sym.eye(draft.integer(1, 8), k=draft.integer(-1, 1))
    return mx.sym.zeros(x.shape) if kind == "_zeros" else mx.sym.ones(x.shape)


def quadratic(draft: Draft) -> Any:
    """Apply a polynomial of MXNet's examples."""
    return mx.sym.contrib.quadratic(draft.pick().sym, a=draft.number(-1, 1), b=draft.number(-1, 1), c=0.5)


STEPS = (
    *(smooth, smooth, positive, bounded, jump, scalar, scalar, odd_scalar, clip, clip_chain, swish, two, two),
    *(broadcast, broadcast, divide, many, compare, logic, where, cast, integers, from_integers, activation),
    *(activation, gelu, prelu, made, quadratic),
)
