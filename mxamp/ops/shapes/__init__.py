"""The shapes that operators return: one short rule an operator or family, entered by importing this."""

from mxamp.ops.shapes import detection, diagonals, elementwise, layers, moves, values
from mxamp.ops.shapes.call import (
    DEMANDS,
    RULES,
    UNKNOWN,
    MismatchError,
    Rule,
    Shape,
    ShapeCall,
    UnknownShapeError,
    merged,
)

__all__ = [
    "DEMANDS",
    "RULES",
    "UNKNOWN",
    "MismatchError",
    "Rule",
    "Shape",
    "ShapeCall",
    "UnknownShapeError",
    "detection",
    "diagonals",
    "elementwise",
    "layers",
    "merged",
    "moves",
    "values",
]
