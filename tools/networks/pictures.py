"""Networks whose result is a picture: style transfer, U-Net, and the generator of a DCGAN."""

from __future__ import annotations

from typing import Any, Callable

from mxnet.gluon import nn

__all__ = ["StyleTransfer", "UNet", "UShaped", "dcgan_generator"]


class StyleTransfer(nn.HybridBlock):
    """Convolutions with InstanceNorm and reflected borders: down, five residual blocks, and up.

    References
    ----------
    Johnson et al., "Perceptual Losses for Real-Time Style Transfer and Super-Resolution", ECCV 2016,
    arXiv:1603.08155.
    """

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.down = nn.HybridSequential()
            for channels, kernel, stride in ((32, 9, 1), (64, 3, 2), (128, 3, 2)):
                self.down.add(_Reflected(channels, kernel, stride), nn.InstanceNorm(), nn.Activation("relu"))
            self.blocks = nn.HybridSequential()
            for _ in range(5):
                self.blocks.add(_StyleBlock(128))
            self.up = nn.HybridSequential()
            for channels in (64, 32):
                self.up.add(_Upsampled(channels), nn.InstanceNorm(), nn.Activation("relu"))
            self.last = _Reflected(3, 9, 1)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return a picture of the same size."""
        return self.last(self.up(self.blocks(self.down(x))))


class _Reflected(nn.HybridBlock):
    """A convolution whose border is the picture's own, reflected."""

    def __init__(self, channels: int, kernel: int, stride: int) -> None:
        super().__init__()
        with self.name_scope():
            self.pad = nn.ReflectionPad2D(kernel // 2)
            self.conv = nn.Conv2D(channels, kernel, strides=stride)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.conv(self.pad(x))


class _Upsampled(nn.HybridBlock):
    """A convolution of the picture at twice its size."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        with self.name_scope():
            self.conv = _Reflected(channels, 3, 1)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.conv(F.UpSampling(x, scale=2, sample_type="nearest"))


class _StyleBlock(nn.HybridBlock):
    def __init__(self, channels: int) -> None:
        super().__init__()
        with self.name_scope():
            self.branch = nn.HybridSequential()
            self.branch.add(_Reflected(channels, 3, 1), nn.InstanceNorm(), nn.Activation("relu"))
            self.branch.add(_Reflected(channels, 3, 1), nn.InstanceNorm())

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x + self.branch(x)


class UShaped(nn.HybridBlock):
    """Blocks at smaller and smaller sizes and up again, each size joined with what it was before.

    Parameters
    ----------
    pool, last
        Make what halves the size, and what comes behind all.
    block, wider
        Make what computes at a size, and what doubles it, for a number of channels.
    width
        The channels at the first size; of each further one they are twice as many.
    levels
        How many times the size is halved.
    """

    def __init__(
        self,
        *,
        pool: Callable[[], Any],
        block: Callable[[int], Any],
        wider: Callable[[int], Any],
        last: Callable[[], Any],
        width: int,
        levels: int,
    ) -> None:
        super().__init__()
        with self.name_scope():
            self.pool = pool()
            self.down = nn.HybridSequential()
            for level in range(levels):
                self.down.add(block(width << level))
            self.middle = block(width << levels)
            self.wider, self.up = nn.HybridSequential(), nn.HybridSequential()
            for level in reversed(range(levels)):
                self.wider.add(wider(width << level))
                self.up.add(block(width << level))
            self.last = last()

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return what the last makes of the blocks at the first size."""
        before = []
        for block in self.down:
            before.append(block(x))
            x = self.pool(before[-1])
        x = self.middle(x)
        for wider, block in zip(self.wider, self.up):
            x = block(F.concat(wider(x), before.pop(), dim=1))
        return self.last(x)


class UNet(UShaped):
    """The score of every class for every pixel, by convolutions down to a sixteenth of the size and up again.

    References
    ----------
    Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015,
    arXiv:1505.04597; with borders kept, and BatchNorm.
    """

    def __init__(self, *, width: int = 32, classes: int = 2) -> None:
        super().__init__(
            pool=lambda: nn.MaxPool2D(2, 2),
            block=_convolutions,
            wider=lambda channels: nn.Conv2DTranspose(channels, kernel_size=2, strides=2),
            last=lambda: nn.Conv2D(classes, kernel_size=1),
            width=width,
            levels=4,
        )


def _convolutions(channels: int) -> Any:
    block = nn.HybridSequential()
    for _ in range(2):
        block.add(nn.Conv2D(channels, kernel_size=3, padding=1, use_bias=False), nn.BatchNorm())
        block.add(nn.Activation("relu"))
    return block


def dcgan_generator(*, width: int = 64, channels: int = 3) -> Any:
    """Return a generator of pictures of 64 by 64 pixels from noise of shape (100, 1, 1).

    References
    ----------
    Radford et al., "Unsupervised Representation Learning with Deep Convolutional Generative Adversarial
    Networks", ICLR 2016, arXiv:1511.06434.
    """
    net = nn.HybridSequential()
    for number, factor in enumerate((8, 4, 2, 1)):
        stride, padding = (2, 1) if number else (1, 0)
        net.add(nn.Conv2DTranspose(width * factor, 4, stride, padding, use_bias=False))
        net.add(nn.BatchNorm(), nn.Activation("relu"))
    net.add(nn.Conv2DTranspose(channels, 4, 2, 1, use_bias=False), nn.Activation("tanh"))
    return net
