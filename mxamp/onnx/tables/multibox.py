"""MultiBoxDetection: class scores and shifts of anchors as detections."""

from __future__ import annotations

import numpy as np

from mxamp.dtypes import DType
from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tables.boxes import ranks_kept, rows_in_order, top
from mxamp.onnx.tensor import Tensor


@mapping("_contrib_MultiBoxDetection", "ReduceMax, ArgMax, Exp, TopK, NonMaxSuppression, ScatterND")
def _detection(call: Call) -> Written:
    """Write MultiBoxDetectionForward of src/operator/contrib/multibox_detection.cc, row for row.

    Rows are [class, score, box]: candidates in the order of their scores, then rows of -1. What is suppressed
    keeps its place, with the class -1. With ``nms_topk`` MXNet orders that many rows; those after them stay
    as they were, in the order of the anchors, with the class -1.
    """
    scores, shifts, anchors = call.inputs
    count = call.size(scores, 2)
    if call.size(scores, 1) < 2:
        call.refuse("it has no class beside the background.")
    if call.integer("background_id", 0) != 0:
        call.refuse("MXNet itself takes the class 0 for the background, whatever background_id says.")
    classes = call.slice(scores, [1], [call.size(scores, 1)], [1])
    best = call.reduce("ReduceMax", classes, [1], keepdims=False)
    ids = call.cast(call.emit("ArgMax", classes, axis=1, keepdims=0), scores.dtype)
    threshold = call.scalar(call.number("threshold", 0.01), best)
    valid = call.emit("Not", call.emit("Less", best, threshold))
    valid = call.emit("And", valid, call.emit("Greater", best, call.scalar(-1, best)))
    boxes = _decoded(call, call.reshape(shifts, [0, -1, 4]), anchors)
    rows = call.emit("Concat", call.unsqueeze(ids, 2), call.unsqueeze(best, 2), boxes, axis=2)
    # Those that are valid first, in the order of the anchors.
    backwards = call.array(np.arange(count, 0, -1)[None], DType.FLOAT32)
    nothing = call.array(0, DType.FLOAT32)
    order = top(call, call.emit("Where", valid, backwards, call.emit("Neg", _reversed(call, count))), count)
    overlap = call.number("nms_threshold", 0.5)
    suppresses = 0 < overlap <= 1
    if suppresses:
        most = call.integer("nms_topk", -1)
        most = min(most, count) if most > 0 else count
        lowest = call.scalar(-best.dtype.max_finite, best)
        first = top(call, call.emit("Where", valid, best, lowest), most)
        order = call.emit("Concat", first, call.slice(order, [most], [count], [1]), axis=1)
    rows = rows_in_order(call, rows, order, 6)
    counts = call.reduce("ReduceSum", call.cast(valid, DType.FLOAT32), [1], keepdims=True)
    places = call.array(np.arange(count)[None], DType.FLOAT32)
    is_row = call.emit("Less", places, counts)
    if suppresses:
        ranked = call.array(
            np.concatenate([np.arange(count, count - most, -1), np.zeros(count - most)])[None], DType.FLOAT32
        )
        ranks = call.emit("Where", is_row, ranked, nothing)
        ids = call.squeeze(call.slice(rows, [0], [1], [2]), 2)
        corners = call.cast(call.slice(rows, [2], [6], [2]), DType.FLOAT32)
        # MXNet suppresses at the threshold, ONNX beyond it.
        just_below = float(np.nextafter(np.float32(overlap), np.float32(0)))
        within = None if call.flag("force_suppress") else ids
        left = ranks_kept(call, corners, ranks, within, just_below)
        ids = call.emit("Where", call.emit("Greater", left, nothing), ids, call.scalar(-1, ids))
        rows = call.emit("Concat", call.unsqueeze(ids, 2), call.slice(rows, [1], [6], [2]), axis=2)
    return call.emit("Where", call.unsqueeze(is_row, 2), rows, call.scalar(-1, rows))


def _reversed(call: Call, count: int) -> Tensor:
    return call.array(np.arange(1, count + 1)[None], DType.FLOAT32)


def _decoded(call: Call, shifts: Tensor, anchors: Tensor) -> Tensor:
    """Return boxes by their corners."""
    start, end = call.split(anchors, [2, 2], 2)
    size = call.emit("Sub", end, start)
    half = call.scalar(0.5, anchors)
    center = call.emit("Mul", call.emit("Add", start, end), half)
    variances = call.array(list(call.numbers("variances", [0.1, 0.1, 0.2, 0.2])), shifts.dtype)
    shift, growth = call.split(call.emit("Mul", shifts, variances), [2, 2], 2)
    middle = call.emit("Add", call.emit("Mul", shift, size), center)
    reach = call.emit("Mul", call.emit("Mul", call.emit("Exp", growth), size), half)
    boxes = call.emit("Concat", call.emit("Sub", middle, reach), call.emit("Add", middle, reach), axis=2)
    return call.clip(boxes, 0, 1) if call.flag("clip", True) else boxes
