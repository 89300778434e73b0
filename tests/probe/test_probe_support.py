"""From outcomes to support: what is not right is not eligible, whatever its speed."""

from __future__ import annotations

from typing import Any

import pytest

from mxamp.probe.case import Case, Dims, Input, X, single, step
from mxamp.probe.fit import Sample
from mxamp.probe.jobs import BEHIND, CHECK, PLAIN, Unit
from mxamp.probe.support import judge_operators
from mxamp.probe.workers import Answer
from mxamp.targets import Rates, Work

DIMS = (Dims(1, 32, 14),)
EXP = single("exp", X, "exp", check=DIMS)


def check(outcome: str, feed: str = PLAIN, **more: Any) -> dict[str, Any]:
    return {"dims": [1, 32, 14], "feed": feed, "outcome": outcome, **more}


def judged(*found: tuple[Case, Answer], samples: tuple[Sample, ...] = ()) -> dict[str, dict[str, Any]]:
    cases = {case.name: case for case, _ in found}
    answers = {Unit(case.name, CHECK): answer for case, answer in found}
    return judge_operators(cases, answers, samples)


def timed(float32: float, low: float, op: str = "exp", **work: Any) -> Sample:
    return Sample(op, Work(0, 10**6, **work), Rates(float32, low))


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        pytest.param([check("exact"), check("inexact")], {"support": "works"}, id="works"),
        pytest.param(
            [check("exact"), check("biased", bias_ulp=-0.41), check("biased", bias_ulp=-1.2)],
            {"support": "biased", "note": "mean error -1.2 to -0.4 ulp"},
            id="biased",
        ),
        pytest.param(
            [check("biased", bias_ulp=-0.4), check("wrong", max_ulp=63.7)],
            {"support": "wrong", "note": "errors of 64 ulp"},
            id="wrong",
        ),
        pytest.param(
            [check("wrong", max_ulp=63.0), check("raises", BEHIND, note="MXNetError: Unknown type enum 12")],
            {"support": "unsupported", "note": "MXNet raises: Unknown type enum 12"},
            id="raises on one layout",
        ),
    ],
)
def test_the_worst_of_all_inputs_counts(checks: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    assert judged((EXP, Answer(checks))) == {"exp": expected}


@pytest.mark.parametrize(
    ("died", "support", "note"),
    [
        pytest.param(
            {"outcome": "crashes", "note": "SIGABRT: free()"},
            "crashes",
            "ends the process: SIGABRT: free()",
            id="crash",
        ),
        pytest.param(
            {"outcome": "hangs", "note": "no answer in 9 s"},
            "crashes",
            "does not return: no answer in 9 s",
            id="hang",
        ),
    ],
)
def test_what_ends_the_process_crashes(died: dict[str, Any], support: str, note: str) -> None:
    answer = Answer([check("exact")], {**died, "index": 1, "phase": "low"})
    assert judged((EXP, answer)) == {"exp": {"support": support, "note": note}}


def test_a_crash_in_float32_says_nothing_of_low_precision() -> None:
    answer = Answer([check("exact")], {"outcome": "crashes", "note": "", "index": 1, "phase": "float32"})
    assert judged((EXP, answer)) == {"exp": {"support": "works"}}
    assert judged((EXP, Answer([], answer.died))) == {}


def test_what_fails_on_volumes_alone_is_refused_there_alone() -> None:
    volume = EXP.on_volumes()
    assert volume is not None
    fine = (EXP, Answer([check("exact"), check("exact", BEHIND)]))
    failing = Answer([check("exact"), check("raises", BEHIND, note="reorder")])
    assert judged(fine, (volume, failing)) == {"exp": {"support": "works", "volumes": False}}
    behind = len(volume.check)  # the first job that reads what a convolution wrote
    crash = Answer([check("exact")], {"outcome": "crashes", "note": "", "index": behind, "phase": "low"})
    assert judged(fine, (volume, crash)) == {"exp": {"support": "works", "volumes": False}}
    plain = Answer([check("raises", note="five axes")])
    assert judged(fine, (volume, plain))["exp"]["support"] == "unsupported"


def test_an_operator_that_is_several_in_one_works_for_some_values() -> None:
    cases = [
        single(kind or "default", X, step("LeakyReLU", **({"act_type": kind} if kind else {})), check=DIMS)
        for kind in ("leaky", "elu", "selu")
    ]
    outcomes = ["exact", "exact", "raises"]
    found = judged(*((case, Answer([check(outcome)])) for case, outcome in zip(cases, outcomes)))
    assert found == {"LeakyReLU": {"support": "works", "only": {"act_type": ["", "leaky", "elu"]}}}
    none = judged(*((case, Answer([check("raises", note="no")])) for case in cases))
    assert none["LeakyReLU"]["support"] == "unsupported"


def test_a_layout_that_fails_says_nothing_of_the_kinds_of_pooling() -> None:
    attrs = [{"pool_type": "max"}, {"pool_type": "lp"}]
    attrs += [{"pool_type": "max", "layout": layout} for layout in ("NCHW", "NHWC")]
    cases = [single(str(each), X, step("Pooling", **each), check=DIMS) for each in attrs]
    outcomes = ["exact", "raises", "exact", "raises"]
    found = judged(*((case, Answer([check(outcome)])) for case, outcome in zip(cases, outcomes)))
    only = {"pool_type": ["", "max"], "layout": ["", "None", "NCHW"]}
    assert found == {"Pooling": {"support": "works", "only": only}}


def test_what_fails_for_another_value_on_volumes_is_no_matter() -> None:
    relu = single("relu", X, "Activation", act_type="relu", check=DIMS)
    softsign = single("softsign", X, "Activation", act_type="softsign", check=DIMS)
    volume = softsign.on_volumes()
    assert volume is not None
    raises = Answer([check("raises", note="no"), check("raises", BEHIND, note="no")])
    found = judged((relu, Answer([check("exact")])), (softsign, raises), (volume, raises))
    assert found == {"Activation": {"support": "works", "only": {"act_type": ["relu"]}}}


def test_what_is_right_and_takes_three_times_as_long_is_slow() -> None:
    right = (EXP, Answer([check("exact")]))
    assert judged(right, samples=(timed(100, 150),))["exp"]["support"] == "works"
    assert judged(right, samples=(timed(100, 290),))["exp"]["support"] == "works"
    assert judged(right, samples=(timed(100, 310),))["exp"]["support"] == "slow"
    found = judged(right, samples=(timed(100, 900), timed(100, 400)))["exp"]
    assert found["support"] == "slow"
    assert found["note"].startswith("takes about 6 times as long")


def test_what_is_slow_for_one_kind_of_tensor_alone_is_left_to_the_costs() -> None:
    norm = single("norm", X, "BatchNorm", check=DIMS)
    samples = (timed(100, 90, "BatchNorm", rank=4), timed(100, 700, "BatchNorm", rank=2))
    assert judged((norm, Answer([check("exact")])), samples=samples)["BatchNorm"]["support"] == "works"


def test_a_batch_norm_that_takes_twice_as_long_alone_is_left_to_the_costs() -> None:
    """As on a faster AMD EPYC, where ResNet-50 then ran at the speed of float32 instead of 1.9 times that."""
    norm = single("norm", X, "BatchNorm", check=DIMS)
    samples = (timed(100, 210, "BatchNorm", rank=4), timed(100, 600, "BatchNorm", rank=2))
    assert judged((norm, Answer([check("exact")])), samples=samples)["BatchNorm"]["support"] == "works"


def test_what_is_wrong_is_wrong_however_fast() -> None:
    found = judged((EXP, Answer([check("wrong", max_ulp=300.0)])), samples=(timed(100, 1),))
    assert found["exp"]["support"] == "wrong"


def test_times_near_nothing_do_not_make_an_operator_slow() -> None:
    assert judged((EXP, Answer([check("exact")])), samples=(timed(1, 4),))["exp"]["support"] == "works"


def test_casts_that_mxamp_makes_itself_and_chains_have_no_entry() -> None:
    cast = single("up", X, "amp_cast", dtype="float32", check=DIMS)
    chain = Case("chain", Input(X), (step("exp"), step("exp")), check=DIMS)
    answer = Answer([check("exact")])
    assert judged((cast, answer), (chain, answer)) == {}
