"""How each operator is written; importing this enters all of them into the table."""

from mxamp.onnx.tables import (
    attention,
    boxes,
    control_flow,
    correlation,
    detection,
    elementwise,
    indexing,
    layers,
    multibox,
    normalization,
    numpy_mode,
    proposals,
    recurrent,
    sampling,
    shape,
    windows,
)

__all__ = [
    "attention",
    "boxes",
    "control_flow",
    "correlation",
    "detection",
    "elementwise",
    "indexing",
    "layers",
    "multibox",
    "normalization",
    "numpy_mode",
    "proposals",
    "recurrent",
    "sampling",
    "shape",
    "windows",
]
