"""How each operator is written; importing this enters all of them into the table."""

from mxamp.onnx.tables import (
    attention,
    boxes,
    detection,
    elementwise,
    indexing,
    layers,
    normalization,
    recurrent,
    shape,
)

__all__ = [
    "attention",
    "boxes",
    "detection",
    "elementwise",
    "indexing",
    "layers",
    "normalization",
    "recurrent",
    "shape",
]
