"""Layers, image operators and copies that few graphs hold."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.ops.roles import ValueKind
from mxamp.ops.tables._notation import record

COMPUTE = ValueKind.COMPUTE
MOVE = ValueKind.MOVE

RECORDS = (
    # data, boxes, offsets of the sampling positions (no_trans=False).
    record("_contrib_DeformablePSROIPooling", "data coord coord", COMPUTE, named="output top_count"),
    # Its forward pass is a copy. The running mean is an auxiliary state.
    record("IdentityAttachKLSparseReg", "fp32 fp32", MOVE, out=DType.FLOAT32),
    record("_sparse_retain", "data index", MOVE),
    # MXNet adds it when a graph is bound to several devices.
    record("_CrossDeviceCopy", "data", MOVE),
    # Not random, unlike their siblings: a pipeline exported with the network may hold them.
    record("_image_flip_left_right _npx__image_flip_left_right", "data", MOVE),
    record("_image_flip_top_bottom _npx__image_flip_top_bottom", "data", MOVE),
    record("_image_adjust_lighting _npx__image_adjust_lighting", "data", COMPUTE),
)
