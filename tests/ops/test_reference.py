"""The NumPy twins, against a definition of rounding that shares nothing with them."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from mxamp.dtypes import FLOAT8_E4M3FN, FLOAT8_E5M2, TFLOAT32, DType
from mxamp.errors import OperatorError, TargetError
from mxamp.ops import reference
from mxamp.ops.formats import FORMATS, Overflow
from mxamp.ops.observation import OBSERVATION_LENGTH, Observation

ALL_FORMATS = pytest.mark.parametrize("format_", FORMATS, ids=str)
OVERFLOWS = pytest.mark.parametrize("overflow", Overflow, ids=str)

SPECIAL = (0x0000_0000, 0x8000_0000, 0x7F80_0000, 0xFF80_0000, 0x7FC0_0000, 0x7F80_0001, 0xFFFF_FFFF)
"""Zeros, infinities and NaN of both signs."""


def borders(format_: DType) -> list[int]:
    """Return the patterns of values where rounding to a format changes its ways, and of their neighbours."""
    ulp = 2.0 ** -(format_.format.significand_bits - 1)
    ties = (1 + ulp / 2, 1 + 1.5 * ulp)
    overflow = 2.0 ** math.floor(math.log2(format_.max_finite)) * ulp
    small = format_.smallest_subnormal
    marks = (*ties, format_.max_finite, format_.max_finite + overflow / 2, format_.smallest_normal)
    marks = (*marks, small, small / 2, small * 1.5)
    with np.errstate(over="ignore"):
        patterns = [int(np.float32(mark).view(np.uint32)) for mark in marks]
    return [pattern + step | sign for pattern in patterns for step in (-1, 0, 1) for sign in (0, 1 << 31)]


PATTERNS = st.one_of(
    st.integers(0, 2**32 - 1),
    st.sampled_from(sorted({*SPECIAL, *(pattern for format_ in FORMATS for pattern in borders(format_))})),
)
VALUES = st_numpy.arrays(
    np.uint32, st_numpy.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6), elements=PATTERNS
).map(lambda bits: np.asarray(bits).view(np.float32))


def rounded_by_definition(values: np.ndarray, format_: DType, overflow: Overflow) -> np.ndarray:
    """Round in float64: to a multiple of the distance between the format's values around each value."""
    wide = values.astype(np.float64)
    finite = np.isfinite(wide)
    _, exponents = np.frexp(np.where(finite, wide, 0.0))
    lowest = int(math.log2(format_.smallest_subnormal))
    quantum = np.ldexp(1.0, np.maximum(exponents - format_.format.significand_bits, lowest))
    rounded = np.where(finite, np.rint(np.where(finite, wide, 0.0) / quantum) * quantum, wide)
    beyond = np.abs(rounded) > format_.max_finite
    if overflow is Overflow.SATURATE:
        excess = np.copysign(format_.max_finite, wide)
    else:
        excess = np.copysign(math.inf if format_.format.has_infinity else math.nan, wide)
    with np.errstate(invalid="ignore"):
        return np.where(beyond, excess, np.copysign(rounded, wide)).astype(np.float32)


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    """Compare values, signs of zeros and of NaN; payloads have tests of their own."""
    assert actual.dtype == expected.dtype == np.float32
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))


@ALL_FORMATS
@OVERFLOWS
@given(values=VALUES)
def test_rounding_is_by_definition(values: np.ndarray, format_: DType, overflow: Overflow) -> None:
    before = values.tobytes()
    rounded = reference.round_to(values, format_, overflow)
    assert_same(rounded, rounded_by_definition(values, format_, overflow))
    assert values.tobytes() == before


@ALL_FORMATS
@OVERFLOWS
def test_rounding_is_by_definition_at_every_border(format_: DType, overflow: Overflow) -> None:
    values = np.array([*SPECIAL, *borders(format_)], np.uint32).view(np.float32)
    rounded = reference.round_to(values, format_, overflow)
    assert_same(rounded, rounded_by_definition(values, format_, overflow))


@ALL_FORMATS
@OVERFLOWS
@given(values=VALUES)
def test_rounding_twice_is_rounding_once(values: np.ndarray, format_: DType, overflow: Overflow) -> None:
    once = reference.round_to(values, format_, overflow)
    assert_same(reference.round_to(once, format_, overflow), once)


