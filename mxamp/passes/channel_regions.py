"""Which tensors get more channels together: the layers that make them, and what carries them on."""

from __future__ import annotations

import math
from typing import AbstractSet, Iterator, Mapping, NamedTuple, Sequence

from mxamp.dtypes import DType
from mxamp.graph.components import components
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST, integers, is_true
from mxamp.params.parameter import Parameter
from mxamp.passes.drop_no_ops import does_nothing
from mxamp.passes.hard_swish import RewriteHardSwish
from mxamp.passes.state import State
from mxamp.passes.wide_windows import WIDE_WINDOW, exceeds_product, gains_in_float32, gains_though_wide
from mxamp.targets.image_layout import WIDEST_BLOCK
from mxamp.targets.layout import is_fused_clip, layout_writer

LAYERS = frozenset({"Convolution", "Deconvolution"})
_CARRIERS = frozenset(
    {
        "Activation",
        "BatchNorm",
        "Dropout",
        "LeakyReLU",
        "Pooling",
        "_copy",
        "broadcast_add",
        "broadcast_mul",
        "clip",
        "elemwise_add",
        "elemwise_mul",
        "hard_sigmoid",
    }
)
"""What computes each channel from the same channel of its inputs, whatever the others hold."""

_IMAGE = 4

_ALL_AXES = -2
"""By which Reshape keeps all axes that are left, as a 0 keeps one."""

TERMS = frozenset({"broadcast_add", "broadcast_mul", "elemwise_add", "elemwise_mul"})
_SLOW = frozenset({"broadcast_add", "broadcast_mul", "clip", "elemwise_mul", "hard_sigmoid"})
"""Carriers that are no kernels of oneDNN, but for a clip that MXNet makes a part of the layer before it:
each channel more costs them what another does, and but for :data:`_LITTLE` nobody measured whether layers
gain more. With such clips MobileNetV2 of width 0.75 takes 3.4 ms instead of 14.3 in float32 and 2.0 instead
of 8.6 in bfloat16, of width 0.25 0.86 instead of 3.2, and 0.66 instead of 1.27 (AMD EPYC of family 26, one
thread)."""

_FEW = 4
"""Up to so many input channels there are kernels that read an image as it is; above, the input must be whole
blocks as well. One thread, MXNet 1.9.1, Intel Xeon, float32 and bfloat16 with AMX, times as fast padded, the
slice included: 32 -> 3 channels, 9x9, 3.4 and 19; 32 -> 2, 1x1, 3.5 and 2.4; 256 -> 84, 3x3, 1.5 and 4.0;
64 -> 100, 3x3, 1.2 and 2.4; 728 -> 728, 1x1, 1.1 and 1.1; 120 -> 40, 1x1, no whole blocks, 0.2 and 0.7."""

_MUCH = 4 / 3
"""An image's 1 channel -> 20 (to 32), 5x5: 2.9 and 0.7 times as fast; 3 -> 10 (to 16): 1.2 and 1.0, 2.4 and
1.0 without a slice; 1 -> 100 (to 112), 3x300: 0.4 and 0.9."""

_PRODUCTS = (25, 120)
"""So many products a value outweigh the slice that what is read in plain order needs, of one block of
filters and of several. Times as fast padded, an image of 96 x 96 through a layer that is an output (Intel
Xeon without AMX, float32, one thread): 1 -> 10 (to 16), 3x3 0.67, 5x5 1.25; 3 -> 10, 3x3 1.2, 5x5 2.1; 1 ->
20 (to 32), 5x5 0.45, 7x7 0.73, 11x11 1.3; 3 -> 20, 3x3 0.42, 5x5 0.87, 7x7 1.25. Without a slice, before
another layer, both together are 0.9 to 2.4. Eights of filters, which float32 has kernels for, are 0.14 to 0.6
with a slice up to 5x5, and 0.85 to 0.99 without."""

_MUCH_WITH_SLOPES = 1.0
"""With a PReLU, which is a loop over values where channels fill no blocks: MTCNN's second stage, 3 -> 28 (to
32), takes 0.23 ms instead of 0.46 for eight images, 0.078 instead of 0.093 for one (float32, AMD EPYC)."""

