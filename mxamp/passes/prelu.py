"""Compute PReLU with operators that the backend has kernels for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.images import channels_of, image_nodes
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State

_BLOCK = 16
"""oneDNN's depthwise kernels are fast on whole blocks of so many channels."""


class RewritePReLU(PreparationPass):
    """Replace PReLU on images by two depthwise convolutions, two relus and an addition.

    Before::

        x -> LeakyReLU {act_type: prelu}(g) -> y

    After, where ``dw(x, w)`` multiplies each channel by its own number, as a depthwise 1x1 Convolution::

        relu(x) + dw(relu(dw(x, -1)), -g) -> y

    Refuses: where x is not certainly an image (four axes), or its channels are not known, or no multiple of
    16; slopes that are no float32 parameter, infinite or NaN; other dtypes than float32; a node that a rule
    of the user's picks; targets that do not name the pass; the bodies of control flow. The node may be a
    graph output, for its name stays.

    Notes
    -----
    Why: MXNet's PReLU is a loop over scalars in FP32, and on CPUs it does not run in bfloat16, which costs
    two casts at each. Every step of this form has a oneDNN kernel in both, and the last three are fused with
    a convolution. A form that adds x itself, such as ``g * x + (1 - g) * relu(x)``, is no faster and rounds
    once more.

    Bit-exact in FP32 for every finite x and for infinities, whatever the slope: one of the two terms is a
    zero, and the other is x, or the product (-g)(-x), which is rounded as g x is. The sign of a zero may
    differ, and a NaN becomes 0, as in all networks that are written with ``Activation``. In low precision g
    is rounded, as it is in any form. Linear in nodes.

    References
    ----------
    He et al., "Delving deep into rectifiers", 2015, equation 1.
    """

    step = "prelu"
    operators = frozenset({"LeakyReLU", "_npx_leaky_relu"})
    asks_target = True

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph with convolutions."""
        images = image_nodes(graph)
        slopes: dict[int, NDArray[np.float32]] = {}
        for position, node in enumerate(graph.nodes):
            if (
                FACTS.canonical(node.op) == "LeakyReLU"
                and node.attrs.get("act_type") == "prelu"
                and len(node.inputs) == 2
                and node.inputs[0].node in images
                and state.dtypes[position][0] is DType.FLOAT32
                and not state.is_fixed(position)
            ):
                slope = _slopes(state.parameter(node.inputs[1]), channels_of(graph, node.inputs[0]))
                if slope is not None:
                    slopes[position] = slope
        if not slopes:
            return None
        edit = GraphEdit(graph, state.params)
        minus: dict[int, Entry] = {}
        changes = []
        for position, slope in slopes.items():
            node = graph.nodes[position]
            name, source, channels = node.name, node.inputs[0], len(slope)
            if channels not in minus:
                ones = np.full((channels, 1, 1, 1), -1.0, np.float32)
                minus[channels] = edit.add_parameter(f"{name}_minus", ArrayParameter(ones), before=position)
            negated = ArrayParameter(-slope.reshape(channels, 1, 1, 1))
            gamma = graph.nodes[node.inputs[1].node].name
            weight = edit.add_parameter(f"{name}_slope", negated, [gamma], before=position)
            positive = edit.insert(_relu(f"{name}_positive", source), before=position)
            mirrored = edit.insert(
                _depthwise(f"{name}_mirrored", source, minus[channels], channels), before=position
            )
            negative = edit.insert(_relu(f"{name}_negative", mirrored), before=position)
            scaled = edit.insert(_depthwise(f"{name}_scaled", negative, weight, channels), before=position)
            attrs = {key: value for key, value in node.attrs.items() if key.startswith("__")}
            edit.replace(position, node._replace(op="elemwise_add", attrs=attrs, inputs=(positive, scaled)))
            reason = "two relus and two depthwise convolutions compute the same, with kernels of the backend"
            changes.append(self.changed(node, reason))
        return Done(edit.finish(), tuple(changes))


def _slopes(gamma: Parameter | None, channels: int | None) -> NDArray[np.float32] | None:
    """Return a slope for each channel; None where the form does not hold or does not pay."""
    if gamma is None or channels is None or channels % _BLOCK or gamma.dtype is not DType.FLOAT32:
        return None
    if gamma.is_sparse or gamma.shape not in ((1,), (channels,)):
        return None
    slope = np.array(np.broadcast_to(gamma.values(), channels))
    return slope if np.isfinite(slope).all() else None


def _relu(name: str, source: Entry) -> Node:
    return Node("Activation", name, {"act_type": "relu"}, (source,))


def _depthwise(name: str, source: Entry, weight: Entry, channels: int) -> Node:
    attrs = {
        "kernel": "(1, 1)",
        "no_bias": "True",
        "num_filter": str(channels),
        "num_group": str(channels),
    }
    return Node("Convolution", name, attrs, (source, weight))
