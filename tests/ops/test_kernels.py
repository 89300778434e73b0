"""The native kernels: every result is, bit for bit, that of NumPy, of ml_dtypes, or of float64 arithmetic."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Callable, Iterator

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mxamp.dtypes import FLOAT8_E4M3FN, FLOAT8_E5M2, TFLOAT32, DType
from mxamp.errors import LibraryError, OperatorError
from mxamp.ops.build import build
from mxamp.ops.formats import FORMATS, Overflow
from mxamp.ops.kernels import Kernels, load_kernels
from mxamp.ops.libraries import find_built, kernels_library

NUMPY = {
    DType.FLOAT16: np.dtype(np.float16),
    DType.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    FLOAT8_E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    FLOAT8_E5M2: np.dtype(ml_dtypes.float8_e5m2),
}
STORED = (DType.FLOAT16, DType.BFLOAT16)
PIECE = 1 << 16
"""What the kernels hand to a thread at a time."""

all_formats = pytest.mark.parametrize("format", FORMATS, ids=str)
stored_formats = pytest.mark.parametrize("format", STORED, ids=str)
both_overflows = pytest.mark.parametrize("overflow", list(Overflow), ids=str)

EDGES = np.array(
    [
        *(0x0000_0000, 0x0000_0001, 0x007F_FFFF, 0x0080_0000),  # zero, subnormal, smallest normal
        *(0x7F7F_FFFF, 0x7F80_0000),  # largest, infinity
        *(0x7F80_0001, 0x7F80_1FFF, 0x7F80_2000, 0x7FC0_0000, 0x7FFF_FFFF),  # NaN, signalling and quiet
        # float16: ties and neighbours around 2^-25, the smallest normal, one, and overflow
        *(0x3300_0000, 0x3300_0001, 0x32FF_FFFF, 0x3380_0000, 0x33C0_0000, 0x387F_E000, 0x387F_F000),
        *(0x3880_0000, 0x3880_1000, 0x3F80_1000, 0x3F80_3000, 0x3F80_0FFF, 0x3F80_1001),
        *(0x477F_E000, 0x477F_EFFF, 0x477F_F000, 0x477F_FFFF, 0x4780_0000),
        # bfloat16 and tfloat32: ties of both parities, overflow, subnormal ties
        *(0x3F80_8000, 0x3F81_8000, 0x7F7F_7FFF, 0x7F7F_8000, 0x7F7F_EFFF, 0x7F7F_F000, 0x0000_8000),
        *(0x0000_8001, 0x0001_8000, 0x0000_1000, 0x0000_3000),
        # float8: ties below the smallest subnormal, and around the largest value
        *(0x3A80_0000, 0x3A80_0001, 0x43E0_0000, 0x43E8_0000, 0x43E8_0001, 0x43F0_0000, 0x4400_0000),
        *(0x3700_0000, 0x3700_0001, 0x4760_0000, 0x476F_FFFF, 0x4770_0000),
    ],
    np.uint32,
)

patterns = st.lists(st.integers(0, 0xFFFF_FFFF) | st.sampled_from([int(bits) for bits in EDGES]), max_size=70)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    library = kernels_library()
    path = find_built(library)
    if path is None:
        try:
            path = build(library, folder=tmp_path_factory.mktemp("native"))
        except LibraryError as error:
            pytest.skip(f"the kernels cannot be built here: {error}")
    return load_kernels(path, library)


@pytest.fixture(scope="module", params=(0, 1, 2), ids=("portable", "avx2", "avx512"))
def native(request: pytest.FixtureRequest, built: Kernels) -> Iterator[Kernels]:
    best = built.instructions()
    if built.set_instructions(request.param) != request.param:
        built.set_instructions(best)
        pytest.skip("this processor lacks the instructions")
    yield built
    built.set_instructions(best)


def as_floats(bits: Any) -> NDArray[np.float32]:
    return np.asarray(bits, np.uint32).view(np.float32)


def with_negatives(bits: NDArray[np.uint32]) -> NDArray[np.float32]:
    return as_floats(np.concatenate([bits, bits | 0x8000_0000]))


def round_by_float64(values: NDArray[np.float32], format: DType, overflow: Overflow) -> NDArray[np.float32]:
    """Round in float64, which is exact for all that is done here: NumPy's rint rounds ties to even."""
    lowest = int(math.log2(format.smallest_normal))
    with np.errstate(all="ignore"):
        wide = np.abs(values.astype(np.float64))
        _, exponents = np.frexp(wide)
        steps = np.maximum(exponents - 1, lowest) - (format.format.significand_bits - 1)
        rounded = np.ldexp(np.rint(np.ldexp(wide, -steps)), steps)
        beyond = math.inf if format.format.has_infinity else math.nan
        beyond = format.max_finite if overflow is Overflow.SATURATE else beyond
        rounded = np.where(rounded > format.max_finite, beyond, rounded)
        return np.copysign(rounded, values).astype(np.float32)


