"""What a network of the benchmark is: how it is built, and what it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Tuple

__all__ = ["Input", "Network", "constant", "image", "noise", "tokens", "zeros"]

Shape = Tuple[int, ...]


@dataclass(frozen=True)
class Input:
    """One input of a network.

    Attributes
    ----------
    shape
        The shape of one sample, without the batch.
    values
        What it holds: ``image`` (a photograph; one channel is its luminance), ``tokens``, ``noise``,
        ``zeros`` or ``constant``.
    parameters
        For tokens the size of the vocabulary; for a constant its values.
    batch_axis
        Which axis of the whole shape the batch is.
    pixels
        How a photograph's pixels become values, as :mod:`model_zoo_eval.photographs` knows it; empty for what
        is no image.
    """

    shape: Shape
    values: str
    parameters: tuple[float, ...] = ()
    batch_axis: int = 0
    pixels: str = ""

    def batched(self, batch: int) -> Shape:
        """Return the whole shape for a number of samples."""
        return (*self.shape[: self.batch_axis], batch, *self.shape[self.batch_axis :])


@dataclass(frozen=True)
class Network:
    """A network.

    Attributes
    ----------
    name
        What the benchmark calls it.
    title
        What it is, for the reader.
    build
        Returns it: a Gluon block that was not initialised, or a Symbol.
    inputs
        Input name -> what it is. A block's inputs are in the order in which it takes them, and named as MXNet
        names them: ``data``, or ``data0``, ``data1`` and so on.
    """

    name: str
    title: str
    build: Callable[[], Any]
    inputs: Mapping[str, Input]


def image(channels: int, height: int, width: int, *, pixels: str = "imagenet") -> Input:
    """Return an input that takes a photograph, normalised as for ImageNet unless ``pixels`` is ``raw``."""
    return Input((channels, height, width), "image", pixels=pixels)


def tokens(*shape: int, vocabulary: int, batch_axis: int = 0) -> Input:
    """Return an input that takes numbers of words, as float32, from 0 up to the size of the vocabulary."""
    return Input(shape, "tokens", (vocabulary,), batch_axis)


def noise(*shape: int) -> Input:
    """Return an input that takes values of a standard normal distribution."""
    return Input(shape, "noise")


def zeros(*shape: int, batch_axis: int = 0) -> Input:
    """Return an input that takes zeros, such as the state with which a sequence begins."""
    return Input(shape, "zeros", (), batch_axis)


def constant(*values: float) -> Input:
    """Return an input that takes the same values for each sample; one value is a scalar a sample."""
    return Input((len(values),) if len(values) > 1 else (), "constant", values)
