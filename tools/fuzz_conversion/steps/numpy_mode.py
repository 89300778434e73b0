"""Operators of MXNet's NumPy mode, as exported Gluon blocks with NumPy arrays hold them."""

from __future__ import annotations

from typing import Any

import mxnet as mx

from tools.fuzz_conversion.draft import Draft, Value

__all__ = ["STEPS"]

_ONE = (
    *("negative", "absolute", "square", "exp", "expm1", "tanh", "sin", "cos", "arctan", "sign", "rint"),
    *("ceil", "floor", "trunc", "cbrt", "degrees", "radians", "sinh", "arcsinh", "logical_not"),
)

_TWO = ("add", "subtract", "multiply", "maximum", "minimum", "arctan2", "hypot")


def _np(value: Value) -> Any:
    return value.sym.as_np_ndarray()


def one(draft: Draft) -> Any:
    """Apply a function."""
    return getattr(mx.sym.np, draft.choice(_ONE))(_np(draft.pick()))


def positive(draft: Draft) -> Any:
    """Apply a function to something above 0."""
    x = mx.sym.np.absolute(_np(draft.pick())) + 0.25
    return getattr(mx.sym.np, draft.choice(["log", "log2", "log10", "log1p", "sqrt", "reciprocal"]))(x)


def two(draft: Draft) -> Any:
    """Combine two values that broadcast, also with fewer axes."""
    x = draft.pick()
    y = draft.broadcastable(x)
    if draft.chance(0.3) and len(x.shape) > 1:
        y = draft.param(*x.shape[1:], scale=1.0)
    return getattr(mx.sym.np, draft.choice(_TWO))(_np(x), _np(y))


def scalar(draft: Draft) -> Any:
    """Combine with a scalar."""
    x = _np(draft.pick())
    number = draft.number(-3, 3)
    return draft.choice(
        [
            lambda: x + number,
            lambda: x - number,
            lambda: number - x,
            lambda: x * number,
            lambda: x / (abs(number) + 0.5),
            lambda: mx.sym.np.maximum(x, number),
            lambda: mx.sym.np.power(mx.sym.np.absolute(x) + 0.1, 2),
            lambda: mx.sym.np.clip(x, -1, 1),
        ]
    )()


def compare(draft: Draft) -> Any:
    """Compare, which gives truth values, and choose by them."""
    x = draft.pick()
    condition = _np(x) > draft.number(-1, 1)
    if draft.chance(0.3):
        return condition
    return mx.sym.np.where(condition, _np(x), _np(draft.alike(x)))


def reduction(draft: Draft) -> Any:
    """Reduce along an axis, or to a scalar."""
    x = draft.pick()
    ndim = len(x.shape)
    axis = draft.choice([None, *range(ndim)])
    kind = draft.choice(["sum", "mean", "max", "min", "prod", "std", "var"])
    return getattr(mx.sym.np, kind)(_np(x), axis=axis, keepdims=draft.chance())


def position(draft: Draft) -> Any:
    """Find the largest or the smallest."""
    x = draft.pick(lambda value: len(value.shape) > 0)
    kind = draft.choice(["argmax", "argmin"])
    return getattr(mx.sym.np, kind)(_np(x), axis=draft.integer(0, len(x.shape) - 1))


def product(draft: Draft) -> Any:
    """Multiply matrices."""
    x = draft.pick(ndim=2)
    y = draft.param(x.shape[1], draft.choice([2, 4]))
    kind = draft.choice(["dot", "matmul", "tensordot", "einsum"])
    if kind == "tensordot":
        return mx.sym.np.tensordot(_np(x), _np(y), axes=1)
    if kind == "einsum":
        return mx.sym.np.einsum("ij,jk->ik", _np(x), _np(y))
    return getattr(mx.sym.np, kind)(_np(x), _np(y))


