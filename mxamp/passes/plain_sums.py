"""Compute an activation apart from a sum where the layer before is a plain matrix product."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.graph.graph import Use
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST, integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.keep_branches import put_reshape
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.state import State

_BLOCK = 8
"""Filters that fill blocks of so many have kernels with a sum and an activation of their own."""

_PLACES = 2
"""Axes of an image's places."""

_WITH_SLOPES = "prelu"
"""An activation that the backend does not make a part of a layer."""


class PlainSums(NodeRewrite):
    """Put a Reshape between a sum behind a layer that is a plain matrix product, and an activation.

    Before::

        Convolution {num_filter: 28} -> elemwise_add(x) -> Activation -> y

    After::

        Convolution {num_filter: 28} -> elemwise_add(x) -> Reshape {shape: (-2,)} -> Activation -> y

    Also with a BatchNorm behind the layer.

    Refuses: filters that fill blocks of eight; layers that are grouped, of others than images, or of
    channels last; what the backend does not fuse, since something else reads it; other dtypes than float32; a
    node that a rule of the user's picks; targets that do not name the pass; the bodies of control flow. The
    activation may be a graph output, for its name stays.

    Notes
    -----
    Why: where filters fill no blocks, oneDNN makes plain matrix products, and behind those it takes values
    one by one in float32 where it has to add another tensor and to activate the sum; one of both it does for
    a register at a time. A block of 28 channels of 64 x 64 (a depthwise and two 1x1 layers) takes 2.66 ms in
    float32, and 1.36 with the activation apart; 100 channels of 28 x 28 1.95 and 0.99, in 3x3 layers 2.93 and
    1.95 (AMD EPYC of family 26, one thread). In bfloat16 it makes no difference: 0.754 and 0.774, 0.547 and
    0.551 ms. A residual network of such channels runs slower with ``Activation`` than with ``relu``, which
    the backend does not fuse.

    Bit-exact: the sum is rounded before it is activated either way. Linear in nodes.
    """

    step = "plain_sums"
    operators = frozenset({"Activation", "LeakyReLU", "clip"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Put a Reshape in front of one activation."""
        node = state.graph.nodes[position]
        total = node.inputs[0]
        if (
            total.output
            or FACTS.canonical(state.graph.nodes[total.node].op) != "elemwise_add"
            or state.only_reader(total.node) != position
            or node.attrs.get("act_type") == _WITH_SLOPES
            or state.dtypes[position][0] is not DType.FLOAT32
            or not any(_is_plain(state, entry.node) for entry in state.graph.nodes[total.node].inputs)
        ):
            return None
        name = f"{state.graph.nodes[total.node].name}_apart"
        edit.connect(Use(position, 0), put_reshape(edit, name, total, before=position))
        return "apart from the sum, which a plain matrix product would add and activate value by value"


def _is_plain(state: State, position: int) -> bool:
    """Return whether a term is a layer's whose filters fill no blocks, or the norm's behind one."""
    node = state.graph.nodes[position]
    if state.only_reader(position) is None or not node.inputs:
        return False
    if FACTS.canonical(node.op) == "BatchNorm":
        position = node.inputs[0].node
        node = state.graph.nodes[position]
        if state.only_reader(position) is None:
            return False
    filters, kernel = (integers(node.attrs.get(name, "")) for name in ("num_filter", "kernel"))
    return (
        FACTS.canonical(node.op) == "Convolution"
        and kernel is not None
        and len(kernel) == _PLACES
        and filters is not None
        and len(filters) == 1
        and filters[0] % _BLOCK != 0
        and node.attrs.get("num_group", "1") == "1"
        and node.attrs.get("layout", "None") in CHANNELS_FIRST
    )
