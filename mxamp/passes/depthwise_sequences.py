"""Let a depthwise layer of sequences run as one of images, for which the backend has a kernel."""

from __future__ import annotations

from functools import partial

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST, integers
from mxamp.params.rearranged import RearrangedParameter
from mxamp.passes.edit import GraphEdit, NodeShapes
from mxamp.passes.move_transposes import is_of_each_value
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.sequences import AS_IMAGE, AS_SEQUENCE, chain_behind, image_shape, window_of_image
from mxamp.passes.state import State

_SEQUENCE = 3
"""Axes of a batch of sequences."""

_LEAST_TAPS = 5
"""Steps that a filter reads, from which on images were measured to be faster."""

_MOST_TAPS = {8: 9}
"""Channels in a block -> steps beyond which the backend has no kernel of images either: without AVX-512."""

_MOST_STRIDE = 2

_TAKES_IMAGES = frozenset({"Activation", "Dropout", "LeakyReLU", "clip", "relu", "sigmoid", "tanh"})
"""Operators that do the same to an image, with the same attributes."""


class RewriteDepthwiseSequences(NodeRewrite):
    """Replace a depthwise convolution of sequences by one of images of a single row.

    Before::

        x (N, C, L) -> Convolution {kernel: (31,), num_group: C} -> BatchNorm -> y

    After::

        x -> Reshape {shape: (0, 0, 1, -1)} -> Convolution {kernel: (1, 31), num_group: C} -> BatchNorm
          -> Reshape {shape: (0, 0, -1)} -> y

    BatchNorm and activations that nothing else reads beside are done to the image as well, so that they are
    folded and fused.

    Refuses: filters of less than 5 steps, without AVX-512 of more than 9, or with holes; strides of more than
    2; channels that fill no blocks; a layer that is a graph output; weights that are not dense float32, or
    that other nodes read; numpy's shape semantics; nodes that a rule of the user's picks; targets that do not
    name the pass; the bodies of control flow.

    Notes
    -----
    Why: oneDNN's depthwise kernels are of images. Of sequences it takes one for any layer in groups, value by
    value: 144 channels of 400 steps with filters of 31, a Conformer's, take 1.09 ms and so 0.13, 128 of 1,000
    with 13 1.26 and 0.48, with 5 0.54 and 0.44, 512 of 300 with 63 6.9 and 0.76 (an Intel Xeon, float32, one
    thread; with its AVX-512 off, 128 of 1,000 with 9 0.77 and 0.23, and with 11 and more no less). Channels
    that fill no block, and filters with holes, are as slow in either form.

    The same sums, bit for bit wherever it was tried but for filters with holes. Linear in nodes.
    """

    step = "depthwise_sequences"
    operators = frozenset({"Convolution"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Put an image in front of a layer, and a sequence behind the last node that takes one."""
        if not _is_depthwise(state, position):
            return None
        node = state.graph.nodes[position]
        data, weight = node.inputs[:2]
        image = edit.once(data, lambda: _image(state, edit, position))
        values = state.params[state.graph.nodes[weight.node].name]
        channels, _, taps = values.shape
        edit.change_parameter(weight.node, RearrangedParameter(values, (0, 1, 2), (channels, 1, 1, taps)))
        layer = node._replace(attrs=window_of_image(node.attrs), inputs=(image, *node.inputs[1:]))
        chain = chain_behind(state, position, partial(_takes_images, state))
        for at in chain:
            taken = layer if at == position else state.graph.nodes[at]
            edit.replace(at, taken, shapes=_as_image(state, at))
        last = chain[-1]
        name = f"{state.graph.nodes[last].name}_sequence"
        behind = Node("Reshape", name, AS_SEQUENCE, (Entry(last),))
        edit.insert_behind(behind, shapes=(state.usual_shape(Entry(last)),))
        return "a depthwise layer of images, for which the backend has a kernel"


def _is_depthwise(state: State, position: int) -> bool:
    node = state.graph.nodes[position]
    weight = state.own_parameter(node.inputs[1]) if len(node.inputs) > 1 else None
    if (
        weight is None
        or len(weight.shape) != _SEQUENCE
        or weight.shape[1] != 1
        or weight.shape[0] % state.target.block
        or not _LEAST_TAPS <= weight.shape[2] <= _MOST_TAPS.get(state.target.block, weight.shape[2])
        or node.attrs.get("num_group", "1") != str(weight.shape[0])
        or node.attrs.get("layout", "None") not in CHANNELS_FIRST
        or position in state.heads
        or set(state.graph.uses[position]) != {0}
        or state.graph.has_numpy_shapes
        or state.dtypes[position][0] is not DType.FLOAT32
    ):
        return False
    (stride,), (dilate,) = (integers(node.attrs.get(key, "()")) or (1,) for key in ("stride", "dilate"))
    return stride <= _MOST_STRIDE and dilate == 1


def _takes_images(state: State, position: int) -> bool:
    node = state.graph.nodes[position]
    op = FACTS.canonical(node.op)
    if op == "BatchNorm":
        return node.attrs.get("axis", "1") == "1"
    return op in _TAKES_IMAGES and is_of_each_value(node)


def _image(state: State, edit: GraphEdit, position: int) -> Entry:
    data = state.graph.nodes[position].inputs[0]
    return edit.part(
        position, "Reshape", "image", data, like=image_shape(state.usual_shape(data)), **AS_IMAGE
    )


def _as_image(state: State, position: int) -> NodeShapes:
    """Return the shapes of a node's outputs, the first as an image."""
    first, *rest = (
        state.usual_shape(Entry(position, output))
        for output in range(state.graph.nodes[position].num_outputs)
    )
    return (image_shape(first), *rest)
