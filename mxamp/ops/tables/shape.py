"""Moving values about: reshaping, joining, cutting, indexing, ordering; and making them from nothing."""

from __future__ import annotations

from typing import Mapping

from mxamp.dtypes import DType
from mxamp.errors import OperatorError, TargetError
from mxamp.ops.roles import OutputRule, ValueKind
from mxamp.ops.tables._notation import SAME, attribute, record

COMPUTE = ValueKind.COMPUTE
GENERATE = ValueKind.GENERATE
MOVE = ValueKind.MOVE

_DTYPE = attribute("dtype", DType.FLOAT32)


def _topk_outputs(attrs: Mapping[str, str]) -> tuple[OutputRule, ...]:
    """Return the data's dtype for values, and for positions the one that ``dtype`` names.

    The hidden positions of ``ret_typ=value`` are INT32 whatever ``dtype`` says.
    """
    kind = attrs.get("ret_typ", "indices")
    if kind == "both":
        return (SAME, _DTYPE)
    return (_DTYPE,) if kind == "indices" else (SAME, DType.INT32)


def _topk_seeds(attrs: Mapping[str, str]) -> tuple[int, ...]:
    """Return the outputs that are positions: not the picked values, nor the mask."""
    return {"indices": (0,), "mask": ()}.get(attrs.get("ret_typ", "indices"), (1,))


def _zeros_without_dtype_outputs(attrs: Mapping[str, str]) -> tuple[OutputRule, ...]:
    """Return the dtype whose code the attribute holds; -1 leaves it to whatever reads the zeros."""
    code = attrs.get("dtype", "-1")
    try:
        return (SAME,) if code == "-1" else (DType.from_code(int(code)),)
    except (ValueError, TargetError) as error:
        raise OperatorError(f"_zeros_without_dtype has the attribute dtype={code!r}: {error}") from None


_PARAMETERS = {
    "uniform": "data data",
    "normal": "data data",
    "gamma": "data data",
    "exponential": "data",
    "poisson": "data",
    "negative_binomial": "data data",
    "generalized_negative_binomial": "data data",
}
"""Distribution -> the roles of its parameters, where they are inputs."""

_SHORT_NAMES = {"uniform": " uniform", "normal": " normal"}

