from __future__ import annotations

import itertools
import math
from typing import Any, Callable

import numpy as np
import pytest

from mxamp.compare.race import bind_for_timing, race
from mxamp.errors import DataError
from mxamp.measuring.race import FEWEST_TELLING_ROUNDS, Race, Ratio, race_is_clear


class Track:
    """Binds models that take the times a test says, and remembers the order in which they ran.

    Parameters
    ----------
    seconds
        For each model its time, or a function of how often it has run.
    """

    def __init__(self, *seconds: Any) -> None:
        self._seconds = seconds
        self.order: list[int] = []
        self.labels: list[str] = []

    def __call__(self, model: Any, label: str) -> Callable[[], float]:
        number = len(self.labels)
        self.labels.append(label)
        count = itertools.count()

        def run() -> float:
            self.order.append(number)
            own = self._seconds[number]
            return own(next(count)) if callable(own) else own

        return run


@pytest.fixture
def models(conv_net) -> Callable[[int], list[Any]]:
    return lambda count: [conv_net() for _ in range(count)]


# ---------------------------------------------------------------------- ratios


def test_a_drift_that_all_share_leaves_ratios_alone():
    drift = [1 + number for number in range(20)]
    found = Race((tuple(0.003 * d for d in drift), tuple(0.001 * d for d in drift)))
    ratio = found.ratio(1)
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((3, 3, 3))
    assert (ratio.median_low, ratio.median_high) == pytest.approx((3, 3))
    assert found.ratios[0].median == 1.0
    assert found.fastest == 1


def test_one_slow_round_does_not_move_the_verdict():
    ratio = Ratio.of([2.0] * 20, [1.0] * 19 + [50.0])
    assert ratio.median == 2.0
    assert ratio.is_faster


@pytest.mark.parametrize(
    ("rounds", "is_known"), [(1, False), (5, False), (6, True), (500, True), (3000, True)]
)
def test_few_rounds_tell_nothing_however_large_the_ratio(rounds, is_known):
    ratio = Ratio.of([2.0] * rounds, [1.0] * rounds)
    assert ratio.is_faster is is_known
    assert is_known is (rounds >= FEWEST_TELLING_ROUNDS)
    if not is_known:
        assert (ratio.median_low, ratio.median_high) == (0.0, math.inf)


def test_the_interval_covers_the_true_median_as_often_as_it_says():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        # Skewed, as times are: the median of a log-normal sample's distribution is 1.
        ratios = np.exp(generator.normal(0, 0.3, 25))
        found = Ratio.of(ratios, np.ones(25))
        covered += found.median_low <= 1 <= found.median_high
    assert covered / 2000 >= 0.95


def test_a_ratio_prints_with_its_spread():
    text = str(Ratio.of([2.0] * 9, [1.0] * 9))
    assert text == "2.00 times as fast (2.00 to 2.00, 9 rounds)"


# ---------------------------------------------------------------------- the race


def test_every_round_runs_every_model_once_and_the_next_in_reverse(models):
    track = Track(1.0, 1.0, 1.0)
    race(models(3), rounds=8, warmup=0, is_clear=None, bind=track)
    rounds = [track.order[start : start + 3] for start in range(0, 24, 3)]
    assert all(sorted(order) == [0, 1, 2] for order in rounds)
    assert all(rounds[number + 1] == rounds[number][::-1] for number in range(0, 8, 2))
    assert len({tuple(order) for order in rounds}) > 2


def test_the_order_is_that_of_the_seed(models):
    orders = []
    for seed in (1, 1, 2):
        track = Track(*[1.0] * 4)
        race(models(4), rounds=6, warmup=0, is_clear=None, seed=seed, bind=track)
        orders.append(track.order)
    assert orders[0] == orders[1] != orders[2]


def test_warming_up_is_not_timed(models):
    first_slow = Track(lambda n: 9.0 if n < 3 else 1.0, 2.0)
    found = race(models(2), rounds=4, warmup=3, bind=first_slow, is_clear=None)
    assert found.seconds[0] == (1.0,) * 4
    assert found.median_ms == (1000.0, 2000.0)


@pytest.mark.parametrize(("seconds", "lead_ins"), [(0.001, 8), (0.004, 5), (0.01, 2), (0.04, 1)])
def test_a_short_run_is_timed_behind_some_that_do_not_count(models, seconds, lead_ins):
    """They find their parameters driven out of the caches, and take nine times as long."""
    runs = 1 + lead_ins

    def cold(count: int) -> float:
        return seconds if count % runs == 0 else 9 * seconds

    track = Track(cold, lambda count: 2 * cold(count))
    found = race(models(2), rounds=6, warmup=1, bind=track, is_clear=None)
    assert found.seconds == ((seconds,) * 6, (2 * seconds,) * 6)
    assert track.order[:2] == [0, 1]
    rounds = [track.order[start : start + runs] for start in range(2, 2 + 12 * runs, runs)]
    assert all(len(set(own)) == 1 for own in rounds)
    assert len(track.order) == 2 + 12 * runs


