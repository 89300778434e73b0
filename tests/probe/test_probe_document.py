"""What a target's document says beside operators: folds, what it needs, what it is based on."""

from __future__ import annotations

from typing import Any, Mapping

import pytest

import mxamp.probe.document
from mxamp.dtypes import DType
from mxamp.probe.cases import all_cases
from mxamp.probe.cases.overheads import LONG_CHAIN, LONG_LENGTH, SHORT_CHAIN
from mxamp.probe.document import document_in_float32, make_document
from mxamp.probe.jobs import TIME, Unit
from mxamp.probe.known import FOLD_INTO
from mxamp.probe.workers import Answer
from mxamp.targets import Target, Work

MACHINE = {"mxnet": "1.9.1", "cpu": "a CPU", "threads": 1}


def timed(*microseconds: float) -> Answer:
    return Answer([{"dims": [n], "us": {"float32": us, "low": us}} for n, us in enumerate(microseconds)])


def document(
    answers: Mapping[Unit, Answer], dtype: DType = DType.BFLOAT16, device: str = "cpu", **machine: Any
) -> dict[str, Any]:
    about = {**MACHINE, **machine}
    return make_document({}, answers, name="mine", description="", machine=about, dtype=dtype, device=device)


@pytest.mark.parametrize("op", sorted(FOLD_INTO))
@pytest.mark.parametrize(
    ("with_bias", "folds"),
    [
        pytest.param((11.0, 22.0, 200.0), True, id="a cheap bias"),
        pytest.param((11.0, 80.0, 200.0), False, id="a slow bias"),
    ],
)
def test_a_layer_that_a_bias_makes_slow_is_not_folded_into(
    op: str, with_bias: tuple[float, ...], folds: bool
) -> None:
    without_case, biased_case = FOLD_INTO[op]
    answers = {Unit(without_case, TIME): timed(10.0, 20.0, 40.0), Unit(biased_case, TIME): timed(*with_bias)}
    assert (op in document(answers)["fold_into"]) is folds


def test_a_batch_norm_folds_into_a_convolution_whatever_a_bias_costs_alone() -> None:
    answers = {
        Unit("Convolution 3x3", TIME): timed(10.0, 20.0),
        Unit("Convolution 3x3 bias", TIME): timed(100.0, 200.0),
    }
    assert document(answers)["fold_into"] == ["Convolution", *FOLD_INTO]


def test_layers_that_were_not_timed_are_folded_into() -> None:
    assert document({})["fold_into"] == ["Convolution", "Deconvolution", "FullyConnected"]


@pytest.mark.parametrize(
    ("instructions", "needs"),
    [
        (["avx2"], []),
        (["avx2", "avx512_bf16"], ["bfloat16 instructions"]),
        (["amx_bf16", "avx2", "avx512_bf16"], ["AMX"]),
    ],
)
def test_what_was_measured_needs_the_instructions_it_was_measured_with(
    instructions: list[str], needs: list[str]
) -> None:
    assert document({}, instructions=instructions)["needs"] == needs


def test_what_was_measured_on_a_gpu_needs_nothing_of_the_cpu() -> None:
    assert document({}, DType.FLOAT16, "gpu", instructions=["avx512_bf16"])["needs"] == []


def test_a_whole_probe_inherits_what_is_registered_for_the_built_in_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "based_on" not in document({}), "a probe that fits no costs must not inherit any"
    cost = {
        "flops_per_us": {"float32": 2e5, "low": 4e5},
        "bytes_per_us": {"float32": 1e4, "low": 1e4},
        "overhead_us": {"float32": 5.0, "low": 5.0},
        "cast": {"bytes_per_us": 1e4, "overhead_us": 5.0},
        "operators": {},
    }
    monkeypatch.setattr(mxamp.probe.document, "fitted_cost", lambda *_: cost)
    whole = document({})
    assert whole["based_on"] == "cpu-bf16"
    assert Target.from_document(whole, source="mine.json").based_on == ("cpu-bf16",)


def in_float32(answers: Mapping[Unit, Answer], name: str = "mine") -> dict[str, Any]:
    builtin = Target.builtin("cpu-bf16-avx2")
    return document_in_float32(builtin, all_cases(), answers, name=name, description="", machine=MACHINE)


def both(microseconds: float) -> dict[str, float]:
    return {"float32": microseconds, "low": microseconds}


def test_where_there_is_float32_alone_operators_have_the_factors_that_were_measured() -> None:
    overhead, rate, factor = 2.0, 50_000.0, 30.0
    chains = {SHORT_CHAIN: 9.0 + overhead, LONG_CHAIN: 9.0 + overhead * LONG_LENGTH}
    copies, layers, errors = [], [], []
    for millions in range(1, 11):
        copied, layer = Work(0, 10**8 * millions), Work(10**10 * millions, 10**4)
        best = overhead + 4 * copied.elements / rate
        copies.append({"us": both(best), "work": copied._asdict()})
        layers.append({"us": both(overhead + 2e10 * millions / 1e5), "work": layer._asdict()})
        errors.append({"us": both(overhead + factor * (best - overhead)), "work": copied._asdict()})
    answers = {
        **{Unit(name, TIME): Answer([{"us": both(us)}]) for name, us in chains.items()},
        Unit("softmax 2-D", TIME): Answer(copies),
        Unit("FullyConnected 2-D", TIME): Answer(layers),
        Unit("erf", TIME): Answer(errors),
    }
    document = in_float32(answers)
    known = Target.builtin_document("cpu-bf16-avx2")["cost"]
    cost = Target.from_document(document, source="mine.json").cost
    assert cost is not None
    assert (cost.overhead_us.float32, cost.call_us) == (overhead, 9.0)
    assert cost.bytes_per_us.float32 == pytest.approx(rate, rel=1e-3)
    assert document["cost"]["operators"]["erf"][0]["float32"] == pytest.approx(factor, rel=1e-2)
    assert document["cost"]["operators"]["LRN"] == known["operators"]["LRN"], "it was not timed"
    assert document["cost"]["kernels"] == known["kernels"]
    assert document["cost"]["block"] == 8
    assert document["based_on"] == "cpu-bf16-avx2"


def test_where_nothing_was_timed_costs_stay_those_of_the_built_in_target() -> None:
    known = Target.builtin_document("cpu-bf16-avx2")["cost"]
    cost = in_float32({})["cost"]
    differing = {key for key in {**known, **cost} if known.get(key) != cost.get(key)}
    assert differing == {"machine", "source"}
    assert "based_on" not in in_float32({}, "cpu-bf16-avx2")
