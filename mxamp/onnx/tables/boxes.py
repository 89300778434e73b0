"""Boxes: non-maximum suppression, decoding, overlap, anchors."""

from __future__ import annotations

import math

import numpy as np

from mxamp.dtypes import DType
from mxamp.onnx.call import LAST, Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tensor import Tensor


@mapping("_contrib_box_nms", "TopK, NonMaxSuppression, ScatterND, TopK, GatherElements")
def _box_nms(call: Call) -> Written:
    """Write suppression that returns MXNet's rows: as many as came in, kept ones first, then rows of -1.

    NonMaxSuppression is given the candidates in the order of their scores and their ranks for scores. So it
    computes in float32 whatever the data is, ties are as TopK orders them, and what is below the threshold,
    of the background, or beyond topk has the rank 0. A topk of 0 suppresses nothing in MXNet, which copies.
    """
    data = call.data
    if call.integer("topk", -1) == 0:
        return call.emit("Identity", data)
    rank = call.rank(data)
    rows, width = call.size(data, rank - 2), call.size(data, rank - 1)
    flat = data if rank == 3 else call.reshape(data, [-1, rows, width])
    kept, marks = _suppressed(call, flat, rows, width)
    result = call.emit("Where", marks, _in_out_format(call, kept, width), call.scalar(-1, kept))
    missing = rows - call.size(result, 1)
    if missing:
        result = call.emit("Pad", result, call.indices([0, 0, 0, 0, missing, 0]), call.scalar(-1, result))
    if rank == 3:
        return result
    return call.reshape_to(result, call.lengths(data))


