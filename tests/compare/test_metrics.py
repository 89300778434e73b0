from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mxamp.compare.metrics import DistanceMeter, distance, top1_agreement

# Squares of float32 values fit float64; sums of a few do too.
FINITE = st.floats(width=32, min_value=-(2.0**99), max_value=2.0**99, allow_subnormal=False)


@st.composite
def pairs(draw):
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=6))
    arrays = hnp.arrays(np.float32, shape, elements=FINITE)
    return draw(arrays), draw(arrays)


@given(pairs())
def test_distance_equals_the_plain_float64_formulas(pair):
    reference, converted = pair
    a, b = reference.astype(np.float64).ravel(), converted.astype(np.float64).ravel()
    found = distance(reference, converted)
    norm = np.sqrt(np.sum(a**2))
    expected = np.sqrt(np.sum((b - a) ** 2)) / norm if norm else (math.inf if (b != a).any() else 0.0)
    assert found.elements == a.size
    assert found.relative_l2 == pytest.approx(expected, rel=1e-12, abs=0)
    assert found.max_abs == np.max(np.abs(b - a))
    assert found.mean_error == pytest.approx(np.mean(b - a), rel=1e-9, abs=1e-12 * np.max(np.abs(b - a)))
    if found.cosine is not None:
        assert found.cosine == pytest.approx(a @ b / (norm * np.sqrt(b @ b)), abs=1e-12)
    if 0 < expected < math.inf:
        assert found.sqnr_db == pytest.approx(10 * np.log10(np.sum(a**2) / np.sum((a - b) ** 2)), abs=1e-9)


@given(pairs(), st.integers(1, 5))
def test_batches_give_the_same_distance_as_everything_at_once(pair, size):
    reference, converted = pair
    meter = DistanceMeter()
    for start in range(0, len(reference), size):
        meter.add(reference[start : start + size], converted[start : start + size])
    found, whole = meter.result(), distance(reference, converted)
    assert found.relative_l2 == pytest.approx(whole.relative_l2, rel=1e-12)
    assert (found.elements, found.max_abs) == (whole.elements, whole.max_abs)


def test_a_tensor_longer_than_a_block_is_counted_once():
    values = np.arange(600_000, dtype=np.float32)
    found = distance(values, values + 1)
    assert found.elements == values.size
    assert found.mean_error == 1.0
    assert found.relative_l2 == pytest.approx(
        np.sqrt(values.size) / np.linalg.norm(values.astype(np.float64))
    )


def test_equal_tensors_have_distance_zero_and_infinite_sqnr():
    values = np.float32([1, -2, 3])
    found = distance(values, values)
    assert (found.relative_l2, found.max_abs, found.mean_error, found.cosine) == (0.0, 0.0, 0.0, 1.0)
    assert found.sqnr_db == math.inf


def test_bias_keeps_its_sign():
    reference = np.float32([1, 2, 3])
    assert distance(reference, reference - np.float32(0.5)).mean_error == -0.5


def test_zeros_against_something_is_infinitely_far_and_has_no_cosine():
    found = distance(np.zeros(3, np.float32), np.float32([0, 1e-30, 0]))
    assert found.relative_l2 == math.inf
    assert found.cosine is None
    assert found.sqnr_db == -math.inf


def test_zeros_against_zeros_is_equal():
    assert distance(np.zeros(3), np.zeros(3)).relative_l2 == 0.0


def test_a_difference_too_small_to_square_is_still_a_difference_from_zero():
    assert distance(np.zeros(1), np.array([1e-200])).relative_l2 == math.inf


def test_an_overflow_in_the_converted_model_is_infinitely_far():
    found = distance(np.float32([1, 2, 3]), np.float32([1, np.inf, 3]))
    assert found.relative_l2 == math.inf
    assert found.max_abs == math.inf
    assert found.mean_error == 0.0
    assert (found.reference_inf, found.converted_inf) == (0, 1)
    assert not found.is_finite


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_same_non_finite_value_in_both_agrees_and_is_counted(value):
    found = distance(np.float32([1, value]), np.float32([1.5, value]))
    assert found.relative_l2 == 0.5
    assert (found.reference_nan, found.converted_nan) == ((1, 1) if np.isnan(value) else (0, 0))
    assert (found.reference_inf, found.converted_inf) == ((0, 0) if np.isnan(value) else (1, 1))


def test_infinities_of_opposite_sign_disagree():
    assert distance(np.float32([np.inf]), np.float32([-np.inf])).relative_l2 == math.inf


def test_nothing_finite_to_compare_is_no_crash():
    found = distance(np.float32([np.nan]), np.float32([np.nan]))
    assert (found.relative_l2, found.mean_error, found.cosine) == (0.0, 0.0, None)


def test_empty_tensors_are_equal():
    assert distance(np.zeros((0, 3)), np.zeros((0, 3))).relative_l2 == 0.0


def test_integers_and_half_precision_are_compared_in_float64():
    assert distance(np.array([2**40], np.int64), np.array([2**40 + 1], np.int64)).max_abs == 1.0
    # 60000**2 is infinite in float16.
    assert distance(np.float16([60000]), np.float16([60000])).relative_l2 == 0.0


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"shapes differ: \(2,\) and \(3,\)"):
        distance(np.zeros(2), np.zeros(3))


def test_top1_counts_rows_with_the_same_largest_column():
    reference = np.float32([[0, 1], [1, 0], [1, 0]])
    converted = np.float32([[0, 2], [0, 1], [3, 0]])
    assert top1_agreement(reference, converted) == (2, 3)


def test_a_row_with_nan_never_agrees():
    row = np.float32([[np.nan, 1]])
    assert top1_agreement(row, row) == (0, 1)
