"""Tests and intervals agree with the values that their authors published."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.evaluation.statistics import (
    Flips,
    bootstrap_intervals,
    count_flips,
    mcnemar,
    newcombe_paired,
    wilson,
)


def test_wilson_agrees_with_newcombes_table() -> None:
    # Newcombe 1998, Statistics in Medicine 17, 857-872, table I: 81 of 263, and 0 of 20.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


@pytest.mark.parametrize(
    ("flips", "low", "high"),
    [
        # Newcombe 1998, Statistics in Medicine 17, 2635-2650, table II, method 10; of the other sign.
        (Flips(36, 12, 2, 0), -0.3404, -0.0569),
        (Flips(36, 2, 12, 0), 0.0569, 0.3404),
    ],
)
def test_the_paired_interval_agrees_with_newcombes_table(flips: Flips, low: float, high: float) -> None:
    assert newcombe_paired(flips) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("neither", [0, 1, 19])
def test_without_flips_the_interval_has_a_width_and_zero_in_it(neither: int) -> None:
    low, high = newcombe_paired(Flips(500, 0, 0, neither))
    assert low < 0.0 < high
    assert high < 0.02


def test_mcnemar_is_a_coin_toss_of_the_flips() -> None:
    assert mcnemar(Flips(100, 0, 0, 5)) == 1.0
    assert mcnemar(Flips(100, 5, 0, 0)) == pytest.approx(2 * 0.5**5)
    assert mcnemar(Flips(100, 6, 0, 0)) == pytest.approx(2 * 0.5**6)
    assert mcnemar(Flips(100, 3, 3, 0)) == 1.0


def test_a_clear_loss_has_an_interval_without_zero() -> None:
    flips = Flips(400, 40, 5, 55)
    assert flips.difference == pytest.approx(-0.07)
    assert newcombe_paired(flips)[1] < 0.0
    assert mcnemar(flips) < 1e-6


def test_flips_are_counted_by_direction() -> None:
    first = np.array([True, True, False, False, True])
    second = np.array([True, False, True, False, False])
    assert count_flips(first, second) == Flips(1, 2, 1, 1)
    with pytest.raises(ValueError, match="3 and 2 samples"):
        count_flips(first[:3], second[:2])


def test_the_bootstrap_finds_the_error_of_a_mean_and_repeats_itself() -> None:
    values = np.random.RandomState(0).normal(size=400)

    def statistic(drawn: np.ndarray) -> np.ndarray:
        return np.array([values[drawn].mean(), 0.0])

    found = bootstrap_intervals(statistic, 400, seed=1)
    assert found == bootstrap_intervals(statistic, 400, seed=1)
    error = values.std() / 20
    assert found[0] == pytest.approx((values.mean() - 1.96 * error, values.mean() + 1.96 * error), abs=0.02)
    assert found[1] == (0.0, 0.0)