def _suppressed(call: Call, flat: Tensor, rows: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the candidates, kept ones first, and which rows are kept, as (samples, candidates, 1)."""
    id_index = call.integer("id_index", -1)
    scores = _column(call, flat, call.integer("score_index", 1))
    valid = call.emit("Greater", scores, call.scalar(call.number("valid_thresh", 0), scores))
    if id_index >= 0:
        background = call.scalar(call.integer("background_id", -1), flat)
        of_background = call.emit("Equal", _column(call, flat, id_index), background)
        valid = call.emit("And", valid, call.emit("Not", of_background))
    lowest = call.scalar(-flat.dtype.max_finite, scores)
    most = call.integer("topk", -1)
    most = min(most, rows) if most > 0 else rows
    order = top(call, call.emit("Where", valid, scores, lowest), most)
    candidates = rows_in_order(call, flat, order, width)
    is_valid = call.cast(
        call.emit("GatherElements", call.cast(valid, DType.INT32), order, axis=1), DType.BOOL
    )
    # The first has the highest rank; what is not valid has none.
    ranks = call.array(np.arange(most, 0, -1)[None], DType.FLOAT32)
    ranks = call.emit("Where", is_valid, ranks, call.array(0, DType.FLOAT32))
    start = call.integer("coord_start", 2)
    boxes = call.cast(call.slice(candidates, [start], [start + 4], [2]), DType.FLOAT32)
    ids = None
    if id_index >= 0 and not call.flag("force_suppress"):
        ids = _column(call, candidates, id_index)
    is_center = call.text("in_format", "corner") == "center"
    if not is_center:
        boxes = _without_area_if_turned(call, boxes)
    left = ranks_kept(call, boxes, ranks, ids, call.number("overlap_thresh", 0.5), is_center=is_center)
    again = top(call, left, most)
    marks = call.emit("GatherElements", left, again, axis=1)
    marks = call.emit("Greater", call.unsqueeze(marks, 2), call.array(0, DType.FLOAT32))
    return rows_in_order(call, candidates, again, width), marks


def _without_area_if_turned(call: Call, boxes: Tensor) -> Tensor:
    """Return boxes whose second corner is not before the first.

    A box with its corners in the wrong order has no area in MXNet, so nothing overlaps with it.
    NonMaxSuppression puts the corners in order instead.
    """
    first, second = (call.slice(boxes, [start], [start + 2], [2]) for start in (0, 2))
    return call.emit("Concat", first, call.emit("Max", second, first), axis=2)


def ranks_kept(
    call: Call,
    boxes: Tensor,
    ranks: Tensor,
    ids: Tensor | None,
    threshold: float,
    *,
    is_center: bool = False,
    most: int | None = None,
) -> Tensor:
    """Return the ranks of the candidates that suppression keeps, and 0 for all others.

    Parameters
    ----------
    call
        The node.
    boxes
        float32 (samples, candidates, 4).
    ranks
        float32 (samples, candidates): greater is better, all that are not 0 different. 0 is no candidate.
    ids
        Classes as (samples, candidates), where suppression is within classes.
    threshold
        What overlaps by more is suppressed.
    is_center
        Whether boxes are center and size instead of corners.
    most
        How many of a class are kept at most; all by default.
    """
    by_class = call.unsqueeze(ranks, 1) if ids is None else _ranks_by_class(call, ids, ranks)
    chosen = call.emit(
        *("NonMaxSuppression", boxes, by_class, call.indices([most or call.size(ranks, 1)])),
        call.array([threshold], DType.FLOAT32),
        call.array([0], DType.FLOAT32),
        center_point_box=int(is_center),
    )
    places = call.emit("Gather", chosen, call.indices([0, 2]), axis=1)
    counts = call.emit("Shape", call.slice(chosen, [0], [1], [1]))
    ones = call.emit("Expand", call.array(1, DType.FLOAT32), call.slice(counts, [0], [1], [0]))
    none = call.emit("Mul", ranks, call.array(0, DType.FLOAT32))
    return call.emit("Mul", call.emit("ScatterND", none, places, ones), ranks)


def _ranks_by_class(call: Call, ids: Tensor, ranks: Tensor) -> Tensor:
    """Return ranks as (samples, classes, candidates), 0 where a candidate is of another class.

    How many classes there are shows when the model runs: as many as lie between the least and the greatest.
    """
    ids = call.cast(ids, DType.INT64)
    least, greatest = (call.reduce(op, ids, None, keepdims=False) for op in ("ReduceMin", "ReduceMax"))
    after = call.emit("Add", greatest, call.indices(1))
    classes = call.unsqueeze(call.emit("Range", least, after, call.indices(1)), 0, 2)
    of_class = call.emit("Equal", classes, call.unsqueeze(ids, 1))
    return call.emit("Where", of_class, call.unsqueeze(ranks, 1), call.array(0, DType.FLOAT32))


def _column(call: Call, rows: Tensor, number: int) -> Tensor:
    """Return one column of (samples, rows, width) as (samples, rows)."""
    return call.emit("Gather", rows, call.indices(number), axis=2)


def top(call: Call, scores: Tensor, count: int) -> Tensor:
    """Return where the greatest values of each sample are, greatest first."""
    return call.emit_several("TopK", scores, call.indices([count]), outputs=2, axis=1)[1]


def rows_in_order(call: Call, data: Tensor, order: Tensor, width: int) -> Tensor:
    """Return rows of (samples, rows, width) in another order."""
    places = call.emit("Tile", call.unsqueeze(order, 2), call.indices([1, 1, width]))
    return call.emit("GatherElements", data, places, axis=1)


def _in_out_format(call: Call, rows: Tensor, width: int) -> Tensor:
    """Return rows with their boxes in the format that is asked for."""
    wanted = call.text("out_format", "corner")
    if wanted == call.text("in_format", "corner"):
        return rows
    start = call.integer("coord_start", 2)
    first, second = (call.slice(rows, [start + n], [start + n + 2], [2]) for n in (0, 2))
    half = call.scalar(0.5, rows)
    if wanted == "center":
        pair = [
            call.emit("Mul", call.emit("Add", first, second), half),
            call.emit("Sub", second, first),
        ]
    else:
        reach = call.emit("Mul", second, half)
        pair = [call.emit("Sub", first, reach), call.emit("Add", first, reach)]
    before = [call.slice(rows, [0], [start], [2])] if start else []
    after = [call.slice(rows, [start + 4], [LAST], [2])] if start + 4 < width else []
    return call.emit("Concat", *before, *pair, *after, axis=2)


def _halves(call: Call, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first two and the last two of four columns."""
    last = call.rank(boxes) - 1
    first, second = call.split(boxes, [2, 2], last)
    return first, second


@mapping("_contrib_box_decode", "Split, Mul, Add, Exp, Concat")
def _box_decode(call: Call) -> Written:
    data, anchors = call.inputs
    half = call.scalar(0.5, anchors)
    center, size = _halves(call, anchors)
    if call.text("format", "center") == "corner":
        size = call.emit("Sub", size, center)
        center = call.emit("Add", center, call.emit("Mul", size, half))
    spread = [call.number(f"std{number}", 1) for number in range(4)]
    shift, growth = _halves(call, call.emit("Mul", data, call.array(spread, data.dtype)))
    middle = call.emit("Add", call.emit("Mul", shift, size), center)
    limit = call.number("clip", -1)
    if limit > 0:
        growth = call.emit("Min", growth, call.scalar(limit, growth))
    reach = call.emit("Mul", call.emit("Mul", call.emit("Exp", growth), size), half)
    ends = [call.emit("Sub", middle, reach), call.emit("Add", middle, reach)]
    return call.emit("Concat", *ends, axis=-1)


@mapping("_contrib_box_iou", "Min, Max, Sub, Mul, Div")
def _box_iou(call: Call) -> Written:
    left, right = call.inputs
    shape = [*call.lengths(left)[:-1], *call.lengths(right)[:-1]]
    zero = call.scalar(0, left)
    left, right = call.reshape(left, [-1, 1, 4]), call.reshape(right, [1, -1, 4])
    sides = []
    for boxes in (left, right):
        first, second = _halves(call, boxes)
        if call.text("format", "corner") == "center":
            reach = call.emit("Mul", second, call.scalar(0.5, second))
            first, second = call.emit("Sub", first, reach), call.emit("Add", first, reach)
        sides.append((first, second))
    (left_start, left_end), (right_start, right_end) = sides
    start, end = call.emit("Max", left_start, right_start), call.emit("Min", left_end, right_end)
    common = _area(call, call.emit("Max", call.emit("Sub", end, start), zero))
    areas = [_area(call, call.emit("Max", call.emit("Sub", end, start), zero)) for start, end in sides]
    union = call.emit("Sub", call.emit("Add", *areas), common)
    # Boxes without an area have no overlap.
    ratio = call.emit("Div", common, union)
    return call.reshape_to(call.emit("Where", call.emit("Greater", common, zero), ratio, zero), shape or [1])


def _area(call: Call, extent: Tensor) -> Tensor:
    width, height = call.split(extent, [1, 1], 2)
    return call.squeeze(call.emit("Mul", width, height), 2)


@mapping("_contrib_MultiBoxPrior", "a constant")
def _prior_boxes(call: Call) -> Written:
    """Write the anchors of MultiBoxPriorForward in src/operator/contrib/multibox_prior.cc."""
    height, width = call.size(call.data, 2), call.size(call.data, 3)
    sizes, ratios = call.numbers("sizes", [1]), call.numbers("ratios", [1])
    steps, offsets = call.numbers("steps", [-1, -1]), call.numbers("offsets", [0.5, 0.5])
    step_y = steps[0] if steps[0] > 0 else 1 / height
    step_x = steps[1] if steps[1] > 0 else 1 / width
    shapes = [(size, math.sqrt(ratios[0])) for size in sizes]
    shapes += [(sizes[0], math.sqrt(ratio)) for ratio in ratios[1:]]
    reach = np.array([[size * height / width * root / 2, size / root / 2] for size, root in shapes])
    y, x = np.meshgrid(
        *(
            (np.arange(n) + offset) * step
            for n, offset, step in zip((height, width), offsets, (step_y, step_x))
        ),
        indexing="ij",
    )
    center = np.stack([x, y], axis=-1)[:, :, None, :]
    boxes = np.concatenate([center - reach, center + reach], axis=-1).reshape(1, -1, 4)
    if call.flag("clip"):
        boxes = boxes.clip(0, 1)
    return call.array(boxes, call.data.dtype)
