"""Leave an activation out of a layer whose kernel computes it value by value."""

from __future__ import annotations

import math
from typing import NamedTuple

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops import FACTS
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite, float32_image_layer
from mxamp.passes.state import State
from mxamp.targets.image_layout import PLAIN, layer_layout
from mxamp.targets.layout import clips_from_zero

_SIMPLE = frozenset({"relu", "leaky", "clip"})
_COSTLY = frozenset({"sigmoid", "tanh", "softrelu", "gelu"})
"""Activations that are fused with a Convolution, by how much longer it takes for each value with them: 1.3 to
5 ns, and 7 to 10."""

_FEWEST_VALUES, _FEWEST_COSTLY = 1 << 12, 1 << 9
"""Fewer take less than two calls more, which are 2 us. With a sum it is 8 to 30 ns a value, of any kind."""

_FEWEST_ROWS = 1 << 11
"""A FullyConnected goes row by row. Of one value relu takes 4 ns longer, sigmoid 10 and tanh 37."""

_SUMS = frozenset({"elemwise_add"})


class _Layer(NamedTuple):
    """The layer that an activation is fused with, what it writes, and whether a sum is between the two."""

    position: int
    written: tuple[int, ...]
    has_sum: bool = False


class ActivationsApart(NodeRewrite):
    """Put a Reshape between an activation and a layer that is one plain matrix product.

    Before::

        x -> Convolution {num_filter: 12} [-> elemwise_add] -> Activation -> y

    After::

        x -> Convolution {num_filter: 12} [-> elemwise_add] -> Reshape -> Activation -> y

    The Reshape changes no shape. A BatchNorm may be behind the Convolution. Likewise a FullyConnected that
    computes one value a row.

    Refuses: layers whose channels fill blocks, which have other kernels; other activations than relu,
    sigmoid, tanh, softrelu, LeakyReLU (leaky, gelu) and ``clip`` from zero; what is not fused: an activation
    of a value that others read as well, or that is a graph output; images of fewer than 2^12 values (2^9 for
    sigmoid and its like, and behind a sum), and fewer rows of one than 2^11 (2^9); what is neither, or not of
    float32; where no shapes are known or assumed; a node that a rule of the user's picks; targets that do not
    name the pass; the bodies of control flow.

    Notes
    -----
    Why: what is fused with oneDNN's plain matrix product is computed value by value, where
    oneDNN's own activation, on its own, goes over whole registers: 12 filters of 1x1 on 56 x 56 take 109 us
    with relu fused and 55 without, 100 of 1x1 on 14 x 14 with sigmoid 308 and 77, with tanh 479 and 150, and
    12 of 3x3 on 56 x 56 with a sum and relu 1,020 and 463 (AMD EPYC of family 23, float32, one thread). A
    Reshape that changes no shape is what MXNet fuses nothing across; in plain order it copies nothing.

    With AVX-512 fewer layers are plain products, and those gain as much in float32: of 25 random ones twelve
    run 1.2 to 5 times as fast, and none under 0.98 (an Intel Xeon, one thread). Low layers have other
    kernels, so targets that compute in bfloat16 faster do not name the pass.

    Bit-exact in float32 but for the rounding of another kernel of the same function; where a layer is made
    low all the same, what a sigmoid or tanh behind it reads is rounded, too. Linear in nodes.
    """

    step = "activations_apart"
    operators = frozenset({"Activation", "LeakyReLU", "clip"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Put a Reshape in front of one activation."""
        kind = _kind(state.graph.nodes[position])
        layer = None if kind is None else _fused_with(state, position)
        if kind is None or layer is None or not _is_worth_it(state, layer, kind):
            return None
        node, shape = state.graph.nodes[position], layer.written
        same = str((*(0,) * (len(shape) - 1), -1))
        plain = edit.part(position, "Reshape", "apart", node.inputs[0], like=shape, shape=same)
        edit.replace(position, node._replace(inputs=(plain, *node.inputs[1:])))
        return "apart from its layer, whose plain kernel would compute it value by value"


def _kind(node: Node) -> str | None:
    """Return which activation a node is that is fused with layers; None for others."""
    if node.op == "clip":
        return "clip" if clips_from_zero(node) else None
    kind = node.attrs.get("act_type", "leaky")
    return kind if kind in _SIMPLE | _COSTLY else None


def _fused_with(state: State, position: int) -> _Layer | None:
    """Return the layer that an activation is fused with, and with a sum of it."""
    nodes = state.graph.nodes
    source = nodes[position].inputs[0].node
    written = state.usual_shape(Entry(source))
    if state.only_reader(source) != position or written is None:
        return None
    if FACTS.canonical(nodes[source].op) == "FullyConnected":
        return _Layer(source, written)
    has_sum = FACTS.canonical(nodes[source].op) in _SUMS
    terms = [entry.node for entry in nodes[source].inputs] if has_sum else [source]
    for term in terms:
        if has_sum and state.only_reader(term) != source:
            continue
        # A BatchNorm will be folded into its layer.
        layer = nodes[term].inputs[0].node if nodes[term].op == "BatchNorm" else term
        if nodes[layer].op == "Convolution" and (layer == term or state.only_reader(layer) == term):
            return _Layer(layer, written, has_sum)
    return None


def _is_worth_it(state: State, layer: _Layer, kind: str) -> bool:
    node, values = state.graph.nodes[layer.position], math.prod(layer.written)
    if node.op != "Convolution":
        fewest_rows = _FEWEST_COSTLY if kind in _COSTLY else _FEWEST_ROWS
        is_float32 = state.certain_dtypes[layer.position][0] is DType.FLOAT32
        return is_float32 and layer.written[-1] == 1 and values >= fewest_rows
    fewest = _FEWEST_COSTLY if layer.has_sum or kind in _COSTLY else _FEWEST_VALUES
    shapes = float32_image_layer(state, layer.position)
    if shapes is None or values < fewest:
        return False
    block = state.target.block
    return layer_layout("Convolution", node.attrs, *shapes, low=False, block=block) == PLAIN
