"""Formats: their numbers, and how they are spelled."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from mxamp.dtypes import FLOAT8_E4M3FN, FLOAT8_E5M2, TFLOAT32, DType
from mxamp.errors import OperatorError
from mxamp.ops.formats import FORMATS, Overflow, as_format

BY_ML_DTYPES = {
    DType.FLOAT16: np.float16,
    DType.BFLOAT16: ml_dtypes.bfloat16,
    FLOAT8_E4M3FN: ml_dtypes.float8_e4m3fn,
    FLOAT8_E5M2: ml_dtypes.float8_e5m2,
}


@pytest.mark.parametrize("format_", BY_ML_DTYPES, ids=str)
def test_numbers_are_those_of_ml_dtypes(format_: DType) -> None:
    expected = ml_dtypes.finfo(BY_ML_DTYPES[format_])
    assert format_.max_finite == float(expected.max)
    assert format_.smallest_normal == float(expected.smallest_normal)
    assert format_.smallest_subnormal == float(expected.smallest_subnormal)
    assert format_.format.significand_bits == expected.nmant + 1
    assert format_.format.exponent_bits == expected.nexp


def test_tfloat32_has_the_range_of_float32_and_the_precision_of_float16() -> None:
    tfloat32, float32 = TFLOAT32, np.finfo(np.float32)
    assert tfloat32.format.significand_bits == DType.FLOAT16.format.significand_bits
    assert tfloat32.format.significand_bits + tfloat32.format.exponent_bits == 19
    assert tfloat32.smallest_normal == float32.tiny
    assert tfloat32.smallest_subnormal == float32.tiny * 2.0**-10
    assert tfloat32.max_finite == 2.0**127 * (2 - 2.0**-10)


def test_only_e4m3fn_has_no_infinity() -> None:
    assert [format_ for format_ in FORMATS if not format_.format.has_infinity] == [FLOAT8_E4M3FN]


@pytest.mark.parametrize("format_", FORMATS, ids=str)
def test_format_is_read_from_itself_and_its_name(format_: DType) -> None:
    assert as_format(format_) is format_
    assert as_format(format_.label) is format_
    assert as_format(f" {format_.label.upper()} ") is format_
    assert copy.deepcopy(format_) is format_
    assert pickle.loads(pickle.dumps(format_)) is format_


@pytest.mark.parametrize(
    "value",
    [DType.BFLOAT16, np.dtype(ml_dtypes.bfloat16), np.dtype([("bfloat16", np.uint16)])],
    ids=["dtype", "numpy", "mxnet"],
)
def test_format_is_read_from_a_dtype(value: object) -> None:
    assert as_format(value) is DType.BFLOAT16


@pytest.mark.parametrize(
    "value", ["float32", "half", "", None, 2, np.float32, DType.INT8, ["float16"]], ids=repr
)
def test_what_is_no_format_is_named(value: object) -> None:
    with pytest.raises(OperatorError, match=r"is not a format to round to.*float8_e4m3fn, float8_e5m2\."):
        as_format(value)


def test_a_misspelled_format_is_corrected() -> None:
    with pytest.raises(OperatorError, match=r"'float8_e5m3'.* Did you mean 'float8_e5m2'"):
        as_format("float8_e5m3")


def test_overflow_is_read_from_itself_and_its_name() -> None:
    assert [Overflow.parse(value) for value in ("inf", "saturate", Overflow.SATURATE)] == [
        Overflow.INF,
        Overflow.SATURATE,
        Overflow.SATURATE,
    ]


@pytest.mark.parametrize("value", ["clip", None, 0, ["inf"]], ids=repr)
def test_what_is_no_overflow_is_named(value: object) -> None:
    with pytest.raises(OperatorError, match=r"says nothing about overflow\. Use 'inf' or 'saturate'"):
        Overflow.parse(value)
