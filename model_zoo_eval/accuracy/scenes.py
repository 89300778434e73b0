"""Scenes: handwritten digits over real photographs, with their boxes and a class for every pixel.

The digits are scikit-learn's scans, the photographs those that come with scikit-learn and Matplotlib, so
nothing is downloaded. What a network is trained on and what it is judged on have no digit and no photograph
in common: the digits are split as in ``tools/digits.py``, and each photograph is on one side only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.errors import DataError
from mxamp.messages.installation import install_hint
from tools.digits import split_indices
from tools.photographs import IMAGENET_MEAN, IMAGENET_STD

__all__ = [
    "BACKGROUND",
    "HELDOUT",
    "SIZE",
    "TRAINING",
    "Scene",
    "Side",
    "compose",
    "heldout_scenes",
    "to_input",
]

Array = NDArray[Any]

SIZE = 160
"""Height and width of a scene, in pixels."""

BACKGROUND = 0
"""Class of the pixels without ink; the digit d has the class d + 1."""

_INK = 16.0  # load_digits counts the inked pixels of 4x4 blocks: 0 to 16
_INKED = 0.5  # of full ink, from where on a pixel belongs to the digit
_MOST_DIGITS = 4
_HEIGHTS = (44.0, 80.0)  # of a scan with its margins, in pixels
_ANGLE = 10.0  # degrees; a 6 turned much further starts to look like something else
_ZOOMS = (1.0, 2.4)  # pixels of the photograph to one of the scene
_TRIES = 20
_LIGHT = (0.25, 0.7)  # of the photograph's own
_CHALK = (190.0, 255.0)  # each of red, green and blue, of 255


class Scene(NamedTuple):
    """One scene.

    Attributes
    ----------
    image : numpy.ndarray
        uint8, shape (height, width, 3): red, green and blue.
    boxes : numpy.ndarray
        float32, shape (digits, 4): left, top, right and bottom of the ink, in pixels.
    labels : numpy.ndarray
        int64, shape (digits,): the digit in each box.
    mask : numpy.ndarray
        int32, shape (height, width): the class of every pixel; see :data:`BACKGROUND`.
    objects : numpy.ndarray
        int32, shape (height, width): number of the box whose digit a pixel belongs to, -1 for none.
    """

    image: Array
    boxes: Array
    labels: Array
    mask: Array
    objects: Array


class Side(NamedTuple):
    """One side of the split.

    Attributes
    ----------
    name
        ``training`` or ``held out``.
    photographs
        Files, each on this side only.
    """

    name: str
    photographs: tuple[str, ...]


TRAINING = Side("training", ("china.jpg", "grace_hopper.jpg"))
HELDOUT = Side("held out", ("flower.jpg",))


def heldout_scenes(count: int, *, seed: int = 0) -> list[Scene]:
    """Return the scenes that networks are judged on; the same for the same count and seed."""
    return compose(HELDOUT, count, seed=1_000_003 + seed)


def compose(side: Side, count: int, *, seed: int) -> list[Scene]:
    """Compose scenes.

    Parameters
    ----------
    side
        Which digits and photographs to use.
    count
        How many scenes.
    seed
        Of everything that is drawn. ``numpy.random.RandomState`` is frozen (NEP 19), so a seed gives the
        same scenes with every version of NumPy; the last bits of a pixel are OpenCV's.

    Raises
    ------
    DataError
        When a package that digits or photographs come with is missing.
    """
    random = np.random.RandomState(seed)
    scans, labels = digits_of(side)
    photographs = [_photograph(name) for name in side.photographs]
    # Every digit of the pool is used before any is used again.
    pool: list[int] = []
    scenes = []
    for _ in range(count):
        image = _background(photographs[random.randint(len(photographs))], random)
        wanted = 1 + random.randint(_MOST_DIGITS)
        while len(pool) < wanted:
            pool += list(random.permutation(len(scans)))
        chosen = [pool.pop(0) for _ in range(wanted)]
        scenes.append(_scene(image, [(scans[index], int(labels[index])) for index in chosen], random))
    return scenes


def to_input(scenes: Sequence[Scene]) -> NDArray[np.float32]:
    """Return scenes as a network reads them: float32, (scenes, 3, height, width), normalized."""
    pixels = np.stack([scene.image for scene in scenes]).astype(np.float32) / np.float32(255)
    normalized = (pixels - np.array(IMAGENET_MEAN, np.float32)) / np.array(IMAGENET_STD, np.float32)
    return np.ascontiguousarray(normalized.transpose(0, 3, 1, 2))


@lru_cache(maxsize=None)
def digits_of(side: Side) -> tuple[Array, Array]:
    """Return the scans of one side, 8x8 with ink from 0 to 16, and the digits they show."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError(f"The digits come with scikit-learn: {error}. {install_hint('demo')}") from error
    data: Any = load_digits()
    labels = data.target.astype(np.int64)
    train, heldout = split_indices(labels)
    chosen = train if side is TRAINING else heldout
    return data.images[chosen], labels[chosen]