def expected_round(values: NDArray[np.float32], format: DType, overflow: Overflow) -> NDArray[np.uint32]:
    """Return the patterns that the casts of NumPy or ml_dtypes, or else float64 arithmetic, lead to."""
    if format is TFLOAT32:
        by_float64 = round_by_float64(values, format, overflow).view(np.uint32)
        quiet = (values.view(np.uint32) & 0x8000_0000) | 0x7FC0_0000
        return np.where(np.isnan(values), quiet, by_float64)
    with np.errstate(all="ignore"):
        result = values.astype(NUMPY[format]).astype(np.float32)
    if overflow is Overflow.SATURATE:
        lost = ~np.isfinite(result) & ~np.isnan(values)
        result[lost] = np.copysign(np.float32(format.max_finite), values[lost])
    return result.view(np.uint32)


def check_round(native: Kernels, values: NDArray[np.float32], format: DType, overflow: Overflow) -> None:
    found = native.round(values, format, overflow=overflow, threads=1)
    np.testing.assert_array_equal(found.view(np.uint32), expected_round(values, format, overflow))
    exact = ~np.isnan(values)
    by_float64 = round_by_float64(values, format, overflow)
    np.testing.assert_array_equal(found[exact], by_float64[exact])


@all_formats
@both_overflows
def test_edges_are_rounded_as_the_reference_rounds_them(
    native: Kernels, format: DType, overflow: Overflow
) -> None:
    check_round(native, with_negatives(EDGES), format, overflow)


@all_formats
@both_overflows
def test_a_stride_through_all_float32_values_is_rounded_as_the_reference_rounds_it(
    native: Kernels, format: DType, overflow: Overflow
) -> None:
    # A prime stride meets every exponent, and every pattern of the lowest bits.
    check_round(native, as_floats(np.arange(0, 1 << 32, 65_521, np.uint64)), format, overflow)


