"""Boxes, anchors and proposals: operators whose data are positions."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.ops.roles import ValueKind
from mxamp.ops.tables._notation import record

AFFINE = ValueKind.AFFINE
FP32 = DType.FLOAT32

RECORDS = (
    # A second, hidden output: a copy of the input for backward.
    record("_contrib_box_nms _contrib_box_non_maximum_suppression", "coord", AFFINE, seeds=(0, 1)),
    record("_contrib_box_iou", "coord coord", AFFINE),
    record("_contrib_box_decode", "coord coord", AFFINE, seeds=(0,)),
    # samples, matches, anchors, refs, means, stds: one dtype, the matches (indices) included.
    record("_contrib_box_encode", "coord coord coord coord coord coord", AFFINE, seeds=(0,)),
    record("_contrib_bipartite_matching", "coord", AFFINE, seeds=(0, 1)),
    # The next five exist in FP32 alone (the type inference of legacy operators that define none).
    record("_contrib_MultiBoxPrior _npx_multibox_prior", "fp32", ValueKind.GENERATE, out=FP32, seeds=(0,)),
    record(
        *("_contrib_MultiBoxTarget _npx_multibox_target", "fp32 fp32 fp32", AFFINE),
        out=FP32,
        seeds=(0, 1, 2),
        named="loc_target loc_mask cls_target",
    ),
    record(
        "_contrib_MultiBoxDetection _npx_multibox_detection", "fp32 fp32 fp32", AFFINE, out=FP32, seeds=(0,)
    ),
    record("_contrib_Proposal", "fp32 fp32 fp32", AFFINE, out=FP32, seeds=(0,), named="output score"),
    record("_contrib_MultiProposal", "fp32 fp32 fp32", AFFINE, out=FP32, seeds=(0,), named="output score"),
    record("_contrib_count_sketch", "data coord coord", ValueKind.COMPUTE),
    record("_contrib_getnnz", "like", ValueKind.COMPUTE, out=DType.INT64, seeds=(0,)),
)
