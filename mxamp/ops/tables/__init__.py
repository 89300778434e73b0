"""The built-in operator facts, by family."""

from mxamp.ops.tables import (
    apart,
    detection,
    elementwise,
    graphs,
    linear_algebra,
    neural,
    never_in_inference,
    numpy_arrays,
    numpy_math,
    own,
    quantization,
    seldom,
    shape,
    statistics,
)

__all__ = ["ALL_RECORDS", "FAMILIES"]

ALL_RECORDS = (
    *neural.RECORDS,
    *elementwise.RECORDS,
    *shape.RECORDS,
    *detection.RECORDS,
    *numpy_math.RECORDS,
    *numpy_arrays.RECORDS,
    *linear_algebra.RECORDS,
    *statistics.RECORDS,
    *seldom.RECORDS,
    *graphs.RECORDS,
    *quantization.RECORDS,
    *apart.RECORDS,
    *own.RECORDS,
    *never_in_inference.RECORDS,
)

FAMILIES = never_in_inference.FAMILIES
