"""Whether a weight that a BatchNorm is folded into stays where a dtype is precise, at both ends."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.params.parameter import Parameter
from mxamp.params.ranges import magnitude_range

_FAINT = 1 / 32
"""A channel that is fainter beside the layer's largest need not be more precise than one as faint as that."""


def overflows_folded(weight: Parameter, scale: NDArray[np.float64], dtype: DType) -> bool:
    """Return whether a weight, multiplied by the largest scale, holds a value that ``dtype`` does not.

    Parameters
    ----------
    weight
        The weight, float32.
    scale
        One factor an output channel.
    dtype
        The dtype that the product is stored in.
    """
    if not weight.magnitude_bound:
        return False
    factor, limit = float(np.abs(scale).max(initial=0.0)), dtype.max_finite
    if weight.magnitude_bound * factor <= limit:
        return False
    return any(magnitude_range(part).largest * factor > limit for part in weight.parts())


def underflows_folded(
    weight: Parameter,
    groups: int | None,
    scale: NDArray[np.float64],
    dtype: DType,
    *,
    of_layer: NDArray[np.float64],
    of_norm: NDArray[np.float64],
) -> bool:
    """Return whether the folded weight has so many subnormal values that its rounding can be seen.

    Parameters
    ----------
    weight
        The weight, float32: the output channels along its first axis, or where ``groups`` is a number, the
        layout of a Deconvolution: (in, out / groups, kernel), the input channels one group after the other.
    groups
        See ``weight``.
    scale
        One factor an output channel.
    dtype
        The dtype that the product is stored in.
    of_layer, of_norm
        How large the layer's output without its bias is in each channel, and how large the BatchNorm's:
        root mean squares, as the statistics tell them.

    Notes
    -----
    Below the smallest normal number values are rounded to multiples of the smallest subnormal, q: an error
    of q / sqrt(12) each, however small they are. The layer's output in one channel is the sum of as many
    products as the channel has weights; where these have the root mean square r before they are scaled, the
    output has ``of_layer``, so the rounding adds q / sqrt(12) * of_layer / r to it. That counts where it is
    more than the dtype's own rounding (2^-11 in float16) of ``of_norm``. A scale above 1/2 makes nothing
    subnormal that was not so before.

    A dtype with float32's exponents (bfloat16) has no such values.
    """
    if dtype.smallest_normal <= DType.FLOAT32.smallest_normal:
        return False
    small = (np.abs(scale) < 0.5) & (scale != 0.0)
    if not small.any():
        return False
    unit = 1.0 / dtype.max_exact_integer
    allowed = unit * np.maximum(of_norm, _FAINT * of_norm.max())
    with np.errstate(all="ignore"):
        added = (
            dtype.smallest_subnormal
            / math.sqrt(12)
            * of_layer
            / _root_mean_squares(weight, groups, scale.size)
        )
    return bool(np.any(small & (added > allowed)))


def _root_mean_squares(weight: Parameter, groups: int | None, channels: int) -> NDArray[np.float64]:
    """Return the root mean square of each output channel's weights, read a few rows at a time."""
    rows = weight.shape[0]
    columns = math.prod(weight.shape[1:])
    squares = np.zeros(channels)
    step = max(1, min(rows, (1 << 22) // max(columns, 1)))
    within = 1 if groups is None else weight.shape[1]
    for start in range(0, rows, step):
        stop = min(rows, start + step)
        values: NDArray[Any] = weight.part(start * columns, stop * columns).reshape(stop - start, within, -1)
        sums = np.einsum("ijk,ijk->ij", values, values, dtype=np.float64, casting="same_kind")
        if groups is None:
            squares[start:stop] = sums[:, 0]
        else:
            group = np.arange(start, stop) // (rows // groups)
            np.add.at(squares.reshape(groups, within), group, sums)
    count = columns if groups is None else (rows // groups) * columns // within
    root: NDArray[np.float64] = np.sqrt(squares / max(count, 1))
    return root
