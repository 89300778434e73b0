"""Networks over sequences and volumes: speech, series of measurements, points, and scans."""

from __future__ import annotations

from typing import Any

from mxnet.gluon import nn

from tools.networks.blocks import Added, in_turn
from tools.networks.pictures import UShaped

__all__ = ["InceptionTime", "QuartzNet", "TasNet", "VolumeUNet", "point_net"]


class VolumeUNet(UShaped):
    """The share of every class at every place of a volume, with InstanceNorm.

    References
    ----------
    Cicek et al., "3D U-Net: Learning Dense Volumetric Segmentation from Sparse Annotation", 2016,
    arXiv:1606.06650; norms and activations as in Isensee et al., "nnU-Net", 2018, arXiv:1809.10486.
    """

    def __init__(self, *, width: int = 16, classes: int = 4, levels: int = 3) -> None:
        super().__init__(
            pool=lambda: nn.MaxPool3D(2, 2),
            block=_volumes,
            wider=lambda channels: nn.Conv3DTranspose(channels, kernel_size=2, strides=2),
            last=lambda: in_turn(
                nn.Conv3D(classes, kernel_size=1), nn.HybridLambda(lambda F, x: F.softmax(x, axis=1))
            ),
            width=width,
            levels=levels,
        )


def _volumes(channels: int) -> Any:
    block = nn.HybridSequential()
    for _ in range(2):
        block.add(nn.Conv3D(channels, kernel_size=3, padding=1), nn.InstanceNorm(), nn.LeakyReLU(0.01))
    return block


class QuartzNet(nn.HybridBlock):
    """Letters of speech from the spectrum: blocks of depthwise and pointwise convolutions over time.

    References
    ----------
    Kriman et al., "QuartzNet: Deep Automatic Speech Recognition with 1D Time-Channel Separable
    Convolutions", 2019, arXiv:1910.10261; with fewer blocks.
    """

    def __init__(self, *, channels: int = 128, letters: int = 29) -> None:
        super().__init__()
        with self.name_scope():
            self.net = in_turn(
                nn.Conv1D(channels, 33, 2, 16, use_bias=False), nn.BatchNorm(), nn.Activation("relu")
            )
            for taps in (33, 39, 51):
                shortcut = in_turn(nn.Conv1D(channels, 1, use_bias=False), nn.BatchNorm())
                branch = in_turn(
                    *_separable(channels, taps), nn.Activation("relu"), *_separable(channels, taps)
                )
                self.net.add(Added(branch, shortcut, activation="relu"))
            self.net.add(nn.Conv1D(letters, 1))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return the logarithm of the share of every letter at every step."""
        return F.log_softmax(F.transpose(self.net(x), axes=(0, 2, 1)), axis=-1)


def _separable(channels: int, taps: int) -> list[Any]:
    depthwise = nn.Conv1D(channels, taps, padding=taps // 2, groups=channels, use_bias=False)
    return [depthwise, nn.Conv1D(channels, 1, use_bias=False), nn.BatchNorm()]


class TasNet(nn.HybridBlock):
    """Masks over a learned spectrum that take two voices apart.

    References
    ----------
    Luo and Mesgarani, "Conv-TasNet: Surpassing Ideal Time-Frequency Magnitude Masking for Speech
    Separation", 2018, arXiv:1809.07454; with fewer blocks.
    """

    def __init__(self, *, filters: int = 128, narrow: int = 64, blocks: int = 5) -> None:
        super().__init__()
        self._filters = filters
        with self.name_scope():
            self.spectrum = nn.Conv1D(filters, 16, 8, use_bias=False)
            self.masks = in_turn(nn.GroupNorm(1), nn.Conv1D(narrow, 1))
            for block in range(blocks):
                holes = 1 << block
                depthwise = nn.Conv1D(filters, 3, padding=holes, dilation=holes, groups=filters)
                branch = [nn.Conv1D(filters, 1), nn.PReLU(), nn.GroupNorm(1), depthwise, nn.PReLU()]
                self.masks.add(Added(in_turn(*branch, nn.GroupNorm(1), nn.Conv1D(narrow, 1))))
            self.masks.add(nn.PReLU(), nn.Conv1D(2 * filters, 1))
            self.sound = nn.Conv1DTranspose(1, 16, 8, use_bias=False)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return both voices, one sample behind the other."""
        spectrum = F.relu(self.spectrum(x))
        masks = F.reshape(F.sigmoid(self.masks(spectrum)), (0, 2, self._filters, -1))
        voices = F.broadcast_mul(F.expand_dims(spectrum, axis=1), masks)
        return self.sound(F.reshape(voices, (-3, 0, 0)))


class _Inception(nn.HybridBlock):
    def __init__(self, filters: int) -> None:
        super().__init__()
        with self.name_scope():
            self.narrow = nn.Conv1D(filters, 1, use_bias=False)
            self.windows = nn.HybridSequential()
            for taps in (39, 19, 9):
                self.windows.add(nn.Conv1D(filters, taps, padding=taps // 2, use_bias=False))
            self.largest = in_turn(nn.MaxPool1D(3, 1, 1), nn.Conv1D(filters, 1, use_bias=False))
            self.norm = nn.BatchNorm()

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        narrow = self.narrow(x)
        found = [window(narrow) for window in self.windows]
        return F.relu(self.norm(F.concat(*found, self.largest(x), dim=1)))


class InceptionTime(nn.HybridBlock):
    """A classifier of series by windows of three lengths.

    References
    ----------
    Ismail Fawaz et al., "InceptionTime: Finding AlexNet for Time Series Classification", 2019,
    arXiv:1909.04939; with half of its blocks and no shortcuts.
    """

    def __init__(self, *, filters: int = 32, blocks: int = 3, classes: int = 5) -> None:
        super().__init__()
        with self.name_scope():
            self.net = in_turn(*(_Inception(filters) for _ in range(blocks)))
            self.net.add(nn.GlobalAvgPool1D(), nn.Dense(classes))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return the score of every class."""
        return self.net(x)


def point_net(*, classes: int = 40) -> Any:
    """Return a classifier of points in space, by the largest value of each feature.

    References
    ----------
    Qi et al., "PointNet: Deep Learning on Point Sets for 3D Classification and Segmentation", 2016,
    arXiv:1612.00593; without the networks that turn the points.
    """
    net = nn.HybridSequential()
    for channels in (64, 64, 128, 512):
        net.add(nn.Conv1D(channels, 1), nn.BatchNorm(), nn.Activation("relu"))
    net.add(nn.HybridLambda(lambda F, x: F.max(x, axis=2)))
    net.add(nn.Dense(256), nn.BatchNorm(), nn.Activation("relu"), nn.Dense(classes))
    return net
