"""What one operator computes that another computes faster, with the numbers that both ends must agree on."""

from __future__ import annotations

from typing import Mapping

DEPTHWISE_BLOCK = 16
"""oneDNN's depthwise kernels are fast on whole blocks of so many channels."""


def depthwise_of(op: str, attrs: Mapping[str, str], channels: int) -> tuple[str, Mapping[str, str]] | None:
    """Return operator and attributes of the depthwise layer that an inference BatchNorm of images is.

    Parameters
    ----------
    op, attrs
        The operator, and a node's attributes.
    channels
        How many channels its input has.

    Returns
    -------
    tuple or None
        None for what is none, normalizes another axis than 1, or has no whole blocks of channels.
    """
    if op != "BatchNorm" or attrs.get("axis", "1") != "1" or channels % DEPTHWISE_BLOCK:
        return None
    size = str(channels)
    return "Convolution", {"kernel": "(1, 1)", "num_filter": size, "num_group": size, "no_bias": "False"}
