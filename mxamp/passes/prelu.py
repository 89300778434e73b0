"""Compute PReLU with operators that the backend has kernels for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.images import depthwise
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State


class RewritePReLU(NodeRewrite):
    """Replace PReLU by a leaky relu, or on images by two depthwise convolutions, two relus and an addition.

    Before, with one slope, which Gluon's has where nothing else is said, or equal ones::

        x -> LeakyReLU {act_type: prelu}(g) -> y

    After::

        x -> LeakyReLU {act_type: leaky, slope: g} -> y

    Before, with a slope for each channel of an image::

        x -> LeakyReLU {act_type: prelu}(g) -> y

    After, where ``dw(x, w)`` multiplies each channel by its own number, as a depthwise 1x1 Convolution::

        relu(x) + dw(relu(dw(x, -1)), -g) -> y

    Refuses: slopes that are no float32 parameter, infinite or NaN, or all 0; of several, where x is not
    certainly an image (four axes), or its channels are not known, or fill no blocks (of 16, without AVX-512
    of 8); other dtypes than float32; a node that a rule of the user's picks; targets that do not name the
    pass; the bodies of control flow. The node may be a graph output, for its name stays.

    Notes
    -----
    Why: MXNet's PReLU is a loop over scalars in FP32, and on CPUs it does not run in bfloat16, which costs
    two casts at each. A leaky relu is fused with the layer before it: 64 channels of 112 x 112 take 16.2 ms
    with their 3x3 layer and 7.3, as without any; 64 of 2,000 steps 1.47 and 0.49 (an Intel Xeon, float32, one
    thread). Every step of the other form has a oneDNN kernel in both dtypes, and the last three are fused
    with a convolution. One that adds x itself, such as ``g * x + (1 - g) * relu(x)``, is no faster and rounds
    once more.

    As a leaky relu, bit-exact. Else bit-exact in FP32 for every finite x and for infinities, whatever the
    slope: one of the two terms is a zero, and the other is x, or the product (-g)(-x), which is rounded as
    g x is. The sign of a zero may differ, and a NaN becomes 0, as in all networks that are written with
    ``Activation``. In low precision g is rounded, as it is in any form. Linear in nodes.

    References
    ----------
    He et al., "Delving deep into rectifiers", 2015, equation 1.
    """

    step = "prelu"
    operators = frozenset({"LeakyReLU", "_npx_leaky_relu"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one PReLU."""
        graph, node = state.graph, state.graph.nodes[position]
        if (
            node.attrs.get("act_type") != "prelu"
            or len(node.inputs) != 2
            or state.dtypes[position][0] is not DType.FLOAT32
        ):
            return None
        single = _single(state.parameter(node.inputs[1]))
        if single is not None:
            attrs = {**node.attrs, "act_type": "leaky", "slope": repr(single)}
            edit.replace(position, node._replace(attrs=attrs, inputs=node.inputs[:1]))
            return "one slope is a number, and the layer before takes a leaky relu with it"
        if node.inputs[0].node not in state.images:
            return None
        slope = _slopes(state.parameter(node.inputs[1]), state.image_origins.channels_of(node.inputs[0]))
        if slope is None or slope.size % state.target.block:
            return None
        name, source, channels = node.name, node.inputs[0], len(slope)

        def parameter(what: str, values: NDArray[np.float32], *made_from: str) -> Entry:
            weight = ArrayParameter(values.reshape(channels, 1, 1, 1))
            return edit.add_parameter(f"{name}_{what}", weight, made_from, before=position)

        def put(made: Node) -> Entry:
            return edit.insert(made, before=position)

        minus = edit.once(channels, lambda: parameter("minus", np.full(channels, -1.0, np.float32)))
        weight = parameter("slope", -slope, graph.nodes[node.inputs[1].node].name)
        positive = put(_relu(f"{name}_positive", source))
        mirrored = put(depthwise(f"{name}_mirrored", source, minus, channels))
        negative = put(_relu(f"{name}_negative", mirrored))
        scaled = put(depthwise(f"{name}_scaled", negative, weight, channels))
        edit.replace(
            position,
            node._replace(op="elemwise_add", attrs=own_attributes(node), inputs=(positive, scaled)),
        )
        return "two relus and two depthwise convolutions compute the same, with kernels of the backend"


def _single(gamma: Parameter | None) -> float | None:
    """Return the slope where there is one; None where there are several, or it is 0, infinite or NaN.

    Times 0 oneDNN's relu gives a zero of the other sign.
    """
    if gamma is None or gamma.dtype is not DType.FLOAT32 or gamma.is_sparse:
        return None
    slopes = np.unique(gamma.values())
    return float(slopes[0]) if len(slopes) == 1 and np.isfinite(slopes[0]) and slopes[0] != 0 else None


def _slopes(gamma: Parameter | None, channels: int | None) -> NDArray[np.float32] | None:
    """Return a slope for each channel; None where the form does not hold or does not pay."""
    if gamma is None or channels is None or gamma.dtype is not DType.FLOAT32:
        return None
    if gamma.is_sparse or gamma.shape not in ((1,), (channels,)):
        return None
    slope = np.array(np.broadcast_to(gamma.values(), channels))
    return slope if np.isfinite(slope).all() else None


def _relu(name: str, source: Entry) -> Node:
    return Node("Activation", name, {"act_type": "relu"}, (source,))