def shape(draft: Draft) -> Any:
    """Move values about."""
    x = draft.pick(lambda value: len(value.shape) > 0)
    y = _np(x)
    last = len(x.shape) - 1
    return draft.choice(
        [
            lambda: mx.sym.np.reshape(y, -1),
            lambda: mx.sym.np.transpose(y),
            lambda: mx.sym.np.swapaxes(y, 0, last),
            lambda: mx.sym.np.expand_dims(y, axis=0),
            lambda: mx.sym.np.squeeze(y),
            lambda: mx.sym.np.flip(y, axis=last),
            lambda: mx.sym.np.tile(y, 2),
            lambda: mx.sym.np.concatenate([y, _np(draft.alike(x))], axis=last),
            lambda: mx.sym.np.stack([y, _np(draft.alike(x))], axis=0),
            lambda: mx.sym.np.roll(y, 1, axis=0),
            lambda: mx.sym.np.cumsum(y, axis=0),
            lambda: mx.sym.np.tril(y),
            lambda: mx.sym.np.pad(y, ((1, 0),) * (last + 1), mode="constant"),
            lambda: mx.sym.npx.reshape(y, (-1,)),
        ]
    )()


def split(draft: Draft) -> Any:
    """Split in two."""
    x = draft.pick(lambda value: len(value.shape) > 0 and value.shape[-1] % 2 == 0)
    halves = mx.sym.np.split(_np(x), 2, axis=len(x.shape) - 1)
    return mx.sym.Group([halves[0], halves[1]])


def convolution(draft: Draft) -> Any:
    """Convolve."""
    x = draft.pick(ndim=4)
    y = mx.sym.npx.convolution(
        _np(x),
        mx.sym.var(f"weight{len(draft.nodes)}").as_np_ndarray(),
        mx.sym.var(f"bias{len(draft.nodes)}").as_np_ndarray(),
        num_filter=draft.width(2, 4),
        kernel=(3, 3),
        pad=(1, 1),
    )
    return mx.sym.npx.relu(y) if draft.chance() else mx.sym.npx.activation(y, act_type="tanh")


def dense(draft: Draft) -> Any:
    """Apply a dense layer."""
    x = draft.pick(ndim=(2, 3))
    hidden = draft.choice([2, 4, 6])
    weight = draft.param(hidden, x.shape[-1])
    return mx.sym.npx.fully_connected(_np(x), _np(weight), num_hidden=hidden, no_bias=True, flatten=False)


def layer(draft: Draft) -> Any:
    """Normalise, pool, or take a softmax."""
    x = draft.pick(ndim=(2, 3, 4))
    y = _np(x)
    kind = draft.choice(["softmax", "log_softmax", "leaky_relu", "pooling", "layer_norm", "sigmoid", "erf"])
    if kind == "pooling":
        return mx.sym.npx.pooling(
            _np(draft.pick(ndim=4)), kernel=(2, 2), pool_type=draft.choice(["max", "avg"])
        )
    if kind == "layer_norm":
        width = x.shape[-1]
        return mx.sym.npx.layer_norm(y, _np(draft.param(width)), _np(draft.param(width)))
    if kind == "leaky_relu":
        return mx.sym.npx.leaky_relu(y, act_type=draft.choice(["leaky", "elu", "gelu"]))
    return getattr(mx.sym.npx, kind)(y)


def embedding(draft: Draft) -> Any:
    """Look positions up."""
    x = draft.pick(lambda value: 0 < len(value.shape) < 4)
    best = mx.sym.np.argmax(_np(x), axis=len(x.shape) - 1)
    size = x.shape[-1]
    table = draft.param(size, 3)
    if draft.chance():
        return mx.sym.np.take(_np(table), best, axis=0, mode="clip")
    return mx.sym.npx.one_hot(best, depth=size)


STEPS = (
    *(one, one, positive, two, two, two, scalar, scalar, compare, reduction, reduction, position, product),
    *(shape, shape, shape, split, convolution, convolution, dense, dense, layer, layer, embedding),
)
