"""Let layers over images of one column read rows."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple, Sequence

from mxamp.dtypes import DType
from mxamp.graph.components import components
from mxamp.graph.graph import Entry, Graph, Node, Use
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST, integers, is_true
from mxamp.params.rearranged import RearrangedParameter
from mxamp.passes.edit import GraphEdit, NodeShapes
from mxamp.passes.explicit_padding import LEAST_PADDED
from mxamp.passes.full_width import along_axis
from mxamp.passes.move_transposes import TOGETHER, is_of_each_value
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.sequences import AS_IMAGE
from mxamp.passes.state import Done, State
from mxamp.targets.image_layout import WIDEST_BLOCK, pads_by_itself

_LAYERS = frozenset({"Convolution", "Deconvolution"})

_IMAGE = 4
"""Axes of a batch of images."""

_COLUMN, _ROW = 2, 3
"""The axis along which a column lies, and a row."""

_SWAPPED = (0, 1, _ROW, _COLUMN)

_LAST = ((_ROW,), (-1,))
"""What is said of the last axis of images alone."""

_OF_EACH_PLACE = ("kernel", "stride", "pad", "dilate", "adj")
"""Attributes that say something of the axes of places."""

_PRODUCT_NS, _VALUE_NS = 0.04, 1.0
"""What is gained for each product that is summed, and for each value that is written, where a window goes
along the column. Of a Deconvolution's products less is."""

_RESHAPE_NS, _MOVED_NS = 4000.0, 0.4
"""What a Reshape takes, and more for each of its values, which may have to be brought out of blocks."""


class _Region(NamedTuple):
    """Nodes that read rows together.

    Attributes
    ----------
    members
        Their positions.
    made
        The ``expand_dims`` that make columns of sequences for them alone.
    read
        The other columns that they read.
    seen
        Members whose column others read, and where.
    taken
        What reads rows in their place without being one of them.
    """

    members: Sequence[int]
    made: Sequence[int]
    read: Sequence[Entry]
    seen: Sequence[tuple[int, Sequence[Use]]]
    taken: Sequence[int]


