"""Give convolutions whole blocks of channels, for which backends have their fast kernels."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Sequence

from mxamp.graph.graph import Entry, Graph, Node
from mxamp.params.padded import PaddedParameter
from mxamp.passes.channel_regions import LAYERS, TERMS, ChannelRegions, Region
from mxamp.passes.edit import GraphEdit, NodeShapes
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.records import PreparedNode
from mxamp.passes.state import Done, State

_ONES = frozenset({(1, "BatchNorm"), (4, "BatchNorm")})
"""Inputs that get ones: scale and variance of a BatchNorm. All others get zeros."""


class PadChannels(PreparationPass):
    """Add channels of zeros to convolutions, up to blocks of 16, and drop them where they would be seen.

    Before::

        x -> Convolution {num_filter: 20} -> Activation -> Pooling -> Convolution {num_filter: 64} -> y

    After::

        x -> Convolution {num_filter: 32} -> Activation -> Pooling -> Convolution {num_filter: 64} -> y

    where the first weight has 12 rows of zeros more, and the second 12 columns. What carries a tensor on
    channel by channel has more channels, too: activations, pooling, BatchNorm, depthwise convolutions, sums
    and products of two such tensors. A FullyConnected that reads the tensor flattened gets columns of zeros.
    Where a layer reads channels that are no whole blocks, its own go up to a multiple of 32. Before anything
    else the first channels are taken, and a graph output keeps its name::

        x -> Convolution {num_filter: 3} (y)     x -> Convolution {num_filter: 16} -> slice_axis {end: 3} (y)

    Refuses: what is grouped and not depthwise; layers whose parameters are not float32, or are inputs;
    tensors that are a sum with what comes from elsewhere; channels that are not the second axis; nodes that a
    rule of the user's picks; the bodies of control flow; and where it does not pay.

    Notes
    -----
    Why: oneDNN's kernels work on blocks of 16 channels. MXNet asks for them in every case, and where the
    channels do not fill blocks, oneDNN takes another kernel, in float32 and in bfloat16.
    :mod:`mxamp.passes.channel_regions` says what was measured.

    Every channel that was there is computed from the same products, and from zeros besides: what is finite
    stays the same up to the order in which the kernel sums. Where the input of a padded layer holds an
    infinity or NaN, an added channel is NaN there, and a layer that reads it without a slice has NaN in all
    its channels at that place; before, it had infinities or NaN in all channels as well, unless an activation
    made every one of them finite again.

    Linear in nodes and inputs.
    """

    step = "pad_channels"
    operators = LAYERS
    asks_target = True

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph with whole blocks of channels."""
        search = ChannelRegions(graph, state)
        regions = _paying(search)
        return _Rewrite(graph, state, search, regions, self.step).done() if regions else None


def _paying(search: ChannelRegions) -> Sequence[Region]:
    """Return the regions that are faster with more channels, all together.

    A layer that gains by a wider input does not where that stays as it is. So what reads a region is looked
    at again where that turns out to stay.
    """
    regions = dict(enumerate(search.regions()))
    number_of = {position: number for number, region in regions.items() for position in region.members}
    readers = {
        number: [reader for reader, place in search.readers(region) if place == 0]
        for number, region in regions.items()
    }
    wider = {reader: regions[number].padded for number, own in readers.items() for reader in own}
    waiting = deque(regions)
    while waiting:
        number = waiting.popleft()
        region = regions.get(number)
        paying = None if region is None else search.paying(region, wider)
        if paying == region:
            continue
        for reader in readers[number]:
            if paying is None:
                del wider[reader]
            else:
                wider[reader] = paying.padded
            if reader in number_of:
                waiting.append(number_of[reader])
        if paying is None:
            del regions[number]
        else:
            regions[number] = paying
    return list(regions.values())


