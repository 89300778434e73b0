"""Operators that users register: what is kept of them, what they change, how they are taken back."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import mxamp
from mxamp.dtypes import DType
from mxamp.errors import OperatorError
from mxamp.graph import Graph
from mxamp.ops import FACTS, InputRole, SameAsData, ValueKind
from mxamp.ops.roles import FromAttribute
from mxamp.policy import Policy
from mxamp.policy.entries import REGISTERED_COLORS, all_entries, entry_for
from mxamp.targets import OperatorSupport, Support, Target
from mxamp.targets.target import REGISTERED_SUPPORT
from tests.building import BF16, F16, F32, Net, assert_sound, convert, dtypes_of

GRAY = {"bfloat16": ("gray", "bounded, one rounding")}


def swish(op: str = "my_swish", **attrs: str) -> tuple[Graph, Net]:
    net = Net()
    hidden = net.fc(net.var("data"), name="before")
    result = net.op(op, hidden, name="swish", **attrs)
    return net.graph(net.fc(result, name="after")), net


@pytest.fixture(autouse=True)
def nothing_stays_registered():
    before = dict(FACTS.by_name), dict(REGISTERED_COLORS), dict(REGISTERED_SUPPORT)
    yield
    assert (dict(FACTS.by_name), dict(REGISTERED_COLORS), dict(REGISTERED_SUPPORT)) == before


# ---------------------------------------------------------------------- what it changes


def test_operator_is_unknown_before_and_low_after() -> None:
    graph, net = swish()
    target = Target.builtin("cpu-bf16")
    with pytest.warns(mxamp.MxampWarning, match=r"knows nothing about the operator my_swish"):
        before = convert(graph, net.params, target=target)
    assert before.report.node("swish").compute == "float32"
    with mxamp.register_operator(
        "my_swish", inputs=["data"], colors=GRAY, support={"cpu-bf16": "works"}
    ) as registration:
        assert FACTS.get("my_swish") is registration.facts
        after = convert(graph, net.params, target=target)
        assert_sound(graph, after)
        assert dtypes_of(after)["swish"] == (BF16,)
        assert not after.report.warnings
        node = after.report.node("swish")
    assert node.compute == "bfloat16"
    assert node.reason.startswith("bounded, one rounding")
    assert FACTS.get("my_swish") is None


def test_python_operators_are_told_apart_by_their_type() -> None:
    net = Net()
    hidden = net.fc(net.var("data"), name="before")
    known = net.op("Custom", hidden, name="known", op_type="swish")
    other = net.op("Custom", known, name="other", op_type="mystery")
    graph = net.graph(other)
    with mxamp.register_operator(
        "Custom", op_type="swish", inputs=["data"], colors=GRAY, support={"cpu-bf16": "works"}
    ), pytest.warns(mxamp.MxampWarning, match=r"Custom with op_type='mystery' \(node 'other'\)"):
        model = convert(graph, net.params, target=Target.builtin("cpu-bf16"))
    assert model.report.node("known").compute == "bfloat16"
    assert model.report.node("other").compute == "float32"
    assert "op_type='mystery'" in model.report.node("other").reason


def test_rules_pick_python_operators_by_type_or_all_at_once() -> None:
    graph, net = swish("Custom", op_type="swish")
    with mxamp.register_operator("Custom", op_type="swish", inputs=["data"], colors=GRAY):
        for name in ("Custom:swish", "Custom"):
            policy = Policy.default(BF16).excluding(operators=[name])
            assert convert(graph, net.params, policy=policy).report.node("swish").rule == "user rule"


def test_python_operator_of_numpy_mode_is_the_same() -> None:
    with mxamp.register_operator("Custom", op_type="swish", inputs=["data"]) as registration:
        assert FACTS.of("_npi_Custom", {"op_type": "swish"}) is registration.facts
        assert FACTS.of("Custom", {}) is None


def test_dtype_without_a_color_stays_float32() -> None:
    graph, net = swish()
    with mxamp.register_operator("my_swish", inputs=["data"], colors=GRAY):
        node = convert(graph, net.params, F16).report.node("swish")
    assert (node.compute, node.color) == ("float32", "red")
    assert node.reason == "the policy has no entry for my_swish, so it computes in float32"


def test_target_without_support_refuses() -> None:
    graph, net = swish()
    with mxamp.register_operator("my_swish", inputs=["data"], colors=GRAY):
        node = convert(graph, net.params, target=Target.builtin("cpu-bf16")).report.node("swish")
    assert node.compute == "float32"
    assert "has not been seen to run in bfloat16 on cpu-bf16" in node.reason


def test_target_of_ones_own_lists_the_operator_itself() -> None:
    cpu = Target.builtin("cpu-bf16")
    operators = {**cpu.operators, "my_swish": OperatorSupport(Support.SLOW)}
    mine = dataclasses.replace(cpu, operators=operators)
    with mxamp.register_operator("my_swish", inputs=["data"], support={"cpu-bf16": Support.WORKS}):
        assert cpu.refusal("my_swish", {}) is None
        assert mine.refusal("my_swish", {}) is not None


def test_policy_that_names_the_operator_goes_first() -> None:
    graph, net = swish()
    with mxamp.register_operator("my_swish", inputs=["data"], colors=GRAY):
        policy = Policy.default(BF16).with_operators(mxamp.Color.RED, ["my_swish"], "not in this model")
        assert convert(graph, net.params, policy=policy).report.node("swish").reason == "not in this model"


def test_color_holds_under_a_policy_made_before() -> None:
    policy = Policy.default(BF16)
    with mxamp.register_operator("my_swish", inputs=["data"], colors=GRAY, accumulation="float32"):
        entry = entry_for(policy, "my_swish")
        assert entry is not None
        assert (entry.color, entry.accumulation) == (mxamp.Color.GRAY, F32)
        assert "my_swish" not in policy.operators
        assert "my_swish" in all_entries(policy)


def test_emulated_format_takes_the_color_of_the_dtype_it_resembles() -> None:
    with mxamp.register_operator("my_swish", inputs=["data"], colors=GRAY):
        assert entry_for(Policy.default("tfloat32"), "my_swish") is not None
        assert entry_for(Policy.default("float8_e5m2"), "my_swish") is None


def test_mxnet_lists_know_the_operator() -> None:
    from mxamp.policy.mxnet_lists import apply_mxnet_lists

    with mxamp.register_operator("my_swish", inputs=["data"], colors={"bfloat16": ("green", "fast")}):
        listed = apply_mxnet_lists(Policy.default(BF16), target_dtype_ops=["my_swish"])
        assert listed.operators["my_swish"].color is mxamp.Color.GREEN
        left_out = apply_mxnet_lists(Policy.default(BF16), target_dtype_ops=["Convolution"])
        assert left_out.operators["my_swish"].color is mxamp.Color.GRAY


def test_everything_that_can_be_said_is_kept() -> None:
    with mxamp.register_operator(
        "my_ranker",
        inputs=["data", InputRole.PARAM_FP32, " Index "],
        more_inputs="like",
        outputs=["same", "int64", {"attribute": "dtype", "default": "float32"}],
        kind="move",
        exact_outputs=[1],
        output_names=["values", "places", "counts"],
        multiplies=True,
    ) as registration:
        facts = registration.facts
        assert repr(registration) == "<registration of my_ranker>"
    assert facts.roles == (InputRole.DATA, InputRole.PARAM_FP32, InputRole.INDEX)
    assert facts.rest is InputRole.LIKE
    assert facts.outputs == (SameAsData.SAME, DType.INT64, FromAttribute("dtype", F32))
    assert facts.kind is ValueKind.MOVE
    assert facts.seeds == (1,)
    assert facts.output_name(1, 3) == "places"
    assert facts.multiplies


# ---------------------------------------------------------------------- taking it back


def test_name_that_has_facts_is_refused() -> None:
    with pytest.raises(OperatorError, match=r"'Convolution' has facts already.*replace=True"):
        mxamp.register_operator("Convolution", inputs=["data"])
    with mxamp.register_operator("Custom", op_type="swish", inputs=["data"]):
        with pytest.raises(OperatorError, match=r"'Custom:swish' has facts already"):
            mxamp.register_operator("Custom", op_type="swish", inputs=["data"], colors=GRAY)
        assert entry_for(Policy.default(BF16), "Custom:swish") is None


def test_built_in_facts_may_be_replaced_and_come_back_with_their_aliases() -> None:
    built_in = FACTS.get("softsign")
    with mxamp.register_operator("_copy", inputs=["coordinate"], replace=True) as registration:
        assert FACTS.get("identity") is registration.facts
    assert FACTS.get("_copy") is FACTS.get("identity") is not None
    assert FACTS.get("softsign") is built_in


def test_second_registration_hides_the_first_and_uncovers_it() -> None:
    policy = Policy.default(BF16)
    first = mxamp.register_operator("my_swish", inputs=["data"], colors=GRAY, support={"cpu-bf16": "works"})
    second = mxamp.register_operator("my_swish", inputs=["data", "data"], replace=True)
    assert entry_for(policy, "my_swish") is None
    assert Target.builtin("cpu-bf16").refusal("my_swish", {}) is not None
    with pytest.raises(OperatorError, match="registered again since"):
        first.undo()
    second.undo()
    assert FACTS.get("my_swish") is first.facts
    assert entry_for(policy, "my_swish") is not None
    assert Target.builtin("cpu-bf16").refusal("my_swish", {}) is None
    first.undo()
    first.undo()


def test_block_that_fails_takes_the_registration_back() -> None:
    with pytest.raises(ZeroDivisionError), mxamp.register_operator("my_swish", inputs=["data"]):
        raise ZeroDivisionError
    assert FACTS.get("my_swish") is None


# ---------------------------------------------------------------------- wrong arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, r"registered by its name, not by ''"),
        ({"name": 3}, r"registered by its name, not by 3"),
        (
            {"name": "Custom"},
            r"Every operator written in Python is called 'Custom'\. Say which one with op_type=",
        ),
        ({"name": "Custom", "op_type": 3}, r"not 3\.$"),
        ({"op_type": "swish"}, r"'mine' is registered without it"),
        ({"inputs": "data"}, r"mine: inputs must be a list, not 'data'"),
        ({"inputs": ["dada"]}, r"mine: inputs: 'dada' is not one of them\. Did you mean 'data'.*param_fp32"),
        ({"inputs": [None]}, r"mine: inputs: None is not one of them"),
        ({"more_inputs": "all"}, r"mine: more_inputs: 'all'"),
        ({"outputs": "same"}, r"mine: outputs must be a list, not 'same'"),
        ({"outputs": []}, r"at least one output"),
        ({"outputs": ["float17"]}, r"mine: outputs: .*float17.*Did you mean 'float16'"),
        ({"outputs": [{"attribute": "dtype"}]}, r"written \{'attribute': 'dtype', 'default': 'float32'\}"),
        (
            {"outputs": [{"attribute": "dtype", "default": {"attribute": "a", "default": "same"}}]},
            r"the default is a dtype or 'same'",
        ),
        ({"inputs": ["index"]}, r"no input is 'data'.*outputs=\['float32'\]"),
        ({"kind": "compare?"}, r"mine: kind: 'compare\?' is not one of them\. Did you mean 'compare'"),
        ({"colors": [("gray", "why")]}, r"mine: colors must be a dict"),
        ({"colors": {"float32": ("gray", "why")}}, r"for 'float16' and 'bfloat16', not for 'float32'"),
        ({"colors": {"half": ("gray", "why")}}, r"mine: colors: 'half' is not a dtype"),
        (
            {"colors": {"float16": "gray"}},
            r"colors\['float16'\] must be a color and the reason for it.*not 'gray'",
        ),
        ({"colors": {"float16": ("gray", " ")}}, r"must be a color and the reason"),
        (
            {"colors": {"float16": ("grey", "why")}},
            r"colors\['float16'\]: 'grey' is not a color\. Did you mean 'gray'",
        ),
        (
            {"support": {"cpu-bf61": "works"}},
            r"mine: support: There is no target 'cpu-bf61'\. Did you mean 'cpu-bf16'",
        ),
        ({"support": {3: "works"}}, r"mine: support: A target is named by a string"),
        ({"support": {"cpu-bf16": "fast"}}, r"mine: support: 'fast' is not one of them\. Use works"),
        ({"accumulation": "float33"}, r"mine: accumulation: 'float33' is not a dtype"),
        ({"exact_outputs": [-1]}, r"exact_outputs are numbers of outputs, from 0"),
        ({"output_names": [""]}, r"output_names are strings"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_wrong_argument_is_explained(arguments: dict[str, Any], message: str) -> None:
    given = {"name": "mine", "inputs": ["data"], **arguments}
    with pytest.raises(OperatorError, match=message) as caught:
        mxamp.register_operator(given.pop("name"), **given)
    assert caught.value.__cause__ is None
