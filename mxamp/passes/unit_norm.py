"""A BatchNorm that normalizes nothing: it multiplies each channel by a number, and adds one."""

from __future__ import annotations

import numpy as np

from mxamp.graph.graph import Entry, Node
from mxamp.params.parameter import ArrayParameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import own_attributes

_EPSILON = 2.0**-10
"""With a variance of 1 - 2^-10 it divides by exactly 1: FP32 holds both, and their sum."""


def unit_norm(edit: GraphEdit, position: int, image: Entry, gamma: Entry, beta: Entry, channels: int) -> Node:
    """Return a BatchNorm that returns gamma times an image plus beta, for the place of a node.

    Parameters
    ----------
    edit
        The edit, to which the BatchNorm's mean and variance are added.
    position
        The node, whose name and own attributes stay.
    image
        What it multiplies; channels are the second axis.
    gamma, beta
        Float32 parameters of shape (channels,).
    channels
        How many there are. BatchNorms of as many share their mean and variance.
    """
    node = edit.node(Entry(position))
    statistics = edit.once(channels, lambda: _statistics(edit, node.name, channels, position))
    attrs = own_attributes(node)
    attrs.update(eps=str(_EPSILON), fix_gamma="False", use_global_stats="True")
    inputs = (image, gamma, beta, *statistics)
    return node._replace(op="BatchNorm", attrs=attrs, inputs=inputs, num_outputs=3)


def _statistics(edit: GraphEdit, name: str, channels: int, before: int) -> tuple[Entry, Entry]:
    """Return the mean and variance of a BatchNorm that leaves values as they are."""
    values = {"mean": np.zeros(channels, np.float32), "var": np.full(channels, 1 - _EPSILON, np.float32)}
    mean, var = (
        edit.add_parameter(f"{name}_moving_{what}", ArrayParameter(array), before=before)
        for what, array in values.items()
    )
    return mean, var
