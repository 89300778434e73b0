"""Costs: the roofline, the factors over it, and what a bad document is told."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxamp.errors import TargetError
from mxamp.targets import CostModel, OperatorCost, Rates, Target, Work
from mxamp.targets.kernel_cost import Leaf

DOCUMENT: dict[str, Any] = {
    "measured": True,
    "source": "a test",
    "flops_per_us": {"float32": 100, "low": 200},
    "bytes_per_us": {"float32": 10, "low": 10},
    "overhead_us": {"float32": 1, "low": 2},
    "cast": {"bytes_per_us": 6, "overhead_us": 3},
    "operators": {
        "Convolution": [
            {"depthwise": True, "channels_beside": 16, "float32": 1, "low": 8},
            {"channels_below": 4, "float32": 2, "low": 3},
            {"float32": 1, "low": 1},
        ],
        "elemwise_add": [{"rank": 4, "float32": 1, "low": 1}, {"float32": 1, "low": 50}],
        "Activation": [{"attribute": "act_type=relu", "float32": 0.5, "low": 0.5}],
    },
    "default": {"float32": 4, "low": 5},
}


def model(**changes: Any) -> CostModel:
    return CostModel.from_document({**copy.deepcopy(DOCUMENT), **changes})


def test_what_computes_much_takes_the_time_of_its_operations() -> None:
    work = Work(multiply_adds=5000, elements=10, channels=64)
    assert model().microseconds("Convolution", work, low=False) == 1 + 10_000 / 100
    assert model().microseconds("Convolution", work, low=True) == 2 + 10_000 / 200


def test_what_moves_much_takes_the_time_of_its_bytes() -> None:
    work = Work(multiply_adds=0, elements=1000, rank=4)
    assert model().microseconds("elemwise_add", work, low=False) == 1 + 4 * 1000 / 10
    assert model().microseconds("elemwise_add", work, low=True) == 2 + 2 * 1000 / 10


def test_an_operator_that_nobody_measured_has_the_default_factors() -> None:
    work = Work(multiply_adds=0, elements=1000)
    assert model().microseconds("exp", work, low=False) == 1 + 4 * 400
    assert model().microseconds("exp", work, low=True) == 2 + 5 * 200


@pytest.mark.parametrize(
    ("op", "work", "factors"),
    [
        pytest.param(
            "Convolution", Work(0, 1, 24, is_depthwise=True), (1, 8), id="depthwise, part of a block"
        ),
        pytest.param("Convolution", Work(0, 1, 32, is_depthwise=True), (1, 1), id="depthwise, whole blocks"),
        pytest.param("Convolution", Work(0, 1, 3), (2, 3), id="three channels"),
        pytest.param("Convolution", Work(0, 1, 24), (1, 1), id="no depthwise one"),
        pytest.param("elemwise_add", Work(0, 1, rank=5), (1, 50), id="five axes"),
        pytest.param("Activation", Work(0, 1, attributes={"act_type": "relu"}), (0.5, 0.5), id="relu"),
        pytest.param("Activation", Work(0, 1, attributes={"act_type": "tanh"}), (4, 5), id="tanh"),
    ],
)
def test_the_first_factors_that_hold_count(op: str, work: Work, factors: tuple[float, float]) -> None:
    costs = model()
    for low in (False, True):
        expected = costs.overhead_us[low] + factors[low] * costs.roofline(work, low=low)
        assert costs.microseconds(op, work, low=low) == expected


def test_a_condition_on_a_bias_tells_layers_with_one_from_those_without() -> None:
    cost = OperatorCost(Rates(1, 1), bias=True)
    assert cost.holds_for(Work(0, 1, has_bias=True))
    assert not cost.holds_for(Work(0, 1))


def test_emulated_low_precision_takes_a_multiple_of_float32() -> None:
    costs = model(low_over_float32=2)
    work = Work(multiply_adds=5000, elements=10)
    assert costs.microseconds("exp", work, low=True) == 2 * costs.microseconds("exp", work, low=False)


def test_a_cast_reads_four_bytes_and_writes_two_or_the_other_way_around() -> None:
    assert model().cast_microseconds(100) == 3 + 600 / 6


@given(st.integers(0, 10**12), st.integers(0, 10**10), st.booleans())
def test_more_work_never_costs_less(multiply_adds: int, elements: int, low: bool) -> None:
    costs = model()
    cost = costs.microseconds("exp", Work(multiply_adds, elements), low=low)
    assert cost >= costs.overhead_us[low]
    assert costs.microseconds("exp", Work(multiply_adds + 1, elements + 1), low=low) >= cost


# ---------------------------------------------------------------------- documents


def target(cost: Any) -> Target:
    document = {
        "name": "mine",
        "dtype": "bfloat16",
        "device": "cpu",
        "description": "",
        "default": "works",
        "operators": {},
        "cost": cost,
    }
    return Target.from_document(document, source="t.json")


def test_aliases_are_the_operator_in_costs_too() -> None:
    cost = {**DOCUMENT, "operators": {"reshape": [{"float32": 7, "low": 7}]}}
    found = target(cost).cost
    assert found is not None
    assert "Reshape" in found.operators


@pytest.mark.parametrize("key", ["measured", "source", "flops_per_us", "bytes_per_us", "overhead_us", "cast"])
def test_a_cost_without_a_key_is_refused_and_the_key_named(key: str) -> None:
    with pytest.raises(TargetError, match=rf"t\.json is not a target.*{key}"):
        target({name: value for name, value in DOCUMENT.items() if name != key})


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"flops_per_us": {"float32": 0, "low": 1}}, id="no rate"),
        pytest.param({"flops_per_us": {"float32": -1, "low": 1}}, id="negative rate"),
        pytest.param({"bytes_per_us": {"float32": "fast", "low": 1}}, id="no number"),
        pytest.param({"bytes_per_us": {"float32": 1}}, id="one dtype"),
        pytest.param({"overhead_us": {"float32": float("nan"), "low": 1}}, id="NaN"),
        pytest.param({"call_us": -1}, id="a call that takes less than nothing"),
        pytest.param({"bytes_per_us": {"float32": float("inf"), "low": 1}}, id="infinite"),
        pytest.param({"cast": 3}, id="cast"),
        pytest.param({"operators": {"exp": {"float32": 1, "low": 1}}}, id="no list"),
        pytest.param({"operators": {"exp": [{"float32": 1, "low": 1, "chanels": 3}]}}, id="condition"),
        pytest.param({"operators": {"exp": [{"float32": 1, "low": 1, "rank": "4"}]}}, id="its type"),
        pytest.param({"operators": []}, id="no operators"),
        pytest.param({"low_over_float32": -2}, id="negative multiple"),
    ],
)
def test_a_cost_that_is_none_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(TargetError, match=r"t\.json is not a target"):
        target({**copy.deepcopy(DOCUMENT), **changes})


# ---------------------------------------------------------------------- the built-in ones


@pytest.mark.parametrize("name", ["cpu-bf16-emulated"])
def test_where_the_cpu_has_no_bfloat16_everything_costs_more_in_it(name: str) -> None:
    cost = Target.builtin(name).cost
    assert cost is not None
    work = Work(multiply_adds=10**8, elements=10**6, channels=64, rank=4)
    for op in Target.builtin(name).operators:
        assert cost.microseconds(op, work, low=True) > cost.microseconds(op, work, low=False), op


def test_emulated_bfloat16_takes_four_times_what_was_measured_in_float32() -> None:
    emulated, other_xeon = (Target.builtin(name).cost for name in ("cpu-bf16-emulated", "cpu-bf16-amx"))
    assert emulated is not None
    assert other_xeon is not None
    assert emulated.is_measured
    image = (1, 64, 14, 14)
    work = Work(64 * 64 * 14 * 14, 29184, channels=64, rank=4, inputs=(image, (64, 64, 1, 1)), output=image)
    for op in ("Convolution", "exp", "softmax"):
        us = emulated.microseconds(op, work, low=False)
        assert emulated.microseconds(op, work, low=True) == 4 * us
        assert 0.5 < us / other_xeon.microseconds(op, work, low=False) < 2


def test_a_cost_may_be_based_on_that_of_another_target() -> None:
    document = {"name": "mine", "based_on": "cpu-bf16", "cost": {"based_on": "cpu-bf16-amx", "call_us": 50}}
    mine = Target.from_document(document, source="mine.json")
    assert mine.operators == Target.builtin("cpu-bf16").operators
    assert mine.cost is not None
    assert mine.cost.call_us == 50
    assert mine.cost.flops_per_us == Target.builtin("cpu-bf16-amx").cost.flops_per_us


def test_a_cost_that_is_based_on_another_keeps_the_kernels_that_it_does_not_name() -> None:
    mine = {"exp": {"float32": {"one": 7.0}}}
    document = {"name": "mine", "based_on": "cpu-bf16", "cost": {"based_on": "cpu-bf16-amx", "kernels": mine}}
    cost = Target.from_document(document, source="mine.json").cost
    amx = Target.builtin("cpu-bf16-amx").cost
    assert cost is not None
    assert amx is not None
    assert cost.kernels["exp"] == (Leaf({"one": 7.0}), amx.kernels["exp"].low)
    others = {family: trees for family, trees in amx.kernels.items() if family != "exp"}
    assert {family: trees for family, trees in cost.kernels.items() if family != "exp"} == others
    assert cost.corrections == amx.corrections


def test_a_cost_may_be_based_on_another_in_a_document_that_is_not() -> None:
    whole = dict(Target.builtin_document("cpu-bf16"))
    document = {**whole, "name": "mine", "cost": {"based_on": "cpu-bf16-amx"}}
    mine = Target.from_document(document, source="mine.json")
    assert mine.based_on == ()
    assert mine.cost == Target.builtin("cpu-bf16-amx").cost


def test_a_cost_that_is_based_on_no_target_says_so() -> None:
    document = {"name": "mine", "based_on": "cpu-bf16", "cost": {"based_on": "amx"}}
    with pytest.raises(TargetError, match="There is no target 'amx'"):
        Target.from_document(document, source="mine.json")


def test_on_a_cpu_with_bfloat16_convolutions_are_faster_in_it_but_not_on_partial_blocks() -> None:
    cost = Target.builtin("cpu-bf16").cost
    assert cost is not None
    assert cost.is_measured

    def ratio(**what: Any) -> float:
        work = Work(**{"multiply_adds": 10**8, "elements": 10**5, "channels": 64, "rank": 4, **what})
        low, full = (cost.microseconds("Convolution", work, low=low) for low in (True, False))
        return low / full

    assert 0.4 < ratio() < 0.6
    assert ratio(channels=3) > 1.5
    assert ratio(channels=72, is_depthwise=True, multiply_adds=10**6) > 5
    assert ratio(channels=96, is_depthwise=True, multiply_adds=10**6) < 1


@pytest.mark.parametrize("generation", ["sm70", "sm75", "sm80", "sm86"])
def test_gpus_compute_faster_in_float16_and_say_that_nobody_measured(generation: str) -> None:
    target = Target.builtin(f"cuda-fp16-{generation}")
    cost = target.cost
    assert cost is not None
    assert not cost.is_measured
    assert "data sheet" in cost.source or "white paper" in cost.source
    work = Work(multiply_adds=10**10, elements=10**6, channels=64, rank=4)
    assert cost.microseconds("Convolution", work, low=True) < cost.microseconds(
        "Convolution", work, low=False
    )
    assert target.operators == Target.builtin("cuda-fp16").operators


@pytest.mark.parametrize("name", ["generic-fp16", "generic-bf16", "cuda-fp16"])
def test_targets_of_no_machine_in_particular_know_no_costs(name: str) -> None:
    assert Target.builtin(name).cost is None


def test_images_of_much_memory_take_less_as_depthwise_convolutions_on_a_xeon() -> None:
    """In DenseNet-121, eight of 256 channels: BatchNorm and relu 5.5 ms, the convolution 4.2."""
    cost = Target.builtin("cpu-bf16-emulated").cost
    assert cost is not None
    images = (8, 256, 56, 56)
    inside = {"around": 780_000_000, "model": 780_000_000, "operators": 7, "is_blocked": True}
    each = Work(0, 12_845_568, 256, rank=4, output=images, arrives_in=(2, 2), **inside)
    vectors = ((256,),) * 4
    norm = cost.microseconds("BatchNorm", each._replace(inputs=(images, *vectors)), low=False)
    relu = each._replace(inputs=(images,), attributes={"act_type": "relu"})
    attributes = {"kernel": "(1, 1)", "num_filter": "256", "num_group": "256", "no_bias": "False"}
    layer = each._replace(
        multiply_adds=6_422_528,
        is_depthwise=True,
        has_bias=True,
        has_activation=True,
        attributes=attributes,
        inputs=(images, (256, 1, 1, 1), (256,)),
    )
    convolved = cost.microseconds("Convolution", layer, low=False)
    assert convolved == pytest.approx(4200, rel=0.25)
    assert convolved < 0.9 * (norm + cost.microseconds("Activation", relu, low=False))