@ALL_FORMATS
@given(values=VALUES)
def test_rounding_keeps_the_order(values: np.ndarray, format_: DType) -> None:
    ordered = np.sort(values[~np.isnan(values)], axis=None)
    rounded = reference.round_to(ordered, format_, Overflow.SATURATE)
    assert (np.diff(rounded) >= 0).all()


@pytest.mark.parametrize("format_", [FLOAT8_E4M3FN, FLOAT8_E5M2], ids=str)
def test_every_float8_value_rounds_to_itself(format_: DType) -> None:
    dtype = getattr(ml_dtypes, format_.label)
    values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    assert_same(reference.round_to(values, format_), values)


def test_saturating_makes_infinity_finite_and_leaves_nan() -> None:
    values = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30], np.float32)
    for format_ in (DType.FLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2):
        most = format_.max_finite
        rounded = reference.round_to(values, format_, "saturate")
        np.testing.assert_array_equal(rounded, np.array([most, -most, np.nan, most, -most], np.float32))


def test_overflow_in_e4m3fn_is_nan() -> None:
    values = np.array([464.0, np.nextafter(np.float32(464), np.float32(500)), np.inf], np.float32)
    np.testing.assert_array_equal(reference.round_to(values, "float8_e4m3fn"), [448.0, np.nan, np.nan])


@OVERFLOWS
@pytest.mark.parametrize("format_", [DType.BFLOAT16, TFLOAT32, FLOAT8_E4M3FN], ids=str)
def test_nan_loses_its_payload_and_keeps_its_sign(format_: DType, overflow: Overflow) -> None:
    bits = np.array([0x7F80_0001, 0xFF80_0001, 0x7FFF_FFFF, 0xFFFF_FFFF], np.uint32)
    rounded = reference.round_to(bits.view(np.float32), format_, overflow)
    expected = np.array([0x7FC0_0000, 0xFFC0_0000, 0x7FC0_0000, 0xFFC0_0000], np.uint32)
    np.testing.assert_array_equal(rounded.view(np.uint32), expected)


@OVERFLOWS
def test_nan_keeps_the_upper_payload_in_float16(overflow: Overflow) -> None:
    bits = np.array([0x7FC1_2345, 0xFFFF_FFFF], np.uint32)
    rounded = reference.round_to(bits.view(np.float32), "float16", overflow)
    np.testing.assert_array_equal(rounded.view(np.uint32), bits & np.uint32(0xFFFF_E000))


@pytest.mark.parametrize(
    "values",
    [
        np.float32(1.0009),
        np.array(1.0009, np.float32),
        np.zeros((3, 0, 2), np.float32),
        np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6)[::2, ::-3],
        np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3).T,
        np.array([1.0009, 70000.0], ">f4"),
        np.broadcast_to(np.float32(1.0009), (3, 2)),
    ],
    ids=["scalar", "no dimensions", "no elements", "strided", "transposed", "big-endian", "broadcast"],
)
@ALL_FORMATS
def test_any_layout_is_rounded(values: np.ndarray, format_: DType) -> None:
    plain = np.array(values, np.float32)
    rounded = reference.round_to(values, format_)
    assert_same(rounded, rounded_by_definition(plain, format_, Overflow.INF))
    assert reference.observe(values) == reference.observe(plain)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, ml_dtypes.bfloat16, bool], ids=str)
def test_other_dtypes_are_refused(dtype: Any) -> None:
    values = np.zeros(3, dtype)
    with pytest.raises(OperatorError, match=r"round_to takes float32 values, not \w+\. Cast them"):
        reference.round_to(values, "float16")
    with pytest.raises(OperatorError, match=r"observe takes float32 values, not \w+\. Cast them"):
        reference.observe(values)


def test_unknown_format_and_overflow_are_refused() -> None:
    with pytest.raises(OperatorError, match="'float12' is not a format"):
        reference.round_to(np.zeros(3, np.float32), "float12")
    with pytest.raises(OperatorError, match="'wrap' says nothing about overflow"):
        reference.round_to(np.zeros(3, np.float32), "float16", "wrap")


# Observing


def observed_one_by_one(values: np.ndarray) -> Observation:
    seen = Observation.empty()
    for bits in values.reshape(-1).view(np.uint32).tolist():
        value = float(np.uint32(bits).view(np.float32))
        exponent = bits >> 23 & 0xFF
        finite = math.isfinite(value)
        one = Observation(
            count=1,
            nan=int(math.isnan(value)),
            inf=int(math.isinf(value)),
            zero=int(value == 0),
            minimum=value if finite else math.inf,
            maximum=value if finite else -math.inf,
            largest=abs(value) if finite else 0.0,
            smallest_nonzero=abs(value) if finite and value else math.inf,
            exponents=tuple(int(number == exponent) for number in range(256)),
        )
        seen = seen.merge(one)
    return seen


