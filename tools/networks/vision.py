"""Networks over images with layers that the zoo has not: noise, restored pictures, points, cheap features."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from mxnet.gluon import nn

from tools.networks.blocks import Added, in_turn

__all__ = ["DiffusionUNet", "Restormer", "SuperPoint", "SwishBackbone", "ghost_net"]


class _Residual(nn.HybridBlock):
    """Two convolutions with GroupNorm, between which the time of the noise is added to each channel."""

    def __init__(self, channels: int, before: int) -> None:
        super().__init__()
        with self.name_scope():
            self.first = in_turn(nn.GroupNorm(8), nn.Swish(), nn.Conv2D(channels, 3, padding=1))
            self.second = in_turn(nn.GroupNorm(8), nn.Swish(), nn.Conv2D(channels, 3, padding=1))
            self.time = in_turn(nn.Swish(), nn.Dense(channels))
            self.shortcut = None if before == channels else nn.Conv2D(channels, 1)

    def hybrid_forward(self, F: Any, x: Any, time: Any) -> Any:
        shift = F.expand_dims(F.expand_dims(self.time(time), axis=2), axis=3)
        found = self.second(F.broadcast_add(self.first(x), shift))
        return found + (x if self.shortcut is None else self.shortcut(x))


class _Attention(nn.HybridBlock):
    """Attention of each place to all places of an image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self._scale = channels**-0.5
        with self.name_scope():
            self.norm = nn.GroupNorm(8)
            self.three = nn.Conv2D(3 * channels, 1)
            self.out = nn.Conv2D(channels, 1)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        places = F.reshape(self.three(self.norm(x)), (0, 0, -1))
        query, key, value = F.split(places, num_outputs=3, axis=1)
        shares = F.softmax(F.batch_dot(query, key, transpose_a=True) * self._scale, axis=-1)
        return x + self.out(F.reshape_like(F.batch_dot(value, shares, transpose_b=True), x))


class DiffusionUNet(nn.HybridBlock):
    """The noise in an image, given how long noise was added.

    References
    ----------
    Ho et al., "Denoising Diffusion Probabilistic Models", 2020, arXiv:2006.11239; with two resolutions.
    """

    def __init__(self, *, width: int = 32) -> None:
        super().__init__()
        rates = np.exp(-np.arange(width) / width * math.log(10_000)).astype(np.float32)
        with self.name_scope():
            self.rates = self.params.get_constant("rates", rates[None])
            self.embed = in_turn(nn.Dense(4 * width), nn.Swish(), nn.Dense(4 * width))
            self.begin = nn.Conv2D(width, 3, padding=1)
            self.high = _Residual(width, width)
            self.down = nn.Conv2D(width, 3, 2, 1)
            self.low, self.look = _Residual(2 * width, width), _Attention(2 * width)
            self.middle = _Residual(2 * width, 2 * width)
            self.back, self.again = _Residual(2 * width, 4 * width), _Attention(2 * width)
            self.up = nn.Conv2D(2 * width, 3, padding=1)
            self.last = _Residual(width, 3 * width)
            self.end = in_turn(nn.GroupNorm(8), nn.Swish(), nn.Conv2D(3, 3, padding=1))

    def hybrid_forward(self, F: Any, x: Any, steps: Any, rates: Any) -> Any:
        """Return the noise, for ``steps`` of shape (batch,)."""
        angles = F.broadcast_mul(F.expand_dims(steps, axis=1), rates)
        time = self.embed(F.concat(F.sin(angles), F.cos(angles), dim=1))
        high = self.high(self.begin(x), time)
        low = self.look(self.low(self.down(high), time))
        found = self.again(self.back(F.concat(self.middle(low, time), low, dim=1), time))
        found = self.up(F.UpSampling(found, scale=2, sample_type="nearest"))
        return self.end(self.last(F.concat(found, high, dim=1), time))


class _Transposed(nn.HybridBlock):
    """Attention of each channel to all channels, and a gated layer, behind norms over channels."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        with self.name_scope():
            self.norm, self.then = nn.LayerNorm(axis=1), nn.LayerNorm(axis=1)
            self.three = in_turn(nn.Conv2D(3 * channels, 1), _depthwise(3 * channels))
            self.heat = self.params.get("heat", shape=(1, heads, 1, 1), init="ones")
            self.out = nn.Conv2D(channels, 1)
            self.gate = in_turn(nn.Conv2D(4 * channels, 1), _depthwise(4 * channels))
            self.end = nn.Conv2D(channels, 1)

    def hybrid_forward(self, F: Any, x: Any, heat: Any) -> Any:
        parts = F.split(self.three(self.norm(x)), num_outputs=3, axis=1)
        query, key, value = (F.reshape(part, (0, -4, self._heads, -1, -3)) for part in parts)
        query, key = (
            F.broadcast_div(part, F.norm(part, axis=-1, keepdims=True) + 1e-6) for part in (query, key)
        )
        shares = F.softmax(F.broadcast_mul(F.linalg_gemm2(query, key, transpose_b=True), heat))
        x = x + self.out(F.reshape_like(F.reshape(F.linalg_gemm2(shares, value), (0, -3, 0)), x))
        left, right = F.split(self.gate(self.then(x)), num_outputs=2, axis=1)
        return x + self.end(F.LeakyReLU(left, act_type="gelu") * right)


def _depthwise(channels: int, kernel: int = 3) -> Any:
    return nn.Conv2D(channels, kernel, padding=kernel // 2, groups=channels)


class Restormer(nn.HybridBlock):
    """A picture without its blur, rain or noise.

    References
    ----------
    Zamir et al., "Restormer: Efficient Transformer for High-Resolution Image Restoration", 2021,
    arXiv:2111.09881; at one resolution.
    """

    def __init__(self, *, channels: int = 32, heads: int = 4, blocks: int = 2) -> None:
        super().__init__()
        with self.name_scope():
            self.begin = nn.Conv2D(channels, 3, padding=1)
            self.blocks = in_turn(*[_Transposed(channels, heads) for _ in range(blocks)])
            self.end = nn.Conv2D(3, 3, padding=1)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return the picture."""
        return x + self.end(self.blocks(self.begin(x)))


