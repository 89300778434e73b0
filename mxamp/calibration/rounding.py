"""Choose how each weight of a layer is rounded, so that what the layer computes changes least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxamp.calibration.moments import Moments
from mxamp.dtypes import DType
from mxamp.params.cast import cast_array

DAMPING = 0.01
"""What is added to the diagonal of the second moments, relative to its mean."""

_TOGETHER = 64
"""Columns rounded before what they change is carried on to all others, by one product of matrices."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rounded:
    """A layer whose weights and bias a dtype holds.

    Attributes
    ----------
    weights
        float32, shape ``(groups, outputs, columns)``, on the dtype's grid.
    bias
        float32, shape ``(groups, outputs)``, on the grid; None where the layer has none and gets none.
    nearest, chosen
        The mean squared change of the outputs, summed over them: with everything rounded to nearest, and as
        chosen. As the moments tell, which are those of the calibration's samples.
    """

    weights: NDArray[np.float32]
    bias: NDArray[np.float32] | None
    nearest: float
    chosen: float


def round_for_output(
    weights: NDArray[Any],
    bias: NDArray[Any] | None,
    moments: Moments,
    dtype: DType,
    *,
    adds_bias: bool = False,
    damping: float = DAMPING,
) -> Rounded:
    """Round a layer's weights so that its outputs change least, over the columns that moments tell of.

    Parameters
    ----------
    weights
        Shape ``(groups, outputs, columns)``.
    bias
        Shape ``(groups, outputs)``; None without one.
    moments
        Of the columns that the weights are multiplied with.
    dtype
        The dtype to round to.
    adds_bias
        Whether a layer without a bias gets one, for what remains of the mean.
    damping
        What is added to the diagonal of the second moments, relative to its mean: with it, samples that are
        few or alike do not decide what they tell nothing about.

    Notes
    -----
    What a layer's rounding errors E do to its outputs is ``tr(E H E^T)``, with H the second moments of its
    columns. Writing ``H = (I + U) D (I + U)^T``, with U strictly upper triangular, the sum falls into one
    square for each column, ``D_k |E_k + sum over i < k of E_i U_ik|^2``: so the columns are rounded one after
    another, each to the nearest of the weight plus what the earlier ones carry over. That is GPTQ's choice,
    in the form of QuIP, on a grid that is as fine as the weight is small.

    The bias is a column of ones, with the weight of 1. Where it has a value it comes first, for its errors
    are the largest, and the weights make up for them. The others come by what their nearest rounding would
    add to the error, the dearest first. Of outputs for which the nearest rounding is the better one, by the
    same moments, that is kept: the result is never worse on them.

    Blocks of second moments are gone through one after another; what lies beside them is taken for
    uncorrelated, except for the means, of which the error is carried on.

    One Cholesky decomposition a block, and ``outputs x columns^2 / 2`` multiply-adds.

    References
    ----------
    Frantar, Ashkboos, Hoefler, Alistarh, "GPTQ: accurate post-training quantization for generative
    pre-trained transformers", ICLR 2023; Chee, Cai, Kuleshov, De Sa, "QuIP: 2-bit quantization of large
    language models with guarantees", NeurIPS 2023, section 3.
    """
    exact = np.asarray(weights, np.float64)
    grid = _Grid(dtype)
    offset = None if bias is None else np.asarray(bias, np.float64)
    nearest, offset_nearest = grid.nearest(exact), None if offset is None else grid.nearest(offset)
    off = _difference(offset, offset_nearest)
    carried = np.zeros(exact.shape[:2]) if off is None else off
    rounded = np.empty_like(exact)
    start = 0
    for products in moments.blocks:
        part = slice(start, start + products.shape[1])
        start = part.stop
        mean = moments.mean[:, part]
        rounded[:, :, part] = _rounded_block(exact[:, :, part], carried, mean, products, grid, damping)
        carried = carried + _times(exact[:, :, part] - rounded[:, :, part], mean)
    rounded_offset = _offset(exact - rounded, offset, moments, grid, adds_bias=adds_bias)
    before = output_change(exact - nearest, off, moments)
    after = output_change(exact - rounded, _difference(offset, rounded_offset), moments)
    worse = after > before
    rounded[worse] = nearest[worse]
    if rounded_offset is not None:
        rounded_offset[worse] = 0.0 if offset_nearest is None else offset_nearest[worse]
    return Rounded(
        rounded.astype(np.float32),
        None if rounded_offset is None else rounded_offset.astype(np.float32),
        float(before.sum()),
        float(np.minimum(after, before).sum()),
    )


