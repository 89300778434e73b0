"""Hand a suppression of boxes only the groups of boxes that may hold the best ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State

_GROUP = 16
"""Boxes of one group. Larger groups are fewer to rank, and bring more boxes that are not needed."""

_MOST_GROUPS = 1 << 23
"""Above any position of a group; twice that is an int32, too."""

_NO_SCORE = np.finfo(np.float32).min
"""The score of groups that are not there, so that there are always as many as are kept."""

_BACKGROUND = -1
"""The class of boxes that are none, where boxes have classes; MXNet's default."""

_BOXES_FOR_ONE = 192
"""So many boxes there must be for each that is kept; of fewer, finding the groups costs what it saves."""


class _Suppression(NamedTuple):
    """A suppression that reads more boxes than it has to."""

    shape: tuple[int, ...]
    """Of what it reads."""

    kept: int
    score: int
    """Where a box has its score, ..."""

    kind: int
    """... and its class; below 0 where it has none."""


class RewriteBestBoxes(PreparationPass):
    """Replace a suppression among all boxes by one among the groups of boxes with the best scores.

    Before::

        boxes -> box_nms {topk: 400} -> slice_axis {axis: 1, begin: 0, end: 100} -> y

    After::

        boxes -> slice_axis -> where {its class is not -1} -> Reshape
              -> Pooling {pool_type: max, kernel: (16, 1), ...} -> Reshape (highest)
        highest -> topk {k: 400, ret_typ: both} -> slice_axis (least)
        (highest > least) * 2**24 + (highest == least) * (2**23 - arange_like)
              -> topk {k: 400} -> sort (groups)
        groups * 16 + _arange {start: -15, stop: 1} (rows)
        boxes, rows -> take -> box_nms {topk: 400} (name_best)
              -> slice_axis {axis: 1, begin: 0, end: 100} -> y

    The first group holds the first box alone and the last may be short, for a window of Pooling must not be
    larger than its padded input. Rows outside are read from the box next to them, times zero.

    Refuses: where the shape is not known or has other than three axes, or fewer than 192 boxes for each of
    ``topk``; without ``topk``; with another class of the background, whose boxes are none, than -1, which
    MXNet takes where nothing is said; a threshold of validity below 0, for a score of zero marks what is no
    box; where anything but one slice of the first ``topk`` boxes reads the result; other dtypes than float32;
    numpy's shape semantics; a node that a rule of the user's picks; targets that do not name the pass; the
    bodies of control flow.

    Notes
    -----
    Why: MXNet sorts all scores above the threshold and fills as many rows as there are boxes, where the next
    operator reads a hundred. Of 212,940 boxes, YOLOv3's at 416 x 416, it takes 25 ms where all are valid,
    and this form 3.8; where one of a hundred is, as a trained network has it, 3.0 and 2.2. Of eight such
    images 339 and 45 ms, 30 and 26 (AMD EPYC, one thread).

    Why it is exact: let a box be among the first ``topk`` in the order of falling scores, in which of equal
    ones the earlier comes first. If its group were not among the first ``topk`` groups in the same order of
    the groups' best scores, then each of so many groups had a box with a higher score, or with an equal one
    and an earlier place, and the box would not be among the first. ``box_nms`` keeps the order of equal
    scores, ``topk`` does not (MXNet 1.9.1, ``src/operator/tensor/sort_op.h`` and ``ordering_op-inl.h``), so
    the groups are ranked by integers that never tie where it matters: those above the least score that is
    needed come first, and of those that have it the earlier. Then the groups' own order is restored. NaN is
    no maximum, and is below every threshold.

    Positions are integers, and every shape gives the right number of them; shapes known at conversion only
    tell whether it is worth it. Linear in nodes.
    """

    step = "best_boxes"
    operators = frozenset({"_contrib_box_nms", "_contrib_box_non_maximum_suppression"})
    asks_target = True

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Write the suppressions that are among many boxes."""
        if graph.has_numpy_shapes:
            return None
        edit, changes = GraphEdit(graph, state.params), []
        for position, node in enumerate(graph.nodes):
            if node.op not in self.operators or state.is_fixed(position):
                continue
            suppression = _suppression(state, position)
            if suppression is None:
                continue
            batch, _, width = suppression.shape
            rows = suppression.kept * _GROUP
            best = edit.insert(
                node._replace(name=f"{node.name}_best", inputs=(_best(edit, position, node, suppression),)),
                before=position,
                shapes=((batch, rows, width), (batch, rows, 1)),
            )
            edit.drop(position, best)
            reason = "only groups of boxes with the best scores can hold one of the first"
            changes.append(self.changed(node, reason, into=edit.node(best).name))
        return Done(edit.finish(), tuple(changes)) if changes else None


def _suppression(state: State, position: int) -> _Suppression | None:
    """Return what a node does; None where it stays."""
    node = state.graph.nodes[position]
    shape = state.shape(node.inputs[0])
    kept, score = _integer(node, "topk", "-1"), _integer(node, "score_index", "1")
    kind = _integer(node, "id_index", "-1")
    if (
        state.dtypes[position][0] is not DType.FLOAT32
        or shape is None
        or len(shape) != 3
        or kept is None
        or score is None
        or not float(node.attrs.get("valid_thresh", "0")) >= 0
        or kind is None
        or _integer(node, "background_id", "-1") != _BACKGROUND
        or not 0 < kept * _BOXES_FOR_ONE <= shape[1]
        or not _reads_first(state, position, kept)
    ):
        return None
    return _Suppression(shape, kept, score, kind)


def _integer(node: Node, key: str, default: str = "") -> int | None:
    found = integers(node.attrs.get(key, default))
    return found[0] if found is not None and len(found) == 1 else None


def _reads_first(state: State, position: int, kept: int) -> bool:
    """Return whether all that is read of a suppression are its first boxes."""
    reader = state.only_reader(position)
    if reader is None:
        return False
    node = state.graph.nodes[reader]
    if FACTS.canonical(node.op) != "slice_axis":
        return False
    axis, begin, end = (_integer(node, key) for key in ("axis", "begin", "end"))
    return axis in (1, -2) and begin == 0 and end is not None and 0 < end <= kept


def _best(edit: GraphEdit, position: int, node: Node, suppression: _Suppression) -> Entry:
    """Put in what finds the boxes of the best groups, in their order, and return them."""
    (batch, boxes, width), kept, score, kind = suppression
    groups, rows = (boxes + _GROUP - 2) // _GROUP + 1, kept * _GROUP
    ranked = groups + kept
    source = node.inputs[0]

    def put(what: str, op: str, size: tuple[int, ...], /, *inputs: Entry, **attrs: object) -> Entry:
        given = {key: str(value) for key, value in attrs.items()}
        outputs = 2 if given.get("ret_typ") == "both" else 1
        made = Node(op, f"{node.name}_{what}", given, inputs, outputs)
        return edit.insert(made, before=position, shapes=(size,) * outputs)

    scores = put("scores", "slice_axis", (batch, boxes, 1), source, axis=2, begin=score, end=score + 1)
    if kind >= 0:  # what is background is no box, however high its score
        kinds = put("kinds", "slice_axis", (batch, boxes, 1), source, axis=2, begin=kind, end=kind + 1)
        is_box = put("is_box", "_not_equal_scalar", (batch, boxes, 1), kinds, scalar=_BACKGROUND)
        nothing = put("nothing", "zeros_like", (batch, boxes, 1), scores)
        scores = put("valid", "where", (batch, boxes, 1), is_box, scores, nothing)
    column = put("column", "Reshape", (batch, 1, boxes, 1), scores, shape=(0, 1, -1, 1))
    window = {"kernel": (_GROUP, 1), "stride": (_GROUP, 1), "pad": (_GROUP - 1, 0)}
    highest = put("highest", "Pooling", (batch, 1, groups, 1), column, pool_type="max", **window)
    filled = put(
        *("filled", "Pad", (batch, 1, ranked, 1), highest),
        mode="constant",
        constant_value=_NO_SCORE,
        pad_width=(0, 0, 0, 0, 0, kept, 0, 0),
    )
    line = put("line", "Reshape", (batch, ranked), filled, shape=(0, -1))
    values = put("values", "topk", (batch, kept), line, axis=1, k=kept, ret_typ="both")
    least = put("least", "slice_axis", (batch, 1), values, axis=1, begin=kept - 1, end=kept)
    above = put("above", "broadcast_greater", (batch, ranked), line, least)
    equal = put("equal", "broadcast_equal", (batch, ranked), line, least)
    is_above = put("is_above", "Cast", (batch, ranked), above, dtype="int32")
    is_equal = put("is_equal", "Cast", (batch, ranked), equal, dtype="int32")
    group = put("group", "_contrib_arange_like", (ranked,), is_equal, axis=1)
    earlier = put("earlier", "_rminus_scalar", (ranked,), group, scalar=_MOST_GROUPS)
    order = put("order", "Reshape", (1, ranked), earlier, shape=(1, -1))
    tied = put("tied", "broadcast_mul", (batch, ranked), is_equal, order)
    raised = put("raised", "_mul_scalar", (batch, ranked), is_above, scalar=2 * _MOST_GROUPS)
    rank = put("rank", "elemwise_add", (batch, ranked), raised, tied)
    first = put("first", "topk", (batch, kept), rank, axis=1, k=kept, dtype="int32")
    chosen = put("chosen", "sort", (batch, kept), first, axis=1, is_ascend=True)
    start = put("start", "_mul_scalar", (batch, kept), chosen, scalar=_GROUP)
    starts = put("starts", "expand_dims", (batch, kept, 1), start, axis=2)
    arange = put("arange", "_arange", (_GROUP,), start=1 - _GROUP, stop=1, dtype="int32")
    within = put("within", "Reshape", (1, 1, _GROUP), arange, shape=(1, 1, -1))
    spread = put("spread", "broadcast_add", (batch, kept, _GROUP), starts, within)
    places = put("places", "Reshape", (batch, rows), spread, shape=(0, -1))

    sizes = put("sizes", "shape_array", (3,), source)
    size = put("size", "slice_axis", (1,), sizes, axis=0, begin=1, end=2)
    count = put("count", "Cast", (1,), size, dtype="int32")
    counts = put("counts", "Reshape", (1, 1), count, shape=(1, 1))
    begins = put("begins", "_greater_equal_scalar", (batch, rows), places, scalar=0)
    ends = put("ends", "broadcast_lesser", (batch, rows), places, counts)
    exists = put("exists", "elemwise_mul", (batch, rows), begins, ends)
    last = put("last", "_minus_scalar", (1, 1), counts, scalar=1)
    before = put("before", "broadcast_minimum", (batch, rows), places, last)
    row = put("row", "_maximum_scalar", (batch, rows), before, scalar=0)
    samples = put("samples", "_contrib_arange_like", (batch,), places, axis=0)
    sample = put("sample", "Reshape", (batch, 1), samples, shape=(-1, 1))
    ahead = put("ahead", "broadcast_mul", (batch, 1), sample, counts)
    index = put("index", "broadcast_add", (batch, rows), row, ahead)

    table = put("table", "Reshape", (batch * boxes, width), source, shape=(-3, 0))
    taken = put("taken", "take", (batch, rows, width), table, index, axis=0)
    factor = put("factor", "Cast", (batch, rows), exists, dtype="float32")
    factors = put("factors", "expand_dims", (batch, rows, 1), factor, axis=2)
    return put("boxes", "broadcast_mul", (batch, rows, width), taken, factors)
