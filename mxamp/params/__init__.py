"""Parameters as NumPy arrays: MXNet's ``.params`` files, casting, and value ranges. Needs no MXNet."""

from mxamp.params.cast import cast_array
from mxamp.params.format import ParamsIndex, StorageType, TensorHeader
from mxamp.params.ranges import (
    Range,
    magnitude_bound,
    magnitude_range,
    overflow_limit,
    overflows,
    underflow_fraction,
    underflows_beyond,
)
from mxamp.params.reader import ParamsFile, open_params, read_params
from mxamp.params.sparse import SparseParameter, SparseTensor
from mxamp.params.writer import ParamsEncoder, encode_params, write_params

__all__ = [
    "ParamsEncoder",
    "ParamsFile",
    "ParamsIndex",
    "Range",
    "SparseParameter",
    "SparseTensor",
    "StorageType",
    "TensorHeader",
    "cast_array",
    "encode_params",
    "magnitude_bound",
    "magnitude_range",
    "open_params",
    "overflow_limit",
    "overflows",
    "read_params",
    "underflow_fraction",
    "underflows_beyond",
    "write_params",
]
