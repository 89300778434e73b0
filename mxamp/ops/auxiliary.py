"""Which inputs of an operator are auxiliary states."""

from __future__ import annotations

AUXILIARY_INPUTS = {
    "BatchNorm": (3, 4),
    "BatchNorm_v1": (3, 4),
    "CuDNNBatchNorm": (3, 4),
    "_contrib_SyncBatchNorm": (3, 4),
    "IdentityAttachKLSparseReg": (1,),
}
"""Operator -> the inputs it updates while training (``FMutateInputs``, MXNet 1.9.1)."""