@lru_cache(maxsize=None)
def _photograph(name: str) -> Array:
    """Read a photograph: uint8, (height, width, 3), red, green and blue."""
    try:
        import cv2

        if name == "grace_hopper.jpg":
            from matplotlib import cbook

            with cbook.get_sample_data(name) as file:
                content = np.frombuffer(file.read(), np.uint8)
            return np.ascontiguousarray(cv2.imdecode(content, cv2.IMREAD_COLOR)[:, :, ::-1])
        from sklearn.datasets import load_sample_image

        return np.asarray(load_sample_image(name))
    except ImportError as error:
        raise DataError(
            f"The scenes' photographs come with scikit-learn and Matplotlib, and OpenCV cuts them: {error}. "
            f"{install_hint('demo')}"
        ) from error


def _background(photograph: Array, random: np.random.RandomState) -> Array:
    """Cut a square out of a photograph, mirror it, and darken it, so that chalk can be seen on it."""
    import cv2

    tall, wide = photograph.shape[:2]
    side = min(tall, wide, round(SIZE * random.uniform(*_ZOOMS)))
    top, left = random.randint(tall - side + 1), random.randint(wide - side + 1)
    cut = photograph[top : top + side, left : left + side]
    if random.randint(2):
        cut = cut[:, ::-1]
    resized = cv2.resize(np.ascontiguousarray(cut), (SIZE, SIZE), interpolation=cv2.INTER_AREA)
    return np.asarray(resized.astype(np.float64) * random.uniform(*_LIGHT))


def _scene(image: Array, digits: Sequence[tuple[Array, int]], random: np.random.RandomState) -> Scene:
    mask = np.full((SIZE, SIZE), BACKGROUND, np.int32)
    objects = np.full((SIZE, SIZE), -1, np.int32)
    boxes: list[tuple[float, float, float, float]] = []
    labels: list[int] = []
    for scan, label in digits:
        for _ in range(_TRIES):
            alpha = _ink(scan, random)
            inked = alpha >= _INKED
            rows, columns = np.flatnonzero(inked.any(axis=1)), np.flatnonzero(inked.any(axis=0))
            box = (float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1))
            if all(_apart(box, other) for other in boxes):
                break
        else:
            continue  # no room is left
        image = image + alpha[:, :, np.newaxis] * (random.uniform(*_CHALK, size=3) - image)
        mask[inked], objects[inked] = label + 1, len(boxes)
        boxes.append(box)
        labels.append(label)
    pixels = np.rint(image).astype(np.uint8)
    return Scene(pixels, np.array(boxes, np.float32), np.array(labels, np.int64), mask, objects)


def _ink(scan: Array, random: np.random.RandomState) -> Array:
    """Place a scan somewhere in the scene: how much ink every pixel has, 0 to 1."""
    import cv2

    scale = random.uniform(*_HEIGHTS) / 8.0
    squeeze = random.uniform(0.8, 1.0)
    angle = np.deg2rad(random.uniform(-_ANGLE, _ANGLE))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    linear = turn @ np.diag((scale * squeeze, scale))
    reach = np.abs(linear) @ np.array((4.0, 4.0))
    centre = reach + random.uniform(size=2) * (SIZE - 2 * reach)
    transform = np.column_stack((linear, centre - linear @ np.array((3.5, 3.5))))
    ink = cv2.warpAffine(
        (scan / _INK).astype(np.float32), transform, (SIZE, SIZE), flags=cv2.INTER_CUBIC, borderValue=0.0
    )
    # A pen's stroke has an edge; a scan of 8x8, enlarged, has a slope ten pixels wide.
    return np.clip((ink.astype(np.float64) - 0.5) * 3.0 + 0.5, 0.0, 1.0)


def _apart(box: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return box[2] <= other[0] or other[2] <= box[0] or box[3] <= other[1] or other[3] <= box[1]
