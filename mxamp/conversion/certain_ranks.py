"""How many axes an entry has in every call, as operators say that take no other number."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Iterator, Mapping, NamedTuple, Sequence

from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true
from mxamp.ops.shapes.elementwise import BROADCASTING
from mxamp.passes.axis_sizes import REDUCTIONS
from mxamp.passes.equal_shapes import KEEP_SHAPE
from mxamp.passes.images import ADAPTIVE_POOLING, KEEPS_RANK

_KEEP = (
    KEEPS_RANK | KEEP_SHAPE | {"Pad", "SwapAxis", "slice", "slice_axis", "slice_like", "log_softmax"}
) | {*("LRN", "SequenceMask", "SequenceReverse", "broadcast_axis", "reverse", "softmax")}
"""Operators whose first output has as many axes as their first input."""

_OF_ONE_RANK = frozenset({"Concat", "add_n", "batch_dot", "broadcast_like", "elemwise_div"}) | {
    *("elemwise_add", "elemwise_mul", "elemwise_sub", "_grad_add", "_maximum", "_minimum")
}
"""Operators of which all inputs have as many axes as the output."""

_COPIES_OTHERS, _CUTS = -2, -4
"""What a Reshape says for all axes that are left, and for one that it cuts into two."""

_WINDOWS = frozenset({"Convolution", "Deconvolution", "Pooling"})
_BEFORE_PLACES = 2
_IMAGES = frozenset({ADAPTIVE_POOLING, "UpSampling", "_contrib_BilinearResize2D"})
_IMAGE = 4
_SEQUENCE = 3
_MATRIX = 2
_LEAST = 2
"""A reduction over all axes leaves one: only of a result with more it is certain what was read."""


class _Relation(NamedTuple):
    """One entry has so many axes more than another."""

    one: Entry
    other: Entry
    more: int
    reduces: bool = False


def certain_ranks(graph: Graph, params: Mapping[str, Sequence[int]]) -> Mapping[Entry, int]:
    """Return the numbers of axes that are the same in every call that MXNet takes.

    Parameters
    ----------
    graph
        The graph.
    params
        The shapes of its parameters and auxiliary states by name.

    Notes
    -----
    What one operator says holds for all that it is joined to by operators that keep, add or take axes, before
    it as well as behind: where a sum adds a score to what a FullyConnected made of flattened embeddings, the
    indices of both are a matrix. Linear in nodes and inputs.
    """
    found: dict[Entry, int] = {}
    relations: defaultdict[Entry, list[_Relation]] = defaultdict(list)
    waiting: deque[Entry] = deque()

    origins: dict[Entry, tuple[Entry, int]] = {}

    def come_of(entry: Entry) -> tuple[Entry, int]:
        """Return an entry before another, and how many axes that has more."""
        return origins.get(entry, (entry, 0))

    def tell(entry: Entry, rank: int) -> None:
        if entry not in found and rank > 0:
            found[entry] = rank
            waiting.append(entry)

    def follow(relation: _Relation) -> None:
        if relation.other in found:
            rank = found[relation.other] + relation.more
            if not relation.reduces or rank >= _LEAST:
                tell(relation.one, rank)
        if relation.one in found and (not relation.reduces or found[relation.one] >= _LEAST):
            tell(relation.other, found[relation.one] - relation.more)

    for position, node in enumerate(graph.nodes):
        if node.is_variable:
            if node.name in params:
                tell(Entry(position), len(params[node.name]))
            continue
        for entry, rank in _told(position, node):
            tell(entry, rank)
        told = list(_relations(position, node, found))
        if FACTS.canonical(node.op) in BROADCASTING and len({come_of(entry) for entry in node.inputs}) == 1:
            told.append(_Relation(Entry(position), node.inputs[0], 0))
        for relation in told:
            relations[relation.one].append(relation)
            relations[relation.other].append(relation)
            follow(relation)
            if not relation.reduces:
                source, more = come_of(relation.other)
                origins[relation.one] = source, more + relation.more
        while waiting:
            for relation in relations[waiting.popleft()]:
                follow(relation)
    return found


def _told(position: int, node: Node) -> Iterator[tuple[Entry, int]]:
    """Yield the entries of which a node says how many axes they have."""
    op, written = FACTS.canonical(node.op), Entry(position)
    if op in _WINDOWS:
        kernel = integers(node.attrs.get("kernel", ""))
        ranks = {} if not kernel else dict.fromkeys((written, *node.inputs[:1]), len(kernel) + _BEFORE_PLACES)
    elif op in _IMAGES and len(node.inputs) == 1:
        ranks = dict.fromkeys((written, *node.inputs), _IMAGE)
    elif op == "RNN":
        ranks = dict.fromkeys((written, *node.inputs[:1], *node.inputs[2:4]), _SEQUENCE)
    elif op == "Flatten" or (op == "FullyConnected" and is_true(node.attrs, "flatten", default=True)):
        ranks = {written: _MATRIX}
    elif op == "_contrib_arange_like" and node.attrs.get("axis", "None") != "None":
        ranks = {written: 1}
    elif op == "transpose":
        axes = integers(node.attrs.get("axes", "()"))
        ranks = dict.fromkeys((written, *node.inputs), len(axes)) if axes else {}
    elif op == "Reshape":
        sizes = integers(node.attrs.get("shape", "()")) or ()
        # Each number is an axis, but -4, which says that the two behind it are parts of one.
        ranks = {} if not sizes or _COPIES_OTHERS in sizes else {written: len(sizes) - sizes.count(_CUTS)}
    elif op == "Pad":
        ranks = dict.fromkeys(
            (written, *node.inputs), len(integers(node.attrs.get("pad_width", "")) or ()) // 2
        )
    else:
        ranks = {}
    yield from ranks.items()


def _relations(position: int, node: Node, ranks: Mapping[Entry, int]) -> Iterator[_Relation]:
    """Yield how many axes a node adds, or takes."""
    op, attrs, written = FACTS.canonical(node.op), node.attrs, Entry(position)
    if op in _OF_ONE_RANK and "lhs_axes" not in attrs:
        for entry in node.inputs:
            yield _Relation(written, entry, 0)
        return
    if not node.inputs:
        return
    data, more, reduces = node.inputs[0], None, False
    if op in _KEEP:
        more = 0
    elif op == "FullyConnected":
        more = None if is_true(attrs, "flatten", default=True) else 0
    elif op == "Embedding" or op == "expand_dims":
        more = 1
    elif op == "dot":
        is_turned = is_true(attrs, "transpose_a", default=False)
        more = 0 if ranks.get(node.inputs[-1]) == _MATRIX and not is_turned else None
    elif op == "SliceChannel":
        more = -1 if is_true(attrs, "squeeze_axis", default=False) else 0
        for output in range(1, node.num_outputs):
            yield _Relation(Entry(position, output), data, more)
    elif op in REDUCTIONS or op == "squeeze":
        axes = integers(attrs.get("axis", "()"))
        keeps = is_true(attrs, "keepdims", default=False)
        if axes and not is_true(attrs, "exclude", default=False):
            more, reduces = (0, False) if keeps and op != "squeeze" else (-len(set(axes)), op != "squeeze")
    if more is not None:
        yield _Relation(written, data, more, reduces)