class _Rewrite:
    """Builds the graph in which regions have whole blocks of channels."""

    def __init__(
        self, graph: Graph, state: State, search: ChannelRegions, regions: Sequence[Region], step: str
    ) -> None:
        self._graph = graph
        self._state = state
        self._search = search
        self._step = step
        self._region = {position: region for region in regions for position in region.members}
        self._added: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        """Node and number of the input that is a parameter -> axis -> entries that are added."""
        self._fill: dict[tuple[int, int], float] = {}
        self._sliced: set[tuple[int, int]] = set()
        """What reads a region after a slice: node and number of the input."""
        self._growing: dict[int, Region] = {}
        """What hands a region on to a FullyConnected, flattened."""
        for region in regions:
            self._widen(region)

    def done(self) -> Done:
        """Return the new graph and what was done."""
        graph = self._graph
        edit = GraphEdit(graph, self._state.params)
        wide: dict[int, Entry] = {}
        slices: dict[int, Entry] = {}
        changes = []
        for position, node in enumerate(graph.nodes):
            region = self._region.get(position)
            inputs = []
            for number, entry in enumerate(node.inputs):
                producer = self._region.get(entry.node)
                read = wide.get(entry.node, entry)
                if (position, number) in self._sliced:
                    assert producer is not None  # a slice is of a region
                    if entry.node not in slices:
                        name = f"{graph.nodes[entry.node].name}_channels"
                        slices[entry.node] = edit.insert(
                            _slice(name, read, producer.channels),
                            before=position,
                            shapes=self._shapes_of(entry.node),
                        )
                    read = slices[entry.node]
                if (position, number) in self._added:
                    read = self._padded(edit, position, number)
                inputs.append(read)
            made = node._replace(inputs=tuple(inputs))
            if region is None:
                growing = self._growing.get(position)
                if made.inputs != node.inputs or growing is not None:
                    edit.replace(position, made, shapes=growing and self._grown(position, growing))
                continue
            made, shapes = self._with_more_filters(position, made, region), self._grown(position, region)
            if position in self._state.heads:
                made = made._replace(name=f"{node.name}_padded")
                wide[position] = edit.insert(made, before=position, shapes=shapes)
                edit.replace(position, _slice(node.name, wide[position], region.channels))
                slices[position] = Entry(position)
            else:
                edit.replace(position, made, shapes=shapes)
            if self._search.is_layer[position]:
                reason = f"has {region.padded} channels for {region.channels}, the others are zeros"
                changes.append(PreparedNode(node.name, node.op, self._step, node.name, reason))
        return Done(edit.finish(), tuple(changes))

    def _widen(self, region: Region) -> None:
        """Note which parameters get more rows or columns, and what reads the region after a slice."""
        more = region.padded - region.channels
        for position in region.members:
            node, name = self._graph.nodes[position], self._search.names[position]
            for number in range(1, len(node.inputs) if name not in TERMS else 0):
                parameter = self._graph.nodes[node.inputs[number].node].name
                rows = 1 if name == "Deconvolution" and number == 1 else 0
                if name == "LeakyReLU":  # a slope a channel, or one for all
                    sizes = self._state.params[parameter].shape
                    if region.channels not in sizes:
                        continue
                    rows = sizes.index(region.channels)
                self._added[position, number][rows] = more
                self._fill[position, number] = 1.0 if (number, name) in _ONES else 0.0
        for reader, number in self._search.readers(region):
            if not self._search.takes(reader, number, region.channels):
                self._sliced.add((reader, number))
                continue
            layers = [reader]
            if self._search.names[reader] in ("Flatten", "Reshape"):
                self._growing[reader] = region
                layers = [use.node for use in self._graph.uses[reader][0]]
            for layer in layers:
                weight = self._graph.nodes[layer].inputs[1].node
                size = self._state.params[self._graph.nodes[weight].name].shape[1]
                if self._search.names[layer] == "FullyConnected":
                    self._added[layer, 1][1] = more * (size // region.channels)
                else:
                    self._added[layer, 1][0 if self._search.names[layer] == "Deconvolution" else 1] = more

    def _padded(self, edit: GraphEdit, position: int, number: int) -> Entry:
        """Return a parameter with what is added; one that others read as it is, or otherwise, is another."""
        entry = self._graph.nodes[position].inputs[number]
        name = self._graph.nodes[entry.node].name
        added, fill = self._added[position, number], self._fill.get((position, number), 0.0)
        padded = PaddedParameter(self._state.params[name], added, fill)
        if len(self._graph.uses_of(entry)) == 1:
            edit.change_parameter(entry.node, padded)
            return entry
        key = (entry, tuple(sorted(added.items())), fill)
        return edit.once(key, lambda: edit.add_parameter(f"{name}_padded", padded, (name,), before=position))

    def _with_more_filters(self, position: int, node: Node, region: Region) -> Node:
        if "num_filter" not in node.attrs:
            return node
        attrs = {**node.attrs, "num_filter": str(region.padded)}
        if not self._search.is_layer[position]:
            attrs["num_group"] = str(region.padded)
        return node._replace(attrs=attrs)

    def _shapes_of(self, position: int) -> NodeShapes | None:
        shape = self._state.usual_shape(Entry(position))
        return None if shape is None else (shape,)

    def _grown(self, position: int, region: Region) -> NodeShapes | None:
        """Return the shapes of a node's outputs with the channels added."""
        outputs = [
            self._state.usual_shape(Entry(position, number))
            for number in range(self._graph.nodes[position].num_outputs)
        ]
        grown: list[tuple[int, ...] | None] = []
        for shape in outputs:
            if shape is None:
                grown.append(None)
                continue
            axis = min(1, len(shape) - 1)
            size = shape[axis] // region.channels * region.padded
            grown.append((*shape[:axis], size, *shape[axis + 1 :]))
        return tuple(grown)


def _slice(name: str, entry: Entry, channels: int) -> Node:
    """Return the node that takes the first channels."""
    return Node("slice_axis", name, {"axis": "1", "begin": "0", "end": str(channels)}, (entry,))
