"""Real photographs as any model of the zoo reads them.

scikit-learn comes with two, ``china.jpg`` and ``flower.jpg``, 427 pixels high and 640 wide, which the first
samples are of: both, then other cuts of them, and their mirror images. scikit-image comes with five more, for
who wants more samples. A clip is a cut that moves over the photograph.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from model_zoo_eval.registry import Entry, Shape
from mxamp.errors import DataError
from mxamp.messages.installation import install_hint

__all__ = ["FIRST_SAMPLES", "SAMPLES", "normalised_photographs", "photographs"]

_NORMALIZATION = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "unit": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "raw": ((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255)),
}
"""Mean and standard deviation of red, green and blue, on a scale from 0 (black) to 1."""


class _View(NamedTuple):
    """A cut: its size relative to the largest that fits, where it is (0 to 1), and whether it is mirrored."""

    zoom: float
    across: float
    down: float
    mirrored: bool


_VIEWS = (
    _View(1.0, 0.5, 0.5, False),
    _View(1.0, 0.5, 0.5, True),
    _View(0.8, 0.0, 0.2, False),
    _View(0.8, 1.0, 0.8, True),
    _View(0.6, 0.3, 0.7, False),
    _View(0.6, 0.9, 0.3, True),
    _View(0.45, 0.1, 0.1, False),
    _View(0.45, 0.7, 0.9, True),
)

_MORE = ("astronaut", "chelsea", "coffee", "rocket", "stereo_motorcycle")
"""scikit-image's photographs in colour, in files that come with it."""

FIRST_SAMPLES = 2 * len(_VIEWS)
"""How many different samples scikit-learn's photographs give."""

SAMPLES = FIRST_SAMPLES + len(_MORE) * len(_VIEWS)
"""How many different samples there are with scikit-image's."""

_PAN = 0.012
"""How far a clip moves a frame, as a part of the way across that a cut has."""


def photographs(entry: Entry, shapes: Mapping[str, Shape], samples: int) -> dict[str, NDArray[np.float32]]:
    """Return a model's inputs.

    Parameters
    ----------
    entry
        The model; says how pixels become values.
    shapes
        Input name -> shape of one sample: channels, [frames,] height, width. Six channels are two frames.
    samples
        How many, up to :data:`SAMPLES`.

    Returns
    -------
    dict
        Input name -> float32 array of shape (samples, *shape). The same on every machine but for the last
        bits, which are OpenCV's.

    Raises
    ------
    DataError
        When there are not so many samples, or scikit-learn, OpenCV, or for more than :data:`FIRST_SAMPLES`
        samples scikit-image is missing.
    """
    return normalised_photographs(entry.pixels, shapes, samples)


def normalised_photographs(
    pixels: str, shapes: Mapping[str, Shape], samples: int
) -> dict[str, NDArray[np.float32]]:
    """Return inputs for a network that is in no registry.

    Parameters
    ----------
    pixels
        How pixels become values: ``imagenet``, ``cifar``, ``unit`` or ``raw``.
    shapes, samples
        As for :func:`photographs`, which also says what is returned and raised.
    """
    if not 1 <= samples <= SAMPLES:
        raise DataError(f"The photographs give 1 to {SAMPLES} samples, not {samples}.")
    cuts = _cuts(_load(), samples)
    if samples > FIRST_SAMPLES:
        cuts += _cuts(_load_more(), samples - FIRST_SAMPLES)
    mean, deviation = (np.array(values, np.float32) for values in _NORMALIZATION[pixels])
    inputs = {}
    for name, shape in shapes.items():
        inputs[name] = np.stack([_sample(image, view, shape, mean, deviation) for image, view in cuts])
    return inputs


def _cuts(images: Sequence[NDArray[np.uint8]], samples: int) -> list[tuple[NDArray[np.uint8], _View]]:
    """Pair photographs with views; the photographs take turns, so that few samples show all."""
    count = min(samples, len(images) * len(_VIEWS))
    return [(images[number % len(images)], _VIEWS[number // len(images)]) for number in range(count)]


def _load() -> Sequence[NDArray[np.uint8]]:
    try:
        import cv2  # noqa: F401 - the message names both
        from sklearn.datasets import load_sample_images
    except ImportError as error:
        raise DataError(
            f"The evaluation's photographs come with scikit-learn and are cut with OpenCV: {error}. "
            f"{install_hint('demo')}"
        ) from error
    images: Sequence[NDArray[np.uint8]] = load_sample_images().images
    return images


def _load_more() -> Sequence[NDArray[np.uint8]]:
    try:
        from skimage import data
    except ImportError as error:
        raise DataError(
            f"More than {FIRST_SAMPLES} samples need the photographs of scikit-image: {error}. "
            f"{install_hint('demo')}"
        ) from error
    # Of the stereo pair the left picture; what comes with it is its disparity.
    found = [getattr(data, name)() for name in _MORE]
    return [np.asarray(image[0] if isinstance(image, tuple) else image, np.uint8) for image in found]


def _sample(
    image: NDArray[np.uint8], view: _View, shape: Shape, mean: NDArray[Any], deviation: NDArray[Any]
) -> NDArray[np.float32]:
    channels, frames, (height, width) = shape[0], shape[1:-2], shape[-2:]
    count = frames[0] if frames else channels // 3
    made = []
    for number in range(count):
        direction = 1 if view.across <= 0.5 else -1
        moved = view._replace(across=view.across + direction * min(0.5, _PAN * number))
        cut = _cut(image, moved, height, width).astype(np.float32) / np.float32(255)
        made.append(((cut - mean) / deviation).transpose(2, 0, 1))
    clip = np.stack(made, axis=1)  # (colours, frames, height, width)
    if frames:
        return np.ascontiguousarray(clip)
    return np.ascontiguousarray(clip.transpose(1, 0, 2, 3).reshape(channels, height, width))


def _cut(image: NDArray[np.uint8], view: _View, height: int, width: int) -> NDArray[np.uint8]:
    import cv2

    tall, wide = image.shape[:2]
    scale = view.zoom * min(tall / height, wide / width)
    cut_tall, cut_wide = max(1, round(height * scale)), max(1, round(width * scale))
    top, left = round((tall - cut_tall) * view.down), round((wide - cut_wide) * view.across)
    cut = image[top : top + cut_tall, left : left + cut_wide]
    if view.mirrored:
        cut = cut[:, ::-1]
    method = cv2.INTER_AREA if cut_tall > height else cv2.INTER_LINEAR
    resized = cv2.resize(np.ascontiguousarray(cut), (width, height), interpolation=method)
    return np.asarray(resized, np.uint8)
