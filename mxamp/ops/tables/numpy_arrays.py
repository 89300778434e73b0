"""MXNet's NumPy mode, arrays: moving values about, choosing them, making them from nothing, drawing them."""

from __future__ import annotations

from typing import Mapping

from mxamp.dtypes import DType
from mxamp.ops.roles import InputRole, ValueKind
from mxamp.ops.tables._notation import SAME, attribute, record, roles

COMPARE = ValueKind.COMPARE
COMPUTE = ValueKind.COMPUTE
GENERATE = ValueKind.GENERATE
MOVE = ValueKind.MOVE

BOOL = DType.BOOL
FP32 = DType.FLOAT32
INT64 = DType.INT64

_DTYPE = attribute("dtype", FP32)

_WITH_WEIGHTS = roles("index data")
_WITHOUT_WEIGHTS = roles("data")
_WITH_VALUES = roles("data kept index")
_WITHOUT_VALUES = roles("data index")


def _bincount_roles(attrs: Mapping[str, str]) -> tuple[InputRole, ...]:
    """Return the roles of the numbers to count and of their weights (``has_weights``)."""
    return _WITH_WEIGHTS if attrs.get("has_weights") in ("True", "1") else _WITHOUT_WEIGHTS


def _insert_roles(attrs: Mapping[str, str]) -> tuple[InputRole, ...]:
    """Return the roles of the array, of the values (unless ``val`` holds one), and of their positions."""
    return _WITH_VALUES if attrs.get("val", "None") == "None" else _WITHOUT_VALUES


RECORDS = (
    # The second name is the one that blocks use.
    record("_np_reshape", "data", MOVE),
    record("_npx_reshape _npi_reshape", "data", MOVE),
    *(
        record(f"_np_{name}", "data", MOVE)
        for name in ("squeeze", "transpose", "moveaxis", "roll", "copy", "diag", "diagflat", "diagonal")
    ),
    *(record(f"_npi_{name}", "data", MOVE) for name in ("flip", "rot90", "tril", "broadcast_to", "pad")),
    *(record(f"_np_atleast_{number}d", "data*", MOVE) for number in (1, 2, 3)),
    *(record(f"_npi_{name}", "data*", MOVE, named="out") for name in ("concatenate", "hstack", "dstack")),
    *(record(f"_npi_{name}", "data*", MOVE) for name in ("stack", "vstack", "column_stack")),
    *(record(f"_npi_{name}", "data", MOVE) for name in ("hsplit", "dsplit")),
    # Choosing: the condition may have any dtype.
    record("_npi_where", "free data data", MOVE),
    record("_npi_where_lscalar", "free data", MOVE),
    record("_npi_where_rscalar", "free data", MOVE),
    record("_npi_where_scalar2", "free", GENERATE, out=FP32),
    record("_npi_boolean_mask_assign_scalar", "data free", MOVE),
    record("_npi_boolean_mask_assign_tensor", "data free data", MOVE),
    # array, values of any dtype (unless val holds one), and for the third their positions, INT64
    record("_npi_insert_scalar", "data kept", MOVE),
    record("_npi_insert_slice", "data kept", MOVE),
    record("_npi_insert_tensor", "data kept index", MOVE, inputs_by=_insert_roles),
    record("_npi_delete", "data index", MOVE),
    # Values, then three kinds of positions or counts, if asked for.
    record("_npi_unique", "data", MOVE, out=(SAME, INT64), seeds=(1, 2, 3)),
    record("_npx_nonzero _npi_nonzero", "data", COMPUTE, out=INT64, seeds=(0,)),
    record("_npi_bincount", "index data", COMPUTE, inputs_by=_bincount_roles, seeds=(0,)),
    record("_npi_diag_indices_from", "like", GENERATE, out=INT64, seeds=(0,)),
    record("_npi_share_memory", "like like", COMPARE, out=BOOL),
    # Takes a truth value, and raises when it is false.
    record("_npx_constraint_check", "data", MOVE, refuses=frozenset(DType) - {BOOL}),
    # Made from attributes.
    record("_npi_arange", "", GENERATE, out=_DTYPE, seeds=(0,)),
    record("_npi_indices", "", GENERATE, out=attribute("dtype", DType.INT32), seeds=(0,)),
    *(
        record(f"_npi_{name}", "", GENERATE, out=_DTYPE)
        for name in (*("zeros", "ones", "identity", "eye", "logspace", "blackman", "hamming", "hanning"),)
    ),
    record("_npi_full_like", "like_same", GENERATE, out=attribute("dtype", SAME)),
    # Random numbers. Their parameters are numbers or arrays, of any dtype.
    *(
        record(f"_npi_{name}", "kept kept", COMPUTE, out=(_DTYPE, FP32), named="output0 output1")
        for name in ("normal", "normal_n")
    ),
    *(record(f"_npi_{name}", "kept kept", COMPUTE, out=_DTYPE) for name in ("uniform", "uniform_n", "gamma")),
    record("_npi_bernoulli", "kept", COMPUTE, out=_DTYPE),
    *(
        record(f"_npi_{name}", "kept kept", COMPUTE, out=FP32, named="output0 output1")
        for name in ("gumbel", "logistic")
    ),
    *(
        record(f"_npi_{name}", "kept", COMPUTE, out=FP32, named="output0 output1")
        for name in ("pareto", "weibull", "exponential", "rayleigh")
    ),
    record("_npi_powerd", "kept", COMPUTE, out=FP32),
    record("_npi_choice", "kept kept", COMPUTE, out=INT64, seeds=(0,)),
    record("_npi_multinomial", "kept", COMPUTE, out=INT64, seeds=(0,)),
)
