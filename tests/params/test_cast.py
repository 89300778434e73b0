from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mxamp.dtypes import DType
from mxamp.errors import ParamsError
from mxamp.ops.kernels import Kernels, kernels
from mxamp.params import cast, cast_array

LOW = [DType.FLOAT16, DType.BFLOAT16]
FLOATS = [*LOW, DType.FLOAT32, DType.FLOAT64]

every_low = pytest.mark.parametrize("dtype", LOW, ids=str)


def all_patterns(dtype):
    return np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)


def widened(array):
    # Some NumPy versions flag a NaN on its way to another dtype.
    with np.errstate(invalid="ignore"):
        return array.astype(np.float64)


def assert_same_bits(actual, expected):
    """Compare patterns; any NaN equals any NaN of the same sign."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    unsigned = f"u{actual.dtype.itemsize}"
    got, wanted = actual.view(unsigned), expected.view(unsigned)
    both_nan = np.isnan(widened(actual)) & np.isnan(widened(expected))
    both_nan &= np.signbit(widened(actual)) == np.signbit(widened(expected))
    wrong = np.flatnonzero((got != wanted) & ~both_nan)
    where = wrong[:1]
    assert not wrong.size, f"{wrong.size} differ, first at {where}: {got[where]} instead of {wanted[where]}"


def nearest_even(values, dtype):
    """Round float64 to ``dtype`` by definition: compare the distances to both neighbours, exactly."""
    ordered = all_patterns(dtype)[: 1 << 15]
    ordered = ordered[np.isfinite(widened(ordered))]
    grid = ordered.astype(np.float64)
    # The value that an unbounded exponent would have next: from half-way to it on, the result is infinite.
    grid = np.append(grid, 2 * grid[-1] - grid[-2])
    magnitude = np.abs(values)
    upper = np.clip(np.searchsorted(grid, magnitude), 1, len(grid) - 1)
    lower = upper - 1
    middle = (grid[lower] + grid[upper]) / 2  # exact: both have few bits
    index = np.where(magnitude < middle, lower, upper)
    index = np.where(magnitude == middle, np.where(lower % 2 == 0, lower, upper), index)
    # Patterns count upwards with magnitude, and the one after the largest finite value is infinity.
    sign = np.where(np.signbit(values), 1 << 15, 0)
    return (index + sign).astype(np.uint16).view(dtype.numpy)


def midpoints(dtype, source):
    """Every value half-way between two neighbours, and its own neighbours in ``source``, of both signs."""
    ordered = all_patterns(dtype)[: 1 << 15]
    grid = ordered[np.isfinite(widened(ordered))].astype(np.float64)
    grid = np.append(grid, 2 * grid[-1] - grid[-2])
    middle = ((grid[1:] + grid[:-1]) / 2).astype(source)
    near = [middle, np.nextafter(middle, source(0)), np.nextafter(middle, source(np.inf))]
    return np.concatenate([*near, *(-values for values in near)])


@every_low
@pytest.mark.parametrize("wide", [DType.FLOAT32, DType.FLOAT64], ids=str)
def test_widening_every_value_and_rounding_back_returns_it(dtype, wide):
    values = all_patterns(dtype)
    assert_same_bits(cast_array(cast_array(values, wide), dtype), values)


@every_low
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_every_midpoint_and_its_neighbours_round_as_defined(dtype, source):
    values = midpoints(dtype, source)
    assert_same_bits(cast_array(values, dtype), nearest_even(values.astype(np.float64), dtype))


@every_low
@settings(deadline=None, max_examples=300)
@given(values=hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(width=32, allow_nan=False)))
def test_any_float32_rounds_as_defined(dtype, values):
    assert_same_bits(cast_array(values, dtype), nearest_even(values.astype(np.float64), dtype))


@every_low
@settings(deadline=None, max_examples=300)
@given(values=hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(allow_nan=False)))
def test_any_float64_rounds_once_as_defined(dtype, values):
    assert_same_bits(cast_array(values, dtype), nearest_even(values, dtype))


@every_low
def test_float64_just_above_a_tie_is_not_rounded_twice(dtype):
    ulp = 2.0 / dtype.max_exact_integer
    value = np.array([1 + ulp / 2 + 2.0**-45])
    # Through float32 it would become the tie itself, and go down to the even neighbour.
    assert cast_array(value, dtype).astype(np.float64) == 1 + ulp
    assert cast_array(value.astype(np.float32), dtype).astype(np.float64) == 1


@pytest.mark.parametrize("upper", range(0, 1 << 16, 1 << 13))
def test_float16_is_numpys_on_a_slice_of_all_float32_patterns(upper):
    # All upper halves (sign, exponent, seven bits of significand), with the lower ones that decide roundings.
    lower = np.array(
        [0, 1, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x3001, 0x7FFF, 0x8000, 0xFFFF], np.uint32
    )
    bits = (np.arange(upper, upper + (1 << 13), dtype=np.uint32)[:, None] << 16) | lower
    values = bits.view(np.float32)
    with np.errstate(all="ignore"):
        assert_same_bits(cast_array(values, DType.FLOAT16), values.astype(np.float16))


@every_low
def test_overflow_becomes_infinite_from_half_an_ulp_beyond_the_largest_value(dtype):
    limit = {DType.FLOAT16: 65520.0, DType.BFLOAT16: float.fromhex("0x1.ffp127")}[dtype]
    values = np.array([limit, -limit, np.inf, -np.inf], np.float32)
    assert_same_bits(cast_array(values, dtype), np.array([np.inf, -np.inf] * 2).astype(dtype.numpy))
    below = np.nextafter(np.float32(limit), np.float32(0))
    assert cast_array(np.array([below]), dtype).astype(np.float64) == dtype.max_finite


@every_low
def test_half_the_smallest_subnormal_is_zero_and_keeps_its_sign(dtype):
    tie = np.float32(dtype.smallest_subnormal / 2)
    above = np.nextafter(tie, np.float32(1))
    result = cast_array(np.array([tie, -tie, above, -above, 0.0, -0.0], np.float32), dtype)
    assert (result.view(np.uint16) & 0x7FFF).tolist() == [0, 0, 1, 1, 0, 0]
    assert np.signbit(result.astype(np.float32)).tolist() == [False, True] * 3


@every_low
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_every_kind_of_nan_stays_nan_and_keeps_its_sign(dtype, source):
    # A payload in the lowest bit alone would vanish, and leave infinity.
    bits = np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x7F802000, 0x7FBFFFFF], np.uint32)
    bits = np.concatenate([bits, bits | 0x80000000])
    values = bits.view(np.float32)
    if source is np.float64:
        wide = bits.astype(np.uint64)
        values = ((wide >> 31 << 63) | (0x7FF << 52) | (wide & 0x7FFFFF) << 29 | 1).view(np.float64)
    result = widened(cast_array(values, dtype))
    assert np.isnan(result).all()
    assert np.signbit(result).tolist() == [False] * 5 + [True] * 5


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(LOW, 2)), ids=str)
def test_between_the_low_dtypes_values_are_rounded_once(source, target):
    values = all_patterns(source)
    values = values[~np.isnan(widened(values))]
    assert_same_bits(cast_array(values, target), nearest_even(values.astype(np.float64), target))


def test_float64_to_float32_is_rounded_by_the_processor():
    values = np.array([1 + 2.0**-24, 1 + 2.0**-24 + 2.0**-50, 1e300, -1e-300, np.nan])
    with np.errstate(all="ignore"):
        assert_same_bits(cast_array(values, DType.FLOAT32), values.astype(np.float32))


@pytest.mark.parametrize(("source", "target"), list(itertools.product(FLOATS, FLOATS)), ids=str)
def test_shape_is_kept_and_the_input_is_not_changed(source, target):
    for shape in [(), (0,), (0, 3), (2, 3, 4)]:
        array = np.full(shape, 1.5).astype(source.numpy)
        array.flags.writeable = False
        result = cast_array(array, target)
        assert result.shape == shape
        assert result.dtype == target.numpy
        assert result.flags.c_contiguous
        assert (result.astype(np.float64) == 1.5).all()


def test_an_array_of_the_dtype_is_returned_itself():
    array = np.ones(3, np.float16)
    assert cast_array(array, DType.FLOAT16) is array


@every_low
def test_blocks_do_not_show(dtype, monkeypatch):
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32) * np.float32(1e-4)
    whole = cast_array(values, dtype)
    monkeypatch.setattr(cast, "BLOCK", 7)
    assert_same_bits(cast_array(values, dtype), whole)


@every_low
def test_any_layout_and_byte_order_gives_the_same_values(dtype):
    values = np.random.default_rng(0).standard_normal((6, 10)).astype(np.float32)
    expected = cast_array(values, dtype)
    wide = np.zeros((12, 20), np.float32)
    wide[::2, ::2] = values
    misaligned = np.zeros(values.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(values.shape)
    misaligned[:] = values
    for variant in (np.asfortranarray(values), wide[::2, ::2], values.astype(">f4"), misaligned):
        assert_same_bits(cast_array(variant, dtype), expected)


def test_mxnets_structured_bfloat16_is_understood():
    values = np.array([1, -2.5], ml_dtypes.bfloat16)
    structured = values.view(np.uint16).view([("bfloat16", np.uint16)])
    assert cast_array(structured, DType.FLOAT32).tolist() == [1, -2.5]


@pytest.mark.parametrize("source", [np.int32, np.int8, np.bool_, np.complex64])
def test_integers_are_not_cast(source):
    with pytest.raises(ParamsError):
        cast_array(np.ones(3, source), DType.FLOAT16)


def test_floats_are_not_cast_to_integers():
    with pytest.raises(ParamsError, match="not to int8"):
        cast_array(np.ones(3, np.float32), DType.INT8)


@every_low
def test_no_warning_and_no_floating_point_error_escapes(dtype):
    values = np.array([1e30, 1e-30, np.nan, np.inf, 1e-7, 1e300, 1e-300])
    with np.errstate(all="raise"):
        cast_array(values, dtype)
        cast_array(values, DType.FLOAT32)
        with np.errstate(all="ignore"):
            narrow = values.astype(np.float32)
        cast_array(narrow, dtype)


def every_kind_of_float32(count):
    bits = np.random.default_rng(0).integers(0, 1 << 32, count, np.uint64).astype(np.uint32)
    kinds = [0x7F80_0001, 0xFF80_0001, 0x7FBF_FFFF, 0x7FC0_0000, 0xFFFF_FFFF, 0x7F80_2000, 0x7F80_0000, 0, 1]
    bits[: len(kinds)] = kinds
    return bits.view(np.float32)


@every_low
def test_every_route_gives_the_same_bits_nan_included(dtype, monkeypatch):
    values = every_kind_of_float32(100_000)
    assert np.isnan(values).sum() > 300
    fastest = cast_array(values, dtype)
    monkeypatch.setenv("MXAMP_NATIVE", "0")
    np.testing.assert_array_equal(fastest.view(np.uint16), cast_array(values, dtype).view(np.uint16))
    # Not contiguous, and too few for the native kernels.
    strided = np.repeat(values, 2)[::2]
    np.testing.assert_array_equal(fastest.view(np.uint16), cast_array(strided, dtype).view(np.uint16))
    few = np.concatenate([cast_array(part, dtype) for part in np.array_split(values, 100)])
    np.testing.assert_array_equal(fastest.view(np.uint16), few.view(np.uint16))


@pytest.mark.skipif(kernels() is None, reason="the native kernels are not built")
@every_low
@pytest.mark.parametrize(
    ("make", "is_native"),
    [
        (lambda values: values, True),
        (lambda values: values[:4096], True),
        (lambda values: values[:4095], False),
        (lambda values: values[::2], False),
        (lambda values: values.astype(np.float64), False),
        (lambda values: values.reshape(100, 100), True),
        (lambda values: values.reshape(100, 100).T, False),
    ],
    ids=["large", "just large enough", "small", "strided", "float64", "two dimensions", "transposed"],
)
def test_the_native_kernels_cast_what_they_are_best_at(dtype, make, is_native, monkeypatch):
    used = []
    whole = Kernels.cast

    def watched(self, *arguments, **options):
        used.append(arguments)
        return whole(self, *arguments, **options)

    monkeypatch.setattr(Kernels, "cast", watched)
    values = make(np.random.default_rng(0).normal(size=10_000).astype(np.float32))
    assert_same_bits(cast_array(values, dtype), nearest_even(values.astype(np.float64), dtype))
    assert bool(used) is is_native