@given(values=VALUES)
def test_observing_is_looking_at_every_value(values: np.ndarray) -> None:
    before = values.tobytes()
    seen = reference.observe(values)
    assert seen == observed_one_by_one(values)
    assert values.tobytes() == before


@given(values=VALUES)
def test_counts_add_up(values: np.ndarray) -> None:
    seen = reference.observe(values)
    assert sum(seen.exponents) == seen.count == values.size
    assert seen.exponents[255] == seen.nan + seen.inf
    assert seen.exponents[0] >= seen.zero


@given(values=VALUES, more=VALUES)
def test_merged_observations_are_those_of_all_values(values: np.ndarray, more: np.ndarray) -> None:
    both = np.concatenate([values.reshape(-1), more.reshape(-1)])
    assert reference.observe(values).merge(reference.observe(more)) == reference.observe(both)


def test_numbers_are_the_attributes_in_their_order_and_hold_counts_that_float32_cannot() -> None:
    count = 2**24 + 1
    numbers = np.array([count, 1, 2, count - 3, -4.0, 5.0, 5.0, 0.5, count, *range(255)], np.float64)
    assert numbers.shape == (OBSERVATION_LENGTH,)
    exponents = (count, *range(255))
    expected = Observation(count, 1, 2, count - 3, -4.0, 5.0, 5.0, 0.5, exponents)
    assert Observation.from_numbers(numbers) == expected


@pytest.mark.parametrize(
    "numbers",
    [np.zeros(OBSERVATION_LENGTH, np.float32), np.zeros(8), np.zeros((1, OBSERVATION_LENGTH))],
    ids=["float32", "too short", "two dimensions"],
)
def test_other_numbers_are_no_observation(numbers: np.ndarray) -> None:
    with pytest.raises(OperatorError, match=r"An observation is 264 float64 numbers, not float"):
        Observation.from_numbers(numbers)


# MXNet's casts

FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
PASSING = tuple(dtype for dtype in DType if dtype not in FLOATS)


@pytest.mark.parametrize("target", [dtype for dtype in DType if dtype is not DType.BOOL], ids=str)
@pytest.mark.parametrize("source", PASSING, ids=str)
def test_amp_cast_lets_the_others_pass(source: DType, target: DType) -> None:
    data = np.ones(3, source.numpy)
    assert reference.amp_cast(data, target) is data


@pytest.mark.parametrize("target", FLOATS, ids=str)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_amp_cast_casts_floats_with_one_rounding(source: DType, target: DType) -> None:
    data = np.array([1 + 2.0**-9, -70000.0, 2.0**-26, np.inf, 0.1], np.float32).astype(source.numpy)
    cast = reference.amp_cast(data, target.label)
    assert cast.dtype == target.numpy
    wide = data.astype(np.float32)
    expected = wide if target is DType.FLOAT32 else reference.round_to(wide, target.label)
    np.testing.assert_array_equal(cast.astype(np.float32), expected)


def test_amp_cast_reads_mxnets_bfloat16() -> None:
    data = np.array([0x3F80, 0xC000], np.uint16).view([("bfloat16", np.uint16)])
    np.testing.assert_array_equal(reference.amp_cast(data, "float32"), np.array([1.0, -2.0], np.float32))


def test_amp_cast_to_integers_cuts_off() -> None:
    data = np.array([2.7, -2.7, 0.4], np.float32)
    cast = reference.amp_cast(data, "int32")
    assert cast.dtype == np.int32
    np.testing.assert_array_equal(cast, [2, -2, 0])


def test_amp_cast_refuses_what_mxnet_does_not_have() -> None:
    with pytest.raises(TargetError, match="'float8' is not a dtype of MXNet"):
        reference.amp_cast(np.zeros(3, np.float32), "float8")
    with pytest.raises(TargetError, match="is not a dtype of MXNet"):
        reference.amp_cast(np.zeros(3, np.complex64), "float16")
    with pytest.raises(OperatorError, match="casts to numbers, not to bool"):
        reference.amp_cast(np.zeros(3, np.float32), "bool")
