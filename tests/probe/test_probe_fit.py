"""Fitting: factors that were put into times are found in them again."""

from __future__ import annotations

from typing import Any

import pytest

from mxamp.probe.cases import all_cases
from mxamp.probe.cases.overheads import LONG_CHAIN, LONG_LENGTH, SHORT_CHAIN
from mxamp.probe.fit import (
    Sample,
    call_microseconds,
    cast_rate,
    fit_costs,
    gather_samples,
    operator_overhead,
)
from mxamp.probe.jobs import TIME, Unit
from mxamp.probe.workers import Answer
from mxamp.targets import CostModel, Rates, Work

FLOPS, MOVED, OVERHEAD = Rates(200_000, 400_000), Rates(100_000, 80_000), Rates(3.0, 4.0)
FACTORS = {"exp": Rates(20.0, 200.0), "Concat": Rates(3.0, 1.5), "elemwise_add": Rates(4.0, 2.0)}
DEPTHWISE = {True: Rates(3.0, 90.0), False: Rates(4.0, 5.0)}
"""Factors of depthwise convolutions: those that leave a block of channels unfilled, and those that do not."""


def time_of(work: Work, factors: Rates) -> Rates:
    return Rates(
        *(
            OVERHEAD[low]
            + factors[low]
            * max(
                2 * work.multiply_adds / FLOPS[low],
                (2 if low else 4) * work.elements / MOVED[low],
            )
            for low in (False, True)
        )
    )


def samples() -> list[Sample]:
    found = []
    for scale in (1, 2, 3, 4):
        # The best rates: nothing but the roofline, and so large that the overhead does not count.
        dense = Work(4 * 10**9 * scale, 10**5, channels=64, rank=4)
        found.append(Sample("Convolution", dense, time_of(dense, Rates(1.0, 1.0))))
        copy = Work(0, 4 * 10**8 * scale, channels=64, rank=4)
        found.append(Sample("Pooling", copy, time_of(copy, Rates(1.0, 1.0))))
        for op, factors in FACTORS.items():
            work = Work(0, 10**6 * scale, channels=64, rank=4, attributes={"dim": "1"})
            found.append(Sample(op, work, Rates(1.0, 1.0), time_of(work, factors)))
        for channels in (24, 64):
            work = Work(10**6 * scale, 10**6 * scale, channels=channels, is_depthwise=True, rank=4)
            found.append(Sample("Convolution", work, time_of(work, DEPTHWISE[channels == 24])))
    return found


def fitted() -> dict[str, Any]:
    cost = fit_costs(samples(), OVERHEAD, 12_000.0, ["Concat", "elemwise_add", "Convolution"])
    assert cost is not None
    return cost


def test_peak_rates_are_found() -> None:
    cost = fitted()
    for low, label in enumerate(("float32", "low")):
        assert cost["flops_per_us"][label] == pytest.approx(FLOPS[low], rel=1e-3)
        assert cost["bytes_per_us"][label] == pytest.approx(MOVED[low], rel=1e-3)


@pytest.mark.parametrize("op", FACTORS)
def test_factors_are_found(op: str) -> None:
    found = fitted()["operators"][op][0]
    assert (found["float32"], found["low"]) == pytest.approx(FACTORS[op], rel=1e-2)


def test_kinds_of_one_operator_have_factors_of_their_own() -> None:
    blocks = fitted()["operators"]["Convolution"]
    unfilled = next(entry for entry in blocks if entry.get("channels_beside") == 16)
    filled = next(entry for entry in blocks if entry.get("depthwise") and "channels_beside" not in entry)
    assert (unfilled["float32"], unfilled["low"]) == pytest.approx(DEPTHWISE[True], rel=1e-2)
    assert (filled["float32"], filled["low"]) == pytest.approx(DEPTHWISE[False], rel=1e-2)


def test_what_was_fitted_gives_the_times_back() -> None:
    model = CostModel.from_document({"measured": True, "source": "a test", **fitted()})
    for sample in samples():
        for low in (False, True):
            assert model.microseconds(sample.op, sample.work, low=low) == pytest.approx(
                sample.times[low], rel=2e-2
            )


def test_operators_that_nobody_timed_cost_what_those_do_that_run_low() -> None:
    default = fitted()["default"]
    assert default["low"] < 10, "exp does not run low, and does not count"


def test_too_few_times_make_no_costs() -> None:
    assert fit_costs(samples()[:5], OVERHEAD, 12_000.0, []) is None


def test_times_behind_a_convolution_count_unless_they_are_noise() -> None:
    plain, behind = Rates(10.0, 20.0), Rates(5.0, 6.0)
    assert Sample("exp", Work(0, 1), plain, behind).times == behind
    assert Sample("exp", Work(0, 1), plain, Rates(5.0, -1.0)).times == plain


def test_the_overhead_is_what_a_longer_chain_takes_more() -> None:
    answers = {
        Unit(SHORT_CHAIN, TIME): Answer([{"us": {"float32": 10.0, "low": 20.0}}]),
        Unit(LONG_CHAIN, TIME): Answer(
            [{"us": {"float32": 10.0 + 3 * (LONG_LENGTH - 1), "low": 20.0 + 5 * (LONG_LENGTH - 1)}}]
        ),
    }
    assert operator_overhead(answers) == Rates(3.0, 5.0)
    assert operator_overhead({}) is None
    # What is left of the shortest is what the pass takes whatever it computes.
    assert call_microseconds(answers, Rates(3.0, 5.0)) == 7.0
    assert call_microseconds(answers, Rates(30.0, 5.0)) == 0.0


def test_casts_move_what_the_slope_between_two_sizes_says() -> None:
    jobs = [
        {
            "dims": [1, channels, 56],
            "us": {"float32": 0.0, "low": 9e9},
            "behind_us": {"low": 50 + channels * 56 * 56 * 6 / 12_000},
        }
        for channels in (64, 256)
    ]
    assert cast_rate({Unit("amp_cast up", TIME): Answer(jobs)}) == pytest.approx(12_000, rel=1e-3)
    assert cast_rate({}) is None


def test_samples_are_single_operators_without_the_call_itself() -> None:
    work = Work(0, 100, rank=4)._asdict()
    answers = {
        Unit("exp", TIME): Answer([{"us": {"float32": 30.0, "low": 90.0}, "work": work}]),
        Unit("sqrt", TIME): Answer([{"us": {"float32": 30.0, "low": 90.0}}]),
        Unit("amp_cast down", TIME): Answer([{"us": {"float32": 10.0, "low": 50.0}, "work": work}]),
    }
    (sample,) = gather_samples(all_cases(), answers)
    assert (sample.op, sample.plain) == ("exp", Rates(20.0, 80.0))
