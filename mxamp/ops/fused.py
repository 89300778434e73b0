"""Operators that stand for others which were fused for oneDNN; each holds the ones that it was made of."""

from __future__ import annotations

from typing import Mapping

from mxamp.ops.attributes import is_true

_FUSED = frozenset(
    {
        "_sg_mkldnn_conv",
        "_sg_mkldnn_fully_connected",
        "_sg_mkldnn_selfatt_qk",
        "_sg_mkldnn_selfatt_valatt",
    }
)
"""What MXNet writes that is told ``backend="MKLDNN"``: hybridize, optimize_for, get_backend_symbol."""


def is_fused(op: str, attrs: Mapping[str, str]) -> bool:
    """Whether an operator computes what those that it was made of compute: a quantized one does not."""
    return op in _FUSED and not is_true(attrs, "quantized", default=False)
