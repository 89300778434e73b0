"""Write relu in the form that backends fuse."""

from __future__ import annotations

import math

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.state import State

_FEWEST_VALUES = 1 << 12
"""Of fewer, calling oneDNN takes longer than MXNet's own loop."""

_WITH_SUMS = frozenset({"Convolution", "BatchNorm"})
"""Operators with which a sum, and a BatchNorm, is fused, and the activation behind it."""

_FUSED_RANKS = (2, 3)
"""Axes of places of the convolutions that anything is fused with."""

_BEFORE = frozenset({"Convolution", "Deconvolution", "FullyConnected", "BatchNorm", "elemwise_add"})


class RewriteRelu(NodeRewrite):
    """Replace the operator ``relu`` by ``Activation`` behind layers that it can be fused with.

    Before::

        Convolution -> relu -> y

    After::

        Convolution -> Activation {act_type: relu} -> y

    Also behind Deconvolution, FullyConnected, BatchNorm and elemwise_add.

    Refuses: behind anything else; where the layer has other readers or is a graph output, since the backend
    then fuses nothing, or wrongly (:mod:`mxamp.targets.fusion_defect`); what may be empty, for which oneDNN's
    kernels raise (:mod:`mxamp.passes.never_empty`); fewer than 2^12 values where nothing is fused, as behind
    a Convolution over sequences and a sum of no layer; other dtypes than float32, float16 and bfloat16; a
    node that a rule of the user's picks; the bodies of control flow. The node may be a graph output, for its
    name stays.

    Notes
    -----
    Why: MXNet's oneDNN backend runs and fuses ``Activation``. It knows no ``relu``, which in bfloat16 is up
    to 50 times slower than in float32, so that every one of them costs two casts. An unrolled network whose
    40 steps are relus of 128 values took 1.30 times as long with Activation, with 8,192 values 0.96 (AMD EPYC
    of family 23, float32, one thread).

    Bit-exact for every number. A NaN stays one in ``relu``; oneDNN's ``Activation`` makes it 0, here as in
    all networks that are written with ``Activation``. Linear in nodes.
    """

    step = "relu"
    operators = frozenset({"relu"})

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one relu."""
        graph, node = state.graph, state.graph.nodes[position]
        if len(node.inputs) != 1:
            return None
        layer = node.inputs[0].node
        before = FACTS.canonical(graph.nodes[layer].op)
        # A sum may be of integers; layers compute in floating point.
        dtypes = state.certain_dtypes if before == "elemwise_add" else state.dtypes
        if (
            node.inputs[0].output
            or before not in _BEFORE
            or state.only_reader(layer) != position
            # As a part of a FullyConnected it does not raise where there is nothing to activate.
            or (layer not in state.never_empty and before != "FullyConnected")
            or _is_short(state, layer)
            or dtypes[position][0] not in (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
        ):
            return None
        attrs = {**node.attrs, "act_type": "relu"}
        edit.replace(position, node._replace(op="Activation", attrs=attrs))
        return "Activation is what backends fuse with a layer"


def is_relu(node: Node) -> bool:
    """Return whether a node is a relu, in either spelling."""
    if node.op == "Activation":
        return node.attrs.get("act_type") == "relu"
    return FACTS.canonical(node.op) == "relu"


def _is_short(state: State, position: int) -> bool:
    """Whether a node writes few values, and the activation behind it is fused with nothing."""
    shape = state.usual_shape(Entry(position))
    if shape is None or math.prod(shape) >= _FEWEST_VALUES:
        return False
    node = state.graph.nodes[position]
    op = FACTS.canonical(node.op)
    if op == "FullyConnected":
        return False
    if op == "Convolution":
        return len(integers(node.attrs.get("kernel", "")) or ()) not in _FUSED_RANKS
    terms = {FACTS.canonical(state.graph.nodes[entry.node].op) for entry in node.inputs}
    return op == "Deconvolution" or not terms & _WITH_SUMS