class RewriteColumns(PreparationPass):
    """Replace layers over images that are one place wide by layers over images that are one place high.

    Before::

        x (batch, 64, 500, 1) -> Convolution {kernel: (5, 1), pad: (2, 0)} -> Activation -> Convolution -> y

    After::

        x -> Reshape {shape: (0, 0, 1, -1)} -> Convolution {kernel: (1, 5), pad: (0, 2)} -> Activation
          -> Convolution -> Reshape {shape: (0, 0, -1, 1)} -> y

    What stands between such layers, or behind them, has its places in a row as well: activations, BatchNorm,
    Pooling, Pad, sums and products of two tensors, Concat and slices along the channels. One value a channel
    and what reads its values one behind another need no Reshape, and an ``expand_dims`` or a ``squeeze``
    between images and sequences is told of the other axis.

    Refuses: where it is not certain that the image is one place wide in every call, as it is behind an
    ``expand_dims``, a Reshape that says so, or a layer that makes it so; windows that are wider, and padding
    there; channels last; weights that are not dense float32, or that other nodes read; graph outputs; where
    it does not pay, as where a layer would have more padding than kernels add to rows and is too small for a
    Pad, or no shape is known; numpy's shape semantics; nodes that a rule of the user's picks; targets that
    do not name the pass; the bodies of control flow.

    Notes
    -----
    Why: oneDNN's kernels compute some places of a row at once with each weight that they read, and such a
    row has one. 256 channels of 512 x 1 to 512, 5x1, take 31.7 ms, and so 6.9, 64 of 128 x 1 to 64, 3x1,
    0.24 and 0.08, of eight images 1.69 and 0.36; depthwise layers and Deconvolutions gain less, 1x1 layers
    and poolings nothing. What is gained must be more than what the Reshapes take: of 200 random networks of
    one to three layers 165 change, and are 1.69 times as fast in the geometric mean, and none was slower
    when measured again (AMD EPYC of family 23, float32, one thread, the Reshapes included). With AVX-512 32
    other networks run 2.5 times as fast in float32, 35 in bfloat16 1.17 times, and none slower (an Intel Xeon
    without AMX, one thread); but depthwise layers on their own run 0.9 to 1.1 there, and are turned only with
    others. Models have such layers that were built with layers of one dimension and read from other formats.

    The same products are summed, in the order of another kernel. Linear in nodes and uses.
    """

    step = "columns"
    operators = _LAYERS
    asks_target = True

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph in which such images are rows."""
        if graph.has_numpy_shapes:
            return None
        edit, changes = GraphEdit(graph, state.params), []
        for region in _regions(state):
            if not _pays(state, region):
                continue
            _turn(state, edit, region)
            reason = "its image is one place wide, and rows are computed faster than columns"
            layers = [graph.nodes[position] for position in region.members if _is_layer(state, position)]
            changes += [self.changed(node, reason) for node in layers]
        return Done(edit.finish(), tuple(changes)) if changes else None


def _regions(state: State) -> Sequence[_Region]:
    """Return the nodes that can read rows, by what they hand on to each other.

    What works value by value, or along the column, stays what it is in front of the first layer: it may be a
    part of a layer that cannot read rows, and find blocks of channels there.
    """
    joined: dict[int, Sequence[int]] = {}
    for position in range(len(state.graph.nodes)):
        columns = _columns(state, position)
        inside = [entry.node for entry in columns if entry.node in joined]
        if columns and (inside or _is_layer(state, position)):
            joined[position] = inside
    return [_region(state, members) for members in components(list(joined), joined)]


def _region(state: State, members: Sequence[int]) -> _Region:
    uses, own = state.graph.uses, set(members)
    read = dict.fromkeys(
        entry
        for position in members
        for entry in _columns(state, position)
        if entry.node not in own and not _is_one_place(state, entry)
    )
    made = {entry for entry in read if _makes_column(state, entry, own)}
    seen, taken = [], []
    for position in members:
        if _is_one_place(state, Entry(position)):
            continue
        others = [use for use in uses[position][0] if use.node not in own]
        taken += [use.node for use in others if _takes_rows(state, use)]
        left = [use for use in others if not _takes_rows(state, use)]
        if left:
            seen.append((position, left))
    columns = [entry for entry in read if entry not in made]
    return _Region(members, sorted(entry.node for entry in made), columns, seen, taken)


def _columns(state: State, position: int) -> Sequence[Entry]:
    """Return the columns that a node reads which can read rows as well; none for other nodes."""
    node = state.graph.nodes[position]
    if (
        node.is_variable
        or position in state.heads
        or set(state.graph.uses[position]) != {0}
        or state.is_fixed(position, updating=False)
        or not _is_column(state, Entry(position))
    ):
        return ()
    columns = node.inputs if _is_of_many(node) else node.inputs[:1]
    is_taken = _is_layer(state, position) or _takes_any_order(state, node)
    return columns if is_taken and all(_is_column(state, entry) for entry in columns) else ()


def _is_of_many(node: Node) -> bool:
    return FACTS.canonical(node.op) in TOGETHER | {"Concat"}


def _is_layer(state: State, position: int) -> bool:
    """Return whether a node is a layer whose window is one place wide."""
    node = state.graph.nodes[position]
    if FACTS.canonical(node.op) not in _LAYERS or "target_shape" in node.attrs or len(node.inputs) < 2:
        return False
    weight = state.own_parameter(node.inputs[1])
    return (
        weight is not None
        and len(weight.shape) == _IMAGE
        and weight.shape[_ROW] == 1
        and _keeps_width(node)
        and along_axis(node, "adj", _ROW, 0) == 0
        and state.certain_dtypes[position][0] is DType.FLOAT32
    )


def _keeps_width(node: Node) -> bool:
    """Return whether a window one place wide goes along columns."""
    return (
        node.attrs.get("layout", "None") in CHANNELS_FIRST
        and along_axis(node, "kernel", _ROW, 0) == 1
        and along_axis(node, "pad", _ROW, 0) == 0
        and all(along_axis(node, name, _ROW, 1) is not None for name in ("stride", "dilate"))
    )


def _takes_any_order(state: State, node: Node) -> bool:
    """Return whether a node that is no layer does to rows what it does to columns."""
    op = FACTS.canonical(node.op)
    if op in ("BatchNorm", "slice_axis"):
        return node.attrs.get("axis", "1") == "1"
    if op == "Concat":
        return node.attrs.get("dim", "1") == "1"
    if op == "LeakyReLU" and node.attrs.get("act_type") == "prelu":
        slopes = state.parameter(node.inputs[1])
        return slopes is not None and len(slopes.shape) == 1
    if op == "Pad":
        widths = integers(node.attrs.get("pad_width", "")) or ()
        return len(widths) == 2 * _IMAGE and not any(widths[2 * _ROW :])
    if op == "Pooling":
        is_global = is_true(node.attrs, "global_pool", default=False)
        return _keeps_width(node) or (is_global and node.attrs.get("layout", "None") in CHANNELS_FIRST)
    return op in TOGETHER or is_of_each_value(node)


def _is_column(state: State, entry: Entry) -> bool:
    """Return whether an image is one place wide in every call."""
    sizes = state.axis_sizes.of(entry)
    return sizes is not None and len(sizes) == _IMAGE and sizes[_ROW] == 1


def _is_one_place(state: State, entry: Entry) -> bool:
    """Return whether a column is one place high in every call, and a row as it is."""
    sizes = state.axis_sizes.of(entry)
    return sizes is not None and sizes[_COLUMN] == 1


def _makes_column(state: State, entry: Entry, members: set[int]) -> bool:
    """Return whether an ``expand_dims`` makes a column of a sequence, and for some nodes alone."""
    node = state.graph.nodes[entry.node]
    return (
        FACTS.canonical(node.op) == "expand_dims"
        and integers(node.attrs.get("axis", "")) in _LAST
        and entry.node not in state.heads
        and not state.is_fixed(entry.node)
        and all(use.node in members for use in state.graph.uses_of(entry))
    )


def _takes_rows(state: State, use: Use) -> bool:
    """Return whether a reader makes of a row what it makes of a column, or can be told to."""
    node = state.graph.nodes[use.node]
    op = FACTS.canonical(node.op)
    if use.input != 0:
        return False
    if op == "squeeze":
        return integers(node.attrs.get("axis", "")) in _LAST and not state.is_fixed(use.node)
    if op == "Reshape":  # which may keep batch and channels
        codes = integers(node.attrs.get("shape", "")) or ()
        kept = next((axis for axis, code in enumerate(codes) if code), len(codes))
        is_read_forwards = not is_true(node.attrs, "reverse", default=False)
        says_rest = kept < len(codes) and all(code > 0 or code == -1 for code in codes[kept:])
        return is_read_forwards and kept <= _COLUMN and says_rest
    return op == "Flatten" or (op == "FullyConnected" and is_true(node.attrs, "flatten", default=True))


def _pays(state: State, region: _Region) -> bool:
    """Return whether more is gained than what the Reshapes take; False where shapes are not known."""
    taken = 0.0
    for entry in (*region.read, *(Entry(position) for position, _ in region.seen)):
        shape = state.usual_shape(entry)
        if shape is None:
            return False
        taken += _RESHAPE_NS + _MOVED_NS * math.prod(shape)
    return sum([_gained(state, position) for position in region.members]) > taken


def _gained(state: State, position: int) -> float:
    """Return how many ns less a node takes over rows."""
    node = state.graph.nodes[position]
    op, written = FACTS.canonical(node.op), state.usual_shape(Entry(position))
    if op not in _LAYERS or written is None or not written[_COLUMN]:
        return 0.0
    weight = state.params[state.graph.nodes[node.inputs[1].node].name].shape
    products = math.prod(weight[1:]) if op == "Convolution" else 0
    is_depthwise = node.attrs.get("num_group", "1") == node.attrs.get("num_filter")
    is_narrow = state.target.block < WIDEST_BLOCK
    if (
        weight[_COLUMN] == 1
        or (is_depthwise and not is_narrow)
        or (is_narrow and _wants_padding(node, products, written, is_depthwise=is_depthwise))
    ):
        return 0.0
    # The first place of a row is as fast as the one of a column.
    values = math.prod(written) * (1 - 1 / written[_COLUMN])
    return values * (_VALUE_NS + _PRODUCT_NS * products)


def _wants_padding(node: Node, products: int, written: tuple[int, ...], *, is_depthwise: bool) -> bool:
    """Return whether a layer cannot add to rows what it adds to columns, and is too small for a Pad."""
    return (
        FACTS.canonical(node.op) == "Convolution"
        and not pads_by_itself(_turned(node).attrs, is_depthwise=is_depthwise)
        and products * math.prod(written) < LEAST_PADDED
    )


def _turn(state: State, edit: GraphEdit, region: _Region) -> None:
    """Let the nodes of a region read and write rows."""
    graph, read = state.graph, set(region.read)
    for position in region.made:
        edit.replace(
            position, _along_column(graph, position), shapes=_shapes(state, position, is_turned=True)
        )
    for position in region.taken:
        if FACTS.canonical(graph.nodes[position].op) == "squeeze":
            edit.replace(position, _along_column(graph, position))
    for position in region.members:
        node = graph.nodes[position]
        inputs = list(node.inputs)
        for number, entry in enumerate(_columns(state, position)):
            if entry in read:
                inputs[number] = edit.once(entry, partial(_put_row, state, edit, position, entry))
        if _is_layer(state, position):
            weight = graph.nodes[node.inputs[1].node].name
            parameter = state.params[weight]
            shape = [parameter.shape[axis] for axis in _SWAPPED]
            edit.change_parameter(node.inputs[1].node, RearrangedParameter(parameter, _SWAPPED, shape))
        turned = _turned(node)._replace(inputs=tuple(inputs))
        edit.replace(position, turned, shapes=_shapes(state, position, is_turned=True))
    for position, uses in region.seen:
        behind = Node(
            "Reshape",
            f"{graph.nodes[position].name}_column",
            {"shape": "(0, 0, -1, 1)"},
            (Entry(position),),
        )
        column = edit.insert(behind, after=position, shapes=_shapes(state, position)[:1])
        for use in uses:
            edit.connect(use, column)


def _along_column(graph: Graph, position: int) -> Node:
    """Return a node that puts the other axis of places in, or takes it out."""
    node = graph.nodes[position]
    return node._replace(attrs={**node.attrs, "axis": str(_COLUMN)})


def _put_row(state: State, edit: GraphEdit, position: int, entry: Entry) -> Entry:
    """Put a row behind what makes a column: readers in other regions may come before this one."""
    shape = state.usual_shape(entry)
    like = None if shape is None else tuple([shape[axis] for axis in _SWAPPED])
    name = f"{state.graph.nodes[entry.node].name}_row"
    row = Node("Reshape", name, AS_IMAGE, (entry,))
    return edit.insert(row, after=entry.node, origin=position, shapes=(like,))


def _turned(node: Node) -> Node:
    """Return a node whose attributes say of rows what they said of columns."""
    attrs = dict(node.attrs)
    for name in _OF_EACH_PLACE:
        given = integers(attrs.get(name, "()"))
        if given and len(given) == _IMAGE - 2:
            attrs[name] = f"({given[1]}, {given[0]})"
    if FACTS.canonical(node.op) == "Pad":
        widths = integers(attrs["pad_width"]) or ()
        moved = [widths[2 * axis + end] for axis in _SWAPPED for end in (0, 1)]
        attrs["pad_width"] = f"({', '.join(map(str, moved))})"
    return node._replace(attrs=attrs)


def _shapes(state: State, position: int, *, is_turned: bool = False) -> NodeShapes:
    """Return the shapes of a node's outputs, the first as a row."""
    found: list[tuple[int, ...] | None] = []
    for output in range(state.graph.nodes[position].num_outputs):
        shape = state.usual_shape(Entry(position, output))
        if shape is not None and is_turned and not output:
            shape = tuple([shape[axis] for axis in _SWAPPED])
        found.append(shape)
    return tuple(found)
