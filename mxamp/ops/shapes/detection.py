"""Boxes, anchors and regions of detectors."""

from __future__ import annotations

from typing import Sequence

from mxamp.ops.shapes.call import MaybeShape, Shape, ShapeCall, demand, rule


@rule("ROIPooling")
def _roi_pooling(call: ShapeCall) -> Sequence[MaybeShape]:
    data, regions = call.rank(0, 4), call.rank(1, 2)
    shape = (regions[0], data[1], *call.sizes("pooled_size"))
    return [shape, shape]


@rule("_contrib_ROIAlign")
def _roi_align(call: ShapeCall) -> Shape:
    data, regions, size = call.rank(0, 4), call.rank(1, 2), call.sizes("pooled_size")
    channels = data[1]
    if call.flag("position_sensitive"):
        channels //= size[0] * size[-1]
    return (regions[0], channels, size[0], size[-1])


@rule("_contrib_PSROIPooling _contrib_DeformablePSROIPooling")
def _position_sensitive_pooling(call: ShapeCall) -> Sequence[MaybeShape]:
    regions, size = call.rank(1, 2), call.integer("pooled_size")
    shape = (regions[0], call.integer("output_dim"), size, size)
    return [shape, shape]


@rule("_contrib_MultiBoxPrior")
def _anchors(call: ShapeCall) -> Shape:
    data = call.rank(0, 4)
    each = len(call.numbers("sizes", (1.0,))) + len(call.numbers("ratios", (1.0,))) - 1
    return (1, data[2] * data[3] * each, 4)


@rule("_contrib_MultiBoxDetection")
def _multi_box_detection(call: ShapeCall) -> Shape:
    scores = call.rank(0, 3)
    return (scores[0], scores[2], 6)


@rule("_contrib_Proposal _contrib_MultiProposal")
def _proposals(call: ShapeCall) -> Sequence[MaybeShape]:
    call.expect(2, (call.data[0], 3), "information on images")
    images = call.data[0] if call.op == "_contrib_MultiProposal" else 1
    count = images * call.integer("rpn_post_nms_top_n", 300)
    return [(count, 5), (count, 1)]


@demand("_contrib_Proposal _contrib_MultiProposal")
def _proposal_inputs(call: ShapeCall, outputs: Sequence[MaybeShape]) -> Sequence[MaybeShape]:
    scores = call.inputs[0]
    return [None, None, None if scores is None else (scores[0], 3)]


@rule("_contrib_box_nms")
def _non_maximum_suppression(call: ShapeCall) -> Sequence[MaybeShape]:
    return [call.data, (*call.data[:-1], 1)]


@rule("_contrib_box_iou")
def _overlaps(call: ShapeCall) -> Shape:
    return (*call.data[:-1], *call.shape(1)[:-1])


@rule("_contrib_box_decode")
def _boxes(call: ShapeCall) -> Shape:
    return call.data
