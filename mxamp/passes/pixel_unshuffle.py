"""Bring rows and columns into channels with axes that are cheap to swap."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple, Optional, Sequence, Tuple

from mxamp.graph.graph import Entry, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import own_attributes
from mxamp.passes.state import State

_FEW_VALUES = 1 << 11
"""Of fewer, more operators cost as much as they save."""

_IMAGE = 4

_Shape = Optional[Tuple[int, ...]]


class Unshuffle(NamedTuple):
    """Rows and columns that become channels.

    Attributes
    ----------
    source
        The image.
    rows, columns
        How many of each become channels.
    is_row_first
        Whether the row that a value comes from is the slower of what its new channel says
        (``space_to_depth``), or else the column (the first layer of YOLOv5).
    inner
        Nodes that nothing else reads.
    """

    source: Entry
    rows: int
    columns: int
    is_row_first: bool
    inner: tuple[int, ...] = ()


def unshuffle(state: State, position: int) -> Unshuffle | None:
    """Return the rows and columns that a node makes channels of; None where it makes none, or few values."""
    node = state.graph.nodes[position]
    if FACTS.canonical(node.op) == "space_to_depth":
        block = integers(node.attrs.get("block_size", ""))
        is_one = block is not None and len(block) == 1
        found = Unshuffle(node.inputs[0], block[0], block[0], True) if block and is_one else None
    else:
        found = _of_slices(state, position)
    if found is None or min(found.rows, found.columns) < 2 or found.source.node in state.left_open:
        return None
    shape = state.usual_shape(found.source)
    return None if shape is not None and math.prod(shape) < _FEW_VALUES else found


def write_unshuffle(state: State, edit: GraphEdit, position: int, found: Unshuffle) -> None:
    """Put two transposes of four axes in place of the node that ends it."""
    node, (source, rows, columns, is_row_first, _) = state.graph.nodes[position], found
    shape = state.usual_shape(source)
    batch, channels, height, width = (1, 1, 1, 1) if shape is None else shape
    high, wide, parts = height // rows, width // columns, rows * columns

    def put(op: str, what: str, *inputs: Entry, like: tuple[int, ...], **attrs: str) -> Entry:
        return edit.part(position, op, what, *inputs, like=None if shape is None else like, **attrs)

    reshape, turn = partial(put, "Reshape"), partial(put, "transpose")
    lines = channels * height
    codes: tuple[int, ...]
    like: tuple[int, ...]
    pairs = reshape("pairs", source, like=(batch, lines, wide, columns), shape=str((0, -3, -4, -1, columns)))
    if is_row_first:
        turned = turn("columns", pairs, like=(batch, lines, columns, wide), axes="(0, 1, 3, 2)")
        like = (batch, channels * high, parts, wide)
        apart = reshape("lines", turned, like=like, shape=str((0, -1, parts, 0)))
        whole = turn("rows", apart, like=(batch, parts, channels * high, wide), axes="(0, 2, 1, 3)")
    else:
        turned = turn("columns", pairs, like=(batch, columns, lines, wide), axes="(0, 3, 1, 2)")
        like = (batch * columns, channels * high, rows, wide)
        apart = reshape("lines", turned, like=like, shape=str((-3, -4, -1, rows, 0)))
        like = (batch * columns, rows, channels * high, wide)
        whole = turn("rows", apart, like=like, axes="(0, 2, 1, 3)")
        like = (batch, parts, channels * high, wide)
        whole = reshape("parts", whole, like=like, shape=str((-1, parts, 0, 0)))
    known = state.image_origins.channels_of(source)
    if known is not None:
        last: tuple[Entry, ...] = (whole,)
        codes = (0, parts * known, -1, 0)
    else:  # nothing but the image itself says how many rows a channel has
        like = (batch, channels, high, rows, width)
        origin = reshape("origin", source, like=like, shape=str((0, 0, -4, -1, rows, 0)))
        places = {"lhs_begin": "2", "lhs_end": "3", "rhs_begin": "1", "rhs_end": "3"}
        like = (batch, parts, channels, high, wide)
        last = (put("reshape_like", "channels", whole, origin, like=like, **places),)
        codes = (0, -3, 0, 0)
    attrs = {**own_attributes(node), "shape": str(codes)}
    edit.replace(position, node._replace(op="Reshape", attrs=attrs, inputs=last))


def _of_slices(state: State, position: int) -> Unshuffle | None:
    """Return what a Concat of all slices of an image makes channels of, each of every r-th row and column."""
    graph, node = state.graph, state.graph.nodes[position]
    if FACTS.canonical(node.op) != "Concat" or node.attrs.get("dim", "1") != "1" or len(node.inputs) < _IMAGE:
        return None
    source, found, steps = None, [], set()
    for entry in node.inputs:
        inner = graph.nodes[entry.node]
        if FACTS.canonical(inner.op) != "slice" or state.is_fixed(entry.node):
            return None
        if state.only_reader(entry.node) != position or source not in (None, inner.inputs[0]):
            return None
        source, part = inner.inputs[0], _every_so_many(inner)
        if part is None:
            return None
        found.append(part[:2])
        steps.add(part[2:])
    if source is None or len(steps) != 1 or _axes(state, source) != _IMAGE:
        return None
    ((rows, columns),) = steps
    for is_row_first in (True, False):
        if found == _places(rows, columns, is_row_first):
            inner_nodes = tuple([entry.node for entry in node.inputs])
            return Unshuffle(source, rows, columns, is_row_first, inner_nodes)
    return None


def _axes(state: State, entry: Entry) -> int | None:
    return _IMAGE if entry.node in state.images and not entry.output else state.axes(entry)


def _places(rows: int, columns: int, is_row_first: bool) -> Sequence[tuple[int, int]]:
    if is_row_first:
        return [(row, column) for row in range(rows) for column in range(columns)]
    return [(row, column) for column in range(columns) for row in range(rows)]


def _every_so_many(node: Node) -> tuple[int, int, int, int] | None:
    """Return the row and the column where a slice begins, and its steps along both; None of any other."""
    begins = integers(node.attrs.get("begin", "").replace("None", "0"))
    steps = integers(node.attrs.get("step", "").replace("None", "1"))
    ends = node.attrs.get("end", "").strip("()[] ").split(",")
    if begins is None or steps is None or not len(begins) == len(steps) == len(ends) == _IMAGE:
        return None
    if any(end.strip() != "None" for end in ends) or begins[:2] != (0, 0) or steps[:2] != (1, 1):
        return None
    return begins[2], begins[3], steps[2], steps[3]