def correct_bias(
    weights: NDArray[Any],
    bias: NDArray[Any] | None,
    moments: Moments,
    dtype: DType,
    *,
    adds_bias: bool = False,
) -> Rounded:
    """Round a layer's weights to nearest, and move its bias by what that does to the mean of its outputs.

    Parameters
    ----------
    weights, bias, moments, dtype, adds_bias
        See :func:`round_for_output`.
    """
    exact = np.asarray(weights, np.float64)
    grid = _Grid(dtype)
    offset = None if bias is None else np.asarray(bias, np.float64)
    nearest, offset_nearest = grid.nearest(exact), None if offset is None else grid.nearest(offset)
    corrected = _offset(exact - nearest, offset, moments, grid, adds_bias=adds_bias)
    before = output_change(exact - nearest, _difference(offset, offset_nearest), moments)
    after = output_change(exact - nearest, _difference(offset, corrected), moments)
    return Rounded(
        nearest.astype(np.float32),
        None if corrected is None else corrected.astype(np.float32),
        float(before.sum()),
        float(after.sum()),
    )


def output_change(errors: Array, offset: Array | None, moments: Moments) -> Array:
    """Return the mean squared change of each output, shape ``(groups, outputs)``.

    Parameters
    ----------
    errors
        How far each weight is off, shape ``(groups, outputs, columns)``.
    offset
        How far each bias is off, shape ``(groups, outputs)``; None for not at all.
    moments
        Of the columns. Between blocks, only the means are known to go together.
    """
    shift = _times(errors, moments.mean)
    spread = np.zeros_like(shift)
    start = 0
    for products in moments.blocks:
        part = slice(start, start + products.shape[1])
        start = part.stop
        own = errors[:, :, part]
        square = (np.matmul(own.astype(np.float32), products) * own).sum(axis=2, dtype=np.float64)
        spread += square - _times(own, moments.mean[:, part]) ** 2
    total = shift if offset is None else shift + offset
    change: Array = np.maximum(spread, 0.0) + total**2
    return change


class _Grid:
    """The numbers of a dtype, for arrays of float64.

    Adding a number of the right size and taking it away again rounds to nearest, in as few instructions as
    possible: what is rounded is a column at a time, thousands of times.
    """

    def __init__(self, dtype: DType) -> None:
        self._dtype = dtype
        digits = dtype.max_exact_integer.bit_length() - 1
        self._split = 2.0 ** (53 - digits) + 1.0
        self._subnormal = 1.5 * 2.0**52 * dtype.smallest_subnormal
        self._smallest_normal = dtype.smallest_normal
        self._limit = dtype.max_finite

    def round(self, values: Array) -> Array:
        """Return values rounded to nearest; a tie may go either way, and nothing becomes infinite."""
        scaled = values * self._split
        rounded = scaled - (scaled - values)  # Dekker's splitting
        small = np.abs(values) < self._smallest_normal
        if small.any():
            np.copyto(rounded, (values + self._subnormal) - self._subnormal, where=small)
        np.minimum(rounded, self._limit, out=rounded)
        return np.maximum(rounded, -self._limit, out=rounded)

    def nearest(self, values: Array) -> Array:
        """Return values rounded to nearest, ties to even, as a conversion without calibration does."""
        bounded = np.clip(values, -self._limit, self._limit)
        return cast_array(np.ascontiguousarray(bounded), self._dtype).astype(np.float64)

    def spacing(self, values: Array) -> Array:
        """Return the distance of neighbours around values."""
        _, exponents = np.frexp(np.maximum(np.abs(values), self._smallest_normal))
        spacing: Array = np.ldexp(1.0 / self._dtype.max_exact_integer, exponents)
        return spacing


