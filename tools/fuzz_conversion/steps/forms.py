"""What preparation passes look for, in sizes at which the forms that they write pay.

The other families have tensors of some dozens of values, for which no target chooses such forms.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, Callable, Sequence

import mxnet as mx

from tools.fuzz_conversion.draft import Draft, NothingFitsError, Value

__all__ = ["STEPS"]

_LARGE = 2048
"""Values from which on most forms pay."""


def _image(draft: Draft, *, large: int = _LARGE) -> Value:
    return _found(draft, lambda value: value.array.size >= large and value.shape[2] > 2, (4,))


def _sequence(draft: Draft) -> Value:
    return _found(draft, lambda value: value.array.size >= _LARGE and min(value.shape[1:]) > 1, (3,))


def _large(draft: Draft) -> Value:
    return _found(draft, lambda value: value.array.size >= _LARGE and value.shape[1] > 1, (3, 4, 4))


def _found(draft: Draft, fits: Callable[[Value], bool], ndim: Sequence[int]) -> Value:
    """Return a value that fits, or now and then, and where there is none, an input of another size."""
    if draft.chance(0.8):
        with contextlib.suppress(NothingFitsError):
            return draft.pick(fits, ndim=ndim)
    batch, channels = draft.choice([1, 1, 2, 8]), draft.choice([8, 12, 16, 30, 32])
    if draft.choice(ndim) == 3:
        shape: tuple[int, ...] = (batch, draft.choice([16, 50, 64]), draft.choice([32, 48, 60]))
    else:
        shape = (batch, channels, draft.choice([14, 20, 31]), draft.choice([14, 20, 32]))
    return draft.input("large", lambda: draft.normal(*shape))


def _layer(draft: Draft, x: Value, filters: int | None = None) -> Any:
    """Apply a layer, behind which the number of axes is certain."""
    count = filters or draft.width(3, 4, 6, 12)
    if len(x.shape) == 4:
        return mx.sym.Convolution(x.sym, num_filter=count, kernel=(1, 1), no_bias=draft.chance())
    return mx.sym.FullyConnected(x.sym, num_hidden=count, flatten=False)


def _maybe_layer(draft: Draft, x: Value) -> Any:
    return _layer(draft, x, x.shape[1] if len(x.shape) == 4 else x.shape[-1]) if draft.chance(0.6) else x.sym


def along_an_axis(draft: Draft) -> Any:
    """Reduce or normalize along the channels, or another axis than the last."""
    x = _large(draft)
    y = _maybe_layer(draft, x)
    axis = draft.choice([1, 1, 1, *range(1, len(x.shape))])
    kind = draft.choice(["sum", "mean", "max", "softmax", "log_softmax", "LayerNorm", "LayerNorm", "norm"])
    if kind == "LayerNorm":
        return mx.sym.LayerNorm(y, axis=axis)
    if kind in ("softmax", "log_softmax"):
        return getattr(mx.sym, kind)(y, axis=axis)
    if kind == "norm":
        return mx.sym.broadcast_div(y, mx.sym.norm(y, ord=2, axis=axis, keepdims=True) + 0.5)
    return getattr(mx.sym, kind)(y, axis=axis, keepdims=draft.chance())


def instance_norm(draft: Draft) -> Any:
    """Normalize planes or rows, with an activation or none."""
    y = mx.sym.InstanceNorm(_maybe_layer(draft, _large(draft)), eps=draft.choice([1e-5, 1e-3]))
    return mx.sym.Activation(y, act_type="relu") if draft.chance(0.4) else y


def group_norm(draft: Draft) -> Any:
    """Normalize groups of channels."""
    x = _large(draft)
    groups = draft.choice([size for size in (1, 2, 4, 8, 16) if x.shape[1] % size == 0])
    return mx.sym.GroupNorm(_maybe_layer(draft, x), num_groups=groups)


def root_mean_square(draft: Draft) -> Any:
    """Normalize rows by their root mean square, as language models do."""
    x = _sequence(draft)
    mean = mx.sym.mean(mx.sym.square(x.sym), axis=-1, keepdims=True)
    y = mx.sym.broadcast_mul(x.sym, mx.sym.rsqrt(mean + 1e-5))
    return mx.sym.broadcast_mul(y, draft.param(x.shape[-1], scale=1.0).sym)


def joined(draft: Draft) -> Any:
    """Join or split along the last axis, or along channels in blocks or not."""
    x = _large(draft)
    y = _maybe_layer(draft, x)
    axis = draft.choice([1, len(x.shape) - 1])
    if draft.chance():
        other = draft.alike(x)
        return mx.sym.concat(y, other.sym, dim=axis)
    parts = draft.choice([size for size in (2, 3, 4) if x.shape[axis] % size == 0])
    cut = mx.sym.split(y, num_outputs=parts, axis=axis)
    return mx.sym.Activation(cut[0], act_type="sigmoid") * cut[parts - 1]


def heads_of_attention(draft: Draft) -> Any:
    """Attend with several heads, split and joined by Reshape and transpose."""
    x = _sequence(draft)
    heads, width = draft.choice([2, 4]), draft.choice([4, 8])

    def apart(sym: Any) -> Any:
        y = mx.sym.FullyConnected(sym, num_hidden=heads * width, flatten=False)
        y = mx.sym.transpose(mx.sym.reshape(y, shape=(0, 0, heads, width)), axes=(0, 2, 1, 3))
        return mx.sym.reshape(y, shape=(-3, 0, 0))

    scores = mx.sym.batch_dot(apart(x.sym), apart(x.sym), transpose_b=True) / math.sqrt(width)
    y = mx.sym.batch_dot(mx.sym.softmax(scores, axis=-1), apart(x.sym))
    y = mx.sym.transpose(mx.sym.reshape(y, shape=(-4, -1, heads, 0, 0)), axes=(0, 2, 1, 3))
    y = mx.sym.FullyConnected(mx.sym.reshape(y, shape=(0, 0, -3)), num_hidden=x.shape[-1], flatten=False)
    return x.sym + y if draft.chance() else y


def pixel_shuffle(draft: Draft) -> Any:
    """Make a larger image of channels, or more channels of an image."""
    x = _image(draft)
    if draft.chance(0.4) and x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0:
        if draft.chance():
            return mx.sym.space_to_depth(x.sym, block_size=2)
        corners = [
            mx.sym.slice(x.sym, begin=(None, None, row, column), end=(None,) * 4, step=(None, None, 2, 2))
            for row, column in ((0, 0), (1, 0), (0, 1), (1, 1))
        ]
        return mx.sym.concat(*corners, dim=1)
    channels = draft.choice([1, 3, 4])
    y = mx.sym.Convolution(x.sym, num_filter=4 * channels, kernel=(3, 3), pad=(1, 1))
    if draft.chance():
        return mx.sym.depth_to_space(y, block_size=2)
    y = mx.sym.reshape(y, shape=(0, -4, -1, 4, 0, 0))
    y = mx.sym.reshape(y, shape=(0, 0, -4, 2, 2, 0, 0))
    return mx.sym.reshape(mx.sym.transpose(y, axes=(0, 1, 4, 2, 5, 3)), shape=(0, 0, -3, -3))


def larger(draft: Draft) -> Any:
    """Make an image larger."""
    x = _image(draft, large=1024)
    if draft.chance():
        return mx.sym.UpSampling(_maybe_layer(draft, x), scale=2, sample_type="nearest")
    rows, columns = (draft.choice([size, 2 * size, 2 * size + 1]) for size in x.shape[2:])
    return mx.sym.contrib.BilinearResize2D(_maybe_layer(draft, x), height=rows, width=columns)


def few_channels(draft: Draft) -> Any:
    """Convolve to few channels, from few, with windows that are large, or whose padding is."""
    x = _image(draft, large=512)
    side = draft.choice([side for side in (3, 5, 7, 9) if side <= min(x.shape[2:])])
    pad = draft.choice([0, side // 2, side // 2, side - 1])
    stride = draft.choice([1, 1, 2, 4])
    filters = draft.choice([1, 2, 3, 6, 10, 20, 24])
    y = mx.sym.Convolution(
        x.sym, num_filter=filters, kernel=(side, side), pad=(pad, pad), stride=(stride, stride)
    )
    return mx.sym.tanh(y) if draft.chance(0.3) else y


def skipped_places(draft: Draft) -> Any:
    """Convolve places by turns, as residual networks do."""
    x = _image(draft)
    return mx.sym.Convolution(x.sym, num_filter=draft.width(8, 16), kernel=(1, 1), stride=(2, 2))


def activations(draft: Draft) -> Any:
    """Apply an activation that is written out, behind a layer or not."""
    x = _large(draft)
    y = _maybe_layer(draft, x)
    kind = draft.choice(["swish", "hard swish", "hard sigmoid", "mish", "leaky", "six", "prelu", "gelu"])
    if kind == "swish":
        return y * mx.sym.sigmoid(draft.choice([1.0, 1.5]) * y)
    if kind in ("hard swish", "hard sigmoid"):
        gate = mx.sym.clip(y + 3, 0, 6) / 6
        return y * gate if kind == "hard swish" else gate
    if kind == "mish":
        return y * mx.sym.tanh(mx.sym.Activation(y, act_type="softrelu"))
    if kind == "leaky":
        slope = draft.choice([0.1, 0.2])
        return draft.choice([mx.sym.broadcast_maximum(y, slope * y), mx.sym.LeakyReLU(y, slope=slope)])
    if kind == "six":
        return mx.sym.clip(y, 0, 6) if draft.chance() else mx.sym.maximum(mx.sym.minimum(y, 6), 0)
    if kind == "prelu":
        return mx.sym.LeakyReLU(y, act_type="prelu")
    return 0.5 * y * (1 + mx.sym.erf(y / math.sqrt(2)))


def scaled(draft: Draft) -> Any:
    """Scale and shift images by numbers or by channels, before a layer or behind one."""
    x = _image(draft)
    channels = x.shape[1]
    y = mx.sym.Convolution(x.sym, num_filter=channels, kernel=(1, 1)) if draft.chance() else x.sym
    for _ in range(draft.integer(1, 2)):
        kind = draft.choice(["number", "sum", "channels", "bias"])
        if kind == "number":
            y = y * draft.number(0.5, 1.5)
        elif kind == "sum":
            y = y + draft.number(-1, 1)
        else:
            values = draft.param(1, channels, 1, 1, scale=1.0).sym
            y = mx.sym.broadcast_mul(y, values) if kind == "channels" else mx.sym.broadcast_add(y, values)
    return mx.sym.Convolution(y, num_filter=draft.width(4, 8), kernel=(3, 3)) if draft.chance() else y


def columns(draft: Draft) -> Any:
    """Convolve what is one place wide, or as wide as the window: text and spectra."""
    x = _sequence(draft)
    image = mx.sym.expand_dims(x.sym, axis=draft.choice([1, 3]))
    if draft.chance():
        image = mx.sym.expand_dims(x.sym, axis=1)
        y = mx.sym.Convolution(image, num_filter=draft.width(4, 8), kernel=(2, x.shape[2]))
        y = mx.sym.Activation(y, act_type="relu")
        return mx.sym.Pooling(y, kernel=(x.shape[1] - 1, 1), pool_type="max") if draft.chance() else y
    image = mx.sym.expand_dims(x.sym, axis=3)
    y = mx.sym.Convolution(image, num_filter=draft.width(4, 8), kernel=(3, 1), pad=(1, 0))
    y = mx.sym.Activation(y, act_type="relu")
    return mx.sym.Convolution(y, num_filter=8, kernel=(3, 1), pad=(1, 0))


def over_sequences(draft: Draft) -> Any:
    """Convolve each channel of a sequence by itself, or pool it."""
    x = _sequence(draft)
    channels, length = x.shape[1:]
    side = draft.choice([side for side in (2, 3, 5) if side <= length])
    if draft.chance():
        return mx.sym.Convolution(
            _maybe_layer(draft, x), num_filter=channels, num_group=channels, kernel=(side,), pad=(side // 2,)
        )
    kind = draft.choice(["max", "avg", "sum"])
    y = mx.sym.Pooling(_maybe_layer(draft, x), kernel=(side,), stride=(draft.choice([1, 2]),), pool_type=kind)
    return mx.sym.Activation(y, act_type="relu") if draft.chance() else y


def pooled(draft: Draft) -> Any:
    """Pool images with wide windows, or all of them, behind a layer or a sum or what is put together."""
    x = _image(draft)
    y = _maybe_layer(draft, x)
    if draft.chance(0.4):
        other = mx.sym.Convolution(x.sym, num_filter=draft.choice([8, 12, 16]), kernel=(1, 1))
        y = mx.sym.concat(y, other, dim=1)
    if draft.chance(0.3):
        return mx.sym.Pooling(y, kernel=(1, 1), global_pool=True, pool_type=draft.choice(["avg", "max"]))
    side = draft.choice([side for side in (2, 3, 5, 7) if side <= min(x.shape[2:])])
    pad = draft.choice([0, side // 2])
    stride = draft.choice([1, 2, side])
    return mx.sym.Pooling(
        y,
        kernel=(side, side),
        pad=(pad, pad),
        stride=(stride, stride),
        pool_type=draft.choice(["max", "max", "avg"]),
        pooling_convention=draft.choice(["valid", "valid", "full"]),
    )


def repeated(draft: Draft) -> Any:
    """Stretch an axis of one place, and multiply or add up."""
    x = _sequence(draft)
    y = mx.sym.expand_dims(_maybe_layer(draft, x), axis=2)
    kind = draft.choice(["tile", "repeat", "broadcast"])
    count = draft.choice([2, 3])
    if kind == "tile":
        y = mx.sym.tile(y, reps=(1, 1, count, 1))
    elif kind == "repeat":
        y = mx.sym.repeat(y, repeats=count, axis=2)
    else:
        y = mx.sym.broadcast_axis(y, axis=2, size=count)
    table = draft.param(1, x.shape[1], count, x.shape[2], scale=1.0)
    return mx.sym.sum(mx.sym.broadcast_mul(y, table.sym), axis=draft.choice([1, 2, 3]))


def moved(draft: Draft) -> Any:
    """Turn a tensor there and back around something that does not care, or take slices of it."""
    x = _image(draft)
    kind = draft.choice(["turned", "rows", "cut", "taken"])
    if kind == "turned":
        y = mx.sym.transpose(_maybe_layer(draft, x), axes=(0, 2, 3, 1))
        y = draft.choice([mx.sym.tanh, mx.sym.relu, lambda sym: 2 * sym])(y)
        return mx.sym.transpose(y, axes=(0, 3, 1, 2)) if draft.chance(0.7) else y
    if kind == "rows":
        return mx.sym.slice_axis(_maybe_layer(draft, x), axis=draft.choice([1, 2, 3]), begin=1, end=None)
    if kind == "cut":
        y = mx.sym.slice_axis(_layer(draft, x, 16), axis=1, begin=draft.choice([0, 8]), end=16)
        return mx.sym.Activation(y, act_type="relu")
    indices = draft.constant(draft.random.integers(0, x.shape[1], 6).astype("float32"))
    return mx.sym.take(_maybe_layer(draft, x), indices.sym, axis=1)


def dense_behind(draft: Draft) -> Any:
    """Apply a dense layer to an image, flat or pooled, as classifiers end."""
    x = _image(draft)
    y = _layer(draft, x, 16)
    kind = draft.choice(["flat", "pooled", "one place"])
    if kind == "pooled":
        y = mx.sym.Pooling(y, kernel=(1, 1), global_pool=True, pool_type="avg")
        if draft.chance():
            return mx.sym.Convolution(y, num_filter=draft.width(5, 8), kernel=(1, 1))
    elif kind == "one place":
        y = mx.sym.Convolution(x.sym, num_filter=16, kernel=x.shape[2:])
    return mx.sym.FullyConnected(y, num_hidden=draft.width(4, 5, 10))


STEPS = (
    *(along_an_axis, along_an_axis, along_an_axis, instance_norm, group_norm, root_mean_square, joined),
    *(joined, heads_of_attention, pixel_shuffle, larger, few_channels, few_channels, skipped_places),
    *(activations, activations, scaled, scaled, columns, over_sequences, pooled, pooled, repeated, moved),
    *(moved, dense_behind),
)
