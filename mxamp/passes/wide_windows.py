"""Which convolutions over few channels gain by blocks of filters, though their window is wide."""

from __future__ import annotations

import math
from typing import Sequence

from mxamp.graph.graph import Node
from mxamp.ops.attributes import integers
from mxamp.passes.explicit_padding import LEAST_PADDED
from mxamp.targets.image_layout import NARROW_BLOCK, WIDEST_BLOCK, pads_by_itself

_MOST_COLUMNS = 15
"""So many times the values of its tensors may be written out for oneDNN's matrix product, by each thread. A
convolution with a wide window and few filters needs more, and is left to loops over single values, however
small the image: 2 -> 1 channel, 7x7, 28 x 28, take 344 us in float32 and 432 in bfloat16, with 16 filters 20
and 15; 3 -> 3, 9x9, 56 x 56, 392 and 319, and 111 and 360 (AMD EPYC, one thread). Attention to places (CBAM)
has such a layer in every block. See ``init_conf`` in src/cpu/gemm_convolution_utils.cpp of oneDNN 2.0."""

WIDE_WINDOW = 81
"""Without AVX-512 windows of so many places over few channels do not gain that move by more than one place,
or write one column: 1 -> 100, 3x300, 0.79, 1 -> 3, 11x11, stride 4, 0.86; 1 -> 150, 3x168, stride 4, 0.83.
Not so those that need more memory than a matrix product may have: 1 -> 1, 1x256 over 44,098 places with
stride 2, as in filter banks of audio, 17; of 40 such layers none is less than 1.03, and with more padding
than kernels add where a Pad does that, 1.8 to 49 (without one down to 0.13). And not so those that move by
one place, from two million multiply-adds on: 1 -> 204, 7x38, 187 x 96, is 2.5 times as fast with 208
filters, and what follows in blocks as well; of 672 random ones none is less than 1.05, the slice included,
and of 431 with a Pad none less than 1.09 (of smaller ones one in twelve is slower)."""

_IMAGE = 4
"""Axes of a batch of images."""

_LEAST_OF_IMAGE, _LEAST_PRODUCTS = 30, 100
"""With AVX-512, where a layer over few channels computes in float32, windows of so many places and so many
products a value gain from two million multiply-adds on, if they move by one place or two: 1 -> 204, 7x38,
187 x 96, 2.8, 3 -> 20, 13x13, 56 x 56, 2.6; of 283 random ones, 80 of which were timed when the rule stood,
none is less than 0.96, the slice included, and all together are 2.2 times as fast. Of smaller windows one in
ten is down to 0.6, with fewer products large results are down to 0.7, and filters that fill blocks of eight
have such a kernel already (0.13 to 1.3). In bfloat16 they are 0.78 to 1.8, 0.97 in the mean (an Intel Xeon
without AMX, one thread)."""

_LARGEST_STEP = 2


def exceeds_product(node: Node, weight: Sequence[int], filters: int) -> bool:
    """Return whether a layer needs more memory than oneDNN's matrix product may have.

    Parameters
    ----------
    node
        A Convolution.
    weight
        The shape of its weight.
    filters
        How many filters it has.
    """
    channels, *window = weight[1:]
    strides = math.prod(integers(node.attrs.get("stride", "")) or (1,))
    return channels * math.prod(window) > _MOST_COLUMNS * (channels * strides + filters)


def gains_in_float32(
    node: Node, weight: Sequence[int], written: Sequence[int] | None, *, filters: int
) -> bool:
    """Return whether a layer over few channels gains by blocks of filters with AVX-512, in float32.

    Parameters
    ----------
    node, weight, written, filters
        See :func:`gains_though_wide`.
    """
    if len(weight) != _IMAGE or written is None or written[-1] == 1 or filters % NARROW_BLOCK == 0:
        return False
    steps = integers(node.attrs.get("stride", "")) or (1,)
    return (
        math.prod(weight[2:]) >= _LEAST_OF_IMAGE
        and math.prod(weight[1:]) >= _LEAST_PRODUCTS
        and max(steps) <= _LARGEST_STEP
        and _products(weight, written, filters, WIDEST_BLOCK) >= LEAST_PADDED
    )


def gains_though_wide(
    node: Node, weight: Sequence[int], written: Sequence[int] | None, *, filters: int, block: int
) -> bool:
    """Return whether a layer with a wide window gains by blocks of filters without AVX-512.

    Parameters
    ----------
    node, weight, filters
        See :func:`exceeds_product`.
    written
        The shape of its result, None where that is not known.
    block
        Filters of a block.
    """
    products = 0 if written is None else _products(weight, written, filters, block)
    moves_by_one = not set(integers(node.attrs.get("stride", "")) or ()) - {1}
    slides = moves_by_one and products >= LEAST_PADDED and written is not None and written[-1] > 1
    gains = slides or exceeds_product(node, weight, filters)
    if not gains or pads_by_itself(node.attrs, is_depthwise=False):
        return gains
    # A Pad has to do it, and before a sequence none is put.
    return products >= LEAST_PADDED and len(weight) == _IMAGE


def _products(weight: Sequence[int], written: Sequence[int], filters: int, block: int) -> int:
    """Return the multiply-adds of a layer with whole blocks of filters."""
    whole = -(-filters // block) * block
    return math.prod(weight[1:]) * math.prod(written[2:]) * written[0] * whole
