"""Sums, means, norms and products along axes; orderings and positions.

``moments`` is not here: in MXNet 1.9.1 its variance is another at every run, in FP32 too.
"""

from __future__ import annotations

from typing import Any

import mxnet as mx

from tools.fuzz_conversion.draft import Draft, Value

__all__ = ["STEPS"]


def _axes(draft: Draft, x: Value) -> dict[str, Any]:
    ndim = len(x.shape)
    count = draft.integer(1, ndim)
    axes = sorted(int(axis) for axis in draft.random.choice(ndim, count, replace=False))
    attrs: dict[str, Any] = {"axis": axes[0] if count == 1 and draft.chance() else tuple(axes)}
    if draft.chance():
        attrs["keepdims"] = draft.chance(0.7)
    if draft.chance(0.1):
        attrs["exclude"] = True
    return attrs


def reduction(draft: Draft) -> Any:
    """Reduce along axes."""
    x = draft.pick(ndim=(1, 2, 3, 4, 5))
    kind = draft.choice(["sum", "sum", "mean", "mean", "max", "min", "nansum", "prod", "nanprod"])
    return getattr(mx.sym, kind)(x.sym, **_axes(draft, x))


def norm(draft: Draft) -> Any:
    """Take a norm."""
    x = draft.pick(ndim=(2, 3, 4))
    attrs = {"axis": draft.integer(0, len(x.shape) - 1), "keepdims": draft.chance()}
    return mx.sym.norm(x.sym, ord=draft.choice([1, 2]), **attrs)


def cumulative(draft: Draft) -> Any:
    """Sum up from the start."""
    x = draft.pick(ndim=(2, 3))
    return mx.sym.cumsum(x.sym, axis=draft.integer(0, len(x.shape) - 1))


def position(draft: Draft) -> Any:
    """Find the largest or the smallest, or order everything."""
    x = draft.pick(ndim=(2, 3, 4))
    axis = draft.integer(0, len(x.shape) - 1)
    kind = draft.choice(["argmax", "argmin", "argsort", "sort", "argmax_channel"])
    if kind == "argmax_channel":
        return mx.sym.argmax_channel(draft.pick(ndim=2).sym)
    return getattr(mx.sym, kind)(x.sym, axis=axis)


def top(draft: Draft) -> Any:
    """Take the largest few: their positions, their values, both, or a mask."""
    x = draft.pick(ndim=(2, 3, 4))
    axis = draft.integer(0, len(x.shape) - 1)
    kind = draft.choice(["indices", "value", "both", "mask"])
    attrs = {"axis": axis, "k": draft.integer(1, x.shape[axis]), "ret_typ": kind}
    if draft.chance(0.3) and kind in ("indices", "both"):
        attrs["dtype"] = draft.choice(["int32", "int64", "float32"])
    if draft.chance(0.3):
        attrs["is_ascend"] = True
    y = mx.sym.topk(x.sym, **attrs)
    return mx.sym.Group([y[0], y[1]]) if kind == "both" else y


def take_best(draft: Draft) -> Any:
    """Take what belongs to the best position."""
    x = draft.pick(ndim=2)
    other = draft.pick(lambda value: value.shape == x.shape, ndim=2)
    return mx.sym.pick(other.sym, mx.sym.argmax(x.sym, axis=1), axis=1)


STEPS = (reduction, reduction, reduction, norm, cumulative, position, top, take_best)
