"""Fusion: a pattern stays if the backend swallows what it predicts, and what it does besides is told."""

from __future__ import annotations

from typing import Any

import pytest

from mxamp.probe.cases import all_cases
from mxamp.probe.fusion import check_patterns, predicted_groups
from mxamp.probe.jobs import CHECK, Unit
from mxamp.probe.workers import Answer
from mxamp.targets import FusionPattern, FusionStep, Target

CASES = all_cases()
CONV, NORM = FusionStep(("Convolution",)), FusionStep(("BatchNorm",), optional=True)
RELU = FusionStep(("Activation",), matching={"act_type": "relu"})
ADD = FusionStep(("elemwise_add",), any_input=True)
CONV_NORM_RELU = FusionPattern((CONV, NORM, RELU))
CONV_CLIP = FusionPattern((CONV, FusionStep(("clip",))))
CONV_ADD = FusionPattern((CONV, ADD))


def swallowed(name: str, *groups: list[int], outcome: str = "exact") -> tuple[Unit, Answer]:
    both: dict[str, Any] = {f"swallowed_{dtype}": list(groups) for dtype in ("float32", "low")}
    return Unit(name, CHECK), Answer([{"outcome": outcome, **both}])


@pytest.mark.parametrize(
    ("name", "pattern", "groups"),
    [
        pytest.param("fused: Conv3x3+BN+relu", CONV_NORM_RELU, [[0, 1, 2]], id="three"),
        pytest.param("fused: Conv3x3+relu", CONV_NORM_RELU, [[0, 1]], id="without the optional"),
        pytest.param("fused: Conv3x3+BN+clip6", CONV_NORM_RELU, [], id="another tail"),
        pytest.param("fused: Conv3x3+add+relu", CONV_ADD, [[0, 1]], id="sum"),
        pytest.param("fused: BN output is also a head", CONV_NORM_RELU, [], id="head"),
        pytest.param("fused: Conv read twice", CONV_NORM_RELU, [], id="read twice"),
        pytest.param("fused: Residual block", CONV_NORM_RELU, [[0, 1, 2]], id="residual"),
    ],
)
def test_patterns_predict_groups_of_steps(name: str, pattern: FusionPattern, groups: list[list[int]]) -> None:
    assert predicted_groups(CASES[name], [pattern]) == groups


def test_a_pattern_that_the_backend_follows_is_confirmed() -> None:
    answers = dict([swallowed("fused: Conv3x3+BN+relu", [0, 1, 2]), swallowed("fused: Conv3x3+relu", [0, 1])])
    found = check_patterns(CASES, answers, [CONV_NORM_RELU], must_be_right=False)
    assert (found.confirmed, found.refuted, found.beyond) == ([0], {}, [])


def test_a_pattern_that_one_chain_refutes_goes_and_the_chain_is_named() -> None:
    answers = dict([swallowed("fused: Conv3x3+BN+relu", [0, 1]), swallowed("fused: Conv3x3+relu", [0, 1])])
    found = check_patterns(CASES, answers, [CONV_NORM_RELU], must_be_right=False)
    assert found.confirmed == []
    assert found.refuted == {0: "fused: Conv3x3+BN+relu"}


def test_a_pattern_that_no_chain_tests_is_not_confirmed() -> None:
    found = check_patterns(CASES, {}, [CONV_NORM_RELU], must_be_right=False)
    assert (found.confirmed, found.refuted) == ([], {0: ""})


def test_a_chain_that_comes_out_wrong_refutes_where_it_makes_operators_eligible() -> None:
    answers = dict([swallowed("fused: Conv3x3+clip6", [0, 1], outcome="wrong")])
    assert check_patterns(CASES, answers, [CONV_CLIP], must_be_right=False).confirmed == [0]
    assert check_patterns(CASES, answers, [CONV_CLIP], must_be_right=True).confirmed == []


def test_what_is_swallowed_beyond_the_patterns_is_told() -> None:
    answers = dict([swallowed("fused: Conv3x3+add", [0, 1]), swallowed("fused: Conv3x3+relu", [0, 1])])
    found = check_patterns(CASES, answers, [CONV_NORM_RELU], must_be_right=False)
    assert found.beyond == ["fused: Conv3x3+add"]


def test_dtypes_that_are_fused_differently_are_told() -> None:
    unit, answer = swallowed("fused: Conv3x3+relu", [0, 1])
    jobs = [{**answer.jobs[0], "swallowed_float32": []}]
    found = check_patterns(CASES, {unit: Answer(jobs)}, [CONV_NORM_RELU], must_be_right=False)
    assert found.differing == ["fused: Conv3x3+relu"]


def test_every_built_in_pattern_is_tested_by_a_chain() -> None:
    target = Target.builtin("cpu-bf16")
    for pattern in (*target.fusion, *target.rounds_once):
        assert any(predicted_groups(case, [pattern]) for case in CASES.values() if case.fused), pattern
