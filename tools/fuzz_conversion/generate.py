"""Random models: a seed gives the same one, always."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

from tools.fuzz_conversion.draft import Draft, NothingFitsError, Value
from tools.fuzz_conversion.model import RandomModel
from tools.fuzz_conversion.steps import FORMS, LEGACY, NUMPY

__all__ = ["random_model"]

_TRIES = 12
"""Steps that may fail to fit before a model is as long as it gets."""


def random_model(seed: int) -> RandomModel:
    """Return the model of a seed.

    Parameters
    ----------
    seed
        A number of 64 bits.

    Returns
    -------
    RandomModel
        It runs in FP32, on both sets of its data, and what it computes is finite.
    """
    random = np.random.default_rng([seed, 0])
    while True:
        numpy_mode = random.random() < 0.08
        try:
            if numpy_mode:
                with mx.util.np_shape(True):
                    return _written(Draft(random, numpy_mode=True))
            return _written(Draft(random))
        except NothingFitsError:
            continue


def _written(draft: Draft) -> RandomModel:
    families = NUMPY if draft.numpy_mode else LEGACY
    # A model is of a few families, as real ones are: then their operators meet.
    among = sorted(families) + [FORMS] * (0 if draft.numpy_mode else 2)
    chosen = [draft.choice(among) for _ in range(draft.choice([1, 2, 3, 4]))]
    if FORMS in chosen:
        draft.grow()
    _inputs(draft)
    if not draft.numpy_mode:
        chosen += ["arithmetic", "layers"]
    steps = [step for family in chosen for step in families[family]]
    added: list[Value] = []
    failed = 0
    wanted = draft.choice([2, 4, 6, 8, 10, 14])
    while len(added) < wanted and failed < _TRIES:
        # Most begin with a layer, so that there is something to compute low.
        layer = not added and not draft.numpy_mode and draft.chance(0.7)
        step = draft.choice(LEGACY["layers"] if layer else steps)
        try:
            added += draft.add(step)
        except NothingFitsError:
            failed += 1
    if not added:
        raise NothingFitsError
    return draft.finish(_heads(draft, added))


def _heads(draft: Draft, added: list[Value]) -> list[Value]:
    heads = [added[-1]]
    while draft.chance(0.35):
        heads.append(draft.choice(draft.values if draft.chance(0.2) else added))
    unique = {head.entry: head for head in heads}
    return list(unique.values())


def _inputs(draft: Draft) -> None:
    batch, channels = draft.choice([1, 2, 2, 3]), draft.width(1, 2, 3, 4, 4, 8)
    side = draft.choice([7, 12, 16, 20, 28] if draft.is_large else [1, 4, 5, 6, 7])
    depth = draft.choice([3, 4, 8]) if draft.is_large else 3

    def image() -> NDArray[Any]:
        return draft.normal(batch, channels, side, side)

    def pixels() -> NDArray[Any]:
        return np.asarray(draft.random.integers(0, 256, (batch, 3, side, side)), np.uint8)

    def sequence() -> NDArray[Any]:
        return draft.normal(length, batch, width)

    def signal() -> NDArray[Any]:
        return draft.normal(batch, channels, length)

    def volume() -> NDArray[Any]:
        return draft.normal(batch, channels, depth, depth + 1, depth + 1)

    def features() -> NDArray[Any]:
        return draft.normal(batch, width)

    def words() -> NDArray[Any]:
        return np.asarray(draft.random.integers(0, 4, (batch, length)), kind)

    length = draft.integer(8, 64) if draft.is_large else draft.integer(2, 5)
    width = draft.width(2, 3, 4, 8)
    kind = draft.choice(["float32", "float32", "int32", "int64"])
    kinds = {"data": image, "sequence": sequence, "signal": signal, "volume": volume, "features": features}
    for _ in range(draft.choice([1, 1, 1, 2, 2, 3])):
        name = draft.choice(["data", "data", "data", *sorted(kinds), "words", "words", "pixels"])
        if name == "words":
            draft.input("words", words, positions=True)
        elif name == "pixels":
            draft.input("pixels", pixels)
        else:
            draft.input(name, kinds[name])