class SuperPoint(nn.HybridBlock):
    """Where an image has points that are found again, none beside a better one, and what each looks like.

    References
    ----------
    DeTone et al., "SuperPoint: Self-Supervised Interest Point Detection and Description", 2017,
    arXiv:1712.07629; half as wide.
    """

    def __init__(self, *, width: int = 32, described: int = 128) -> None:
        super().__init__()
        with self.name_scope():
            self.body = nn.HybridSequential()
            for channels in (width, width, 2 * width, 2 * width):
                for _ in range(2):
                    self.body.add(nn.Conv2D(channels, 3, padding=1, activation="relu"))
                if len(self.body) < 3 * 3:
                    self.body.add(nn.MaxPool2D(2, 2))
            self.points = in_turn(nn.Conv2D(2 * width, 3, padding=1, activation="relu"), nn.Conv2D(65, 1))
            self.looks = in_turn(
                nn.Conv2D(2 * width, 3, padding=1, activation="relu"), nn.Conv2D(described, 1)
            )

    def hybrid_forward(self, F: Any, x: Any) -> tuple[Any, Any]:
        """Return a heat map as large as the image, and an eighth as large what is seen there."""
        body = self.body(x)
        shares = F.slice_axis(F.softmax(self.points(body), axis=1), axis=1, begin=0, end=-1)
        heat = F.depth_to_space(shares, 8)
        largest = F.Pooling(heat, kernel=(9, 9), pad=(4, 4), pool_type="max")
        return heat * (heat == largest), F.L2Normalization(self.looks(body), mode="channel")


class _Ghost(nn.HybridBlock):
    """Half of the channels by a layer, and the other half out of these, each by itself."""

    def __init__(self, channels: int, *, is_active: bool) -> None:
        super().__init__()
        half = channels // 2
        with self.name_scope():
            self.seen = in_turn(nn.Conv2D(half, 1, use_bias=False), nn.BatchNorm())
            self.ghosts = in_turn(_depthwise(half), nn.BatchNorm())
            if is_active:
                for part in (self.seen, self.ghosts):
                    part.add(nn.Activation("relu"))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        seen = self.seen(x)
        return F.concat(seen, self.ghosts(seen), dim=1)


def ghost_net(*, channels: int = 16, blocks: int = 4, classes: int = 10) -> Any:
    """Return a small classifier of ghost modules.

    References
    ----------
    Han et al., "GhostNet: More Features from Cheap Operations", 2019, arXiv:1911.11907.
    """
    net = in_turn(nn.Conv2D(channels, 3, 2, 1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
    for _ in range(blocks):
        wide, narrow = _Ghost(3 * channels, is_active=True), _Ghost(channels, is_active=False)
        net.add(Added(in_turn(wide, narrow)))
    net.add(nn.GlobalAvgPool2D(), nn.Dense(classes))
    return net


class _Crossing(nn.HybridBlock):
    """Half of the channels through residual layers, and half past them."""

    def __init__(self, channels: int, layers: int) -> None:
        super().__init__()
        half = channels // 2
        with self.name_scope():
            self.through = in_turn(*_swish(half, 1))
            self.through.add(*[Added(in_turn(*_swish(half, 1), *_swish(half, 3))) for _ in range(layers)])
            self.past, self.end = in_turn(*_swish(half, 1)), in_turn(*_swish(channels, 1))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.end(F.concat(self.through(x), self.past(x), dim=1))


def _swish(channels: int, kernel: int, strides: int = 1) -> list[Any]:
    layer = nn.Conv2D(channels, kernel, strides, kernel // 2, use_bias=False)
    return [layer, nn.BatchNorm(epsilon=1e-3), nn.Swish()]


class SwishBackbone(nn.HybridBlock):
    """The features of an image for a detector: slices, layers that cross, and maxima over three windows.

    References
    ----------
    Jocher et al., YOLOv5, 2020, https://github.com/ultralytics/yolov5; blocks of Wang et al., "CSPNet: A New
    Backbone that can Enhance Learning Capability of CNN", 2019, arXiv:1911.11929.
    """

    def __init__(self, *, width: int = 32) -> None:
        super().__init__()
        with self.name_scope():
            self.begin = in_turn(*_swish(width, 3))
            self.body = nn.HybridSequential()
            for times, layers in ((2, 1), (4, 2), (8, 1)):
                self.body.add(*_swish(times * width, 3, 2), _Crossing(times * width, layers))
            self.narrow, self.end = in_turn(*_swish(4 * width, 1)), in_turn(*_swish(8 * width, 1))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return the features of a sixteenth of the image's sides."""
        corners = [
            F.slice(x, begin=(None, None, row, column), end=(None,) * 4, step=(None, None, 2, 2))
            for column in (0, 1)
            for row in (0, 1)
        ]
        narrow = self.narrow(self.body(self.begin(F.concat(*corners, dim=1))))
        windows = [
            F.Pooling(narrow, kernel=(side, side), pad=(side // 2, side // 2), pool_type="max")
            for side in (5, 9, 13)
        ]
        return self.end(F.concat(narrow, *windows, dim=1))
