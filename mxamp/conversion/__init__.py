"""A conversion: what is asked for, and the whole pipeline that does it, without MXNet."""

from mxamp.conversion.options import Options
from mxamp.conversion.pipeline import PREPARATIONS, check_prepare
from mxamp.conversion.run import Source, convert_graph
from mxamp.conversion.shapes import KnownShapes, known_shapes

__all__ = [
    "PREPARATIONS",
    "KnownShapes",
    "Options",
    "Source",
    "check_prepare",
    "convert_graph",
    "known_shapes",
]
