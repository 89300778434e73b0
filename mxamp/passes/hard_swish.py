"""Compute the gates of hard swishes where the layer before them leaves its result."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.params.scaled import ScaledParameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.images import depthwise
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State

_EXACT_BITS = 8
"""Significand bits that every low dtype has: a slope of so few is rounded in none."""


class RewriteHardSwish(NodeRewrite):
    """Compute the hard sigmoid of a hard swish by a depthwise convolution and a clip.

    Before, where only these two read x, which a Convolution wrote, or a BatchNorm behind one::

        x * hard_sigmoid(x) {alpha, beta} -> y

    After, with the parameters of that layer multiplied by alpha, and ``dw(x, w, b)`` a depthwise 1x1
    Convolution::

        x' * clip(dw(x', 1 / alpha, beta / alpha), 0, 1 / alpha) -> y        x' = alpha x

    Refuses: where anything else reads x, or either of the two is a graph output but the product; where the
    layer's parameters have other readers, are none or not float32; slopes of which 1 / alpha has more than
    eight significant bits (1/6 and 0.2 have 6 and 5), or is not positive; channels that are not known, or
    fill no blocks (of 16, without AVX-512 of 8); where x is not certainly an image (four axes); other dtypes
    than float32; nodes that a rule of the user's picks; targets that do not name the pass; the bodies of
    control flow.

    Notes
    -----
    Why: MXNet's ``hard_sigmoid`` reads plain order, in float32 alone, and branches: 0.7 ns a value where all
    lie between the kinks and 2.4 where they scatter about them, as those of MobileNetV3 do. The depthwise
    convolution reads the blocks that the layer wrote, has the clip fused, takes 0.17 ns and runs in low
    precision. The product reads plain order still; each factor is reordered for it.

    Numerical effect: in float32 alpha and its product with a parameter are rounded, each by u = 2^-24, and so
    is each term of the layer's sum, as by another order of summation; 1 / alpha and beta / alpha are rounded
    by u each, or exact, as 6 and 3 are. In low precision alpha is multiplied to the parameters before they
    are rounded, and 1 / alpha is exact; the gate is rounded, which it was not. Where x overflows alpha x no
    longer does. Linear in nodes.

    References
    ----------
    Howard et al., "Searching for MobileNetV3", 2019, section 5.2.
    """

    step = "hard_swish"
    operators = frozenset({"hard_sigmoid"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one gate."""
        graph, node = state.graph, state.graph.nodes[position]
        product = state.only_reader(position)
        if product is None or len(node.inputs) != 1:
            return None
        source = node.inputs[0]
        if (
            FACTS.canonical(graph.nodes[product].op) != "elemwise_mul"
            or set(graph.nodes[product].inputs) != {source, Entry(position)}
            or state.is_fixed(product)
            or source.node not in state.images
            or state.dtypes[source.node][source.output] is not DType.FLOAT32
        ):
            return None
        alpha, beta = (_number(node, name, default) for name, default in (("alpha", 0.2), ("beta", 0.5)))
        slope = _inverse(alpha)
        channels = state.image_origins.channels_of(source)
        if (
            slope is None
            or channels is None
            or channels % state.target.block
            or not _may_be_scaled(state, source)
        ):
            return None
        shift = float(np.float32(slope) * beta)
        if not np.isfinite(shift):
            return None
        _scale(state, edit, source.node, np.float32(1.0 / slope))
        name = node.name
        weights = {
            "slope": np.full((channels, 1, 1, 1), slope, np.float32),
            "shift": np.full(channels, shift, np.float32),
        }
        weight, bias = [
            edit.add_parameter(f"{name}_{what}", ArrayParameter(values), before=position)
            for what, values in weights.items()
        ]
        steep = edit.insert(depthwise(f"{name}_steep", source, weight, channels, bias), before=position)
        attrs = {**own_attributes(node), "a_min": "0.0", "a_max": str(slope)}
        edit.replace(position, Node("clip", name, attrs, (steep,)))
        return (
            f"{graph.nodes[source.node].name!r} is multiplied by {1 / slope:.3g}, and the gate computed in "
            "the order in which it is written"
        )


def _number(node: Node, name: str, default: float) -> np.float32:
    try:
        return np.float32(node.attrs.get(name, default))
    except ValueError:
        return np.float32(np.nan)


def _inverse(alpha: np.float32) -> float | None:
    """Return 1 / alpha, if low precision has it."""
    if not 0.0 < alpha < np.inf:
        return None
    slope = float(np.float32(1.0) / alpha)
    fraction = np.ldexp(np.frexp(slope)[0], _EXACT_BITS)
    return slope if fraction == np.round(fraction) else None


def _may_be_scaled(state: State, entry: Entry) -> bool:
    """Return whether a layer writes an entry, and nothing but a hard swish sees that it is multiplied."""
    graph, position = state.graph, entry.node
    node = graph.nodes[position]
    if (
        entry.output
        or position in state.heads
        or set(graph.uses[position]) != {0}
        or len(graph.uses[position][0]) != 2
        or state.is_fixed(position, updating=False)
    ):
        return False
    if node.op == "BatchNorm":
        if len(node.inputs) != 5 or node.attrs.get("axis", "1") != "1":
            return False
        if graph.nodes[node.inputs[0].node].op != "Convolution":
            return False
    elif node.op != "Convolution":
        return False
    return all(state.own_parameter(each) is not None for each in _own(node))


def _own(node: Node) -> Sequence[Entry]:
    """Return the parameters by which what a layer writes is multiplied: weight and bias, gamma and beta."""
    return node.inputs[1:3]


def _scale(state: State, edit: GraphEdit, layer: int, factor: np.float32) -> None:
    """Multiply what a layer writes."""
    node = state.graph.nodes[layer]
    is_fixed = node.op == "BatchNorm" and is_true(node.attrs, "fix_gamma", default=True)
    if is_fixed:
        edit.replace(layer, node._replace(attrs={**node.attrs, "fix_gamma": "False"}))
    for number, entry in enumerate(_own(node)):
        parameter = state.params[state.graph.nodes[entry.node].name]
        if is_fixed and number == 0:
            scaled: Parameter = ArrayParameter(np.full(parameter.shape, factor, np.float32))
        else:
            scaled = ScaledParameter(parameter, np.full((1,) * len(parameter.shape), factor, np.float64))
        edit.change_parameter(entry.node, scaled)
