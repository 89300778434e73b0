"""Which form an input of a model has, by what reads it: its axes, and the sizes that weights tell."""

from __future__ import annotations

from collections import deque
from typing import Mapping, NamedTuple, Sequence, Tuple

from mxamp.conversion.told_size import OF_ANY_BATCH, OF_TWO, columns_read, sizes_said
from mxamp.graph.graph import Entry, Graph, Node, Use
from mxamp.ops import FACTS, InputRole
from mxamp.ops.attributes import integers, is_true
from mxamp.ops.casts import CAST_OPERATORS
from mxamp.ops.parameters import LAYERS
from mxamp.passes.axis_sizes import moved_axes, takes_all

Shape = Tuple[int, ...]

OPEN = -1
"""A side of an image, which candidates fill in."""
LENGTH = -2
"""The length of a sequence."""
FRAMES = -3
"""How many images a clip has, or a volume."""

_CUTS = "SliceChannel"
"""What gives each step of an unrolled network its part of the data."""
_JOINS = "Concat"
_UNDONE = frozenset({_CUTS, _JOINS, "SwapAxis", "expand_dims", "squeeze", "transpose"})
"""What must be undone to tell what was read."""
_LOOKS_UP = "Embedding"


class ToldForm(NamedTuple):
    """The shape of an input with its open sizes marked."""

    sizes: Shape
    has_certain_axes: bool


def told_form(
    graph: Graph, params: Mapping[str, Shape], ranks: Mapping[Entry, int], name: str
) -> ToldForm | None:
    """Return the form of an input; None where its readers do not tell.

    Parameters
    ----------
    graph
        The graph.
    params
        The shapes of its parameters and auxiliary states by name.
    ranks
        How many axes entries certainly have.
    name
        The input.
    """
    position = graph.variables[name]
    declared = integers(graph.nodes[position].attrs.get("__shape__", "")) or ()
    if declared and all(size > 0 for size in declared[1:]):
        return ToldForm((max(1, declared[0]), *declared[1:]), True)
    # Nodes on the way to a reader that cut or move axes, the last first.
    moves: tuple[Node, ...] = ()
    waiting, seen = deque([(position, moves)]), {position}
    while waiting:
        at, moves = waiting.popleft()
        for use in _readers(graph, at):
            node = graph.nodes[use.node]
            form = _form_read(graph, params, node, use.input)
            if at == position and form is None:
                form = _form_reshaped(node)
            for move in moves:
                form = None if form is None else _before(graph, params, form, move)
            if form is not None:
                return ToldForm(form, ranks.get(Entry(position)) == len(form))
            op = FACTS.canonical(node.op)
            is_data = use.input == 0 or op in OF_TWO
            if is_data and use.node not in seen:
                seen.add(use.node)
                waiting.append((use.node, (node, *moves) if op in _UNDONE else moves))
    return None


def _form_reshaped(node: Node) -> Shape | None:
    """Return what a node makes of an input that says all sizes: a Reshape's input has as many values."""
    if FACTS.canonical(node.op) == "broadcast_to":
        shape = integers(node.attrs.get("shape", "()")) or (0,)
        return shape if min(shape) > 0 else None
    said = sizes_said(node)
    return (1, *said.sizes) if said is not None and said.batch in OF_ANY_BATCH else None


def _readers(graph: Graph, position: int) -> Sequence[Use]:
    """Return the places that read a node, those behind casts too: a converted model tells what FP32 told."""
    found: list[Use] = []
    waiting = [position]
    while waiting:
        for places in graph.uses[waiting.pop()].values():
            for use in places:
                if FACTS.canonical(graph.nodes[use.node].op) in CAST_OPERATORS:
                    waiting.append(use.node)
                else:
                    found.append(use)
    return sorted(found)


def _before(graph: Graph, params: Mapping[str, Shape], form: Shape, node: Node) -> Shape | None:
    """Return the form of what a node reads whose result has a form; None where the two do not fit."""
    op = FACTS.canonical(node.op)
    if op == _CUTS:
        return _uncut(form, node)
    if op == _JOINS:
        return _apart(graph, params, form, node)
    if op in ("SwapAxis", "transpose"):
        order = moved_axes(node, len(form))
        return None if order is None else tuple([form[order.index(axis)] for axis in range(len(form))])
    axes = integers(node.attrs.get("axis", "()")) or ()
    if op == "squeeze":
        rank = len(form) + len(axes)
        kept = iter(form)
        gone = {axis % rank for axis in axes if -rank <= axis < rank}
        return tuple([1 if axis in gone else next(kept) for axis in range(rank)]) if gone else None
    (axis,) = axes if len(axes) == 1 else (len(form),)
    if not -len(form) <= axis < len(form) or form[axis] > 1:
        return None
    left = (*form[: axis % len(form)], *form[axis % len(form) + 1 :])
    # What has one side is no image.
    return tuple([LENGTH if size == OPEN and left.count(OPEN) == 1 else size for size in left])


