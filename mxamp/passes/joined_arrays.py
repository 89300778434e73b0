"""Give arrays that are joined to images whole blocks of channels."""

from __future__ import annotations

import math
from typing import NamedTuple, Sequence

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST
from mxamp.params.padded import PaddedParameter
from mxamp.params.parameter import Parameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.state import State

_MOST_VALUES = 1 << 21
"""Of an array with its zeros: what is stored in files grows by them."""

_IMAGE = 4


class _Join(NamedTuple):
    """An array that is put together with images, and who reads both."""

    array: Entry
    parameter: Parameter
    is_first: bool
    layers: Sequence[int]
    more: int
    """Channels that are added to it."""


class PadJoinedArrays(NodeRewrite):
    """Add channels of zeros to an array of parameters that is joined to images, up to a whole block.

    Before::

        x (32 channels), places (1) -> Concat -> Convolution(weight of 33 channels) -> y

    After::

        x (32 channels), places (8) -> Concat -> Convolution(weight of 40 channels, 7 of zeros) -> y

    Refuses: where all else that is joined has no whole blocks of channels; an array that is neither the first
    nor the last; where anything but layers with weights of their own reads what is joined, or it is a graph
    output; layers in groups, or of channels last; more than two million values; other dtypes than float32; a
    node that a rule of the user's picks; targets that do not name the pass; the bodies of control flow.

    Notes
    -----
    Why: layers are told where each place lies by coordinates that are joined to an image (Liu et al., "An
    intriguing failing of convolutional neural networks and the CoordConv solution", 2018). Then its channels
    fill no blocks: 32 channels of 128 x 256 and one more, 3x3, take 26.6 ms with the layer before them, and
    11.6 so, 256 of 14 x 14 and two, 1x1, 0.77 and 0.52; of twelve such none gains less than 1.2 (AMD EPYC of
    family 23, float32, one thread).

    Every sum has the same terms, and zeros besides. Linear in nodes.
    """

    step = "joined_arrays"
    operators = frozenset({"Concat", "concat"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Widen one array."""
        join = _join(state, position)
        if join is None:
            return None
        node, shape = state.graph.nodes[position], state.usual_shape(Entry(position))

        first = {1: join.more} if join.is_first else {}

        def widened() -> Entry:
            name = state.graph.nodes[join.array.node].name
            padded = PaddedParameter(join.parameter, {1: join.more}, first=first)
            return edit.add_parameter(f"{name}_padded", padded, [name], before=position)

        wide = edit.once((join.array, join.more, join.is_first), widened)
        inputs = tuple([wide if entry == join.array else entry for entry in node.inputs])
        grown = None if shape is None else ((shape[0], shape[1] + join.more, *shape[2:]),)
        edit.replace(position, node._replace(inputs=inputs), shapes=grown)
        for layer in join.layers:
            weight = state.graph.nodes[layer].inputs[1]
            parameter = state.own_parameter(weight)
            assert parameter is not None  # it was looked at
            edit.change_parameter(weight.node, PaddedParameter(parameter, {1: join.more}, first=first))
        return "an array that is joined fills a block of channels, the others are zeros"


def _join(state: State, position: int) -> _Join | None:
    """Return what is joined at a node, where that is an array and images in whole blocks."""
    node, block = state.graph.nodes[position], state.target.block
    arrays = [entry for entry in node.inputs if state.parameter(entry) is not None]
    if (
        len(arrays) != 1
        or len(node.inputs) < 2
        or arrays[0] not in (node.inputs[0], node.inputs[-1])
        or node.attrs.get("dim", "1") != "1"
        or position in state.heads
        or state.certain_dtypes[position][0] is not DType.FLOAT32
    ):
        return None
    parameter = state.parameter(arrays[0])
    assert parameter is not None  # it was chosen so
    shape = parameter.shape
    layers = [use.node for use in state.graph.uses_of(Entry(position))]
    columns = {_columns(state, layer, Entry(position)) for layer in layers}
    total = columns.pop() if len(columns) == 1 else None
    if total is None or len(shape) != _IMAGE or parameter.is_sparse or arrays[0].node in state.heads:
        return None
    others, more = total - shape[1], -shape[1] % block
    if others <= 0 or others % block or not more:
        return None
    if math.prod(shape) // shape[1] * (shape[1] + more) > _MOST_VALUES:
        return None
    return _Join(arrays[0], parameter, arrays[0] == node.inputs[0], layers, more)


def _columns(state: State, position: int, data: Entry) -> int | None:
    """Return how many channels a layer of images reads, whose weight is its own; None of anything else."""
    node = state.graph.nodes[position]
    if FACTS.canonical(node.op) != "Convolution" or state.is_fixed(position) or node.inputs[0] != data:
        return None
    weight = state.own_parameter(node.inputs[1])
    if (
        weight is None
        or len(weight.shape) != _IMAGE
        or node.attrs.get("num_group", "1") != "1"
        or node.attrs.get("layout", "None") not in CHANNELS_FIRST
    ):
        return None
    return weight.shape[1]
