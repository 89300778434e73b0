"""The digits data set of the demo: scikit-learn's handwritten digits, prepared for a CIFAR network.

``load_digits`` of scikit-learn holds 1,797 real scans of handwritten digits, 8x8 pixels with 17 grey
levels. They come inside the scikit-learn package, so nothing is downloaded. Training
(``tools/train_digits.py``) and the demo both call :func:`load_digits_split`, so that what a network was
trained on and what it is judged on can never overlap by accident.

The split is random within each class. scikit-learn does not say who wrote which image, so one writer's
digits may be on both sides: the held-out accuracy measures new images, not new writers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

__all__ = [
    "BACKGROUND",
    "CLASSES",
    "HELDOUT_FRACTION",
    "IMAGE_SHAPE",
    "PIXEL_MEAN",
    "PIXEL_STD",
    "SPLIT_SEED",
    "DigitsSplit",
    "load_digits_split",
    "preprocess",
    "split_indices",
]

IMAGE_SHAPE = (3, 32, 32)
"""Channels, height and width that the network reads: CIFAR's."""

CLASSES = 10
"""The digits 0 to 9; the label of an image is the digit it shows."""

PIXEL_MEAN = 0.31
"""Mean of the upscaled pixels, ink = 1 and paper = 0; a constant, to be deployed with the network."""

PIXEL_STD = 0.36
"""Standard deviation of the upscaled pixels, on the scale of `PIXEL_MEAN`."""

BACKGROUND = -PIXEL_MEAN / PIXEL_STD
"""What a pixel of blank paper is after normalization."""

HELDOUT_FRACTION = 0.3
"""Share of every class that is held out."""

SPLIT_SEED = 20
"""Seed of the split; the trained parameters in ``demo/`` belong to this one."""

_SOURCE_MAXIMUM = 16.0  # load_digits counts the inked pixels of 4x4 blocks: 0 to 16


class DigitsSplit(NamedTuple):
    """Training and held-out digits.

    Attributes
    ----------
    train_images, heldout_images : numpy.ndarray
        float32, shape (images, 3, 32, 32), normalized as :func:`preprocess` does; the channels are equal.
    train_labels, heldout_labels : numpy.ndarray
        int64, shape (images,): the digit, 0 to 9.
    """

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    heldout_images: NDArray[np.float32]
    heldout_labels: NDArray[np.int64]


def load_digits_split(*, heldout_fraction: float = HELDOUT_FRACTION, seed: int = SPLIT_SEED) -> DigitsSplit:
    """Load the digits as a network reads them, split into training and held-out images.

    The defaults give the split of the trained parameters in ``demo/``: 1,258 training and 539 held-out
    images. With any other seed or fraction, images those parameters were trained on become "held out".

    Parameters
    ----------
    heldout_fraction : float, default 0.3
        Share of every class that is held out, above 0 and below 1.
    seed : int, default 20
        Seed of the split.

    Returns
    -------
    DigitsSplit
        ``(train_images, train_labels, heldout_images, heldout_labels)``, each in scikit-learn's order.

    Raises
    ------
    ValueError
        When `heldout_fraction` is out of range.
    """
    scans: Any = load_digits()
    images = preprocess(scans.images)
    labels = scans.target.astype(np.int64)
    train, heldout = split_indices(labels, heldout_fraction=heldout_fraction, seed=seed)
    return DigitsSplit(images[train], labels[train], images[heldout], labels[heldout])


def split_indices(
    labels: NDArray[np.int64], *, heldout_fraction: float = HELDOUT_FRACTION, seed: int = SPLIT_SEED
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split images at random, holding out the same share of every class.

    Parameters
    ----------
    labels : numpy.ndarray
        Shape (images,): the class of every image.
    heldout_fraction : float, default 0.3
        Share of every class that is held out, above 0 and below 1. The count of a class is rounded.
    seed : int, default 20
        Seed of the split.

    Returns
    -------
    train, heldout : numpy.ndarray
        int64, ascending: indices into `labels`. Together they hold every index once.

    Raises
    ------
    ValueError
        When `heldout_fraction` is out of range.

    Notes
    -----
    scikit-learn's ``train_test_split`` may choose differently in another release, and
    ``numpy.random.Generator`` may change its streams (NEP 19). ``RandomState`` is frozen, so this split
    stays the one that the committed parameters were trained on.
    """
    if not 0.0 < heldout_fraction < 1.0:
        raise ValueError(
            f"heldout_fraction is {heldout_fraction}, but a share of every class must be held out and a share"
            f" must remain to train on: give a number above 0 and below 1, such as {HELDOUT_FRACTION}"
        )
    random = np.random.RandomState(seed)
    is_heldout = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        is_heldout[members[: round(heldout_fraction * len(members))]] = True
    return np.flatnonzero(~is_heldout), np.flatnonzero(is_heldout)


def preprocess(scans: NDArray[Any]) -> NDArray[np.float32]:
    """Turn 8x8 scans into the network's input: upscaled, normalized, three channels.

    Parameters
    ----------
    scans : numpy.ndarray
        Shape (images, height, width), any real dtype: ink from 0 (blank) to 16 (full), as in
        ``load_digits().images``.

    Returns
    -------
    numpy.ndarray
        float32, shape (images, 3, 32, 32): ``(ink / 16 - PIXEL_MEAN) / PIXEL_STD``, after bicubic upscaling.
    """
    channels, height, width = IMAGE_SHAPE
    upscaled = np.empty((len(scans), height, width), dtype=np.float32)
    for index, scan in enumerate(scans):
        ink = (scan / _SOURCE_MAXIMUM).astype(np.float32)
        upscaled[index] = cv2.resize(ink, (width, height), interpolation=cv2.INTER_CUBIC)
    # Bicubic interpolation overshoots at sharp edges; there is no ink below blank or above full.
    np.clip(upscaled, 0.0, 1.0, out=upscaled)
    normalized = (upscaled - np.float32(PIXEL_MEAN)) / np.float32(PIXEL_STD)
    return np.repeat(normalized[:, np.newaxis], channels, axis=1)