@all_formats
def test_every_tie_and_its_neighbours_are_rounded_as_the_reference_rounds_them(
    native: Kernels, format: DType
) -> None:
    if format is TFLOAT32:
        grid = np.arange(0, 0x7F80_0000, 1 << 19, dtype=np.uint32).view(np.float32)
        after = (grid.view(np.uint32) + (1 << 13)).view(np.float32)
    else:
        width = np.uint16 if NUMPY[format].itemsize == 2 else np.uint8
        bits = np.arange(0, np.iinfo(width).max // 2, dtype=width).view(NUMPY[format]).astype(np.float32)
        grid, after = bits[:-1], bits[1:]
        grid, after = grid[np.isfinite(after)], after[np.isfinite(after)]
    middle = ((grid.astype(np.float64) + after) / 2).astype(np.float32).view(np.uint32)
    # The tie below the smallest subnormal of bfloat16 is itself subnormal in float32, and exact.
    near = np.concatenate([middle, middle - 1, middle + 1])
    check_round(native, with_negatives(near), format, Overflow.INF)


@all_formats
def test_rounding_what_is_rounded_changes_nothing(native: Kernels, format: DType) -> None:
    values = as_floats(np.arange(0, 1 << 32, 655_211, np.uint64))
    once = native.round(values, format)
    np.testing.assert_array_equal(native.round(once, format).view(np.uint32), once.view(np.uint32))


@given(bits=patterns, format=st.sampled_from(FORMATS), overflow=st.sampled_from(list(Overflow)))
@settings(deadline=None)
def test_any_patterns_are_rounded_as_the_reference_rounds_them(
    built: Kernels, bits: list[int], format: DType, overflow: Overflow
) -> None:
    check_round(built, as_floats(bits), format, overflow)


@stored_formats
def test_casting_gives_the_bits_of_the_reference(native: Kernels, format: DType) -> None:
    values = np.concatenate([as_floats(np.arange(0, 1 << 32, 65_521, np.uint64)), with_negatives(EDGES)])
    with np.errstate(all="ignore"):
        expected = values.astype(NUMPY[format]).view(np.uint16)
    found = native.cast(values, str(format))
    assert found.dtype == NUMPY[format]
    np.testing.assert_array_equal(found.view(np.uint16), expected)


@stored_formats
@both_overflows
def test_casting_and_widening_again_is_rounding(native: Kernels, format: DType, overflow: Overflow) -> None:
    values = np.concatenate([as_floats(np.arange(0, 1 << 32, 131_071, np.uint64)), with_negatives(EDGES)])
    cast = native.cast(values, str(format), overflow=overflow)
    widened = native.widen(cast, str(format))
    rounded = native.round(values, format, overflow=overflow)
    np.testing.assert_array_equal(widened.view(np.uint32), rounded.view(np.uint32))


@stored_formats
def test_every_16_bit_pattern_is_widened_exactly(native: Kernels, format: DType) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    found = native.widen(bits.view(NUMPY[format]), str(format))
    with np.errstate(all="ignore"):
        expected = bits.view(NUMPY[format]).astype(np.float32)
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@stored_formats
@pytest.mark.parametrize(
    ("shape", "factors"),
    [
        ((7, 5, 3, 3), (7, 1, 1, 1)),
        ((7, 5, 3, 3), (5, 1, 1)),
        ((7, 5, 3, 3), (1, 5, 1, 1)),
        ((40, 33), (33,)),
        ((2, 3, 91), (3, 1)),
        ((300, 257), (300, 1)),
        ((1300,), (1300,)),
        ((8, 9), (1, 1)),
        ((8, 9), ()),
        ((), ()),
        ((0, 3), (3,)),
        ((3, 0), (3, 1)),
    ],
    ids=str,
)
def test_scaling_rounds_the_float32_product_once(
    native: Kernels, format: DType, shape: tuple[int, ...], factors: tuple[int, ...]
) -> None:
    random = np.random.default_rng(0)
    values = (random.standard_normal(shape) * np.exp2(random.integers(-30, 12, shape))).astype(np.float32)
    values, scale = np.asarray(values), np.asarray(random.standard_normal(factors), np.float32)
    found = native.scale_cast(values, scale, str(format))
    with np.errstate(all="ignore"):
        product = np.asarray(values * scale, np.float32)
        expected = product.astype(NUMPY[format])
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("inner", [1, 5, 200], ids="rows of {}".format)
def test_scaling_on_several_threads_takes_the_factor_of_each_channel(built: Kernels, inner: int) -> None:
    channels = 3
    outer = 3 * PIECE // (channels * inner) + 1
    values = np.random.default_rng(1).standard_normal((outer, channels, inner)).astype(np.float32)
    factors = np.array([0.5, -2.0, 3.0], np.float32).reshape(1, 3, 1)
    found = built.scale_cast(values, factors, "bfloat16", threads=2)
    np.testing.assert_array_equal(found, (values * factors).astype(ml_dtypes.bfloat16))


def observe_by_numpy(values: NDArray[np.float32]) -> dict[str, Any]:
    finite = values[np.isfinite(values)]
    magnitudes = np.abs(finite)
    return {
        "count": values.size,
        "nan": int(np.isnan(values).sum()),
        "inf": int(np.isinf(values).sum()),
        "zero": int((values == 0).sum()),
        "minimum": float(finite.min(initial=math.inf)),
        "maximum": float(finite.max(initial=-math.inf)),
        "largest": float(magnitudes.max(initial=0.0)),
        "smallest_nonzero": float(magnitudes[magnitudes > 0].min(initial=math.inf)),
        "exponents": tuple(np.bincount((values.view(np.uint32) >> 23) & 0xFF, minlength=256).tolist()),
    }


OBSERVED: dict[str, Callable[[], NDArray[np.float32]]] = {
    "nothing": lambda: np.zeros(0, np.float32),
    "one number": lambda: np.array([-3.0], np.float32),
    "zeros of both signs": lambda: np.array([0.0, -0.0] * 9, np.float32),
    "only negative": lambda: -np.arange(1, 99, dtype=np.float32),
    "only positive": lambda: np.arange(1, 99, dtype=np.float32),
    "negative and zero": lambda: -np.arange(99, dtype=np.float32),
    "positive and negative zero": lambda: np.array([-0.0, 1.0, 2.0], np.float32),
    "subnormal": lambda: as_floats([1, 0x8000_0005, 0x007F_FFFF]),
    "only NaN": lambda: as_floats([0x7FC0_0000, 0xFFFF_FFFF, 0x7F80_0001] * 5),
    "only infinity": lambda: np.array([math.inf, -math.inf, math.inf], np.float32),
    "edges": lambda: with_negatives(EDGES),
    "every exponent": lambda: as_floats(np.arange(0, 1 << 32, 655_211, np.uint64)),
    "a normal layer": lambda: np.random.default_rng(2).standard_normal(12_345).astype(np.float32),
    "one NaN late": lambda: np.r_[np.ones(9_000, np.float32), as_floats([0x7FC0_0000])],
    "after ReLU": lambda: np.maximum(np.random.default_rng(3).standard_normal(5_000), 0).astype(np.float32),
    "constant": lambda: np.full(3 * PIECE + 1, 1.5, np.float32),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", OBSERVED)
def test_an_observation_is_what_numpy_counts(native: Kernels, name: str, threads: int) -> None:
    values = OBSERVED[name]()
    seen = native.observe(values, threads=threads)
    assert vars(seen) == observe_by_numpy(values)


@pytest.mark.parametrize("name", OBSERVED)
def test_observing_copies_the_very_bits(native: Kernels, name: str) -> None:
    values = OBSERVED[name]()
    out = np.full_like(values, 7.0)
    seen = native.observe(values, out=out)
    assert vars(seen) == observe_by_numpy(values)
    np.testing.assert_array_equal(out.view(np.uint32), values.view(np.uint32))


def test_minimum_and_maximum_keep_the_signs_of_zero(native: Kernels) -> None:
    for values, signs in (
        ([0.0, -0.0], (-1, 1)),
        ([-0.0, -1.0], (-1, -1)),
        ([0.0, 1.0], (1, 1)),
        ([-0.0, -0.0], (-1, -1)),
        ([0.0, 0.0], (1, 1)),
    ):
        seen = native.observe(np.array(values, np.float32))
        assert (math.copysign(1, seen.minimum), math.copysign(1, seen.maximum)) == signs, values


@given(bits=patterns)
@example(bits=[0x8000_0000, 0x0000_0000])
@settings(deadline=None)
def test_any_patterns_are_observed_as_numpy_counts_them(built: Kernels, bits: list[int]) -> None:
    values = as_floats(bits)
    assert vars(built.observe(values)) == observe_by_numpy(values)
    assert built.largest_finite(values) == observe_by_numpy(values)["largest"]


@pytest.mark.parametrize("name", OBSERVED)
def test_the_largest_magnitude_is_that_of_finite_values(native: Kernels, name: str) -> None:
    values = OBSERVED[name]()
    assert native.largest_finite(values) == observe_by_numpy(values)["largest"]


@pytest.mark.parametrize(
    "size", [0, 1, 3, 15, 16, 17, 63, 65, 1023, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 7]
)
@pytest.mark.parametrize("offset", [0, 1, 3], ids="offset {}".format)
def test_every_size_and_alignment_writes_all_results_and_nothing_else(
    native: Kernels, size: int, offset: int
) -> None:
    values = np.random.default_rng(size).standard_normal(size + offset).astype(np.float32)[offset:]
    rounded = np.full(size + 8, 99.0, np.float32)
    cast = np.full(size + 8, 99, np.uint16)
    native.round(values, "bfloat16", out=rounded[offset : offset + size])
    native.cast(values, "bfloat16", out=cast[offset : offset + size])
    expected = values.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(rounded[offset : offset + size], expected.astype(np.float32))
    np.testing.assert_array_equal(cast[offset : offset + size], expected.view(np.uint16))
    for guarded in (rounded, cast):
        assert (guarded[:offset] == 99).all()
        assert (guarded[offset + size :] == 99).all()


@all_formats
@pytest.mark.parametrize("threads", [0, 1, 2, 7])
def test_the_result_may_replace_the_values_on_any_number_of_threads(
    built: Kernels, format: DType, threads: int
) -> None:
    values = np.random.default_rng(4).standard_normal(4 * PIECE + 3).astype(np.float32)
    expected = built.round(values, format, threads=1)
    assert built.round(values, format, threads=threads, out=values) is values
    np.testing.assert_array_equal(values, expected)


def test_results_can_be_written_as_mxnet_stores_bfloat16(built: Kernels) -> None:
    values = np.array([1.0, -2.5], np.float32)
    out = np.zeros(2, [("bfloat16", np.uint16)])
    assert built.cast(values, DType.BFLOAT16, out=out) is out
    np.testing.assert_array_equal(built.widen(out, DType.BFLOAT16), values)


BAD_ARRAYS: dict[str, tuple[Callable[[], Any], str]] = {
    "float64": (lambda: np.zeros(3), "must be an array of float32, not float64"),
    "another byte order": (lambda: np.zeros(3, ">f4"), "must be an array of float32, not >f4"),
    "a transposed matrix": (lambda: np.zeros((3, 4), np.float32).T, "must be C-contiguous"),
    "every second value": (lambda: np.zeros(8, np.float32)[::2], "must be C-contiguous"),
    "an odd address": (lambda: np.zeros(9, np.uint8)[1:].view(np.float32), "aligned"),
}


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_arrays_that_cannot_be_taken_are_named(built: Kernels, name: str) -> None:
    make, message = BAD_ARRAYS[name]
    for function in (
        lambda array: built.round(array, "float16"),
        lambda array: built.cast(array, "float16"),
        lambda array: built.scale_cast(array, np.ones((), np.float32), "float16"),
        lambda array: built.observe(array),
        lambda array: built.largest_finite(array),
    ):
        with pytest.raises(OperatorError, match=message):
            function(make())


def test_what_is_no_array_is_refused(built: Kernels) -> None:
    with pytest.raises(OperatorError, match="values must be a NumPy array, not list"):
        built.round([1.0], "float16")  # type: ignore[arg-type]


def test_results_that_cannot_be_written_are_refused(built: Kernels) -> None:
    values = np.zeros(4, np.float32)
    with pytest.raises(OperatorError, match=r"out has the shape \(5,\), and the values have \(4,\)"):
        built.round(values, "float16", out=np.zeros(5, np.float32))
    with pytest.raises(OperatorError, match="out must be an array of bfloat16, not float16"):
        built.cast(values, "bfloat16", out=np.zeros(4, np.float16))  # type: ignore[arg-type]
    constant = np.zeros(4, np.float32)
    constant.flags.writeable = False
    with pytest.raises(OperatorError, match="read-only"):
        built.round(values, "float16", out=constant)


def test_formats_that_mxnet_does_not_store_are_refused(built: Kernels) -> None:
    with pytest.raises(OperatorError, match="cannot be stored in tfloat32"):
        built.cast(np.zeros(1, np.float32), "tfloat32")
    with pytest.raises(OperatorError, match="Did you mean 'bfloat16'"):
        built.round(np.zeros(1, np.float32), "bflot16")


def test_factors_that_are_not_one_a_channel_are_refused(built: Kernels) -> None:
    values = np.zeros((2, 3), np.float32)
    for factors in ((2, 3), (4,), (1, 1, 1), (2,)):
        with pytest.raises(OperatorError, match="not one a channel"):
            built.scale_cast(values, np.ones(factors, np.float32), "float16")


def test_a_library_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "libmxamp_kernels.so"
    path.write_bytes(b"no library")
    with pytest.raises(LibraryError, match=r"cannot be loaded .* python -m mxamp.ops.build kernels"):
        load_kernels(path, kernels_library())
