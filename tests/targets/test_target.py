"""Targets: the built-in tables, what they say of an operator, and what a bad document is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mxamp.errors import TargetError
from mxamp.ops import FACTS
from mxamp.policy import Color, Policy
from mxamp.targets import OperatorSupport, Support, Target
from tests.building import BF16, F16, LOW

BUILTIN = Target.builtin_names()


def document(**changes: Any) -> dict[str, Any]:
    return {
        "name": "mine",
        "dtype": "bfloat16",
        "device": "cpu",
        "description": "a test",
        "default": "unmeasured",
        "operators": {
            "reshape": {"support": "works"},
            "exp": {"support": "biased", "note": "truncates"},
            "Activation": {"support": "works", "only": {"act_type": ["relu", ""]}},
        },
        **changes,
    }


def test_each_low_dtype_has_a_target_of_its_own() -> None:
    assert Target.for_dtype(BF16).name == "cpu-bf16"
    assert Target.for_dtype(F16).name == "cuda-fp16"
    assert all(Target.for_dtype(dtype).dtype is dtype for dtype in LOW)


@pytest.mark.parametrize("name", BUILTIN)
def test_built_in_tables_name_operators_by_their_canonical_name(name: str) -> None:
    target = Target.builtin(name)
    assert target is Target.builtin(name)
    assert {op for op in target.operators if FACTS.get(op) is None} == set()
    assert target.description


@pytest.mark.parametrize("name", BUILTIN)
def test_what_every_network_is_made_of_runs_low(name: str) -> None:
    target = Target.builtin(name)
    if target.runs_nothing_low:
        pytest.skip("on its machines MXNet runs float32 alone")
    for op in ("Convolution", "FullyConnected", "Concat", "elemwise_add"):
        assert target.refusal(op, {}) is None, op
    assert target.refusal("Activation", {"act_type": "relu"}) is None
    # ONNX Runtime's CUDA provider has no bfloat16 kernel of MaxPool.
    pools = name != "onnx-cuda-bf16"
    assert (target.refusal("Pooling", {"pool_type": "max", "kernel": "(2, 2)"}) is None) == pools


def test_bfloat16_that_crashes_the_process_is_refused() -> None:
    assert Target.builtin("cpu-bf16").refusal("transpose", {"axes": "(0, 2, 3, 1)"}) is not None


@pytest.mark.parametrize("name", BUILTIN)
def test_green_operators_are_measured_or_read(name: str) -> None:
    target = Target.builtin(name)
    green = {op for op, entry in Policy.default(target.dtype).operators.items() if entry.color is Color.GREEN}
    unknown = {op for op in green if target.support(op, {}).support is Support.UNMEASURED}
    assert "Convolution" not in unknown
    assert "FullyConnected" not in unknown


def test_aliases_in_a_document_are_the_operator() -> None:
    target = Target.from_document(document(), source="t.json")
    assert target.refusal("Reshape", {}) is None


def test_a_refusal_says_what_where_and_what_was_seen() -> None:
    target = Target.from_document(document(), source="t.json")
    assert target.refusal("exp", {}) == "exp does not round to nearest in bfloat16 on mine: truncates"
    assert "has not been seen to run" in (target.refusal("dot", {}) or "")


def test_support_may_depend_on_an_attribute() -> None:
    target = Target.from_document(document(), source="t.json")
    assert target.refusal("Activation", {"act_type": "relu"}) is None
    assert target.refusal("Activation", {}) is None
    assert "act_type=tanh is not supported" in (target.refusal("Activation", {"act_type": "tanh"}) or "")


@pytest.mark.parametrize("support", list(Support))
def test_every_kind_of_support_but_working_refuses_with_words(support: Support) -> None:
    target = Target("t", BF16, "cpu", "", {"exp": OperatorSupport(support)}, Support.WORKS)
    refusal = target.refusal("exp", {})
    assert (refusal is None) == (support is Support.WORKS)
    assert refusal is None or refusal.startswith("exp ")


def test_a_target_may_run_nothing_low() -> None:
    nothing = Target("t", BF16, "cpu", "", {}, Support.UNSUPPORTED)
    assert nothing.runs_nothing_low
    assert nothing.refusal("Convolution", {}) == "no operator runs in bfloat16 on t"
    one = Target("t", BF16, "cpu", "", {"exp": OperatorSupport(Support.WORKS)}, Support.UNSUPPORTED)
    for other in (one, Target("t", BF16, "cpu", "", {}, Support.WORKS), Target.builtin("openvino-bf16")):
        assert not other.runs_nothing_low


def test_what_is_said_of_an_own_operator_holds_where_nothing_else_runs_low(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing = Target("t", BF16, "cpu", "", {}, Support.UNSUPPORTED)
    known = {("my_op", "t"): OperatorSupport(Support.WORKS)}
    monkeypatch.setattr("mxamp.targets.target.REGISTERED_SUPPORT", known)
    assert nothing.refusal("my_op", {}) is None


def test_operators_are_listed_by_support() -> None:
    target = Target.from_document(document(), source="t.json")
    assert target.operators_with(Support.WORKS) == ["Activation", "Reshape"]
    assert target.operators_with(Support.BIASED, Support.SLOW) == ["exp"]


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("cpu-bf16", ("bfloat16 instructions",)),
        ("cpu-bf16-zen5", ("bfloat16 instructions",)),
        ("cpu-bf16-intel", ("bfloat16 instructions",)),
        ("generic-bf16", ("bfloat16 instructions",)),
        ("cpu-bf16-amx", ("AMX",)),
        ("cpu-bf16-emulated", ("AVX-512",)),
        ("cpu-bf16-avx2", ()),
        ("cuda-fp16-sm80", ()),
    ],
)
def test_a_built_in_target_says_what_a_cpu_must_have(name: str, needs: tuple[str, ...]) -> None:
    assert Target.builtin(name).needs == needs


def test_an_unknown_target_suggests_the_nearest() -> None:
    with pytest.raises(TargetError, match=r"no target 'cpu-bf'.*Did you mean 'cpu-bf16'"):
        Target.builtin("cpu-bf")


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "bf61"},
        {"default": "perhaps"},
        {"operators": {"exp": {"support": "fast"}}},
        {"operators": {"exp": {}}},
        {"operators": {"exp": "works"}},
        {"operators": ["exp"]},
        {"fusion": [["Convolution"]]},
        {"fusion": [[{"operator": "Convolution"}]]},
        {"fusion": 3},
        {"needs": ["a miracle"]},
        {"needs": "AMX"},
    ],
)
def test_a_document_that_is_no_target_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(TargetError, match=r"t\.json is not a target"):
        Target.from_document(json.loads(json.dumps(document(**changes))), source="t.json")


@pytest.mark.parametrize("key", ["name", "dtype", "device", "description", "default", "operators"])
def test_a_document_without_a_key_is_refused_and_the_key_named(key: str) -> None:
    incomplete = document()
    del incomplete[key]
    with pytest.raises(TargetError, match=key):
        Target.from_document(incomplete, source="t.json")


def test_operator_that_fails_on_volumes_is_refused_there_alone():
    target = Target.builtin("cpu-bf16")
    assert target.refusal("Reshape", {}) is None
    assert "three-dimensional" in (target.refusal("Reshape", {}, volume=True) or "")
    assert target.refusal("Activation", {"act_type": "relu"}, volume=True) is None
