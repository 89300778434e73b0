"""Which size of inputs fits the layer that reads what is made of them, by the columns of its weight."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Callable, Iterator, Mapping, NamedTuple

from mxamp.errors import MxampError
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.graph.shapes import Shape, infer_entry_shapes
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true
from mxamp.ops.shapes.elementwise import BROADCASTING
from mxamp.passes.images import RESIZES

_TWO_SIZES = ((64, 128), (1024, 2048))
"""Where strides take more than the first two, the others are taken."""

OF_ANY_BATCH = (-1, 0, 1)
"""How a Reshape says the first axis of what is tried with a batch of one."""

_HEIGHT = -2
"""The axis."""

_IMAGE = 4
"""Axes of a batch of images."""

_STEPS = 4
"""A straight line through two sizes misses by what strides leave over there; the next step is smaller."""

_MOST_ASKED = 8
"""Where the first do not tell, others hardly do, and each takes as long as what is before it."""

OF_TWO = frozenset(
    {f"{kind}_{name}" for kind in ("elemwise", "broadcast") for name in ("add", "sub", "mul", "div")}
)
"""Operators whose second input is data as their first is, and not a box, a state or a size."""

_TOGETHER = OF_TWO | {"Concat", "add_n"}

_OF_ROWS = frozenset({"FullyConnected", "LayerNorm", "RNN"})
_MATRIX = 2

_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "gru": 3, "lstm": 4}


class SizesSaid(NamedTuple):
    """What a Reshape makes that says all sizes, but perhaps the first.

    Attributes
    ----------
    batch
        What it says of the first axis.
    sizes
        The sizes of the others.
    """

    batch: int
    sizes: tuple[int, ...]


def sizes_said(node: Node) -> SizesSaid | None:
    """Return what a node makes; None where it is no Reshape that says all sizes behind the first."""
    if FACTS.canonical(node.op) != "Reshape" or is_true(node.attrs, "reverse", default=False):
        return None
    batch, *sizes = integers(node.attrs.get("shape", "()")) or (0,)
    return SizesSaid(batch, tuple(sizes)) if sizes and min(sizes) > 0 else None


class _Reader(NamedTuple):
    """What reads so many values of a sample: a layer, or a Reshape that says all sizes.

    Attributes
    ----------
    data
        What it reads.
    columns
        How many values.
    flattens
        Whether that is all of a sample, or else what lies along the last axis.
    of_all
        Whether it is all that there is: where the first axis is that of steps.
    """

    data: Entry
    columns: int
    flattens: bool
    of_all: bool = False


def told_size(
    graph: Graph,
    params: Mapping[str, Shape],
    shapes_for: Callable[[int], Mapping[str, Shape]],
    *,
    flat: bool,
) -> int | None:
    """Return the size of an axis of inputs with which a layer reads as much as its weight has columns.

    Parameters
    ----------
    graph
        The graph.
    params
        The shapes of its parameters and auxiliary states by name.
    shapes_for
        The shapes of inputs that have a size.
    flat
        Whether layers are asked that flatten what they read, and Reshapes that say all sizes but the batch;
        otherwise layers that read rows, dense and recurrent ones, and LayerNorm.

    Notes
    -----
    The first of them is asked. What it reads grows with the size as a straight line does, but for what
    strides leave over: two sizes tell it, and what is told is tried.
    """
    reader = next((reader for reader in _readers(graph, params) if reader.flattens == flat), None)
    if reader is None:
        return None
    columns = partial(_columns, _Before(graph, params, reader.data, shapes_for), reader)
    return _solved(columns, reader.columns)


def told_side(
    graph: Graph, params: Mapping[str, Shape], shapes_for: Callable[[int], Mapping[str, Shape]], axis: int
) -> int | None:
    """Return the side of images with which what is put together with others is as large as these.

    Parameters
    ----------
    graph, params
        See :func:`told_size`.
    shapes_for
        The shapes of inputs that have a side.
    axis
        Which side: -2 for heights, -1 for widths.

    Notes
    -----
    A network that was written, or read from ONNX, for one size says how large it makes what it resizes and
    cuts out, and has arrays of that size: where each place lies, or what is added there. The first that tells
    is asked, of :data:`_MOST_ASKED`.
    """
    for data, wanted in itertools.islice(_beside_others(graph, params, axis), _MOST_ASKED):
        side = partial(_side, _Before(graph, params, data, shapes_for), axis)
        size = _solved(side, wanted)
        if size is not None:
            return size
    return None


def told_length(
    graph: Graph, params: Mapping[str, Shape], shapes_for: Callable[[int], Mapping[str, Shape]]
) -> int | None:
    """Return the length of sequences with which what arrays are added to is as long as these.

    Parameters
    ----------
    graph, params
        See :func:`told_size`.
    shapes_for
        The shapes of inputs that have a length.

    Notes
    -----
    A network that was written for one length, or read from ONNX, has arrays of that length: where each word
    lies, by how much one concerns another, which come too late. Of :data:`_MOST_ASKED` places that arrays are
    broadcast to, the first is asked that is longer in longer sequences.
    """
    places = itertools.groupby(_beside_arrays(graph, params), key=lambda place: place[0])
    for data, sizes in itertools.islice(places, _MOST_ASKED):
        before = _Before(graph, params, data, shapes_for)
        for _, axis, wanted in sizes:
            size = _solved(partial(_size, before, axis), wanted)
            if size is not None:
                return size
    return None


class _Before:
    """The graph before an entry, for inputs of any size."""

    def __init__(
        self,
        graph: Graph,
        params: Mapping[str, Shape],
        entry: Entry,
        shapes_for: Callable[[int], Mapping[str, Shape]],
    ) -> None:
        self._entry = entry
        self._graph = Graph(graph.nodes[: entry.node + 1], (entry,), graph.attrs)
        self._params = {name: shape for name, shape in params.items() if name in self._graph.variables}
        self._shapes_for = shapes_for
        self._found: dict[int, Shape | None] = {}

    def shape(self, size: int) -> Shape | None:
        """Return the shape of the entry, where inputs have a size; None where they cannot."""
        if size not in self._found:
            self._found[size] = self._inferred(size)
        return self._found[size]

    def _inferred(self, size: int) -> Shape | None:
        inputs = self._shapes_for(size)
        known = {name: shape for name, shape in inputs.items() if name in self._graph.variables}
        try:
            entries = infer_entry_shapes(self._graph, known, self._params).entries
        except MxampError:
            return None
        return entries[self._entry.node][self._entry.output]


def _columns(before: _Before, reader: _Reader, size: int) -> int | None:
    """Return how many values a layer reads in one row."""
    shape = before.shape(size)
    if not shape:
        return None
    return math.prod(shape[0 if reader.of_all else 1 :]) if reader.flattens else shape[-1]


def _side(before: _Before, axis: int, size: int) -> int | None:
    """Return the side of an image."""
    shape = before.shape(size)
    return None if shape is None or len(shape) != _IMAGE else shape[axis]


def _size(before: _Before, axis: int, size: int) -> int | None:
    """Return the size of an axis, counted from the last."""
    shape = before.shape(size)
    return None if shape is None or len(shape) < -axis else shape[axis]


def _solved(value: Callable[[int], int | None], wanted: int) -> int | None:
    """Return the size for which a value is as wanted that grows as a straight line does, about."""
    return next(filter(None, (_on_line(value, sizes, wanted) for sizes in _TWO_SIZES)), None)


def _on_line(value: Callable[[int], int | None], sizes: tuple[int, int], wanted: int) -> int | None:
    """Return the size, beginning with the line through two."""
    less, more = map(value, sizes)
    if less is None or more is None or more <= less:
        return None
    each = (sizes[1] - sizes[0]) / (more - less)
    size, own = sizes[0], less
    for _ in range(_STEPS):
        size = round(size + (wanted - own) * each)
        found = value(size) if size >= 1 else None
        if found is None or found == wanted:
            return found and size
        own = found
    return None


def _beside_others(graph: Graph, params: Mapping[str, Shape], axis: int) -> Iterator[tuple[Entry, int]]:
    """Yield what is put together with images of a certain size, and how large these are."""
    for node in graph.nodes:
        if FACTS.canonical(node.op) not in _TOGETHER:
            continue
        for told in node.inputs:
            size = _size_told(graph, params, told.node, axis)
            if size > 1:
                yield from ((other, size) for other in node.inputs if other != told)


def _beside_arrays(graph: Graph, params: Mapping[str, Shape]) -> Iterator[tuple[Entry, int, int]]:
    """Yield what arrays are broadcast to, and for each of their axes, from the last, its size."""
    try:
        shapes = infer_entry_shapes(graph, {}, params).entries
    except MxampError:
        return
    is_fixed: list[bool] = []  # made of no input
    for node in graph.nodes:
        is_fixed.append(
            node.name in params if node.is_variable else all(is_fixed[entry.node] for entry in node.inputs)
        )
        if is_fixed[-1] or FACTS.canonical(node.op) not in BROADCASTING | OF_TWO:
            continue
        for array, data in itertools.permutations(node.inputs, 2):
            shape = shapes[array.node][array.output] if is_fixed[array.node] else None
            if shape is not None and not is_fixed[data.node]:
                sizes = [(axis, shape[axis]) for axis in range(-1, -len(shape) - 1, -1)]
                yield from ((data, axis, size) for axis, size in sizes if size > 1)


def _size_told(graph: Graph, params: Mapping[str, Shape], position: int, axis: int) -> int:
    """Return the side of what a resize makes or a slice cuts out, or of parameters; 0 of others."""
    node = graph.nodes[position]
    while FACTS.canonical(node.op) == "slice_axis":
        begin, end = (integers(node.attrs.get(name, "")) or (-1,) for name in ("begin", "end"))
        if integers(node.attrs.get("axis", "")) in ((axis,), (axis + _IMAGE,)):
            return end[0] - begin[0] if begin[0] >= 0 and end[0] >= 0 else 0
        node = graph.nodes[node.inputs[0].node]
    if FACTS.canonical(node.op) == RESIZES and len(node.inputs) == 1:
        return (integers(node.attrs.get("height" if axis == _HEIGHT else "width", "")) or (0,))[0]
    shape = params.get(node.name, ()) if node.is_variable else ()
    return shape[axis] if len(shape) in (_IMAGE - 1, _IMAGE) else 0


def _readers(graph: Graph, params: Mapping[str, Shape]) -> Iterator[_Reader]:
    """Yield the nodes of which parameters or attributes say how many values they read."""
    for node in graph.nodes:
        op = FACTS.canonical(node.op)
        said = sizes_said(node)
        if said is not None:
            values = math.prod(said.sizes)
            if said.batch in OF_ANY_BATCH:
                yield _Reader(node.inputs[0], values, flattens=True)
            elif said.batch > 1:
                yield _Reader(node.inputs[0], said.batch * values, flattens=True, of_all=True)
        columns = columns_read(graph, params, node)
        if columns is not None:
            flattens = op == "FullyConnected" and is_true(node.attrs, "flatten", default=True)
            yield _Reader(node.inputs[0], columns, flattens)


def columns_read(graph: Graph, params: Mapping[str, Shape], node: Node) -> int | None:
    """Return how many values a dense or recurrent layer or a LayerNorm reads at once, as parameters say."""
    op = FACTS.canonical(node.op)
    if op not in _OF_ROWS or len(node.inputs) < 2:
        return None
    shape = params.get(graph.nodes[node.inputs[1].node].name)
    if op == "RNN" and shape is not None:
        return _columns_of_vector(node, shape)
    if op == "LayerNorm":
        of_last = integers(node.attrs.get("axis", "-1")) == (-1,)
        return math.prod(shape) if shape is not None and of_last else None
    shape = shape or params.get(_first_weight(graph, node.inputs[1]))
    return None if shape is None or len(shape) != _MATRIX else shape[1]


def _columns_of_vector(node: Node, shape: Shape) -> int | None:
    """Return how many values a recurrent layer reads in a step whose parameters are one vector.

    Notes
    -----
    Each layer and direction has a matrix for what it reads, one for its state, and two biases, each of so
    many rows as its gates have values.
    """
    gates = _GATES.get(node.attrs.get("mode", ""))
    state, layers = (integers(node.attrs.get(name, "")) or (0,) for name in ("state_size", "num_layers"))
    is_projected = node.attrs.get("projection_size", "None") != "None"
    if gates is None or is_projected or not state[0] or not layers[0]:
        return None
    directions = 2 if is_true(node.attrs, "bidirectional", default=False) else 1
    rows = directions * gates * state[0]
    behind = (layers[0] - 1) * rows * (directions * state[0] + state[0] + 2)
    columns, rest = divmod(math.prod(shape) - behind, rows)
    return None if rest else columns - state[0] - 2


def _first_weight(graph: Graph, entry: Entry) -> str:
    """Return the parameter that comes first in what is joined and reshaped to those of a recurrent layer."""
    while graph.nodes[entry.node].inputs:
        entry = graph.nodes[entry.node].inputs[0]
    return graph.nodes[entry.node].name