def test_where_all_runs_are_long_every_one_counts(models):
    track = Track(0.05, 0.06)
    race(models(2), rounds=6, warmup=1, bind=track, is_clear=None)
    assert len(track.order) == 2 * (1 + 6)
    one_short = Track(0.049, 0.06)
    race(models(2), rounds=6, warmup=1, bind=one_short, is_clear=None)
    assert len(one_short.order) == 2 * (1 + 2 * 6)


def test_runs_that_do_not_count_take_time_as_well(models):
    found = race(models(2), rounds=1000, warmup=1, seconds=0.14, bind=Track(0.01, 0.01), is_clear=None)
    assert found.rounds == 2  # 0.02 warming up, and 0.06 a round


@pytest.mark.parametrize(("scale", "rounds"), [(0.01, 20), (1.0, 10)], ids=["quick models", "slow models"])
def test_it_ends_where_the_answer_is_clear(models, scale, rounds):
    assert race(models(2), rounds=1000, bind=Track(2.0 * scale, scale)).rounds == rounds
    equally_fast = Track(scale, 1.001 * scale)
    assert race(models(2), rounds=1000, bind=equally_fast).rounds == rounds


def test_it_goes_on_while_the_answer_is_not_clear(models):
    noisy = Track(1.0, lambda n: 0.5 if n % 2 else 2.0)
    assert race(models(2), rounds=70, bind=noisy).rounds == 70


def test_of_several_it_is_clear_when_the_fastest_is():
    rounds = [1.0] * 20
    others = ([2.0] * 20, [2.0 + 0.5 * (-1) ** number for number in range(20)])
    assert race_is_clear(Race((tuple(rounds), *map(tuple, others))))  # which of the others is last is open
    assert not race_is_clear(Race((tuple(others[0]), tuple(others[1]))))


def test_the_time_is_a_bound(models):
    found = race(models(2), rounds=1000, warmup=1, seconds=10.0, bind=Track(1.0, 1.0), is_clear=None)
    assert found.rounds == 4  # 2 seconds warming up, and 2 a round


def test_so_many_rounds_are_run_whatever_they_take(models):
    track = Track(60.0, 60.0)
    assert race(models(2), warmup=3, seconds=1.0, at_least=6, bind=track).rounds == 6
    assert len(track.order) == 2 * (1 + 6)  # warmed up once: that took too long already


def test_labels_reach_what_binds_the_models(models):
    track = Track(1.0, 1.0)
    race(models(2), rounds=1, labels=["the FP32 model", "the other"], bind=track)
    assert track.labels == ["the FP32 model", "the other"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"warmup": -1}, "warmup at least 0"),
        ({"rounds": 1.5}, "must be a whole number"),
    ],
    ids=str,
)
def test_counts_are_checked(models, options, message):
    with pytest.raises(DataError, match=message):
        race(models(1), bind=Track(1.0), **options)


def test_no_model_is_refused():
    with pytest.raises(DataError, match="There is no model to time"):
        race([])


def test_models_run_for_real_and_keep_nothing_that_was_made_for_it(conv_net):
    pytest.importorskip("mxnet", reason="runs models")
    raced = [conv_net(), conv_net(), conv_net()]
    found = race(raced, np.zeros((1, 3, 8, 8), np.float32), rounds=3, warmup=1)
    assert found.rounds == 3
    assert all(seconds > 0 for own in found.seconds for seconds in own)
    assert not any(model._mxnet for model in raced)
    assert bind_for_timing(np.zeros((2, 3, 8, 8), np.float32))(conv_net(), "one")() > 0


def test_a_drift_that_both_share_leaves_the_ratio_alone():
    times = [0.001 * (1 + number) for number in range(20)]
    found = Ratio.of([3 * value for value in times], times)
    assert (found.low, found.median, found.high) == pytest.approx((3.0, 3.0, 3.0))


def test_the_spread_of_the_ratio_is_that_of_single_rounds():
    found = Ratio.of([0.004] * 9 + [0.040], [0.002] * 10)
    # Interpolated towards the one slow round.
    assert (found.low, found.median, found.high) == pytest.approx((2.0, 2.0, 2.0 + 0.1 * 18))
