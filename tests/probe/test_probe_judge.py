"""Judging: rounding, truncation, and what no rounding explains."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.dtypes import DType
from mxamp.probe.judge import Distance, Outcome, compare, judge_outputs, worst_outcome
from mxamp.probe.values import draw, rounded

LOW = [DType.BFLOAT16, DType.FLOAT16]


def reference(size: int = 4096) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(size).astype(np.float64)


def nearest(values: np.ndarray, dtype: DType) -> np.ndarray:
    return values.astype(np.float32).astype(dtype.numpy).astype(np.float64)


def truncated(values: np.ndarray, dtype: DType) -> np.ndarray:
    near = nearest(values, dtype)
    bits = near.astype(dtype.numpy).view(np.uint16)
    bits[np.abs(near) > np.abs(values)] -= 1
    return bits.view(dtype.numpy).astype(np.float64)


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_rounding_to_nearest_is_exact(dtype: DType) -> None:
    found = compare(nearest(reference(), dtype), reference(), dtype)
    assert found.outcome is Outcome.EXACT
    assert 0.49 < found.max_ulp < 0.51
    assert abs(found.bias_ulp) < 0.03


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_truncation_is_biased(dtype: DType) -> None:
    found = compare(truncated(reference(), dtype), reference(), dtype)
    assert found.outcome is Outcome.BIASED
    assert found.bias_ulp == pytest.approx(-0.5, abs=0.02)


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_an_unbiased_error_of_few_roundings_is_inexact(dtype: DType) -> None:
    values = reference()
    signs = np.where(np.arange(values.size) % 2, 1.0, -1.0)
    ulp = 2.0 ** (np.frexp(values)[1] - 1) * (2.0**-7 if dtype is DType.BFLOAT16 else 2.0**-10)
    assert compare(values + 1.5 * signs * ulp, values, dtype).outcome is Outcome.INEXACT
    assert compare(values + 8 * signs * ulp, values, dtype).outcome is Outcome.WRONG


def test_a_sum_carried_in_the_low_dtype_is_wrong() -> None:
    values = np.abs(reference(3136)).astype(np.float32)
    total = np.zeros((), DType.BFLOAT16.numpy)
    for value in values:
        total = (total.astype(np.float32) + value).astype(DType.BFLOAT16.numpy)
    found = compare(
        total.astype(np.float64).reshape(1), values.astype(np.float64).sum().reshape(1), DType.BFLOAT16
    )
    assert found.outcome is Outcome.WRONG


@pytest.mark.parametrize(
    ("got", "said"),
    [
        pytest.param(np.zeros((2, 2)), "shape", id="shape"),
        pytest.param(np.array([1.0, np.nan, 3.0]), "NaN", id="NaN"),
        pytest.param(np.array([1.0, np.inf, 3.0]), "infinity", id="infinity"),
    ],
)
def test_what_is_no_number_or_has_another_shape_is_wrong(got: np.ndarray, said: str) -> None:
    found = compare(got, np.array([1.0, 2.0, 3.0]), DType.BFLOAT16)
    assert found.outcome is Outcome.WRONG
    assert said in found.note


def test_small_values_beside_large_ones_are_counted_in_the_ulps_of_those() -> None:
    want = np.array([1.0, 1e-6] * 64)
    assert compare(want + np.array([0.0, 1e-5] * 64), want, DType.BFLOAT16).outcome is Outcome.EXACT


def test_few_values_are_not_called_biased_for_their_noise() -> None:
    values = reference(8)
    assert compare(nearest(values, DType.BFLOAT16), values, DType.BFLOAT16).outcome is Outcome.EXACT


def test_a_chain_may_cancel_what_was_rounded_before() -> None:
    values = reference()
    got = values + 5e-3 * np.random.default_rng(1).standard_normal(values.size)
    assert compare(got, values, DType.BFLOAT16).outcome is Outcome.WRONG
    assert compare(got, values, DType.BFLOAT16, chain=True).outcome is Outcome.INEXACT
    assert compare(got * 1.05, values, DType.BFLOAT16, chain=True).outcome is Outcome.WRONG


def test_the_worst_output_counts() -> None:
    values = reference()
    found = judge_outputs([values, 2 * values], [values, values], DType.BFLOAT16)
    assert found.outcome is Outcome.WRONG
    assert judge_outputs([values], [values, values], DType.BFLOAT16).outcome is Outcome.WRONG


def test_the_worst_check_is_the_worst_kind_and_then_the_largest_error() -> None:
    checks = [
        Distance(Outcome.BIASED, 1.0).to_mapping(),
        Distance(Outcome.WRONG, 5.0).to_mapping(),
        Distance(Outcome.WRONG, 90.0).to_mapping(),
    ]
    assert worst_outcome(checks) == checks[2]
    assert worst_outcome([*checks, {"outcome": "crashes"}]) == {"outcome": "crashes"}
    assert worst_outcome([]) is None


@pytest.mark.parametrize(
    "kind", ["normal", "positive", "binary", "weight", "distinct", "boxes", "rois", "index:50"]
)
def test_values_are_the_same_in_every_run(kind: str) -> None:
    shape = (3, 7, 5) if kind == "rois" else (3, 7, 4)
    first, second = (draw(kind, shape, np.random.default_rng(7)) for _ in range(2))
    assert first.shape == shape
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, second)


def test_distinct_values_stay_distinct_when_rounded() -> None:
    values = rounded(draw("distinct", (100,), np.random.default_rng(0)), DType.BFLOAT16)
    assert len(np.unique(values)) == 100
