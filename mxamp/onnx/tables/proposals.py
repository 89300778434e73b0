"""Proposal and MultiProposal: regions from scores and shifts of anchors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.onnx.call import LAST, Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tables.boxes import ranks_kept, rows_in_order, top
from mxamp.onnx.tensor import Tensor


@mapping(
    "_contrib_Proposal _contrib_MultiProposal", "TopK, NonMaxSuppression, ScatterND, TopK, GatherElements"
)
def _proposal(call: Call) -> Written:
    """Write src/operator/contrib/proposal.cc: as many regions as asked for, the kept ones over again.

    Pixels are counted, so a box from 3 to 5 is 3 wide. Boxes that are too small, or lie in the padding, have
    the score -1 and take part.
    """
    scores, shifts, sizes = call.inputs
    samples, height, width = call.size(scores, 0), call.size(scores, 2), call.size(scores, 3)
    stride = call.integer("feature_stride", 16)
    anchors = _anchors(call, height, width, stride)
    each = call.size(scores, 1) // 2
    count = each * height * width
    scores = call.slice(scores, [each], [LAST], [1])
    scores = call.reshape(call.transpose(scores, [0, 2, 3, 1]), [samples, count])
    shifts = call.reshape(shifts, [samples, each, 4, height, width])
    shifts = call.reshape(call.transpose(shifts, [0, 3, 4, 1, 2]), [samples, count, 4])
    # [height, width, scale] of each image as (samples, 1, 1).
    tall, wide, scale = (call.unsqueeze(call.slice(sizes, [n], [n + 1], [1]), 2) for n in range(3))
    boxes = _moved(call, anchors, shifts)
    one = call.scalar(1, boxes)
    last = [call.emit("Sub", wide, one), call.emit("Sub", tall, one)]
    limits = call.emit("Concat", *last, *last, axis=2)
    boxes = call.emit("Max", call.emit("Min", boxes, limits), call.scalar(0, boxes))
    lowest = call.scalar(-1, scores)
    scores = call.emit("Where", _is_padding(call, tall, wide, (height, width, each), stride), lowest, scores)
    start, end = call.split(boxes, [2, 2], 2)
    least = call.emit("Mul", scale, call.scalar(call.integer("rpn_min_size", 16), boxes))
    extent = call.emit("Add", call.emit("Sub", end, start), one)
    is_small = call.cast(call.emit("Less", extent, least), DType.INT32)
    is_small = call.cast(call.reduce("ReduceMax", is_small, [2], keepdims=True), DType.BOOL)
    half = call.emit("Mul", least, call.scalar(0.5, boxes))
    wider = call.emit("Concat", call.emit("Sub", start, half), call.emit("Add", end, half), axis=2)
    boxes = call.emit("Where", is_small, wider, boxes)
    scores = call.emit("Where", call.squeeze(is_small, 2), lowest, scores)
    return _chosen(call, boxes, scores, samples, count)


def _chosen(call: Call, boxes: Tensor, scores: Tensor, samples: int, count: int) -> Written:
    """Return regions and their scores: the best that suppression leaves, over again until all are full."""
    before, after = call.integer("rpn_pre_nms_top_n", 6000), call.integer("rpn_post_nms_top_n", 300)
    most = min(before, count) if before > 0 else count
    order = top(call, scores, most)
    boxes = rows_in_order(call, boxes, order, 4)
    scores = call.emit("GatherElements", scores, order, axis=1)
    ranks = call.array(np.tile(np.arange(most, 0, -1), (samples, 1)), DType.FLOAT32)
    # ONNX measures lengths where MXNet counts pixels.
    wider = call.emit("Add", boxes, call.array([0, 0, 1, 1], boxes.dtype))
    wider = call.cast(wider, DType.FLOAT32)
    left = ranks_kept(call, wider, ranks, None, call.number("threshold", 0.7), most=min(after, most))
    kept = call.reduce("ReduceSum", call.emit("Sign", call.cast(left, DType.INT64)), [1], keepdims=True)
    places = call.emit("Mod", call.indices(np.arange(after)[None]), kept)
    chosen = call.emit("GatherElements", top(call, left, most), places, axis=1)
    regions = call.reshape(rows_in_order(call, boxes, chosen, 4), [samples * after, 4])
    images = call.array(np.repeat(np.arange(samples), after)[:, None], boxes.dtype)
    found = call.emit("GatherElements", scores, chosen, axis=1)
    return call.emit("Concat", images, regions, axis=1), call.reshape(found, [samples * after, 1])


def _moved(call: Call, anchors: NDArray[np.float32], shifts: Tensor) -> Tensor:
    """Return anchors moved and grown."""
    boxes = call.array(anchors, shifts.dtype)
    if call.flag("iou_loss"):
        return call.emit("Add", shifts, boxes)
    size = anchors[:, 2:] - anchors[:, :2] + np.float32(1)
    center = anchors[:, :2] + np.float32(0.5) * (size - np.float32(1))
    size_, center_ = call.array(size, shifts.dtype), call.array(center, shifts.dtype)
    shift, growth = call.split(shifts, [2, 2], 2)
    middle = call.emit("Add", call.emit("Mul", shift, size_), center_)
    extent = call.emit("Mul", call.emit("Exp", growth), size_)
    half, one = call.scalar(0.5, extent), call.scalar(1, extent)
    reach = call.emit("Mul", call.emit("Sub", extent, one), half)
    return call.emit("Concat", call.emit("Sub", middle, reach), call.emit("Add", middle, reach), axis=2)


def _is_padding(call: Call, tall: Tensor, wide: Tensor, grid: tuple[int, int, int], stride: int) -> Tensor:
    """Return which anchors lie beyond the image, as (samples, anchors)."""
    y, x, _ = np.meshgrid(*(np.arange(size) for size in grid), indexing="ij")
    beyond = []
    for extent, positions in ((tall, y), (wide, x)):
        inside = call.emit("Floor", call.emit("Div", extent, call.scalar(stride, extent)))
        places = call.array(positions.reshape(1, -1), extent.dtype)
        beyond.append(call.emit("Not", call.emit("Less", places, call.squeeze(inside, 2))))
    return call.emit("Or", *beyond)


def _anchors(call: Call, height: int, width: int, stride: int) -> NDArray[np.float32]:
    """Return the anchors of GenerateAnchors in src/operator/contrib/proposal-inl.h, (anchors, 4)."""
    scales = np.array(call.numbers("scales", [4, 8, 16, 32]), np.float32)
    ratios = np.array(call.numbers("ratios", [0.5, 1, 2]), np.float32)
    center = np.float32(0.5 * (stride - 1))
    shapes = []
    for ratio in ratios:
        root = np.floor(np.sqrt(np.floor(np.float32(stride * stride) / ratio)) + np.float32(0.5))
        for scale in scales:
            wide = root * scale
            tall = np.floor(wide / scale * ratio + np.float32(0.5)) * scale
            reach = np.float32(0.5) * (np.array([wide, tall], np.float32) - 1)
            shapes.append(np.concatenate([center - reach, center + reach]))
    each = np.array(shapes, np.float32)
    if len(each) * 2 != call.size(call.inputs[0], 1):
        call.refuse(
            f"it has {len(each)} anchors a place, and scores for {call.size(call.inputs[0], 1) // 2}."
        )
    y, x = np.meshgrid(np.arange(height) * stride, np.arange(width) * stride, indexing="ij")
    offsets = np.stack([x, y, x, y], axis=-1)[:, :, None, :]
    found: NDArray[np.float32] = (offsets + each).astype(np.float32).reshape(-1, 4)
    return found
