"""Normalisation, by statistics that were learned or that the data have."""

from __future__ import annotations

from typing import Any

import mxnet as mx

from tools.fuzz_conversion.draft import Draft

__all__ = ["STEPS"]


def batch_norm(draft: Draft) -> Any:
    """Normalise by running statistics."""
    x = draft.pick(ndim=(2, 3, 4, 4, 5))
    attrs = {"fix_gamma": draft.chance(), "eps": draft.choice([1e-3, 1e-5, 2e-5])}
    if draft.chance(0.1):
        attrs["axis"] = draft.choice([1, -1])
    if draft.chance(0.15):
        attrs["use_global_stats"] = True
    y = mx.sym.BatchNorm(x.sym, **attrs)
    return mx.sym.Activation(y, act_type="relu") if draft.chance(0.4) else y


def batch_norm_statistics(draft: Draft) -> Any:
    """Normalise, and read the statistics too."""
    x = draft.pick(ndim=(3, 4))
    y = mx.sym.BatchNorm(x.sym, output_mean_var=True, fix_gamma=draft.chance())
    return mx.sym.Group([y[0], y[1]] if draft.chance() else [y[0], y[1], y[2]])


def layer_norm(draft: Draft) -> Any:
    """Normalise along one axis, and now and then read the mean too.

    Mean and deviation alone are never read: MXNet's oneDNN kernel does not write them then.
    """
    x = draft.pick(ndim=(2, 3, 4))
    axis = draft.choice([-1, -1, 1])
    attrs = {"axis": axis, "eps": draft.choice([1e-5, 1e-12])}
    if draft.chance(0.15):
        y = mx.sym.LayerNorm(x.sym, output_mean_var=True, **attrs)
        mean = mx.sym.Reshape(
            y[1], shape=tuple(1 if at == axis % len(x.shape) else size for at, size in enumerate(x.shape))
        )
        return mx.sym.broadcast_add(y[0], mean)
    return mx.sym.LayerNorm(x.sym, **attrs)


def group_norm(draft: Draft) -> Any:
    """Normalise groups of channels."""
    x = draft.pick(lambda value: value.shape[1] % 2 == 0, ndim=(3, 4))
    return mx.sym.GroupNorm(x.sym, num_groups=2)


def instance_norm(draft: Draft) -> Any:
    """Normalise every channel of every sample."""
    return mx.sym.InstanceNorm(draft.pick(ndim=(3, 4, 4)).sym, eps=draft.choice([1e-3, 1e-5]))


def l2_normalization(draft: Draft) -> Any:
    """Divide by the length."""
    x = draft.pick(ndim=(2, 3, 4))
    modes = ["instance", "channel", "spatial"] if len(x.shape) > 2 else ["instance"]
    return mx.sym.L2Normalization(x.sym, mode=draft.choice(modes))


def local_response(draft: Draft) -> Any:
    """Normalise across channels."""
    return mx.sym.LRN(draft.pick(ndim=4).sym, nsize=draft.choice([3, 5]))


def by_hand(draft: Draft) -> Any:
    """Normalise with primitive operators."""
    x = draft.pick(ndim=(2, 3, 4)).sym
    mean = mx.sym.mean(x, axis=-1, keepdims=True)
    centred = mx.sym.broadcast_sub(x, mean)
    variance = mx.sym.mean(mx.sym.square(centred), axis=-1, keepdims=True)
    return mx.sym.broadcast_div(centred, mx.sym.sqrt(variance + draft.choice([1e-5, 1e-3])))


def affine(draft: Draft) -> Any:
    """Scale and shift channels by parameters, as a frozen BatchNorm does."""
    x = draft.pick(ndim=(3, 4))
    shape = (1, x.shape[1], *(1 for _ in x.shape[2:]))
    scale, shift = draft.param(*shape, scale=1.0), draft.param(*shape, scale=1.0)
    return mx.sym.broadcast_add(mx.sym.broadcast_mul(x.sym, scale.sym), shift.sym)


def preprocess(draft: Draft) -> Any:
    """Subtract a mean and divide by a deviation, as models that take pixels do."""
    x = draft.pick(ndim=4)
    shape = (1, x.shape[1], 1, 1)
    mean, deviation = draft.param(*shape, scale=1.0), draft.param(*shape, scale=1.0)
    return mx.sym.broadcast_div(mx.sym.broadcast_sub(x.sym, mean.sym), mx.sym.abs(deviation.sym) + 0.2)


STEPS = (
    *(batch_norm, batch_norm, batch_norm, batch_norm_statistics, layer_norm, layer_norm, group_norm),
    *(instance_norm, l2_normalization, local_response, by_hand, affine, preprocess),
)
