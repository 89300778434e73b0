"""Two real photographs, prepared as ImageNet networks read them.

``china.jpg`` (a temple) and ``flower.jpg`` (a dahlia), 427 pixels high and 640 wide, come inside the
scikit-learn package, so nothing is downloaded. The preparation is the one GluonCV evaluates its pretrained
ImageNet models with, bit for bit:
``gluoncv.data.transforms.presets.imagenet.transform_eval`` (0.10.5).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_sample_images

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Photographs", "load_photographs", "preprocess"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Mean red, green and blue of ImageNet, on a scale from 0 (black) to 1."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Standard deviation of red, green and blue on ImageNet, on the scale of `IMAGENET_MEAN`."""


class Photographs(NamedTuple):
    """Photographs as a network reads them.

    Attributes
    ----------
    images : numpy.ndarray
        float32, shape (photographs, 3, crop, crop), normalized as :func:`preprocess` does.
    names : tuple of str
        File name of each photograph.
    """

    images: NDArray[np.float32]
    names: tuple[str, ...]


def load_photographs(*, short_side: int = 256, crop: int = 224) -> Photographs:
    """Load scikit-learn's two photographs as an ImageNet network reads them.

    Parameters
    ----------
    short_side : int, default 256
        Pixels of the shorter side after resizing; at least `crop`.
    crop : int, default 224
        Pixels of each side of the square cut out of the centre.

    Returns
    -------
    Photographs
        ``(images, names)``: float32 images of shape (2, 3, crop, crop), and ``("china.jpg", "flower.jpg")``.

    Raises
    ------
    ValueError
        When the crop does not fit into the resized photograph.
    """
    samples: Any = load_sample_images()
    images = [preprocess(pixels, short_side=short_side, crop=crop) for pixels in samples.images]
    names = tuple(str(path).replace("\\", "/").rsplit("/", 1)[-1] for path in samples.filenames)
    return Photographs(np.stack(images), names)


def preprocess(pixels: NDArray[np.uint8], *, short_side: int = 256, crop: int = 224) -> NDArray[np.float32]:
    """Resize a photograph, cut out its centre and normalize it.

    Parameters
    ----------
    pixels : numpy.ndarray
        uint8, shape (height, width, 3): red, green and blue from 0 to 255.
    short_side : int, default 256
        Pixels of the shorter side after resizing, which keeps the proportions; at least `crop`.
    crop : int, default 224
        Pixels of each side of the square cut out of the centre.

    Returns
    -------
    numpy.ndarray
        float32, shape (3, crop, crop): ``(pixel / 255 - IMAGENET_MEAN) / IMAGENET_STD``, channel by channel.

    Raises
    ------
    ValueError
        When the crop does not fit into the resized photograph.
    """
    if not 0 < crop <= short_side:
        raise ValueError(
            f"crop is {crop} and short_side is {short_side}, but the square must fit into the resized"
            f" photograph: give a crop from 1 to {short_side}, or a larger short_side"
        )
    height, width = pixels.shape[:2]
    # MXNet's Resize(keep_ratio=True) truncates the longer side, and OpenCV does not smooth before it shrinks.
    # Another resampling would be as good a picture, but not the one the published accuracies are for.
    if height <= width:
        new_height, new_width = short_side, width * short_side // height
    else:
        new_height, new_width = height * short_side // width, short_side
    resized = cv2.resize(pixels, (new_width, new_height), interpolation=cv2.INTER_LINEAR)
    top, left = (new_height - crop) // 2, (new_width - crop) // 2
    square = resized[top : top + crop, left : left + crop].astype(np.float32) / np.float32(255.0)
    normalized = (square - np.array(IMAGENET_MEAN, np.float32)) / np.array(IMAGENET_STD, np.float32)
    return np.ascontiguousarray(normalized.transpose(2, 0, 1))
