"""Faults of MXNet 1.9.1 that no conversion can be blamed for, each as narrow as it can be told."""

from __future__ import annotations

from typing import Any

from mxamp.conversion import PREPARATIONS
from mxamp.targets.kept_weights import layers_of_computed_weights
from tools.fuzz_conversion.model import RandomModel

__all__ = ["FUSED_TOO", "ONNX_DIFFERS", "known_fault"]

FUSED_TOO = "values differ, in FP32 as deployed too"
"""A finding where stock MXNet with fusion differs from itself without, on the same outputs."""

ONNX_DIFFERS = "ONNX Runtime computes something else"
"""A finding where the FP32 model, as an ONNX file, has other values than in MXNet."""

_RANKS = ("argsort", "topk", "_contrib_box_nms")
"""Operators that rank values."""

_SCALAR_SAID = ("InferShape failed in operator", "std: :bad_alloc")
"""What MXNet says where an operator of a library reads an array of shape (); what follows decides which."""


def known_fault(model: RandomModel, options: dict[str, Any], kind: str, text: str) -> str | None:
    """Return which known fault a finding is; None for a finding.

    Parameters
    ----------
    model, options
        The case.
    kind, text
        What does not hold.
    """
    prepared = "policy" not in options and "keep_branches" in options.get("prepare", PREPARATIONS)
    if kind == FUSED_TOO and not prepared:
        return (
            "oneDNN's fusion loses what a layer hands to a second reader; keep_branches, which guards, is off"
        )
    if kind == FUSED_TOO and layers_of_computed_weights(model.graph, model.args.keys()):
        return "oneDNN's fusion keeps the weights of the first pass; the conversion warns (docs/limits.md)"
    if kind == ONNX_DIFFERS and any(node.op in _RANKS for node in model.graph.nodes):
        return "equal values may be ranked in another order (docs/onnx.md)"
    if model.graph.has_numpy_shapes and "support 0 dimensions" in text:
        return "amp_cast to bfloat16 fails on an array of shape ()"
    if model.graph.has_numpy_shapes and options["emulate"] and any(said in text for said in _SCALAR_SAID):
        return "an operator of a library fails on an array of shape ()"
    return None
