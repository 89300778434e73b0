"""Rounding that is chosen for a layer's outputs: against all other ways, and on held-out data."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mxamp.calibration.moments import Moments, MomentsMeter
from mxamp.calibration.rounding import correct_bias, output_change, round_for_output
from mxamp.dtypes import DType

LOW = (DType.BFLOAT16, DType.FLOAT16)
Array = NDArray[Any]


def moments_of(columns: Array, *sizes: int) -> Moments:
    meter = MomentsMeter(len(columns), sizes or (columns.shape[2],))
    meter.add(columns.astype(np.float32))
    return meter.moments()


def activations(seed: int, groups: int, rows: int, columns: int) -> Array:
    """Positive and correlated, as a layer behind a relu reads them."""
    random = np.random.default_rng(seed)
    mixing = random.standard_normal((groups, columns, columns)) / np.sqrt(columns) + 0.3 * np.eye(columns)
    return np.maximum(np.matmul(random.standard_normal((groups, rows, columns)), mixing) + 0.5, 0.0)


def nearest(values: Array, dtype: DType) -> Array:
    return values.astype(dtype.numpy).astype(np.float64)


def neighbours(values: Array, dtype: DType) -> tuple[Array, Array]:
    """Return the numbers of the dtype at or below, and at or above, each value."""
    middle = values.astype(dtype.numpy)
    bits = middle.view(np.int16)
    away = np.where(np.abs(middle.astype(np.float64)) < np.abs(values), bits + 1, bits - 1).astype(np.int16)
    other = away.view(dtype.numpy).astype(np.float64)
    exact = middle.astype(np.float64)
    other = np.where(exact == values, exact, other)
    return np.minimum(exact, other), np.maximum(exact, other)


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_against_the_best_of_all_ways_to_round_up_or_down(dtype: DType) -> None:
    ratios, gains = [], []
    for seed in range(12):
        random = np.random.default_rng(seed)
        weights = random.standard_normal((1, 1, 9))
        moments = moments_of(activations(seed, 1, 200, 9))
        low, high = neighbours(weights[0, 0], dtype)
        best = min(
            output_change(weights - np.where(up, high, low), None, moments)[0, 0]
            for up in itertools.product((False, True), repeat=9)
        )
        found = round_for_output(weights, None, moments, dtype)
        change = output_change(weights - found.weights, None, moments)[0, 0]
        assert change == pytest.approx(found.chosen)
        ratios.append(np.sqrt(change / best))
        gains.append(np.sqrt(found.nearest / found.chosen))
    # It goes through the columns once, so it may miss the best way; but it moves small weights by more than
    # one step, which no rounding up or down does.
    assert np.exp(np.mean(np.log(ratios))) < 1.0
    assert max(ratios) < 1.25
    assert np.exp(np.mean(np.log(gains))) > 1.3


@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize(("groups", "outputs", "columns"), [(1, 24, 64), (6, 1, 9), (2, 8, 30)])
def test_less_error_on_held_out_samples(dtype: DType, groups: int, outputs: int, columns: int) -> None:
    random = np.random.default_rng(3)
    weights = random.standard_normal((groups, outputs, columns)) / np.sqrt(columns)
    bias = random.standard_normal((groups, outputs))
    both = activations(5, groups, 1600, columns)
    moments, held_out = moments_of(both[:, :800]), moments_of(both[:, 800:])
    before = output_change(weights - nearest(weights, dtype), bias - nearest(bias, dtype), held_out).sum()

    def after(found: Any) -> float:
        return float(output_change(weights - found.weights, bias - found.bias, held_out).sum())

    full, mean = round_for_output(weights, bias, moments, dtype), correct_bias(weights, bias, moments, dtype)
    assert after(full) < 0.4 * before
    assert after(full) < after(mean) < before


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_what_comes_out_is_on_the_grid_and_finite(dtype: DType) -> None:
    random = np.random.default_rng(0)
    weights = random.standard_normal((1, 4, 20)) * 10.0 ** random.integers(-9, 5, (1, 4, 20))
    weights[0, 0, :2] = dtype.max_finite, -dtype.max_finite
    bias = random.standard_normal((1, 4)) * 1e-6
    found = round_for_output(weights, bias, moments_of(activations(1, 1, 99, 20)), dtype)
    assert found.bias is not None
    for values in (found.weights, found.bias):
        assert np.isfinite(values).all()
        np.testing.assert_array_equal(values, values.astype(dtype.numpy).astype(np.float32))


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_no_output_is_worse_than_with_nearest_rounding(dtype: DType) -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        weights = random.standard_normal((2, 5, 7)) * 4.0 ** random.integers(-3, 3, (2, 5, 7))
        bias = random.standard_normal((2, 5))
        moments = moments_of(activations(seed, 2, 30, 7))
        found = round_for_output(weights, bias, moments, dtype)
        assert found.bias is not None
        before = output_change(weights - nearest(weights, dtype), bias - nearest(bias, dtype), moments)
        after = output_change(weights - found.weights, bias - found.bias, moments)
        assert (after <= before * (1 + 1e-6)).all()


def test_weights_that_nothing_reads_are_rounded_to_nearest() -> None:
    weights = np.random.default_rng(0).standard_normal((1, 3, 8))
    columns = activations(0, 1, 50, 8)
    columns[:, :, 5:] = 0.0
    found = round_for_output(weights, None, moments_of(columns), DType.BFLOAT16)
    np.testing.assert_array_equal(found.weights[:, :, 5:], nearest(weights, DType.BFLOAT16)[:, :, 5:])
    unread = round_for_output(weights, None, moments_of(columns * 0), DType.BFLOAT16)
    np.testing.assert_array_equal(unread.weights, nearest(weights, DType.BFLOAT16))


def test_a_layer_without_bias_gets_one_only_where_that_is_allowed() -> None:
    weights = np.random.default_rng(0).standard_normal((1, 3, 8))
    moments = moments_of(activations(0, 1, 50, 8))
    for rounding in (round_for_output, correct_bias):
        assert rounding(weights, None, moments, DType.BFLOAT16).bias is None
        with_bias = rounding(weights, None, moments, DType.BFLOAT16, adds_bias=True)
        assert with_bias.bias is not None
        assert with_bias.chosen <= rounding(weights, None, moments, DType.BFLOAT16).chosen * (1 + 1e-6)


def test_the_mean_that_a_corrected_bias_leaves_is_its_own_rounding() -> None:
    weights, bias = np.random.default_rng(0).standard_normal((1, 6, 8)), np.full((1, 6), 0.01)
    moments = moments_of(activations(0, 1, 500, 8))
    found = correct_bias(weights, bias, moments, DType.BFLOAT16)
    assert found.bias is not None
    left = np.matmul(weights - found.weights, moments.mean[0]) + bias - found.bias
    assert (np.abs(left) <= np.abs(found.bias) * 2.0**-8).all()


def test_blocks_are_rounded_one_after_another() -> None:
    weights, bias = np.random.default_rng(0).standard_normal((1, 6, 24)), np.ones((1, 6)) * 1.003
    columns = activations(0, 1, 900, 24)
    whole, halves = moments_of(columns), moments_of(columns, 12, 12)
    found = round_for_output(weights, bias, halves, DType.BFLOAT16)
    assert found.bias is not None
    before = output_change(weights - nearest(weights, DType.BFLOAT16), bias - 1.0, whole).sum()
    after = output_change(weights - found.weights, bias - found.bias, whole).sum()
    assert after < 0.5 * before
