"""A conversion: what is asked for, and the whole pipeline that does it, without MXNet."""

from mxamp.conversion.options import Options
from mxamp.conversion.run import Source, convert_graph

__all__ = ["Options", "Source", "convert_graph"]