def _rounded_block(
    weights: Array, carried: Array, mean: Array, products: NDArray[np.float32], grid: _Grid, damping: float
) -> Array:
    """Return the weights of a block rounded, given what the bias and earlier blocks are off by."""
    groups, outputs, columns = weights.shape
    diagonal = np.einsum("gkk->gk", products).astype(np.float64)
    price = (grid.spacing(weights) ** 2).mean(axis=1) * diagonal
    # The dearest last, for the columns are gone through from the end: LAPACK's factor is the lower one.
    order = np.argsort(price, axis=1, kind="stable")
    lower = _cholesky(products, diagonal, mean, order, damping)
    scale = np.einsum("gkk->gk", lower).astype(np.float64)
    number = np.arange(groups)[:, np.newaxis]
    exact = weights.transpose(0, 2, 1)[number, order]  # (groups, columns, outputs)
    wanted = exact.copy()
    errors = np.empty_like(exact)
    # The column of ones is the last one, and what the bias is off by its error.
    ones = lower[:, columns, :columns] / scale[:, :columns]
    wanted += ones[:, :, np.newaxis] * carried[:, np.newaxis, :]
    for stop in range(columns, 0, -_TOGETHER):
        start = max(stop - _TOGETHER, 0)
        if stop < columns:
            later = lower[:, stop:columns, start:stop].transpose(0, 2, 1).astype(np.float64)
            wanted[:, start:stop] += np.matmul(later, errors[:, stop:]) / scale[:, start:stop, np.newaxis]
        factors = lower[:, start:stop, start:stop] / scale[:, np.newaxis, start:stop]
        for column in range(stop - 1, start - 1, -1):
            target = wanted[:, column]
            if column + 1 < stop:
                factor = factors[:, column + 1 - start :, column - start]
                target = target + np.matmul(factor[:, np.newaxis], errors[:, column + 1 : stop])[:, 0]
            errors[:, column] = exact[:, column] - grid.round(target)
    rounded = np.empty((groups, columns, outputs))
    rounded[number, order] = exact - errors
    return rounded.transpose(0, 2, 1)


def _cholesky(
    products: NDArray[np.float32], diagonal: Array, mean: Array, order: NDArray[np.intp], damping: float
) -> NDArray[Any]:
    """Return the lower factor of the second moments of the columns in their order, and of one of ones."""
    groups, columns = diagonal.shape
    number = np.arange(groups)[:, np.newaxis]
    level = diagonal.mean(axis=1, keepdims=True)
    whole: NDArray[Any] = np.empty((groups, columns + 1, columns + 1), np.float32)
    for group, (square, places) in enumerate(zip(products, order)):
        np.take(square[places], places, axis=1, out=whole[group, :columns, :columns])
    whole[:, columns, :columns] = whole[:, :columns, columns] = mean[number, order]
    places = np.arange(columns)
    # Where nothing was ever read, any number will do.
    whole[:, places, places] += np.where(level > 0.0, damping * level, 1.0).astype(np.float32)
    whole[:, columns, columns] = 1.0 + damping
    try:
        lower = np.linalg.cholesky(whole)
    except np.linalg.LinAlgError:  # too close to singular for float32
        lower = np.linalg.cholesky(whole.astype(np.float64))
    return lower


def _offset(
    errors: Array, offset: Array | None, moments: Moments, grid: _Grid, *, adds_bias: bool
) -> Array | None:
    """Return the bias with what weights are off by in the mean, on the grid."""
    if offset is None and not adds_bias:
        return None
    shift = _times(errors, moments.mean)
    return grid.nearest(shift if offset is None else offset + shift)


def _times(matrices: Array, vectors: Array) -> Array:
    """Multiply one matrix a group with one vector a group."""
    product: Array = np.matmul(matrices, vectors[:, :, np.newaxis])[:, :, 0]
    return product


def _difference(exact: Array | None, rounded: Array | None) -> Array | None:
    if exact is None:
        return None if rounded is None else -rounded
    return None if rounded is None else exact - rounded