_PIECE = 32
"""Filters that oneDNN's batches of small matrix products take at a time, of any even number of channels. One
thread, AMD EPYC (family 26), float32 and bfloat16, times as fast padded: 300 -> 100 (to 128), 3 of 56 words,
1.27 and 1.47, 5 words of eight texts 1.50 and 1.74; 300 -> 200 (to 224) 1.18 and 1.52; 50 -> 100 1.29 and
1.03; 301 -> 100 1.25 and 0.86; 100 -> 100, 28 x 28, 3x3, 1.59 and 1.36; 72 -> 100, 14 x 14, 1.17 and 1.44.
With 112 filters all of them are slower than with 100. Of one word, or pixel, 300 -> 100 is 1.05 and 0.85."""

_LITTLE = 1.12
"""So much more of what is slow pays where the gates of hard swishes are computed in blocks of channels, as in
MobileNetV3: 200, 184 and 88 become 208, 192 and 96. Its large and its small form are 1.04 and 1.03 times as
fast with them (bfloat16, AMD EPYC, one thread)."""

_SMALL_BLOCK = 8
"""In float32 oneDNN has blocks of eight channels as well, and its Concat keeps them; slices are plain, and so
is what is made of them. In a Ghost module 24 channels of 112 x 112 and as many made of them take 0.87 ms, and
with 32 and two slices 3.5 (an Intel Xeon, float32, one thread): GhostNet ran 0.84 of FP32."""

_TOO_MUCH = 2
"""An image to 8 channels and fewer was not measured. With depthwise layers, which are one plain matrix
product a channel where channels fill no blocks, it pays whatever the layers before read: 58 channels in
ShuffleNet v2, 44 and 22 in NASNet. Times as fast with it, one thread, AMD EPYC (family 26), float32 and
bfloat16: 1.6 and 1.4, of eight images 1.9 and 1.7; 1.5 and 1.4, of eight images 1.5 and 1.6."""

_FEW_PLACES = 400
"""Without AVX-512 all but the following gain by blocks of eight channels, whatever they grow by: 64 -> 100,
3x3, 28 x 28, is 1.7 times as fast, 3 -> 10, 3x3, 4.2, 1 -> 20, 5x5, 2.4, 64 -> 30, 1x1, 28 x 28, 2.0, the
slice included; 64 -> 12, 1x1, 7 x 7, 0.71, 512 -> 21, 14 x 14, 0.79 (AMD EPYC of family 23, one thread).
1x1 layers of fewer places do not, nor those that read plain planes, as of an input (64 -> 1, 112 x 112, 0.14;
64 -> 4, 56 x 56, 0.34; behind a layer 1.0), nor all wide windows (:mod:`mxamp.passes.wide_windows`)."""


class Region(NamedTuple):
    """Tensors that get more channels together, and what reads them."""

    channels: int
    padded: int
    members: Sequence[int]
    """The layers that make them, and what carries them on."""


