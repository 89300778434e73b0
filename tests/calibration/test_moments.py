"""Moments and statistics are those of NumPy in float64, whatever the batches."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxamp.calibration.moments import MomentsMeter, block_sizes
from mxamp.calibration.statistics import EntryMeter
from mxamp.errors import DataError


@pytest.mark.parametrize("groups", [1, 3])
def test_moments_of_batches_are_those_of_the_whole(groups: int) -> None:
    columns = np.random.default_rng(0).standard_normal((groups, 50, 6)).astype(np.float32)
    meter = MomentsMeter(groups, (4, 2))
    for part in (columns[:, :20], columns[:, 20:21], columns[:, 21:]):
        meter.add(part)
    found = meter.moments()
    exact = columns.astype(np.float64)
    products = np.matmul(exact.transpose(0, 2, 1), exact) / 50
    assert found.rows == 50
    np.testing.assert_allclose(found.mean, exact.mean(axis=1), atol=1e-12)
    np.testing.assert_allclose(found.blocks[0], products[:, :4, :4], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.blocks[1], products[:, 4:, 4:], rtol=1e-5, atol=1e-6)
    with pytest.raises(DataError, match="read 5 columns in"):
        meter.add(columns[:, :, :5])


def test_merged_moments_are_those_of_all_columns() -> None:
    columns = np.random.default_rng(0).standard_normal((1, 30, 5)).astype(np.float32)
    meters = [MomentsMeter(1, (5,)) for _ in range(3)]
    for meter, part in zip(meters, (columns[:, :10], columns[:, 10:], columns)):
        meter.add(part)
    first, second, whole = (meter.moments() for meter in meters)
    merged = first.merged(second)
    assert merged.rows == 30
    np.testing.assert_allclose(merged.mean, whole.mean, atol=1e-12)
    np.testing.assert_allclose(merged.blocks[0], whole.blocks[0], atol=1e-6)


@given(st.integers(1, 400), st.integers(1, 9), st.integers(9, 500))
def test_blocks_hold_whole_channels_and_all_columns(channels: int, taps: int, most: int) -> None:
    sizes = block_sizes(channels * taps, taps, most)
    assert sum(sizes) == channels * taps
    assert max(sizes) <= most
    assert not any(size % taps for size in sizes)


VALUES = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, -0.0, 65504.0, 65520.0, 1e5, 2.0**-25, 2.0**-24, 1e-40, 3.3e38]),
)


@given(st.lists(VALUES, min_size=1, max_size=24))
def test_statistics_are_those_of_float64(values: list[float]) -> None:
    array = np.array(values, np.float32).reshape(-1, 1)
    whole, parts = EntryMeter(), EntryMeter()
    whole.add(array, first=0, samples=len(array))
    for number in range(len(array)):
        parts.add(array[number : number + 1], first=number, samples=1)
    finite = array[np.isfinite(array)].astype(np.float64)
    for found in (whole.statistics, parts.statistics):
        assert found is not None
        assert (found.count, found.not_finite) == (finite.size, array.size - finite.size)
        if not finite.size:
            continue
        magnitudes = np.abs(finite)
        assert (found.minimum, found.maximum) == (finite.min(), finite.max())
        assert found.largest == magnitudes.max()
        scale = magnitudes.max() or 1.0
        assert found.mean == pytest.approx(finite.mean(), rel=1e-6, abs=1e-6 * scale)
        assert found.mean_square == pytest.approx(np.square(finite).mean(), rel=1e-5)
        assert found.smallest == (magnitudes[magnitudes > 0].min() if magnitudes.any() else math.inf)
        with np.errstate(over="ignore"):
            half = finite.astype(np.float32).astype(np.float16)
        assert found.beyond["float16"] == pytest.approx(np.isinf(half).mean())
        lost = (half == 0) & (finite != 0)
        assert found.below["float16"] == pytest.approx(lost.mean())


def test_the_sample_with_the_largest_value_is_named() -> None:
    meter = EntryMeter()
    meter.add(np.array([[1.0, 2.0], [-9.0, 0.0]], np.float32), first=4, samples=2)
    meter.add(np.array([[3.0, 2.0], [8.0, 0.0]], np.float32), first=6, samples=2)
    assert meter.statistics is not None
    assert (meter.statistics.largest, meter.statistics.sample) == (9.0, 5)


def test_moments_of_columns_times_a_power_of_two() -> None:
    columns = np.random.default_rng(0).standard_normal((2, 50, 6)).astype(np.float32)
    meters = [MomentsMeter(2, (4, 2)) for _ in range(2)]
    for meter, values in zip(meters, (columns, np.ldexp(columns, -7))):
        meter.add(values)
    scaled, expected = meters[0].moments().times_power_of_two(-7), meters[1].moments()
    assert scaled.rows == expected.rows
    np.testing.assert_array_equal(scaled.mean, expected.mean)
    for one, other in zip(scaled.blocks, expected.blocks):
        np.testing.assert_array_equal(one, other)
