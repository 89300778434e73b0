"""Bounds of a fidelity over samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxamp.compare.samples import SampleErrors, share_bounds


def measured(reference: np.ndarray, converted: np.ndarray, size: int = 8) -> tuple[float, float] | None:
    errors = SampleErrors()
    for start in range(0, len(reference), size):
        batch = reference[start : start + size]
        errors.add(batch, converted[start : start + size], len(batch))
    return errors.bounds()


def test_bounds_hold_the_true_error_about_as_often_as_they_say() -> None:
    random = np.random.default_rng(1)
    true, held = 0.1, 0
    for _ in range(200):
        reference = random.standard_normal((40, 16))
        bounds = measured(reference, reference + true * random.standard_normal((40, 16)))
        assert bounds is not None
        held += bounds[0] <= true <= bounds[1]
    assert 0.88 <= held / 200 <= 0.99


def test_batches_do_not_matter() -> None:
    random = np.random.default_rng(2)
    reference, other = random.standard_normal((2, 24, 5))
    assert measured(reference, other, 8) == measured(reference, other, 24)


def test_equal_outputs_have_no_spread() -> None:
    values = np.ones((8, 3))
    assert measured(values, values) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("reference", "converted"),
    [
        (np.ones((4, 3)), np.zeros((4, 3))),
        (np.ones((8, 3)), np.full((8, 3), np.inf)),
        (np.zeros((8, 3)), np.ones((8, 3))),
    ],
    ids=["too few samples", "infinite", "nothing to relate to"],
)
def test_where_nothing_honest_can_be_said_nothing_is(reference: np.ndarray, converted: np.ndarray) -> None:
    assert measured(reference, converted) is None


def test_an_output_that_is_not_one_slice_a_sample_has_no_bounds() -> None:
    errors = SampleErrors()
    errors.add(np.ones((16, 3)), np.zeros((16, 3)), 8)
    errors.add(np.ones((8, 3)), np.zeros((8, 3)), 8)
    assert errors.bounds() is None


@given(st.integers(1, 500).flatmap(lambda count: st.tuples(st.integers(0, count), st.just(count))))
def test_bounds_of_a_share_hold_it_and_are_shares(counted: tuple[int, int]) -> None:
    hits, count = counted
    low, high = share_bounds(hits, count)
    assert 0.0 <= low <= hits / count <= high <= 1.0
    assert low < high


def test_bounds_of_a_share_are_those_of_the_literature() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), table I, method 3: 81 of 263.
    low, high = share_bounds(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