class ChannelRegions:
    """Finds what can have more channels.

    Parameters
    ----------
    graph
        The graph.
    state
        What is known of it.
    """

    def __init__(self, graph: Graph, state: State) -> None:
        self.graph = graph
        self.state = state
        self.names = [FACTS.canonical(node.op) for node in graph.nodes]
        self.is_layer = [self._is_layer(position) for position in range(len(graph.nodes))]
        self._gates_in_blocks = RewriteHardSwish.step in state.target.rewrites
        self._block = state.target.block

    def regions(self) -> Iterator[Region]:
        """Yield the regions that are no whole blocks of channels, in graph order."""
        graph = self.graph
        for members, carried in self._joined():
            if all(graph.nodes[position].is_variable for position in members):
                continue
            makers = [position for position in members if position not in carried]
            if not all(self.is_layer[position] for position in makers):
                continue
            sizes = {self._rows(position) for position in makers}
            channels = sizes.pop()
            if sizes or channels % self._block == 0:
                continue
            if any(set(graph.uses[position]) - {0} for position in members):
                continue  # the statistics of a BatchNorm
            if any(head.output for head in graph.heads if head.node in members):
                continue
            yield Region(channels, -(-channels // self._block) * self._block, members)

    def _joined(self) -> Iterator[tuple[Sequence[int], AbstractSet[int]]]:
        """Yield the nodes that are joined by what is carried on, and the carriers among all nodes.

        A product of a region with what no layer makes does not keep the region from growing: it reads a
        slice. A sum does, for it is fused with the layer before it, and not behind a slice.
        """
        nodes = range(len(self.graph.nodes))
        tensors = {
            position: carried for position in nodes for carried in [self._carried(position)] if carried
        }
        found = components(nodes, tensors)
        apart = {
            position
            for members in found
            if not all(position in tensors or self.is_layer[position] for position in members)
            for position in members
            if position in tensors and self.names[position] in TERMS & _SLOW
        }
        for position in apart:
            del tensors[position]
        for members in components(nodes, tensors) if apart else found:
            yield members, tensors.keys()

    def paying(self, region: Region, wider: Mapping[int, int]) -> Region | None:
        """Return a region with whole blocks of channels, or pieces, where these are faster; else None.

        Parameters
        ----------
        region
            The region.
        wider
            Layer -> its input channels, where the region that it reads gets more.
        """
        in_pieces = region._replace(padded=-(-region.channels // _PIECE) * _PIECE)
        return next((one for one in (region, in_pieces) if self._pays(one, wider)), None)

    def _pays(self, region: Region, wider: Mapping[int, int]) -> bool:
        """Return whether more channels are faster, going by what was measured (:data:`_FEW`)."""
        growth = region.padded / region.channels
        sliced = [use for use in self.readers(region) if not self.takes(*use, region.channels)]
        is_head = any(position in self.state.heads for position in region.members)
        is_sliced = bool(sliced) or is_head
        gains_depthwise = growth < _TOO_MUCH and any(map(self._is_depthwise, region.members))
        rectifies = any(map(self._has_slopes, region.members))
        are_slices_small = not is_head and all(self._is_one_place(*use) for use in sliced)
        if region.channels % _SMALL_BLOCK == 0 and any(
            self.names[reader] == "Concat" for reader, _ in sliced
        ):
            return False
        for position in region.members:
            if self.names[position] == "Deconvolution" and is_sliced:
                return False  # 64 -> 3, 4x4: 0.94 of the whole generator in float32, 1.07 in bfloat16
            if self._is_slow(position) and not (self._gates_in_blocks and growth <= _LITTLE):
                return False
            if self._reads_one_place(position):
                return False
            if self.is_layer[position]:
                columns = wider.get(position, self._columns(position))
                if self._block < WIDEST_BLOCK:
                    if not self._fits_narrow(position, columns, region.channels) and not gains_depthwise:
                        return False
                    continue
                least = _MUCH_WITH_SLOPES if rectifies else _MUCH
                is_cut = is_sliced and not are_slices_small and not rectifies
                fits = columns % self._block == 0 or (
                    columns <= _FEW
                    and (
                        (least <= growth < _TOO_MUCH and self._outweighs(position, region.channels, is_cut))
                        or self._gains_by_window(position, region.channels)
                    )
                )
                in_pieces = are_slices_small and self._fits_in_pieces(position, columns, region)
                if not fits and not in_pieces and not gains_depthwise:
                    return False
        return True

    def _is_depthwise(self, position: int) -> bool:
        """Return whether a carrier is a depthwise layer of several places."""
        if self.names[position] != "Convolution" or self.is_layer[position]:
            return False
        weight = self.parameter_of(self.graph.nodes[position], 1)
        return weight is not None and math.prod(weight.shape[2:]) > 1

    def _has_slopes(self, position: int) -> bool:
        """Return whether a node is a PReLU, which whole blocks bring kernels of oneDNN's."""
        act_type = self.graph.nodes[position].attrs.get("act_type")
        return self.names[position] == "LeakyReLU" and act_type == "prelu"

    def _is_slow(self, position: int) -> bool:
        """Return whether a carrier is no kernel of oneDNN's, nor a part of one."""
        return self.names[position] in _SLOW and not is_fused_clip(self.graph, position)

    def _fits_narrow(self, position: int, columns: int, filters: int) -> bool:
        """Return whether a layer gains by whole blocks of channels without AVX-512 (:data:`_FEW_PLACES`)."""
        node = self.graph.nodes[position]
        weight = self.parameter_of(node, 1)
        assert weight is not None  # it is a layer
        window = math.prod(weight.shape[2:])
        written = self.state.usual_shape(Entry(position))
        if window == 1 and written is not None and math.prod(written[2:]) < _FEW_PLACES:
            return False
        if window == 1 and layout_writer(self.graph, node.inputs[0].node) is None:
            return False
        return columns % self._block == 0 or (
            columns < self._block
            and self.names[position] == "Convolution"
            and (
                window < WIDE_WINDOW
                or gains_though_wide(node, weight.shape, written, filters=filters, block=self._block)
            )
        )

    def _outweighs(self, position: int, filters: int, is_cut: bool) -> bool:
        """Return whether a layer over few channels gains more than what is cut off behind it costs."""
        if self._stays_float32 and filters % _SMALL_BLOCK == 0:
            return False
        weight = self.parameter_of(self.graph.nodes[position], 1)
        assert weight is not None  # it is a layer
        products = self._columns(position) * math.prod(weight.shape[2:])
        return not is_cut or products >= _PRODUCTS[filters > self._block]

    @property
    def _stays_float32(self) -> bool:
        """Whether layers stay FP32 on the target, for they are no faster in the low dtype."""
        cost = self.state.target.cost
        return cost is not None and cost.gain_of_products < 1

    def _gains_by_window(self, position: int, filters: int) -> bool:
        """Return whether a layer over few channels gains by whole blocks, since its window is wide."""
        node = self.graph.nodes[position]
        weight = self.parameter_of(node, 1)
        assert weight is not None  # it is a layer
        if self.names[position] != "Convolution":
            return False
        written = self.state.usual_shape(Entry(position))
        return exceeds_product(node, weight.shape, filters) or (
            self._stays_float32 and gains_in_float32(node, weight.shape, written, filters=filters)
        )

    def _fits_in_pieces(self, position: int, columns: int, region: Region) -> bool:
        """Return whether a layer of any number of channels gains by whole pieces of filters."""
        weight = self.parameter_of(self.graph.nodes[position], 1)
        return (
            weight is not None
            and self.names[position] == "Convolution"
            and math.prod(weight.shape[2:]) > 1
            and columns >= self._block
            and columns % 2 == 0
            and region.padded % _PIECE == 0
            and region.padded / region.channels <= _MUCH
        )

    def _is_one_place(self, reader: int, number: int) -> bool:
        """Return whether a node reads one value of each channel."""
        shape = self.state.usual_shape(self.graph.nodes[reader].inputs[number])
        return shape is not None and math.prod(shape[2:]) == 1

    def _is_same_for_all(self, term: Entry, position: int) -> bool:
        """Return whether a term has one channel where the result has several: weights of places."""
        shapes = self.state.usual_shape(term), self.state.usual_shape(Entry(position))
        channels = [shape[1] for shape in shapes if shape is not None and len(shape) > 2]
        return len(channels) == 2 and channels[0] == 1 < channels[1]

    def readers(self, region: Region) -> Iterator[tuple[int, int]]:
        """Yield what reads a region and does not carry it on: node and number of the input.

        That may be a layer of the region itself, where what it makes is added to what it reads.
        """
        members = set(region.members)
        for position in region.members:
            for use in self.graph.uses[position].get(0, ()):
                if use.node not in members or self.is_layer[use.node]:
                    yield use.node, use.input

    def takes(self, reader: int, number: int, channels: int) -> bool:
        """Return whether a reader outside can have columns of zeros for more channels."""
        if number != 0:
            return False
        node = self.graph.nodes[reader]
        if self.is_layer[reader]:
            return self._columns(reader) == channels
        if self.names[reader] == "FullyConnected":
            return self._takes_flat(reader, channels)
        flattens = self.names[reader] == "Flatten" or (
            self.names[reader] == "Reshape" and node.attrs.get("shape") in ("(0, -1)", "[0, -1]", "(0,-1)")
        )
        if not flattens or is_true(node.attrs, "reverse", default=False) or self.state.is_fixed(reader):
            return False
        uses = [use for places in self.graph.uses[reader].values() for use in places]
        return (
            bool(uses)
            and reader not in self.state.heads
            and all(use.input == 0 and self._takes_flat(use.node, channels) for use in uses)
        )

    def _takes_flat(self, position: int, channels: int) -> bool:
        if self.names[position] != "FullyConnected" or self.state.is_fixed(position):
            return False
        node = self.graph.nodes[position]
        weight = self.parameter_of(node, 1)
        return (
            is_true(node.attrs, "flatten", default=True)
            and weight is not None
            and len(weight.shape) == 2
            and weight.shape[1] % channels == 0
        )

    def _reads_one_place(self, position: int) -> bool:
        """Return whether a node reads what a global pooling makes: one value a channel is soon computed."""
        producer = self.graph.nodes[position].inputs[0].node
        return self.names[producer] == "_contrib_AdaptiveAvgPooling2D" or (
            self.names[producer] == "Pooling"
            and is_true(self.graph.nodes[producer].attrs, "global_pool", default=False)
        )

    def _rows(self, position: int) -> int:
        """Return the output channels of a layer."""
        weight = self.parameter_of(self.graph.nodes[position], 1)
        assert weight is not None  # it is a layer
        return weight.shape[1 if self.names[position] == "Deconvolution" else 0]

    def _columns(self, position: int) -> int:
        """Return the input channels of a layer."""
        weight = self.parameter_of(self.graph.nodes[position], 1)
        assert weight is not None  # it is a layer
        return weight.shape[0 if self.names[position] == "Deconvolution" else 1]

    def _is_layer(self, position: int) -> bool:
        """Return whether a node is a layer whose parameters can get rows and columns."""
        node = self.graph.nodes[position]
        return (
            self.names[position] in LAYERS
            and node.attrs.get("num_group", "1") == "1"
            and self._has_parameters(position)
        )

    def _has_parameters(self, position: int) -> bool:
        node = self.graph.nodes[position]
        weight = self.parameter_of(node, 1)
        return (
            weight is not None
            and len(weight.shape) > 2
            and node.attrs.get("layout", "None") in CHANNELS_FIRST
            and not self.state.is_fixed(position)
            and all(self.parameter_of(node, number) is not None for number in range(2, len(node.inputs)))
        )

    def parameter_of(self, node: Node, number: int) -> Parameter | None:
        """Return an input that is a dense float32 parameter."""
        if number >= len(node.inputs):
            return None
        entry = node.inputs[number]
        parameter = self.state.parameter(entry)
        if parameter is None or parameter.dtype is not DType.FLOAT32 or parameter.is_sparse:
            return None
        return None if entry.node in self.state.heads else parameter

    def _keeps_shape(self, node: Node) -> bool:
        """Return whether a Reshape is of those that other passes put in, which keep every axis."""
        sizes = integers(node.attrs.get("shape", "")) or ()
        places = self.state.places.get(node.inputs[0].node)
        is_whole = sizes == (_ALL_AXES,) or (places is not None and sizes == (0,) * (2 + places))
        return is_whole and not is_true(node.attrs, "reverse", default=False)

    def _carried(self, position: int) -> Sequence[int]:
        """Return the tensors whose channels a node carries on; none where it is no such node."""
        node, name = self.graph.nodes[position], self.names[position]
        if self.state.is_fixed(position, updating=False) or not node.inputs or node.inputs[0].output:
            return ()
        if name == "Convolution":
            groups = node.attrs.get("num_group", "1")
            if groups == "1" or groups != node.attrs.get("num_filter"):
                return ()
            # One filter a group alone says nothing of how many channels a group has.
            weight = self.parameter_of(node, 1) if self._has_parameters(position) else None
            return [node.inputs[0].node] if weight is not None and weight.shape[1] == 1 else ()
        if name == "Reshape":
            return [node.inputs[0].node] if self._keeps_shape(node) else ()
        if name not in _CARRIERS:
            return ()
        if position in self.state.heads and does_nothing(self.state, position, name):
            return ()  # with more channels it would be read by a slice, and another conversion took it out
        if name in TERMS:
            if any(entry.output for entry in node.inputs):
                return ()
            return [entry.node for entry in node.inputs if not self._is_same_for_all(entry, position)]
        if name == "BatchNorm":
            is_plain = (
                node.attrs.get("axis", "1") == "1"
                and not is_true(node.attrs, "output_mean_var", default=False)
                and all(self.parameter_of(node, number) is not None for number in range(1, 5))
            )
            return [node.inputs[0].node] if is_plain else ()
        if name == "Pooling" and node.attrs.get("layout", "None") not in CHANNELS_FIRST:
            return ()
        if len(node.inputs) > 1 and self.parameter_of(node, 1) is None:
            return ()
        return [node.inputs[0].node]
