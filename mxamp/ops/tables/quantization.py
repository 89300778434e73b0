"""Operators of graphs that were quantized to INT8, or fused for oneDNN, before mxamp saw them.

The inputs that are KEPT hold INT8, UINT8 or INT32; the ranges beside them are FP32.
"""

from __future__ import annotations

from typing import Mapping

from mxamp.dtypes import DType
from mxamp.ops.attributes import is_true
from mxamp.ops.roles import InputRole, OutputRule, SameAsData, ValueKind
from mxamp.ops.tables._notation import SAME, attribute, record, roles

AFFINE = ValueKind.AFFINE
COMPUTE = ValueKind.COMPUTE
MOVE = ValueKind.MOVE
FP32 = DType.FLOAT32

FIRST = SameAsData.FIRST_INPUT

_RANGED = "output min_output max_output"
_UNKNOWN = SAME
"""What an operator without data inputs hands on when the dtype is not known before run time."""


def _quantized_dtype(attrs: Mapping[str, str]) -> tuple[OutputRule, ...]:
    """Return ``out_type``, where ``auto`` means UINT8 for a calibrated range without negative numbers."""
    chosen = attrs.get("out_type", "int8")
    if chosen != "auto":
        return (attribute("out_type", DType.INT8), FP32)
    calibrated = "min_calib_range" in attrs and "max_calib_range" in attrs
    try:
        positive = calibrated and float(attrs["min_calib_range"]) >= 0
    except ValueError:  # None
        positive = False
    return (DType.UINT8 if positive else DType.INT8, FP32)


def _is_calibrated(attrs: Mapping[str, str]) -> bool:
    return all(attrs.get(key, "None") != "None" for key in ("min_calib_range", "max_calib_range"))


def _sum_dtype(attrs: Mapping[str, str]) -> tuple[OutputRule, ...]:
    """Return INT32, but where the range is calibrated what its two inputs give: UINT8 if both are."""
    return (_UNKNOWN if _is_calibrated(attrs) else DType.INT32, FP32)


def _product_dtype(attrs: Mapping[str, str]) -> tuple[OutputRule, ...]:
    if is_true(attrs, "enable_float_output", default=False):
        return (FP32,)
    return (DType.INT8 if _is_calibrated(attrs) else DType.INT32, FP32)


def _convolution_roles(attrs: Mapping[str, str]) -> tuple[InputRole, ...]:
    """Return the roles of data, weight, bias (if there is one) and a range for each."""
    count = 2 if is_true(attrs, "no_bias", default=False) else 3
    return (InputRole.KEPT,) * count + (InputRole.PARAM_FP32,) * (2 * count)


def _recurrent_roles(attrs: Mapping[str, str]) -> tuple[InputRole, ...]:
    """Return the roles of data, parameters, two states, sequence lengths (if used), scale and shift."""
    lengths = is_true(attrs, "use_sequence_length", default=False)
    return roles(f"kept fp32 fp32 fp32 {'index ' if lengths else ''}fp32 fp32")


def _fused_roles(attrs: Mapping[str, str]) -> tuple[InputRole, ...]:
    """Return the role of the data; what follows depends on what was fused."""
    return roles("kept") if is_true(attrs, "quantized", default=False) else roles("data")


def _fused_dtype(attrs: Mapping[str, str]) -> tuple[OutputRule, ...]:
    """Return the data's dtype; if quantized FP32, INT32, or INT8 or UINT8 as what was fused decides."""
    if not is_true(attrs, "quantized", default=False):
        return (SAME,)
    if is_true(attrs, "enable_float_output", default=False):
        return (FP32,)
    return (_UNKNOWN if _is_calibrated(attrs) else DType.INT32, FP32)


RECORDS = (
    # data and its range.
    record(*("_contrib_quantize", "fp32 fp32 fp32", AFFINE), out=(attribute("out_type", DType.UINT8), FP32)),
    # Data that is INT8 or UINT8 already passes through.
    record("_contrib_quantize_v2", "fp32", AFFINE, out=(DType.INT8, FP32), out_by=_quantized_dtype),
    record("_contrib_quantize_asym", "fp32", AFFINE, out=(DType.UINT8, FP32), named="output scale shift"),
    record(
        *("_contrib_requantize", "kept fp32 fp32", AFFINE), out=(DType.INT8, FP32), out_by=_quantized_dtype
    ),
    record("_contrib_dequantize", "kept fp32 fp32", AFFINE, out=FP32),
    # Counts and edges of a histogram in, a threshold out: run while calibrating.
    record("_contrib_calibrate_entropy", "fp32 fp32", COMPUTE, out=FP32, named="threshold divergence"),
    record("_contrib_quantized_act", "kept fp32 fp32", COMPUTE, out=(DType.INT8, FP32), named=_RANGED),
    record("_contrib_quantized_flatten", "kept fp32 fp32", MOVE, out=(FIRST, FP32), named=_RANGED),
    record("_contrib_quantized_pooling", "kept fp32 fp32", COMPUTE, out=(FIRST, FP32), named=_RANGED),
    # The data, then their ranges. UINT8 if all of them are, else INT8.
    record("_contrib_quantized_concat", "kept*", MOVE, out=(_UNKNOWN, FP32), named=_RANGED),
    record(
        *("_contrib_quantized_batch_norm", "kept fp32 fp32 fp32 fp32 fp32 fp32", COMPUTE),
        out=(DType.INT8, FP32),
        named=_RANGED,
    ),
    *(
        record(
            f"_contrib_quantized_{name}",
            *("kept kept kept fp32 fp32 fp32 fp32 fp32 fp32", COMPUTE),
            out=(DType.INT32, FP32),
            inputs_by=_convolution_roles,
            named=_RANGED,
            multiplies=True,
        )
        for name in ("conv", "fully_connected")
    ),
    record(
        *("_contrib_quantized_elemwise_add", "kept kept fp32 fp32 fp32 fp32", AFFINE),
        out=(DType.INT32, FP32),
        out_by=_sum_dtype,
        named=_RANGED,
    ),
    record(
        *("_contrib_quantized_elemwise_mul", "kept kept fp32 fp32 fp32 fp32", AFFINE),
        out=(DType.INT32, FP32),
        out_by=_product_dtype,
        named=_RANGED,
    ),
    record(
        *("_contrib_quantized_embedding", "index kept fp32 fp32", MOVE), out=(DType.INT8, FP32), named=_RANGED
    ),
    record(
        *("_contrib_quantized_rnn", "kept fp32 fp32 fp32 index fp32 fp32", COMPUTE),
        out=FP32,
        inputs_by=_recurrent_roles,
        multiplies=True,
    ),
    # What get_backend_symbol("MKLDNN") writes.
    *(
        record(
            f"_sg_mkldnn_{name}",
            *("data kept*", COMPUTE),
            inputs_by=_fused_roles,
            out_by=_fused_dtype,
            named=_RANGED,
            multiplies=True,
        )
        for name in ("conv", "fully_connected", "selfatt_qk", "selfatt_valatt")
    ),
)
