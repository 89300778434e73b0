"""What one operator computes that another computes faster, with the numbers that both ends must agree on."""

from __future__ import annotations

import math
from typing import Mapping, Sequence

from mxamp.ops.attributes import integers, is_true

EVEN_CHANNELS = "even_channels"
"""What a target names that runs low convolutions faster on an even number of channels."""

BLOCKS_FOR_POOLING = "blocks_for_pooling"
"""What a target names where blocks of channels are pooled faster than planes in plain order."""

IMAGE_CHANNELS = 16
"""Of fewer channels oneDNN's convolutions read plain order; their filters are still blocks of so many."""


def depthwise_of(
    op: str, attrs: Mapping[str, str], channels: int, block: int
) -> tuple[str, Mapping[str, str]] | None:
    """Return operator and attributes of the depthwise layer that an inference BatchNorm of images is.

    Parameters
    ----------
    op, attrs
        The operator, and a node's attributes.
    channels
        How many channels its input has.
    block
        The channels in the widest block on the machine: oneDNN's depthwise kernels are fast on whole ones.

    Returns
    -------
    tuple or None
        None for what is none, normalizes another axis than 1, or has no whole blocks of channels.
    """
    if op != "BatchNorm" or attrs.get("axis", "1") != "1" or channels % block:
        return None
    return _depthwise(channels, no_bias=False)


def reads_odd_channels(op: str, attrs: Mapping[str, str], weight: Sequence[int]) -> bool:
    """Return whether a node is a Convolution of images that reads an odd number of channels, and few.

    Parameters
    ----------
    op
        Its canonical operator name.
    attrs
        The node's attributes.
    weight
        The shape of its weight.
    """
    return (
        op == "Convolution"
        and len(weight) == 4
        and weight[1] % 2 == 1
        and weight[1] < IMAGE_CHANNELS
        and weight[0] % IMAGE_CHANNELS == 0
        and attrs.get("num_group", "1") == "1"
        and attrs.get("layout", "None") in ("None", "NCHW")
    )


_IMAGE = 4
_LEAST_MAXIMUM, _LEAST_MEAN, _LEAST_GLOBAL = 1 << 13, 1 << 14, 1 << 17
"""Without AVX-512 oneDNN has no kernel that pools planes in plain order: it computes value by value. So many
values in all windows take as long as a Convolution that writes blocks, and pooling these: 8 x 14 x 14, 3x3,
107 us and 42 (14,112 values), and of stride 2, 39 and 39 (3,528); means 16 x 28 x 28, 3x3 of stride 2, 99 and
44 (28,224), 16 x 14 x 14 41 and 39; over whole planes 64 x 56 x 56 204 and 132, 16 x 56 x 56 68 and 63 (AMD
EPYC of family 23, float32, one thread)."""


def pools_value_by_value(
    op: str, attrs: Mapping[str, str], read: Sequence[int], written: Sequence[int]
) -> bool:
    """Return whether a node pools planes in plain order longer than bringing them into blocks before takes.

    Parameters
    ----------
    op
        Its canonical operator name.
    attrs
        The node's attributes.
    read, written
        The shapes of what it reads and writes.

    Notes
    -----
    In float32 without AVX-512, where channels are whole blocks.
    """
    if op != "Pooling" or len(read) != _IMAGE:
        return False
    if is_true(attrs, "global_pool", default=False):
        return math.prod(read) >= _LEAST_GLOBAL
    least = _LEAST_MAXIMUM if attrs.get("pool_type", "max") == "max" else _LEAST_MEAN
    return math.prod(written) * math.prod(integers(attrs.get("kernel", "")) or ()) >= least


def depthwise_of_ones(channels: int) -> tuple[str, Mapping[str, str]]:
    """Return operator and attributes of the depthwise layer that only brings an image into blocks."""
    return _depthwise(channels, no_bias=True)


def _depthwise(channels: int, *, no_bias: bool) -> tuple[str, Mapping[str, str]]:
    size = str(channels)
    attrs = {"kernel": "(1, 1)", "num_filter": size, "num_group": size, "no_bias": str(no_bias)}
    return "Convolution", attrs
