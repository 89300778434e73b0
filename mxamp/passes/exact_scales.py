"""Scales and shifts of channels that a low dtype holds, and what the layers behind take over of them.

A scale s and a shift b of a channel, rounded to bfloat16, are wrong by up to 2^-9 each, for every value. But
relu and pooling are positively homogeneous, so that for any r > 0

    W relu(s x + b) = (W r) relu((s / r) x + b / r)

and W is rounded anyhow, whatever r is. So r is chosen such that s / r is a number of the dtype, and of those
near s the one with which b / r is closest to being one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST, is_true
from mxamp.params.cast import cast_array
from mxamp.passes.state import State

_NEIGHBOURS = 8
"""How many numbers of the dtype are tried to either side of a scale: in bfloat16 weights behind it change by
at most 7 %, and so does what a calibration says of the values that they meet."""


class ExactScales(NamedTuple):
    """Scales and shifts that the dtype holds, all but a fraction of a rounding.

    Attributes
    ----------
    scale, shift
        float64, one a channel; the scale is a number of the dtype.
    ratio
        What the layers behind take over: the true scale over ``scale``.
    """

    scale: NDArray[np.float64]
    shift: NDArray[np.float64]
    ratio: NDArray[np.float64]


def exact_scales(scale: NDArray[np.float64], shift: NDArray[np.float64], dtype: DType) -> ExactScales:
    """Return scales near the true ones that a dtype holds, with shifts that it nearly holds.

    Parameters
    ----------
    scale, shift
        The true ones, one a channel.
    dtype
        The low dtype.
    """

    def rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return cast_array(values.astype(np.float32), dtype).astype(np.float64)

    nearest = rounded(scale)
    gap = np.ldexp(1.0, np.frexp(nearest)[1] - dtype.format.significand_bits)
    steps = sorted(range(-_NEIGHBOURS, _NEIGHBOURS + 1), key=abs)  # of equally good ones the nearest
    with np.errstate(all="ignore"):
        tried = rounded(nearest + np.multiply.outer(steps, gap))
        ratios = scale / tried
        shifts = shift / ratios
        errors = np.abs(rounded(shifts) - shifts) * ratios
    errors = np.where(np.isfinite(errors) & (ratios > 0), errors, np.inf)
    best = np.argmin(errors, axis=0), np.arange(scale.size)
    usable = np.isfinite(errors[best])
    return ExactScales(
        np.where(usable, tried[best], nearest),
        np.where(usable, shifts[best], shift),
        np.where(usable, ratios[best], 1.0),
    )


def takers(state: State, position: int, channels: int) -> list[int]:
    """Return the layers that can take over factors of a node's channels.

    Parameters
    ----------
    state
        The model.
    position
        The node; its channels are along axis 1.
    channels
        How many there are.

    Returns
    -------
    list of int
        Empty where something else reads them: anything but layers with parameters of their own, directly or
        behind relu, pooling and Flatten.
    """
    graph, found, waiting = state.graph, [], [Entry(position)]
    while waiting:
        entry = waiting.pop()
        if entry in graph.heads:
            return []
        for use in graph.uses_of(entry):
            node = graph.nodes[use.node]
            if use.input == 0 and _hands_on(node):
                if set(graph.uses[use.node]) - {0}:
                    return []
                waiting.append(Entry(use.node))
            elif use.input == 0 and _takes(state, use.node, node, channels):
                found.append(use.node)
            else:
                return []
    return found


def _hands_on(node: Node) -> bool:
    """Return whether a node does the same to every channel, positively homogeneous."""
    op = FACTS.canonical(node.op)
    if op == "Activation":
        return node.attrs.get("act_type") == "relu"
    if op == "Pooling":
        is_of_planes = node.attrs.get("layout", "None") in CHANNELS_FIRST
        return is_of_planes and node.attrs.get("pool_type", "max") in ("max", "avg", "sum")
    return op == "Flatten"


def _takes(state: State, position: int, node: Node, channels: int) -> bool:
    """Return whether the columns of a layer's weight, its own, can be multiplied."""
    op, attrs = FACTS.canonical(node.op), node.attrs
    if op in ("Convolution", "Deconvolution"):
        if attrs.get("num_group", "1") != "1" or attrs.get("layout", "None") not in ("None", "NCHW"):
            return False
    elif op != "FullyConnected" or not is_true(attrs, "flatten", default=True):
        return False  # without flattening its columns are the last axis
    weight = node.inputs[1]
    parameter = state.parameter(weight)
    if parameter is None or parameter.dtype is not DType.FLOAT32 or parameter.is_sparse:
        return False
    uses = state.graph.uses_of(weight)
    if [use.node for use in uses] != [position] or weight in state.graph.heads:
        return False
    read = parameter.shape[0 if op == "Deconvolution" else 1] if len(parameter.shape) > 1 else 0
    fits = bool(read) and read % channels == 0 if op == "FullyConnected" else read == channels
    # A few percent more must not leave the range; of bfloat16's no weight comes near.
    low = state.policy.target_dtype
    return fits and (low is DType.BFLOAT16 or 1.1 * parameter.magnitude_bound < low.max_finite)
