"""Real photographs as any model of the zoo reads them.

scikit-learn comes with two, ``china.jpg`` and ``flower.jpg``, 427 pixels high and 640 wide. Further samples
are other cuts of them, and their mirror images; a clip is a cut that moves over the photograph.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from model_zoo_eval.registry import Entry, Shape
from mxamp.errors import DataError

__all__ = ["SAMPLES", "photographs"]

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

SAMPLES = 2 * len(_VIEWS)
"""How many different samples there are."""

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
        When there are not so many samples, or scikit-learn or OpenCV is missing.
    """
    if not 1 <= samples <= SAMPLES:
        raise DataError(f"The two photographs give 1 to {SAMPLES} samples, not {samples}.")
    pixels = _load()
    mean, deviation = (np.array(values, np.float32) for values in _NORMALIZATION[entry.pixels])
    inputs = {}
    for name, shape in shapes.items():
        values = []
        for number in range(samples):
            # The photographs take turns, so that few samples show both.
            image, view = pixels[number % len(pixels)], _VIEWS[number // len(pixels)]
            values.append(_sample(image, view, shape, mean, deviation))
        inputs[name] = np.stack(values)
    return inputs


def _load() -> Sequence[NDArray[np.uint8]]:
    try:
        import cv2  # noqa: F401 - the message names both
        from sklearn.datasets import load_sample_images
    except ImportError as error:
        raise DataError(
            f"The evaluation's photographs come with scikit-learn and are cut with OpenCV: {error}. Install "
            "both with: pip install 'mxamp[demo]'"
        ) from error
    images: Sequence[NDArray[np.uint8]] = load_sample_images().images
    return images


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
