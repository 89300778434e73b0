from __future__ import annotations

import pytest

from mxamp.compare.latency import LatencyComparison, alternate_latency, summarize_latency
from mxamp.errors import DataError


def test_the_ratio_is_the_median_of_the_rounds_with_its_spread():
    found = summarize_latency([0.004] * 9 + [0.040], [0.002] * 10)
    assert found.median_a_ms == pytest.approx(4.0)
    assert found.median_b_ms == pytest.approx(2.0)
    assert found.ratio_median == pytest.approx(2.0)
    assert found.ratio_low == pytest.approx(2.0)
    assert found.ratio_high == pytest.approx(2.0 + 0.1 * 18)  # interpolated towards the one slow round
    assert found.rounds == 10


def test_a_drift_that_both_share_leaves_the_ratio_alone():
    times = [0.001 * (1 + number) for number in range(20)]
    found = summarize_latency([3 * value for value in times], times)
    assert (found.ratio_low, found.ratio_median, found.ratio_high) == pytest.approx((3.0, 3.0, 3.0))


def test_it_prints_as_one_line():
    text = str(LatencyComparison(10.0, 5.0, 2.0, 1.9, 2.2, 30))
    assert text == "10.00 ms -> 5.00 ms: 2.00 times as fast (1.90 to 2.20, 30 rounds)"


def test_models_are_timed_in_one_run(conv_net):
    pytest.importorskip("mxnet", reason="runs models")
    import numpy as np

    found = alternate_latency(conv_net(), conv_net(), np.zeros((1, 3, 8, 8), np.float32), rounds=4, warmup=1)
    assert found.rounds == 4
    assert 0 < found.ratio_low <= found.ratio_median <= found.ratio_high
    assert set(found.to_mapping()) == {
        "median_a_ms",
        "median_b_ms",
        "ratio_median",
        "ratio_low",
        "ratio_high",
        "rounds",
    }


def test_no_rounds_is_refused(conv_net):
    with pytest.raises(DataError, match="rounds must be at least 1"):
        alternate_latency(conv_net(), conv_net(), None, rounds=0)
