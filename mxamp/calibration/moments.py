"""Moments of what a layer reads: the mean of its columns, and their products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.errors import DataError


@dataclass(frozen=True)
class Moments:
    """First and second moments of the columns that a layer multiplies its weights with.

    Attributes
    ----------
    rows
        Over how many columns they were taken.
    mean
        float64, shape ``(groups, columns)``.
    blocks
        The second moments ``x x^T / rows``, not centred, in float32: blocks of shape ``(groups, n, n)`` along
        the diagonal, in the order of the columns. One where the whole matrix was kept.
    """

    rows: int
    mean: NDArray[np.float64]
    blocks: tuple[NDArray[np.float32], ...]

    @property
    def groups(self) -> int:
        """How many groups the layer has."""
        return int(self.mean.shape[0])

    @property
    def columns(self) -> int:
        """The length of a column."""
        return int(self.mean.shape[1])

    @property
    def nbytes(self) -> int:
        """What the second moments take in memory."""
        return sum(block.nbytes for block in self.blocks)

    def has_shape_of(self, other: Moments) -> bool:
        """Whether the moments of both are laid out alike."""
        return self.mean.shape == other.mean.shape and [block.shape for block in self.blocks] == [
            block.shape for block in other.blocks
        ]

    def times_power_of_two(self, exponent: int) -> Moments:
        """Return the moments of the columns times 2^exponent."""
        blocks = tuple([np.ldexp(block, 2 * exponent) for block in self.blocks])
        return Moments(self.rows, np.ldexp(self.mean, exponent), blocks)

    def merged(self, other: Moments) -> Moments:
        """Return the moments over the columns of both.

        Raises
        ------
        DataError
            When they are laid out otherwise.
        """
        if not self.has_shape_of(other):
            raise DataError(
                f"Moments of {self.groups} groups of {self.columns} columns in {len(self.blocks)} blocks "
                f"cannot be merged with {other.groups} groups of {other.columns} in {len(other.blocks)}: the "
                "layers, or the bounds on memory, were not the same."
            )
        rows = self.rows + other.rows
        if not rows:
            return self
        own, others = self.rows / rows, other.rows / rows
        blocks = tuple(
            np.float32(own) * mine + np.float32(others) * theirs
            for mine, theirs in zip(self.blocks, other.blocks)
        )
        return Moments(rows, own * self.mean + others * other.mean, blocks)


class MomentsMeter:
    """Adds up the moments of a layer's columns, batch after batch.

    Parameters
    ----------
    groups
        How many groups.
    sizes
        How many columns each block of the second moments has (:func:`block_sizes`).
    """

    def __init__(self, groups: int, sizes: Sequence[int]) -> None:
        self._sizes = tuple(sizes)
        self._rows = 0
        self._sum = np.zeros((groups, sum(sizes)), np.float64)
        self._products = [np.zeros((groups, size, size), np.float32) for size in sizes]

    def add(self, columns: NDArray[np.float32]) -> None:
        """Add columns, float32, shape ``(groups, columns taken, columns)``.

        Raises
        ------
        DataError
            When they have another length than those before.
        """
        if columns.shape[::2] != self._sum.shape:
            raise DataError(
                f"The layer read {columns.shape[2]} columns in {columns.shape[0]} groups, not "
                f"{self._sum.shape[1]} in {self._sum.shape[0]}."
            )
        self._rows += columns.shape[1]
        self._sum += columns.sum(axis=1, dtype=np.float64)
        start = 0
        for size, products in zip(self._sizes, self._products):
            part = columns[:, :, start : start + size]
            start += size
            if len(part) == 1:  # A^T A takes half of what a product of two matrices does
                products[0] += part[0].T @ part[0]
            else:
                products += np.matmul(part.transpose(0, 2, 1), part)

    def moments(self) -> Moments:
        """Return the moments over all that was added."""
        rows = max(self._rows, 1)
        for products in self._products:
            products /= np.float32(rows)
        return Moments(self._rows, self._sum / rows, tuple(self._products))


def block_sizes(columns: int, taps: int, most: int) -> tuple[int, ...]:
    """Divide the columns of a layer into blocks of whole channels, as equal as they come.

    Parameters
    ----------
    columns
        The columns of a group.
    taps
        How many of them belong to one channel.
    most
        The most columns of a block.
    """
    channels = max(columns // taps, 1)
    together = max(most // taps, 1)
    count = -(-channels // together)
    parts: list[Any] = [len(part) * taps for part in np.array_split(np.arange(channels), count)]
    return tuple(int(part) for part in parts)
