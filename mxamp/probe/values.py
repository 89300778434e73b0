"""The values that cases are fed with: the same in every run, and rounded to the low dtype beforehand."""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType

_Values = NDArray[np.float32]


def draw(values: str, shape: tuple[int, ...], random: np.random.Generator) -> _Values:
    """Draw an array.

    Parameters
    ----------
    values
        The kind: ``normal``, ``positive`` ..., or ``index:50`` for integers below 50.
    shape
        Its shape.
    random
        Where the numbers come from.
    """
    kind, _, option = values.partition(":")
    if kind == "index":
        return random.integers(0, int(option), size=shape).astype(np.float32)
    return np.asarray(_KINDS[kind](shape, random), np.float32)


def rounded(array: _Values, dtype: DType) -> _Values:
    """Return float32 values rounded to the nearest of a dtype."""
    return array.astype(dtype.numpy).astype(np.float32)


def _weight(shape: tuple[int, ...], random: np.random.Generator) -> NDArray[Any]:
    values: NDArray[Any] = random.standard_normal(shape) / math.sqrt(max(1, math.prod(shape[1:])))
    return values


def _distinct(shape: tuple[int, ...], random: np.random.Generator) -> NDArray[Any]:
    """Return shuffled distinct values: ties would make the order of a sort arbitrary."""
    size = math.prod(shape)
    patterns = (0x3D00 + np.arange(size) % 0x400).astype(np.uint16)
    values: NDArray[Any] = random.permutation(patterns).view(ml_dtypes.bfloat16).astype(np.float32)
    return values.reshape(shape)


def _boxes(shape: tuple[int, ...], random: np.random.Generator) -> NDArray[Any]:
    """Return boxes (x0, y0, x1, y1) in the unit square."""
    low = random.uniform(0.0, 0.6, (*shape[:-1], 2))
    return np.concatenate([low, low + random.uniform(0.1, 0.4, low.shape)], axis=-1)


def _regions(shape: tuple[int, ...], random: np.random.Generator) -> NDArray[Any]:
    return np.concatenate([np.zeros((*shape[:-1], 1)), 13 * _boxes((*shape[:-1], 4), random)], axis=-1)


def _detections(shape: tuple[int, ...], random: np.random.Generator) -> NDArray[Any]:
    one = (*shape[:-1], 1)
    return np.concatenate(
        [random.integers(0, 3, one), _distinct(one, random) / 8, _boxes((*shape[:-1], 4), random)], axis=-1
    )


_KINDS: Mapping[str, Callable[[tuple[int, ...], np.random.Generator], NDArray[Any]]] = {
    "normal": lambda shape, random: random.standard_normal(shape),
    # Not rounded to the low dtype: what a cast is given.
    "unrounded": lambda shape, random: random.standard_normal(shape),
    "positive": lambda shape, random: random.uniform(0.1, 4.0, shape),
    "unit": lambda shape, random: random.uniform(0.0, 1.0, shape),
    "binary": lambda shape, random: random.integers(0, 2, shape),
    "gamma": lambda shape, random: random.uniform(0.5, 1.5, shape),
    "zero": lambda shape, random: np.zeros(shape),
    "weight": _weight,
    "distinct": _distinct,
    "boxes": _boxes,
    "rois": _regions,
    "detections": _detections,
}
