"""What one operator computes that another computes faster, with the numbers that both ends must agree on."""

from __future__ import annotations

from typing import Mapping, Sequence

EVEN_CHANNELS = "even_channels"
"""What a target names that runs low convolutions faster on an even number of channels."""

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
    size = str(channels)
    return "Convolution", {"kernel": "(1, 1)", "num_filter": size, "num_group": size, "no_bias": "False"}


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
