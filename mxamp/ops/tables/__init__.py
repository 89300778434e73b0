"""The built-in operator facts, by family."""

from mxamp.ops.tables import detection, elementwise, neural, shape

__all__ = ["ALL_RECORDS"]

ALL_RECORDS = (*neural.RECORDS, *elementwise.RECORDS, *shape.RECORDS, *detection.RECORDS)
