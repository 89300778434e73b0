"""MXNet's keyword lists mean what they mean in ``mx.contrib.amp``."""

from __future__ import annotations

from typing import Any

import pytest

from mxamp.errors import PolicyError
from mxamp.policy import Color, Policy
from mxamp.policy.mxnet_lists import apply_mxnet_lists
from tests.building import BF16, Net, colors, convert, dtypes_of

DEFAULT = Policy.default(BF16)


def color_of(policy: Policy, op: str) -> Color:
    return policy.operators[op].color


def test_no_lists_change_nothing() -> None:
    assert apply_mxnet_lists(DEFAULT) == DEFAULT


def test_target_dtype_ops_are_green_and_no_others() -> None:
    policy = apply_mxnet_lists(DEFAULT, target_dtype_ops=["exp", "Convolution"])
    assert color_of(policy, "exp") is color_of(policy, "Convolution") is Color.GREEN
    assert color_of(policy, "FullyConnected") is Color.GRAY
    assert "target_dtype_ops replaces the built-in list" in policy.operators["FullyConnected"].reason
    assert policy.operators["Convolution"].accumulation is DEFAULT.operators["Convolution"].accumulation


def test_fp32_ops_are_red_and_no_others() -> None:
    policy = apply_mxnet_lists(DEFAULT, fp32_ops=["FullyConnected"])
    assert color_of(policy, "FullyConnected") is Color.RED
    assert color_of(policy, "exp") is color_of(policy, "softmax") is Color.GRAY


def test_an_empty_list_empties_the_built_in_one() -> None:
    policy = apply_mxnet_lists(DEFAULT, target_dtype_ops=[], fp32_ops=[])
    assert {entry.color for entry in policy.operators.values()} == {Color.GRAY}


def test_what_is_wrong_whatever_the_list_stays_fp32() -> None:
    net = Net()
    scaled = net.op("_mul_scalar", net.var("x"), name="scaled", scalar=3)
    best = net.op("argmax", scaled, name="best", axis=1)
    policy = apply_mxnet_lists(DEFAULT, fp32_ops=[])
    verdicts = colors(net.graph(net.op("take", net.var("t"), best)), policy=policy)
    assert verdicts["scaled"].color is Color.RED


def test_conditional_fp32_ops_replace_the_built_in_conditions() -> None:
    policy = apply_mxnet_lists(DEFAULT, conditional_fp32_ops=[("Pooling", "kernel", ["(7, 7)", 3])])
    net = Net()
    x = net.var("x")
    red = net.op("Pooling", x, name="red", kernel="(7, 7)")
    gray = net.op("Pooling", x, name="gray", kernel="(2, 2)")
    soft = net.op("Activation", x, name="soft", act_type="softrelu")
    verdicts = colors(net.graph(red, gray, soft), policy=policy)
    assert verdicts["red"][:2] == (Color.RED, "attribute")
    assert "conditional_fp32_ops lists Pooling with kernel in (7, 7), 3" in verdicts["red"].reason
    assert verdicts["gray"].color is verdicts["soft"].color is Color.GRAY


def test_a_listed_operator_loses_the_built_in_exceptions() -> None:
    policy = apply_mxnet_lists(DEFAULT, target_dtype_ops=["Activation"])
    net = Net()
    graph = net.graph(net.op("Activation", net.var("x"), name="soft", act_type="softrelu"))
    assert colors(graph, policy=policy)["soft"].color is Color.GREEN


def test_widest_operators_are_low_only_beside_low_inputs() -> None:
    policy = apply_mxnet_lists(DEFAULT, widest_dtype_ops=["elemwise_add"])
    net = Net()
    x = net.var("x")
    first, second = net.fc(x, "first"), net.fc(x, "second")
    both = net.op("elemwise_add", first, second, name="both")
    mixed = net.op("elemwise_add", both, net.op("exp", x), name="mixed")
    graph = net.graph(net.fc(both, "a"), net.fc(mixed, "b"), net.fc(mixed, "c"))
    found = dtypes_of(convert(graph, net.params, policy=policy))
    assert found["both"] == (BF16,)
    assert str(found["mixed"][0]) == "float32"


def test_excluded_names_are_red_and_say_why() -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("x"), "fc"))
    policy = apply_mxnet_lists(DEFAULT, excluded_sym_names=["fc"])
    assert colors(graph, net.params, policy=policy)["fc"][:3] == (
        *(Color.RED, "user rule"),
        "listed in excluded_sym_names",
    )


@pytest.mark.parametrize(
    "lists",
    [
        {"target_dtype_ops": ["exp"], "fp32_ops": ["exp"]},
        {"target_dtype_ops": ["reshape"], "widest_dtype_ops": ["Reshape"]},
        {"fp32_ops": ["Pooling"], "conditional_fp32_ops": [("Pooling", "pool_type", ["sum"])]},
        {"widest_dtype_ops": ["_plus"], "fp32_ops": ["elemwise_add"]},
    ],
)
def test_an_operator_in_two_lists_is_an_error_that_names_both(lists: dict[str, Any]) -> None:
    with pytest.raises(PolicyError) as caught:
        apply_mxnet_lists(DEFAULT, **lists)
    assert all(label in str(caught.value) for label in lists)
    assert "Remove it from the other" in str(caught.value)


def test_an_operator_twice_in_one_list_is_no_error() -> None:
    apply_mxnet_lists(
        DEFAULT,
        target_dtype_ops=["dot", "dot"],
        conditional_fp32_ops=[("Pooling", "a", ["b"]), ("Pooling", "c", ["d"])],
    )


def test_aliases_are_the_operator_itself() -> None:
    policy = apply_mxnet_lists(DEFAULT, target_dtype_ops=["_Plus"], fp32_ops=["flatten"])
    assert color_of(policy, "elemwise_add") is Color.GREEN
    assert color_of(policy, "Flatten") is Color.RED


def test_operators_outside_mxnets_lists_are_allowed() -> None:
    policy = apply_mxnet_lists(
        DEFAULT, fp32_ops=["_contrib_box_decode", "_my_op"], known_operators=["_my_op"]
    )
    assert color_of(policy, "_contrib_box_decode") is color_of(policy, "_my_op") is Color.RED


def test_an_operator_nobody_has_is_an_error_that_suggests_the_nearest() -> None:
    with pytest.raises(PolicyError, match=r"'Convolutoin'.*Did you mean 'Convolution'"):
        apply_mxnet_lists(DEFAULT, target_dtype_ops=["Convolutoin"])


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"fp32_ops": "exp"}, "fp32_ops must be a list of strings"),
        ({"fp32_ops": ["exp", 3]}, "fp32_ops must be a list of strings"),
        ({"fp32_ops": 3}, "fp32_ops must be a list of strings"),
        ({"excluded_sym_names": "fc"}, "excluded_sym_names must be a list of strings"),
        ({"conditional_fp32_ops": ["Pooling"]}, r"\(operator, attribute, list of values\).*not 'Pooling'"),
        ({"conditional_fp32_ops": [("Pooling", "pool_type", "sum")]}, "list of values"),
        ({"conditional_fp32_ops": 3}, "conditional_fp32_ops"),
    ],
)
def test_a_list_that_is_none_is_an_error(lists: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        apply_mxnet_lists(DEFAULT, **lists)
