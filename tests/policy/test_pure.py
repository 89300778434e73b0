"""Pure low precision: everything low that can be, and nothing that cannot."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.convert import convert_model
from mxamp.dtypes import EMULATED_ONLY
from mxamp.errors import PolicyError
from mxamp.graph import Graph
from mxamp.policy import Color, Policy
from mxamp.policy.resolve import resolve_policy
from tests.building import F16, Net, colors, convert, dtypes_of, red

PURE = Policy.pure("float16")


def hazards() -> tuple[Graph, Net]:
    """Return what mixed precision keeps FP32 for its numbers: a mask, an exponential, a sum, a ranking."""
    net = Net()
    layer = net.fc(net.var("data"), "fc0")
    masked = net.op("_plus_scalar", layer, name="mask", scalar="-1e18")
    total = net.op("sum", net.op("exp", masked, name="exp"), name="sum")
    return net.graph(total, net.op("topk", layer, name="topk", ret_typ="value")), net


def test_hazards_are_low() -> None:
    graph, net = hazards()
    names = ["mask", "exp", "sum", "topk"]
    assert set(names) <= red(colors(graph, net.params, F16))
    verdicts = colors(graph, net.params, F16, PURE)
    assert {name: verdicts[name].color for name in names} == dict.fromkeys(names, Color.GREEN)


def test_indices_and_batch_norm_parameters_stay_float32() -> None:
    net = Net()
    low = net.bn(net.conv(net.var("data"), "conv0"), "bn0")
    taken = net.op("take", net.op("Flatten", low), net.var("which"), name="take")
    model = convert(net.graph(taken), net.params, F16, policy=PURE)
    found = dtypes_of(model)
    assert {str(found[name][0]) for name in ("which", "bn0_gamma", "bn0_moving_var")} == {"float32"}
    assert str(found["bn0"][0]) == "float16"


def test_parameters_that_do_not_fit_keep_their_layer_in_float32() -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("data"), "fc0"))
    verdicts = colors(graph, {"fc0_weight": np.full((4, 4), 1e6, np.float32)}, F16, PURE)
    assert verdicts["fc0"].rule == "parameter range"


def test_users_rules_come_first() -> None:
    graph, net = hazards()
    verdicts = colors(graph, net.params, F16, PURE.excluding(names=["exp"]))
    assert verdicts["exp"].color is Color.RED
    assert verdicts["sum"].color is Color.GREEN


def test_a_pure_policy_survives_toml() -> None:
    again = Policy.from_toml(PURE.to_toml())
    assert again == PURE
    assert again.is_pure
    assert str(again).startswith("pure policy for float16")


def test_pure_must_be_a_flag() -> None:
    with pytest.raises(PolicyError, match="pure must be true or false, not 'yes'"):
        Policy.from_toml('target_dtype = "float16"\nextends = "default"\npure = "yes"\n')


def test_pure_is_a_name_for_it() -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("data"), "fc0"))
    assert resolve_policy("pure", "bfloat16", graph) == Policy.pure("bfloat16")
    model = convert_model(graph, net.params, {}, "float16", policy="pure")
    assert model.report is not None
    assert model.report.node("fc0").reason == "pure low precision was asked for"


@pytest.mark.parametrize("dtype", EMULATED_ONLY, ids=str)
def test_formats_that_are_only_emulated_have_policies(dtype: object) -> None:
    for policy in (Policy.default(dtype), Policy.pure(dtype)):
        assert policy.target_dtype is dtype
        assert Policy.from_toml(policy.to_toml()) == policy