RECORDS = (
    record("Reshape reshape", "data", MOVE),
    record("Flatten flatten _npx_batch_flatten", "data", MOVE),
    record("expand_dims _npi_expand_dims", "data", MOVE),
    record("squeeze", "data", MOVE),
    record("transpose", "data", MOVE),
    record("SwapAxis swapaxes _npi_swapaxes", "data", MOVE),
    record("reverse flip", "data", MOVE),
    record("repeat _np_repeat", "data", MOVE),
    record("tile _npi_tile", "data", MOVE),
    record("depth_to_space", "data", MOVE),
    record("space_to_depth", "data", MOVE),
    record("diag", "data", MOVE),
    record("broadcast_axis broadcast_axes", "data", MOVE),
    record("broadcast_to", "data", MOVE),
    # The second input only gives the shape, and may have any dtype.
    record("broadcast_like", "data like", MOVE),
    record("reshape_like _npx_reshape_like", "data like", MOVE),
    record("slice_like", "data like", MOVE),
    record("slice crop _sparse_slice _npi_slice _npx_slice", "data", MOVE),
    record("slice_axis", "data", MOVE),
    # Its outputs are numbered even where there is only one.
    record("SliceChannel split", "data", MOVE, named="output0"),
    record("_split_v2 _npi_split", "data", MOVE),
    record("Concat concat _sparse_concat", "data*", MOVE),
    record("_rnn_param_concat _npi_rnn_param_concat", "data*", MOVE),
    record("stack", "data*", MOVE),
    record("im2col", "data", MOVE),
    record("col2im", "data", COMPUTE),
    record("_slice_assign _crop_assign _npi_slice_assign", "data data", MOVE),
    record("_slice_assign_scalar _crop_assign_scalar _npi_slice_assign_scalar", "data", MOVE),
    # Indices are integers in float arrays (batch_take alone insists on INT32).
    record("take _npi_take", "data index", MOVE),
    record("batch_take", "data index", MOVE),
    record("pick choose_element_0index _npx_pick", "data index", MOVE),
    record("gather_nd _npi_gather_nd _npx_gather_nd", "data index", MOVE),
    record("scatter_nd", "data index", MOVE),
    record("_scatter_set_nd _npi_scatter_set_nd", "data data index", MOVE),
    record("one_hot _npx_one_hot", "index", GENERATE, out=_DTYPE),
    record("_contrib_boolean_mask _npi_boolean_mask", "data index", MOVE),
    record("_contrib_index_copy", "data index data", MOVE),
    record("_contrib_index_array", "like", GENERATE, out=DType.INT64, seeds=(0,)),
    record("_contrib_allclose", "free free", ValueKind.COMPARE, out=DType.UINT8),
    # Positions in, positions out, in one dtype.
    record("_ravel_multi_index ravel_multi_index", "coord", COMPUTE, seeds=(0,)),
    record("_unravel_index unravel_index", "coord", COMPUTE, seeds=(0,)),
    record("shape_array _npx_shape_array", "like", GENERATE, out=DType.INT64, seeds=(0,)),
    record("size_array", "like", GENERATE, out=DType.INT64, seeds=(0,)),
    # Ordering: positions come out as floats.
    record("topk _npx_topk", "data", MOVE, seeds=(0, 1), out_by=_topk_outputs, seeds_by=_topk_seeds),
    # A second, hidden output of positions.
    record("sort _npi_sort", "data", MOVE, out=(SAME, DType.INT32)),
    record("argsort _npi_argsort", "data", COMPUTE, out=_DTYPE, seeds=(0,)),
    record("argmax", "data", COMPUTE, seeds=(0,)),
    record("argmin", "data", COMPUTE, seeds=(0,)),
    record("argmax_channel", "data", COMPUTE, seeds=(0,)),
    # Made from attributes.
    record("_arange", "", GENERATE, out=_DTYPE, seeds=(0,)),
    record("_linspace _npi_linspace", "", GENERATE, out=_DTYPE, seeds=(0,)),
    record("_eye", "", GENERATE, out=_DTYPE),
    record("_zeros", "", GENERATE, out=_DTYPE),
    record("_zeros_without_dtype", "", GENERATE, out_by=_zeros_without_dtype_outputs),
    record("_ones", "", GENERATE, out=_DTYPE),
    record("_full _npi_full", "", GENERATE, out=_DTYPE),
    record("_contrib_arange_like _npx_arange_like", "like_same", GENERATE, seeds=(0,)),
    record("zeros_like _sparse_zeros_like", "like_same", GENERATE),
    record("ones_like", "like_same", GENERATE),
    # Random numbers: with the parameters as attributes, shaped like an input, and with them as inputs.
    *(
        record(f"_random_{name} random_{name}{_SHORT_NAMES.get(name, '')}", "", GENERATE, out=_DTYPE)
        for name in _PARAMETERS
    ),
    *(record(f"_random_{name}_like", "like_same", GENERATE) for name in _PARAMETERS),
    *(
        record(f"_sample_{name} sample_{name}", inputs, COMPUTE, out=_DTYPE)
        for name, inputs in _PARAMETERS.items()
    ),
    record(
        "_random_randint random_randint _npi_random_randint",
        "",
        GENERATE,
        out=attribute("dtype", DType.INT32),
        seeds=(0,),
    ),
    record(
        *("_sample_multinomial sample_multinomial", "data", COMPUTE),
        out=(attribute("dtype", DType.INT32), SAME),
        seeds=(0,),
    ),
    record("_shuffle shuffle _npi_shuffle", "data", MOVE),
)
