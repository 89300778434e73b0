"""Random parameters for a network whose trained ones are not at hand.

They make a network that behaves, not one that was trained: activations keep their scale from layer to layer
and outputs depend on the input, so that rounding errors can be measured. Running statistics, scale and shift
of BatchNorm are independent of each other and of the data. Statistics that fit the random weights exactly
would make the network chaotic, and its error would measure amplification instead of rounding.
"""

from __future__ import annotations

import json
import math
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS

_NORMALISATIONS = frozenset({"BatchNorm", "_contrib_SyncBatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm"})
_WEIGHTED = {"Convolution": 1, "Deconvolution": 1, "FullyConnected": 1}
_SUMS = frozenset({"elemwise_add", "broadcast_add", "_plus", "_Plus"})
_RECTIFIERS = frozenset({"Activation", "LeakyReLU", "clip", "relu"})
_GATES = frozenset({"elemwise_mul", "broadcast_mul"})
"""What multiplies x with a gate (swish, hard swish, squeeze-and-excitation): it halves x on average."""

RESIDUAL_SCALE = 0.3
"""A residual branch ends this much smaller: the variance then grows by a tenth a block instead of doubling,
which would overflow float16 after fifty blocks."""


def random_parameters(
    graph: Graph,
    shapes: Mapping[str, Sequence[int]],
    *,
    seed: int,
    residual_scale: float = RESIDUAL_SCALE,
) -> dict[str, NDArray[Any]]:
    """Draw a value for every named variable.

    Parameters
    ----------
    graph
        The graph, which says what each variable is for.
    shapes
        Variable name -> shape, for the variables to draw.
    seed
        Seed; the same graph, shapes and seed give the same values, whatever the names are.
    residual_scale
        How large a residual branch ends, relative to its trunk; 1 is what layers are usually initialised to.

    Returns
    -------
    dict
        Variable name -> float32 array.

    Notes
    -----
    Weights are normal with variance 2/fan-in before a rectifier [1]_, 4/fan-in before a gate such as swish,
    and 1/fan-in elsewhere. Slopes of a PReLU are between 0.1 and 0.4.

    References
    ----------
    .. [1] He et al., "Delving Deep into Rectifiers", ICCV 2015, arXiv:1502.01852.
    """
    random = np.random.default_rng(seed)
    return {
        name: _draw(graph, graph.variables[name], tuple(shape), random, residual_scale).astype(
            np.float32, copy=False
        )
        for name, shape in shapes.items()
    }


def _draw(
    graph: Graph, variable: int, shape: tuple[int, ...], random: np.random.Generator, residual_scale: float
) -> NDArray[Any]:
    uses = graph.uses_of(Entry(variable))
    position, number = uses[0] if uses else (variable, 0)
    node = graph.nodes[position]
    op = FACTS.canonical(node.op)
    if op in _NORMALISATIONS:
        if number == 1:
            return _scale(graph, position, residual_scale) * random.uniform(0.7, 1.3, shape)
        if number == 4:
            return random.uniform(0.6, 1.4, shape)
        return 0.1 * random.standard_normal(shape, np.float32)
    if "Deformable" in op and len(shape) > 2:
        return random.standard_normal(shape, np.float32) * np.float32(math.sqrt(2 / math.prod(shape[1:])))
    if op in _WEIGHTED and number == _WEIGHTED[op]:
        gain = _gain(graph, position) / _fan_in(node, shape)
        size = np.float32(_scale(graph, position, residual_scale) * math.sqrt(gain))
        return random.standard_normal(shape, np.float32) * size
    if op == "Embedding":
        return random.standard_normal(shape, np.float32)
    if op == "LeakyReLU":  # the slopes of a PReLU, which begin as 0.25
        return random.uniform(0.1, 0.4, shape)
    if len(shape) == 1:
        return 0.05 * random.standard_normal(shape, np.float32)
    return random.standard_normal(shape, np.float32) * np.float32(1 / math.sqrt(max(shape[-1:] or (1,))))


def _fan_in(node: Node, shape: tuple[int, ...]) -> float:
    """Return how many products one output element sums."""
    if FACTS.canonical(node.op) != "Deconvolution":
        return max(math.prod(shape[1:]), 1)
    try:
        stride = json.loads(
            node.attrs.get("stride", "[1]").replace("(", "[").replace(")", "]").replace(",]", "]")
        )
    except json.JSONDecodeError:
        stride = [1]
    groups = int(node.attrs.get("num_group", "1"))
    # Each input element reaches kernel/stride outputs along an axis.
    return max(float(shape[0] / groups * math.prod(shape[2:]) / math.prod(stride)), 1.0)


def _gain(graph: Graph, position: int) -> float:
    """Return the factor that makes up for what the activation after a node, or its normalisation, loses."""
    for _ in range(2):
        uses = graph.uses_of(Entry(position))
        operators = {FACTS.canonical(graph.nodes[use.node].op) for use in uses}
        if operators & _GATES:
            return 4.0
        if operators & _RECTIFIERS:
            return 2.0
        if not uses or not operators & _NORMALISATIONS:
            return 1.0
        position = uses[0].node
    return 1.0


def _scale(graph: Graph, position: int, residual_scale: float) -> float:
    """Return how large the output of a node shall be: smaller where it ends a residual branch."""
    reached = [position]
    for place in reached:  # grows while it is walked
        uses = graph.uses_of(Entry(place))
        for use in uses:
            op = FACTS.canonical(graph.nodes[use.node].op)
            if op in _SUMS:
                return residual_scale
            # Darknet's branches end with an activation. One that others read too is the trunk.
            ends_branch = op in _RECTIFIERS and len(uses) == 1 == len(graph.uses_of(Entry(use.node)))
            if (op in _GATES or ends_branch) and len(reached) < 3:
                reached.append(use.node)
    return 1.0