def _uncut(form: Shape, node: Node) -> Shape:
    """Return the form of what a node cuts into parts of a form, as a network unrolled over steps does."""
    parts = (integers(node.attrs.get("num_outputs", "1")) or (1,))[0]
    axis = (integers(node.attrs.get("axis", "1")) or (1,))[0]
    if is_true(node.attrs, "squeeze_axis", default=False):
        axis = axis % (len(form) + 1)
        return (*form[:axis], parts, *form[axis:])
    axis = axis % len(form)
    size = form[axis] * parts if form[axis] > 0 else form[axis]
    return (*form[:axis], size, *form[axis + 1 :])


def _apart(graph: Graph, params: Mapping[str, Shape], form: Shape, node: Node) -> Shape:
    """Return the form of what is joined to parameters and slices: so much shorter as these are long.

    Of places that are taken by turns and joined, as a detector makes channels of its image's, each part is as
    long as the image is.
    """
    axis = (integers(node.attrs.get("dim", "1")) or (1,))[0]
    if not -len(form) <= axis < len(form):
        return form
    axis %= len(form)
    parts = len(node.inputs)
    if form[axis] > 0 and form[axis] % parts == 0 and _takes_turns(graph, node, axis):
        return (*form[:axis], form[axis] // parts, *form[axis + 1 :])
    lengths = [_length(graph, params, entry, axis, len(form)) for entry in node.inputs]
    known = [length for length in lengths if length is not None]
    if len(known) != len(lengths) - 1:
        return form
    left = form[axis] - sum(known)
    return (*form[:axis], left, *form[axis + 1 :]) if left > 0 else form


def _takes_turns(graph: Graph, node: Node, axis: int) -> bool:
    """Return whether a node joins several slices of one entry, all as long as it is along an axis."""
    slices = [graph.nodes[entry.node] for entry in node.inputs]
    takes_all_along = all(FACTS.canonical(part.op) == "slice" and takes_all(part, axis) for part in slices)
    return takes_all_along and len({part.inputs[0] for part in slices}) == 1 < len(slices)


def _length(graph: Graph, params: Mapping[str, Shape], entry: Entry, axis: int, rank: int) -> int | None:
    """Return how long a parameter, or what a slice_axis keeps, is along an axis; None for all else."""
    node = graph.nodes[entry.node]
    shape = params.get(node.name)
    if shape is not None and len(shape) == rank:
        return shape[axis]
    is_slice = FACTS.canonical(node.op) == "slice_axis"
    if not is_slice or integers(node.attrs.get("axis", "")) not in ((axis,), (axis - rank,)):
        return None
    (begin, *_), end = integers(node.attrs.get("begin", "")) or (0,), integers(node.attrs.get("end", "None"))
    if end is None:
        return -begin if begin < 0 else None
    return end[0] - begin if (begin < 0) == (end[0] < 0) else None


def _form_read(graph: Graph, params: Mapping[str, Shape], node: Node, number: int) -> Shape | None:
    """Return the form of what a node reads as one of its inputs; None where the node does not tell."""
    op = FACTS.canonical(node.op)
    facts = FACTS.of(node.op, node.attrs)
    if op == _LOOKS_UP and facts is not None and facts.role(number, node.attrs) is InputRole.INDEX:
        return (1, LENGTH)
    columns = columns_read(graph, params, node) if op == "RNN" and number == 0 else None
    if columns is not None:
        return (LENGTH, 1, columns)
    if op not in LAYERS or number != 0 or len(node.inputs) < 2:
        return None
    weight = params.get(graph.nodes[node.inputs[1].node].name)
    if weight is None or len(weight) < 2:
        return None
    if op == "FullyConnected":
        columns = weight[1]
        return (1, columns) if is_true(node.attrs, "flatten", default=True) else (1, LENGTH, columns)
    groups = (integers(node.attrs.get("num_group", "1")) or (1,))[0]
    is_last = node.attrs.get("layout", "None") in ("NHWC", "NWC", "NDHWC")
    # A weight is (out, in, ...), with channels last (out, ..., in), and turned round (in, out, ...).
    channels = weight[0 if op == "Deconvolution" else -1 if is_last else 1]
    channels *= 1 if op == "Deconvolution" else groups
    if op == "Deconvolution" and groups == channels > 1:
        return None  # bilinear upsampling, in whatever words: it tells no size
    space: Shape = {3: (LENGTH,), 4: (OPEN, OPEN), 5: (FRAMES, OPEN, OPEN)}.get(len(weight), ())
    if not space:
        return None
    if op == "Deconvolution":  # a generator, which starts from one place
        space = (1,) * len(space)
    return (1, *space, channels) if is_last else (1, channels, *space)
