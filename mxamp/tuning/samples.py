"""Samples to choose on, and others to report on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

import numpy as np
from numpy.typing import NDArray

from mxamp.calibration.samples import Samples
from mxamp.errors import DataError
from mxamp.model import Model


@dataclass(frozen=True)
class Part:
    """Some samples, with labels where there are any.

    Attributes
    ----------
    arrays
        Input name -> values, samples along the first axis.
    labels
        One a sample, or None.
    """

    arrays: Mapping[str, NDArray[Any]]
    labels: NDArray[Any] | None

    @property
    def samples(self) -> int:
        """How many they are."""
        return min(len(values) for values in self.arrays.values())

    def drawn(self, numbers: NDArray[np.int64]) -> Part:
        """Return some of them."""
        return Part(
            {name: values[numbers] for name, values in self.arrays.items()},
            None if self.labels is None else self.labels[numbers],
        )


def first_shapes(model: Model, data: Any, *, batch_size: int = 1) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the model's inputs, for so many samples.

    Parameters
    ----------
    model, data
        See :class:`mxamp.calibration.Samples`.
    batch_size
        Samples of the forward pass whose time counts.
    """
    batch = next(Samples(model, data, batch_size=batch_size, max_samples=batch_size).batches())
    return {
        name: (batch_size, *values.shape[1:]) if batch.batched else tuple(values.shape)
        for name, values in batch.arrays.items()
    }


def split(
    model: Model, data: Any, labels: Any, *, needs_labels: bool, max_samples: int | None, seed: int
) -> tuple[Part, Part]:
    """Return the samples in two halves, drawn at random: to choose on, and to report on.

    Raises
    ------
    DataError
        When there are fewer than two samples, or they cannot be told apart.
    """
    samples = Samples(model, data, labels=labels, needs_labels=needs_labels, max_samples=max_samples)
    batches = list(samples.batches())
    count = sum(batch.samples for batch in batches)
    if any(not batch.batched for batch in batches) or count < 2:
        raise DataError(
            f"Tuning chooses on one half of the samples and reports on the other, and there is {count}. Give "
            "at least two, along the first axis of every input; some hundreds where a metric decides."
        )
    shapes = {tuple(values.shape[1:] for values in batch.arrays.values()) for batch in batches}
    if len(shapes) > 1:
        raise DataError(
            "The samples are of different shapes, and tuning weighs times, which are those of one. Give "
            "samples of one shape."
        )
    whole = Part(
        {
            name: np.concatenate([np.asarray(batch.arrays[name]) for batch in batches])
            for name in batches[0].arrays
        },
        None
        if any(batch.labels is None for batch in batches)
        else np.concatenate([np.asarray(batch.labels) for batch in batches]),
    )
    if whole.labels is not None and whole.labels.dtype.kind not in "biuf":
        raise DataError(f"The labels are of dtype {whole.labels.dtype}, and must be numbers.")
    order = np.random.default_rng(seed).permutation(count)
    return whole.drawn(order[: count // 2]), whole.drawn(order[count // 2 :])
