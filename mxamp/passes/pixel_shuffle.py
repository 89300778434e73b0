"""Bring channels into rows and columns, and these into channels, with axes that are cheap to swap."""

from __future__ import annotations

import math
from typing import NamedTuple

from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.pixel_unshuffle import unshuffle, write_unshuffle
from mxamp.passes.preparation import PreparationPass, own_attributes
from mxamp.passes.state import Done, State

_FEW_VALUES = 16_384
"""Of fewer, more operators cost as much as they save."""

_AXES = (0, 1, 4, 2, 5, 3)
_MERGES = (0, 0, -3, -3)


class _Shuffle(NamedTuple):
    """Channels that become rows and columns."""

    source: Entry
    channels: int
    """Those of the result."""

    rows: int
    columns: int
    """How many of each one pixel's channels become."""

    is_channel_first: bool
    """Whether the channel that a value goes to is the slower of what its own channel says (PixelShuffle)."""

    inner: tuple[int, ...] = ()
    """Nodes that nothing else reads."""


class RewritePixelShuffle(PreparationPass):
    """Replace a shuffle of pixels, which moves six axes at once, by two transposes of four.

    Before, as Gluon's PixelShuffle2D writes it, with factors r and s::

        x -> Reshape {shape: (0, -4, -1, r*s, 0, 0)} -> Reshape {shape: (0, 0, -4, r, s, 0, 0)}
          -> transpose {axes: (0, 1, 4, 2, 5, 3)} -> Reshape {shape: (0, 0, -3, -3)} -> y

    After, with C channels of y::

        x -> Reshape {shape: (-1, r*s, 0, 0)} -> transpose {axes: (0, 2, 1, 3)}
          -> Reshape {shape: (0, -1, s, 0)} -> transpose {axes: (0, 1, 3, 2)}
          -> Reshape {shape: (-4, -1, C, 0, -3)} -> y

    Likewise ``depth_to_space``, which orders its channels otherwise.

    Before, the way back, with b rows and columns::

        x -> space_to_depth {block_size: b} -> y

    After::

        x -> Reshape {shape: (0, -3, -4, -1, b)} -> transpose {axes: (0, 1, 3, 2)}
          -> Reshape {shape: (0, -1, b*b, 0)} -> transpose {axes: (0, 2, 1, 3)} (whole)
        x -> Reshape {shape: (0, 0, -4, -1, b, 0)} (origin)
        whole, origin -> reshape_like {lhs_begin: 2, lhs_end: 3, rhs_begin: 1, rhs_end: 3}
          -> Reshape {shape: (0, -3, 0, 0)} -> y

    Where the channels are known one Reshape tells them. Likewise a Concat of all slices of every b-th row and
    column, by rows or by columns first, as YOLOv5 and YOLOX begin.

    Refuses: where the channels that become rows are not known, or x has fewer than 16,384 values (2,048 on
    the way back); where a value in between is read elsewhere or is an output; slices in another order, or
    that end before the image does; numpy's shape semantics, where numbers below 0 mean something else; a node
    that a rule of the user's picks; targets that do not name the pass; the bodies of control flow. The last
    node may be a graph output, for its name stays.

    Notes
    -----
    Why: MXNet works out for each value where it comes from once there are more than four axes. From 9
    channels of 224 x 224 to one of 672 x 672, as super resolution ends, PixelShuffle2D takes 3.5 ms and this
    form 0.8, ``depth_to_space`` 4.9 and 0.9 (AMD EPYC, one thread). Slices with steps are copied value by
    value as well. Of 3 channels of 416 x 416 ``space_to_depth`` takes 14.2 ms, the slices and their Concat
    2.1, and this form 0.5 (AMD EPYC of family 23, float32, one thread).

    Values are moved and nothing else. Linear in nodes.
    """

    step = "pixel_shuffle"
    operators = frozenset({"Reshape", "reshape", "depth_to_space", "space_to_depth", "Concat", "concat"})
    asks_target = True

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph with transposes of four axes."""
        if graph.has_numpy_shapes:
            return None
        edit, changes = GraphEdit(graph, state.params), []
        for position, node in enumerate(graph.nodes):
            if node.op not in self.operators or state.is_fixed(position):
                continue
            shuffle, back = _shuffle(state, position), unshuffle(state, position)
            if shuffle is not None and not _is_small(state.shape(shuffle.source)):
                _write(state, edit, position, shuffle)
                source, inner = shuffle.source, shuffle.inner
            elif back is not None:
                write_unshuffle(state, edit, position, back)
                source, inner = back.source, back.inner
            else:
                continue
            reason = "two transposes of four axes move the same values, and faster"
            for each in inner:
                edit.drop(each, source)
                changes.append(self.changed(graph.nodes[each], reason, into=node.name))
            changes.append(self.changed(node, reason))
        return Done(edit.finish(), tuple(changes)) if changes else None


def _is_small(shape: tuple[int, ...] | None) -> bool:
    return shape is not None and (len(shape) != len(_MERGES) or math.prod(shape) < _FEW_VALUES)


def _write(state: State, edit: GraphEdit, position: int, shuffle: _Shuffle) -> None:
    """Put a shuffle in place of the node that ends it."""
    node, sizes = state.graph.nodes[position], _sizes(state.shape(shuffle.source), shuffle)
    if shuffle.is_channel_first:
        split = (-1, shuffle.rows * shuffle.columns, 0, 0)
        joined = (-4, -1, shuffle.channels, 0, -3)
    else:
        split = (0, shuffle.rows * shuffle.columns, -1, 0)
        joined = (0, -4, shuffle.channels, -1, -3)
    entry = shuffle.source
    steps = (
        ("Reshape", "split", {"shape": str(split)}),
        ("transpose", "rows", {"axes": "(0, 2, 1, 3)"}),
        ("Reshape", "lines", {"shape": str((0, -1, shuffle.columns, 0))}),
        ("transpose", "columns", {"axes": "(0, 1, 3, 2)"}),
    )
    for (op, what, attrs), size in zip(steps, sizes):
        made = Node(op, f"{node.name}_{what}", attrs, (entry,))
        entry = edit.insert(made, before=position, shapes=(size,))
    attrs = {**own_attributes(node), "shape": str(joined)}
    edit.replace(position, node._replace(op="Reshape", attrs=attrs, inputs=(entry,)))


def _sizes(shape: tuple[int, ...] | None, shuffle: _Shuffle) -> list[tuple[int, ...] | None]:
    """Return the shapes on the way."""
    if shape is None:
        return [None] * 4
    batch, _, height, width = shape
    within = shuffle.rows * shuffle.columns
    if shuffle.is_channel_first:
        outer, lines = batch * shuffle.channels, height
    else:
        outer, lines = batch, shuffle.channels * height
    tall = lines * shuffle.rows
    return [
        (outer, within, lines, width),
        (outer, lines, within, width),
        (outer, tall, shuffle.columns, width),
        (outer, tall, width, shuffle.columns),
    ]


def _shuffle(state: State, position: int) -> _Shuffle | None:
    """Return the shuffle that a node ends; None where it ends none, or not certainly."""
    graph, node = state.graph, state.graph.nodes[position]
    if FACTS.canonical(node.op) == "depth_to_space":
        block = integers(node.attrs.get("block_size", ""))
        if block is None or len(block) != 1 or block[0] < 1:
            return None
        return _of(state, node.inputs[0], block[0], block[0])
    if integers(node.attrs.get("shape", "()")) != _MERGES or "reverse" in node.attrs:
        return None
    inner = _before(state, position)
    if inner is None:
        return None
    turned, parted, split = (graph.nodes[each] for each in inner)
    if turned.op != "transpose" or integers(turned.attrs.get("axes", "()")) != _AXES:
        return None
    parts, whole = _reshaped(parted), _reshaped(split)
    if parts is None or whole is None or len(parts) != 7 or parts[:3] + parts[5:] != (0, 0, -4, 0, 0):
        return None
    rows, columns = parts[3:5]
    if whole != (0, -4, -1, rows * columns, 0, 0) or min(rows, columns) < 1:
        return None
    return _of(state, split.inputs[0], rows, columns, inner)


def _of(state: State, source: Entry, rows: int, columns: int, inner: tuple[int, ...] = ()) -> _Shuffle | None:
    channels = state.image_origins.channels_of(source)
    if channels is None or channels % (rows * columns):
        return None
    return _Shuffle(source, channels // (rows * columns), rows, columns, bool(inner), inner)


def _before(state: State, position: int) -> tuple[int, int, int] | None:
    """Return the three nodes before one, last first, each read by the next alone."""
    found = []
    for _ in range(3):
        inputs = state.graph.nodes[position].inputs
        if len(inputs) != 1 or inputs[0].output or state.is_fixed(inputs[0].node):
            return None
        if state.only_reader(inputs[0].node) != position:
            return None
        position = inputs[0].node
        found.append(position)
    return found[0], found[1], found[2]


def _reshaped(node: Node) -> tuple[int, ...] | None:
    if FACTS.canonical(node.op) != "Reshape" or "reverse" in node.attrs:
        return None
    return integers(node.attrs.get("shape", "()"))
