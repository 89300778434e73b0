"""Convolutions, dense layers, pooling, resampling, and the heads of classifiers."""

from __future__ import annotations

import math
from typing import Any

import mxnet as mx

from tools.fuzz_conversion.draft import Draft, Value

__all__ = ["STEPS"]


def _window(draft: Draft, x: Value) -> dict[str, Any]:
    """Draw a window that fits the spatial axes of a value."""
    spatial = x.shape[2:]
    kernel = tuple(draft.choice([1, 1, 2, 3, 3, 5]) for _ in spatial)
    pad = tuple(draft.choice([0, size // 2, size // 2]) for size in kernel)
    stride = tuple(draft.choice([1, 1, 1, 2]) for _ in spatial)
    return {"kernel": kernel, "pad": pad, "stride": stride}


def convolution(draft: Draft) -> Any:
    """Convolve, in 1 to 3 dimensions, grouped or not, with an activation, a BatchNorm or a sum after it."""
    x = draft.pick(ndim=(3, 4, 4, 4, 5))
    channels = x.shape[1]
    attrs = _window(draft, x)
    groups = draft.choice([1, 1, 1, *(size for size in (2, 3, 4, 8) if channels % size == 0), channels])
    is_depthwise = groups == channels > 1
    filters = groups * (draft.choice([1, 2, 3, 4]) if is_depthwise else draft.width(1, 2, 3, 4))
    if draft.chance(0.2):
        filters = channels if groups == 1 else filters
        attrs["stride"] = (1,) * len(attrs["kernel"])
        attrs["kernel"] = tuple(size | 1 for size in attrs["kernel"])
        attrs["pad"] = tuple(size // 2 for size in attrs["kernel"])
    if draft.chance(0.15):
        attrs["dilate"] = tuple(draft.choice([1, 2]) for _ in attrs["kernel"])
    if draft.chance(0.5):
        attrs["no_bias"] = draft.chance()
    shared = {}
    if draft.chance(0.25):
        shared["weight"] = draft.param(filters, channels // groups, *attrs["kernel"], shared=0.7).sym
    y = mx.sym.Convolution(x.sym, num_filter=filters, num_group=groups, **shared, **attrs)
    if draft.chance(0.3):
        y = mx.sym.BatchNorm(y, fix_gamma=draft.chance(), eps=draft.choice([1e-3, 1e-5, 2e-5]))
    if draft.chance(0.2) and filters == channels:
        y = y + x.sym if draft.chance() else mx.sym.elemwise_add(x.sym, y)
    if draft.chance(0.4):
        y = draft.choice(
            [
                lambda: mx.sym.Activation(y, act_type=draft.choice(["relu", "tanh", "sigmoid"])),
                lambda: mx.sym.LeakyReLU(y, act_type=draft.choice(["leaky", "prelu", "elu"])),
                lambda: mx.sym.clip(y, a_min=0, a_max=6),
                lambda: mx.sym.relu(y),
            ]
        )()
    return y


def deconvolution(draft: Draft) -> Any:
    """Convolve transposed."""
    x = draft.pick(ndim=(3, 4, 4))
    dims = len(x.shape) - 2
    stride = draft.choice([1, 2])
    kernel = draft.choice([2, 3, 4])
    groups = draft.choice([1, 1, x.shape[1]])
    attrs = {"kernel": (kernel,) * dims, "stride": (stride,) * dims, "pad": (draft.choice([0, 1]),) * dims}
    if draft.chance(0.3):
        attrs["adj"] = (draft.choice([0, stride - 1]),) * dims
    return mx.sym.Deconvolution(
        x.sym,
        num_filter=groups * (draft.width(1, 2, 3, 16) if groups == 1 else draft.choice([1, 2])),
        num_group=groups,
        no_bias=draft.chance(),
        **attrs,
    )


def dense(draft: Draft) -> Any:
    """Apply a dense layer, flattening or not, with an activation or not."""
    x = draft.pick(ndim=(2, 3, 4))
    attrs = {"num_hidden": draft.width(1, 2, 4, 5, 8), "flatten": draft.chance()}
    if draft.chance():
        attrs["no_bias"] = draft.chance()
    shared = {}
    if draft.chance(0.25):
        fan = x.array[0].size if attrs["flatten"] else x.shape[-1]
        shared["weight"] = draft.param(attrs["num_hidden"], fan, shared=0.7).sym
    y = mx.sym.FullyConnected(x.sym, **shared, **attrs)
    if draft.chance(0.4):
        return mx.sym.Activation(y, act_type=draft.choice(["relu", "tanh", "sigmoid", "softrelu"]))
    return y


def computed_weight(draft: Draft) -> Any:
    """Apply a layer whose weight the network makes: hypernetworks, trackers, normed weights."""
    x = draft.pick(ndim=(2, 3, 4))
    is_convolution = len(x.shape) == 4 and draft.chance(0.6)
    width = draft.width(2, 4, 5, 8)
    if is_convolution:
        groups = x.shape[1] if draft.chance(0.3) else 1
        width = x.shape[1] if groups > 1 else width
        side = draft.choice([1, 1, min(3, *x.shape[2:])])
        shape: tuple[int, ...] = (width, x.shape[1] // groups, side, side)
    else:
        shape = (width, x.shape[-1])
    size = math.prod(shape)
    kind = draft.choice(["of a parameter", "of values", "of values", "as they are"])
    if kind == "of a parameter":
        weight = mx.sym.L2Normalization(draft.param(*shape, shared=0.5).sym, mode="instance")
    elif kind == "of values":
        row = mx.sym.reshape(draft.pick().sym, shape=(1, -1))
        made = mx.sym.FullyConnected(row, num_hidden=size, no_bias=True)
        weight = mx.sym.reshape(made, shape=shape)
    else:
        source = draft.pick()
        parts = -(-size // source.array.size)
        flat = mx.sym.tile(mx.sym.reshape(source.sym, shape=(-1,)), reps=(parts,))
        weight = mx.sym.reshape(mx.sym.slice_axis(flat, axis=0, begin=0, end=size), shape=shape)
    if is_convolution:
        attrs = {"num_filter": width, "kernel": shape[2:], "num_group": groups, "no_bias": True}
        y = mx.sym.Convolution(x.sym, weight=weight, **attrs)
    else:
        y = mx.sym.FullyConnected(x.sym, weight=weight, num_hidden=width, flatten=False, no_bias=True)
    if draft.chance(0.4):
        return mx.sym.Activation(y, act_type=draft.choice(["relu", "tanh"]))
    return y


def pooling(draft: Draft) -> Any:
    """Pool."""
    x = draft.pick(ndim=(3, 4, 4, 5))
    attrs = _window(draft, x)
    kind = draft.choice(["max", "avg", "avg", "sum", "lp"])
    if draft.chance(0.3):
        attrs = {"kernel": (1,) * (len(x.shape) - 2), "global_pool": True}
    if kind == "lp":
        attrs["p_value"] = 2
    if kind == "avg" and draft.chance(0.3):
        attrs["count_include_pad"] = draft.chance()
    if draft.chance(0.2):
        attrs["pooling_convention"] = draft.choice(["valid", "full"])
    return mx.sym.Pooling(x.sym, pool_type=kind, **attrs)


def adaptive_pooling(draft: Draft) -> Any:
    """Pool to a given size."""
    return mx.sym.contrib.AdaptiveAvgPooling2D(draft.pick(ndim=4).sym, output_size=draft.choice([1, 2, 3]))


def resize(draft: Draft) -> Any:
    """Make larger."""
    data = draft.pick(ndim=4)
    x, channels = data.sym, data.shape[1]
    kind = draft.choice(["nearest", "learned", "bilinear", "resize", "resize"])
    if kind == "nearest":
        return mx.sym.UpSampling(x, scale=2, sample_type="nearest", num_args=1)
    if kind == "learned":
        weight = draft.param(channels, 1, 4, 4).sym
        return mx.sym.UpSampling(x, weight, scale=2, sample_type="bilinear", num_filter=channels, num_args=2)
    if kind == "resize":
        return mx.sym.contrib.BilinearResize2D(x, height=draft.integer(1, 7), width=draft.integer(1, 7))
    return mx.sym.contrib.BilinearResize2D(x, scale_height=2.0, scale_width=2.0)


def pad(draft: Draft) -> Any:
    """Pad, and perhaps convolve or pool what is padded."""
    x = draft.pick(ndim=(4, 4, 5))
    widths = (0, 0, 0, 0, *(draft.choice([0, 1, 1]) for _ in range(2 * (len(x.shape) - 2))))
    mode = draft.choice(["constant", "constant", "edge", "reflect"])
    attrs = {"constant_value": draft.choice([0.0, 0.0, 1.0])} if mode == "constant" else {}
    y = mx.sym.Pad(x.sym, mode=mode, pad_width=widths, **attrs)
    if draft.chance():
        kernel = (2,) * (len(x.shape) - 2)
        if draft.chance(0.7):
            return mx.sym.Convolution(y, num_filter=draft.width(2, 4), kernel=kernel, no_bias=True)
        return mx.sym.Pooling(y, kernel=kernel, pool_type="max")
    return y


def head(draft: Draft) -> Any:
    """End in a softmax, in one of its forms."""
    x = draft.pick(ndim=(2, 3, 4))
    kind = draft.choice(["softmax", "log_softmax", "softmin", "SoftmaxActivation", "temperature"])
    if kind == "SoftmaxActivation":
        return mx.sym.SoftmaxActivation(x.sym, mode=draft.choice(["instance", "channel"]))
    axis = draft.integer(-len(x.shape), len(x.shape) - 1)
    if kind == "temperature":
        return mx.sym.softmax(x.sym, axis=axis, temperature=draft.choice([0.5, 2.0, 8.0]))
    return getattr(mx.sym, kind)(x.sym, axis=axis)


def training_head(draft: Draft) -> Any:
    """End in a training head, whose label is an input that inference does not read."""
    x = draft.pick(ndim=2)
    kind = draft.choice(["SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput", "MakeLoss"])
    if kind == "MakeLoss":
        return mx.sym.MakeLoss(x.sym)
    shape = x.shape[:1] if kind == "SoftmaxOutput" else x.shape
    label = draft.input("label", lambda: draft.normal(*shape))
    return getattr(mx.sym, kind)(x.sym, label.sym)


def dropout(draft: Draft) -> Any:
    """Drop nothing, as in inference."""
    return mx.sym.Dropout(draft.pick().sym, p=draft.choice([0.1, 0.5]))


def sampler(draft: Draft) -> Any:
    """Sample by a grid that an affine transformation makes."""
    x = draft.pick(ndim=4)
    theta = draft.constant(draft.normal(x.shape[0], 6, scale=0.3))
    size = (draft.integer(2, 5), draft.integer(2, 5))
    if draft.chance(0.3):
        return mx.sym.SpatialTransformer(
            x.sym, theta.sym, target_shape=size, transform_type="affine", sampler_type="bilinear"
        )
    grid = mx.sym.GridGenerator(theta.sym, transform_type="affine", target_shape=size)
    return mx.sym.BilinearSampler(x.sym, grid)


def deformable(draft: Draft) -> Any:
    """Convolve at positions that are learned."""
    x = draft.pick(ndim=4)
    kernel = draft.choice([1, 3])
    attrs = {"kernel": (kernel, kernel), "pad": (kernel // 2, kernel // 2)}
    offset = mx.sym.Convolution(x.sym, num_filter=2 * kernel * kernel, **attrs)
    return mx.sym.contrib.DeformableConvolution(x.sym, offset, num_filter=draft.width(2, 4), **attrs)


def correlation(draft: Draft) -> Any:
    """Correlate two images."""
    x = draft.pick(ndim=4)
    return mx.sym.Correlation(x.sym, draft.alike(x).sym, max_displacement=1, kernel_size=1, pad_size=1)


def squeeze_excite(draft: Draft) -> Any:
    """Scale channels by what the whole image says."""
    x = draft.pick(ndim=4)
    pooled = (
        mx.sym.Pooling(x.sym, global_pool=True, kernel=(1, 1), pool_type="avg")
        if draft.chance()
        else mx.sym.mean(x.sym, axis=(2, 3), keepdims=True)
    )
    small = mx.sym.Convolution(pooled, num_filter=2, kernel=(1, 1))
    gate = mx.sym.Convolution(mx.sym.relu(small), num_filter=x.shape[1], kernel=(1, 1))
    return mx.sym.broadcast_mul(x.sym, mx.sym.sigmoid(gate))


STEPS = (
    *(convolution, convolution, convolution, convolution, deconvolution, dense, dense, dense, pooling),
    *(pooling, adaptive_pooling, resize, pad, head, training_head, dropout, sampler, deformable, correlation),
    *(squeeze_excite, computed_weight),
)
