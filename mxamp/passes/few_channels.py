"""Let layers read a few channels for themselves, which others that fill blocks were joined with."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple, Sequence

from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass, float32_image_layer, own_attributes
from mxamp.passes.state import Done, State
from mxamp.passes.wide_windows import WIDE_WINDOW

_FEWEST_PRODUCTS = 1 << 20
"""Multiply-adds; layers of fewer were not timed."""

_MOST_GROUPS = 3
_IMAGE = 4


class _Group(NamedTuple):
    """Parts that stay together, and which channels of all they are."""

    parts: Sequence[Entry]
    first: int
    channels: int


class SeparateFewChannels(PreparationPass):
    """Replace a convolution of blocks of channels and a few by the sum of one of blocks and one of the few.

    Before::

        x (32 channels), y (16), z (3) -> Concat -> Convolution(weight of 51 channels, bias) (name)

    After::

        x, y -> Concat -> Convolution(weight of the first 48, bias) -> u
        z -> Convolution(weight of the last 3) -> elemwise_add(u) (name)

    What is joined may be parameters, as coordinates of places are.

    Refuses: where the channels of more than one part are not known for every call; parts that fill no
    blocks of channels and have as many as one or more; more than three groups; layers in groups, of channels
    last or with windows of 81 places and more, or less than a million multiply-adds; other dtypes than
    float32; a node that a rule of the user's picks; targets that do not name the pass; the bodies of control
    flow. The layer may be a graph output, for its name stays.

    Notes
    -----
    Why: none of oneDNN's kernels for blocks takes such a layer, so it is a plain matrix product. 32 channels
    and one, 1x1 to 128 of 192 x 192, take 33.8 ms and 9.1 so, 64 and 4, 3x3 to 128 of 64 x 64, 13.2 and 7.3,
    32 and 6, 3x3 to 16 of 14 x 14, 0.19 and 0.10; of 26 such none gains less than 1.46 (AMD EPYC of family
    23, float32, one thread). Where channels of zeros are joined to the few, up to a block, it is less.
    Coordinates of places are joined to images so (Liu et al., "An intriguing failing of convolutional neural
    networks and the CoordConv solution", 2018), and decoders join the image that came in.

    The terms of each sum come in another order, that of the groups. Linear in nodes.
    """

    step = "few_channels"
    operators = frozenset({"Concat", "concat"})
    asks_target = True

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph in which layers read groups of channels."""
        edit = GraphEdit(graph, state.params)
        changes = []
        for position, node in enumerate(graph.nodes):
            if FACTS.canonical(node.op) != "Concat" or state.is_fixed(position):
                continue
            uses = graph.uses_of(Entry(position))
            layers = [
                use.node for use in uses if use.input == 0 and _separate(state, edit, position, use.node)
            ]
            reason = "a few channels are read for themselves, and the others in blocks"
            changes += [self.changed(graph.nodes[layer], reason) for layer in layers]
            if layers and len(layers) == len(uses) and position not in state.heads:
                edit.drop(position)
                into = graph.nodes[layers[0]].name
                changes.append(self.changed(node, "its readers read what it joined", into=into))
        return Done(edit.finish(), tuple(changes)) if changes else None


def _separate(state: State, edit: GraphEdit, concat: int, position: int) -> bool:
    """Let one layer read groups of what is joined; return whether it does."""
    node, weight = state.graph.nodes[position], _weight(state, position)
    layer = None if weight is None else float32_image_layer(state, position)
    groups = None if weight is None else _groups(state, state.graph.nodes[concat], weight.shape[1])
    if weight is None or layer is None or groups is None:
        return False
    written = layer.written
    if math.prod(written) * math.prod(weight.shape[1:]) < _FEWEST_PRODUCTS:
        return False
    total: Entry | None = None
    for number, group in enumerate(groups):
        data = _joined(state, edit, concat, group)
        own = _cut(state, edit, node.inputs[1], weight, group, position)
        attrs = node.attrs if total is None else {**node.attrs, "no_bias": "True"}
        inputs = (data, own, *(node.inputs[2:] if total is None else ()))
        own_sum = edit.part(position, "Convolution", f"group{number}", *inputs, like=written, **attrs)
        if total is None:
            total = own_sum
        elif number + 1 < len(groups):
            total = edit.part(position, "elemwise_add", f"sum{number}", own_sum, total, like=written)
        else:
            added = Node("elemwise_add", node.name, own_attributes(node), (own_sum, total))
            edit.replace(position, added._replace(control_deps=node.control_deps))
    return True


def _weight(state: State, position: int) -> Parameter | None:
    """Return the weight of a layer that is no layer in groups, and whose window is not wide; else None."""
    node = state.graph.nodes[position]
    if FACTS.canonical(node.op) != "Convolution" or state.is_fixed(position):
        return None
    weight = state.parameter(node.inputs[1])
    if weight is None or weight.is_sparse or node.attrs.get("num_group", "1") != "1":
        return None
    return weight if math.prod(weight.shape[2:]) < WIDE_WINDOW else None


def _groups(state: State, concat: Node, total: int) -> Sequence[_Group] | None:
    """Return the parts that fill blocks, and those that are few; None where there are not both, or others."""
    block = state.target.block
    if concat.attrs.get("dim", "1") != "1":
        return None
    known = [_channels(state, part) for part in concat.inputs]
    left = total - sum(size for size in known if size is not None)
    if known.count(None) > 1 or left < 0:
        return None
    sizes = [left if size is None else size for size in known]
    groups, first = [], 0
    for is_whole, own in itertools.groupby(zip(concat.inputs, sizes), lambda one: one[1] % block == 0):
        parts, channels = zip(*own)
        if not is_whole and sum(channels) >= block:
            return None
        groups.append(_Group(parts, first, sum(channels)))
        first += sum(channels)
    return groups if 1 < len(groups) <= _MOST_GROUPS and first == total else None


def _channels(state: State, part: Entry) -> int | None:
    """Return the channels of an image in every call; None where they are not known."""
    sizes = state.axis_sizes.of(part)
    if sizes is None or len(sizes) != _IMAGE:
        return None
    return size if isinstance(size := sizes[1], int) else None


def _joined(state: State, edit: GraphEdit, position: int, group: _Group) -> Entry:
    """Return the parts of a group, joined once for all layers that read them."""
    if len(group.parts) == 1:
        return group.parts[0]
    concat, shape = state.graph.nodes[position], state.usual_shape(Entry(position))
    like = None if shape is None else (shape[0], group.channels, *shape[2:])
    attrs = {**concat.attrs, "num_args": str(len(group.parts))}

    def join() -> Entry:
        return edit.part(position, "Concat", f"from{group.first}", *group.parts, like=like, **attrs)

    return edit.once((position, group.first), join)


def _cut(
    state: State, edit: GraphEdit, weight: Entry, parameter: Parameter, group: _Group, reader: int
) -> Entry:
    """Return the columns of a weight for the channels of a group, once for all layers that share it."""
    name = state.graph.nodes[weight.node].name

    def cut() -> Entry:
        columns = parameter.values()[:, group.first : group.first + group.channels]
        own = ArrayParameter(columns.copy())
        return edit.add_parameter(f"{name}_from{group.first}", own, [name], before=reader)

    return edit.once((weight, group.first, group.channels), cut)
