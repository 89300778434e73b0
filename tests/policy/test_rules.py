"""Each rule that colors a node, and the order in which they are asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.dtypes import DType
from mxamp.errors import PolicyError, UnknownNameError
from mxamp.graph import Entry, Graph, Node
from mxamp.policy import Color, NodeView, Policy, Selector, UserRule
from mxamp.policy.coloring import check_rules_fit
from tests.building import BF16, F16, LOW, Net, colors, convert


def one(op: str, *, inputs: int = 1, outputs: int = 1, **attrs: Any) -> Graph:
    net = Net()
    entries = [net.var(name) for name in "xyzuv"[:inputs]]
    return net.graph(net.op(op, *entries, name="n", outputs=outputs, **attrs))


def layers() -> Graph:
    net = Net()
    first = net.op("exp", net.var("data"), name="stage1_exp")
    second = net.op("Reshape", first, name="stage2_flat", shape="(0, -1)", special="yes")
    return net.graph(net.op("log", second, name="stage2_log"))


def picked(**selector: Any) -> set[str]:
    chosen = Selector.make(**selector)
    return {node.name for node in layers().nodes if not node.is_variable and chosen.picks(node)}


# ---------------------------------------------------------------------- selectors


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ({"names": ["stage1_exp"]}, {"stage1_exp"}),
        ({"names": ["stage1"]}, set()),
        ({"globs": ["stage2_*"]}, {"stage2_flat", "stage2_log"}),
        ({"globs": ["STAGE2_*"]}, set()),
        ({"patterns": [r"\d_(exp|log)$"]}, {"stage1_exp", "stage2_log"}),
        ({"operators": ["log"]}, {"stage2_log"}),
        ({"operators": ["reshape"]}, {"stage2_flat"}),
        ({"attributes": {"special": "y*"}}, {"stage2_flat"}),
        ({"globs": ["stage*"], "attributes": {"special": ""}}, {"stage1_exp", "stage2_log"}),
        ({"names": ["stage1_exp"], "operators": ["log"]}, {"stage1_exp", "stage2_log"}),
    ],
)
def test_a_selector_picks(selector: Any, names: set[str]) -> None:
    assert picked(**selector) == names


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ({}, "must select something"),
        ({"names": "conv0"}, r"write \['conv0'\]"),
        ({"globs": [3]}, "globs must hold strings, not 3"),
        ({"patterns": ["(*"]}, "not a regular expression"),
    ],
)
def test_a_selector_that_makes_no_sense_is_refused(selector: Any, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Selector.make(**selector)


def test_the_first_user_rule_that_picks_a_node_decides() -> None:
    rules = [
        UserRule(Selector.make(names=["stage1_exp"]), Color.GREEN, "first"),
        UserRule(Selector.make(globs=["stage*"]), Color.GRAY, "second"),
    ]
    verdicts = colors(layers(), policy=Policy.default(BF16).with_rules(rules))
    assert verdicts["stage1_exp"][:3] == (Color.GREEN, "user rule", "first")
    assert verdicts["stage2_log"][:3] == (Color.GRAY, "user rule", "second")


# ---------------------------------------------------------------------- names that do not exist


def test_an_unknown_name_suggests_the_nearest() -> None:
    policy = Policy.default(BF16).excluding(names=["stage2_lgo"])
    with pytest.raises(UnknownNameError, match=r"node 'stage2_lgo'.*Did you mean 'stage2_log'") as caught:
        check_rules_fit(policy, layers())
    assert isinstance(caught.value, KeyError)
    assert not str(caught.value).startswith(("'", '"'))


def test_a_variable_in_an_exclusion_is_told_who_reads_it() -> None:
    policy = Policy.default(BF16).excluding(names=["data"])
    with pytest.raises(UnknownNameError, match=r"'data', which is a variable.*read by: stage1_exp"):
        check_rules_fit(policy, layers())


@pytest.mark.parametrize("selector", [{"globs": ["nope*"]}, {"patterns": ["nope"]}, {"operators": ["dot"]}])
def test_a_pattern_that_picks_nothing_is_a_warning(selector: Any) -> None:
    (warning,) = check_rules_fit(Policy.default(BF16).excluding(**selector), layers())
    assert warning.endswith("picks no node of this model.")


def test_names_inside_loops_are_names_of_the_model() -> None:
    inner = Net()
    body = inner.graph(inner.op("exp", inner.var("i"), name="inner_exp"))
    graph = Graph((Node("null", "x"), Node("_foreach", "f", {}, (Entry(0),), 1, (body,))), (Entry(1),))
    check_rules_fit(Policy.default(BF16).excluding(names=["inner_exp", "f"]), graph)


# ---------------------------------------------------------------------- color functions


@pytest.mark.parametrize("answer", [Color.GREEN, "green", " GREEN "])
def test_a_color_function_answers_with_a_color_or_its_name(answer: object) -> None:
    policy = Policy.default(BF16).with_color_function(lambda node: answer)  # type: ignore[arg-type,return-value]
    verdict = colors(layers(), policy=policy)["stage1_exp"]
    assert (verdict.color, verdict.rule) == (Color.GREEN, "color function")
    assert "'<lambda>' says so" in verdict.reason


def test_none_leaves_the_node_to_the_policy() -> None:
    policy = Policy.default(BF16).with_color_function(lambda node: None)
    assert colors(layers(), policy=policy) == colors(layers())


@pytest.mark.parametrize("answer", ["gren", 1, True, DType.FLOAT32, "float16"])
def test_a_bad_answer_names_the_node_and_the_answer(answer: object) -> None:
    policy = Policy.default(BF16).with_color_function(lambda node: answer)  # type: ignore[arg-type,return-value]
    with pytest.raises(PolicyError, match=r"answered .* for node 'stage1_exp' \(exp\)\. .*not a color"):
        colors(layers(), policy=policy)


def test_rules_come_before_the_color_function() -> None:
    policy = (
        Policy.default(BF16).with_color_function(lambda node: Color.GREEN).excluding(names=["stage1_exp"])
    )
    verdicts = colors(layers(), policy=policy)
    assert (verdicts["stage1_exp"].color, verdicts["stage2_log"].color) == (Color.RED, Color.GREEN)


def test_a_color_function_sees_the_node_its_parameters_and_its_neighbours() -> None:
    seen: dict[str, NodeView] = {}
    net = Net()
    halves = net.op("split", net.var("data"), name="halves", outputs=2, num_outputs=2)
    layer = net.fc(Entry(halves.node, 1), "fc")
    graph = net.graph(net.op("exp", layer, name="e"), net.op("log", layer, name="l"))

    def look(node: NodeView) -> None:
        seen[node.name] = node

    convert(graph, net.params, policy=Policy.default(BF16).with_color_function(look))
    assert set(seen) == {"halves", "fc", "e", "l"}
    view = seen["fc"]
    assert (view.op, view.attrs["num_hidden"]) == ("FullyConnected", "4")
    assert view.input_names == ("halves[1]", "fc_weight")
    assert view.input_shapes == (None, (4, 4))
    assert view.param_shapes == {"fc_weight": (4, 4)}
    assert view.producers == ("split", "null")
    assert view.consumers == (("e", "exp"), ("l", "log"))


def test_a_color_function_cannot_change_the_graph() -> None:
    graph = layers()

    def meddle(node: NodeView) -> None:
        node.attrs["special"] = "no"  # type: ignore[index]

    colors(graph, policy=Policy.default(BF16).with_color_function(meddle))
    assert graph == layers()


# ---------------------------------------------------------------------- operators


@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Activation", {"act_type": "softrelu"}),
        ("LeakyReLU", {"act_type": "elu"}),
        ("LeakyReLU", {"act_type": "selu"}),
        ("Pooling", {"kernel": "(2, 2)", "pool_type": "sum"}),
        ("Pooling", {"kernel": "(2, 2)", "pool_type": "lp"}),
    ],
)
def test_attributes_that_change_the_answer_make_a_node_red(
    dtype: DType, op: str, attrs: dict[str, str]
) -> None:
    assert colors(one(op, **attrs), dtype=dtype)["n"][:2] == (Color.RED, "attribute")
    others = {key: value for key, value in attrs.items() if key == "kernel"}
    assert colors(one(op, **others), dtype=dtype)["n"].color is not Color.RED


def test_a_pooling_without_a_kernel_is_not_for_bfloat16() -> None:
    for kernel, dtypes in (("", {DType.BFLOAT16}), ("()", {DType.BFLOAT16}), ("(1, 1)", set())):
        graph = one("Pooling", global_pool="True", **({"kernel": kernel} if kernel else {}))
        found = {dtype for dtype in LOW if colors(graph, dtype=dtype)["n"].color is Color.RED}
        assert found == dtypes


def test_every_condition_of_the_default_policies_holds() -> None:
    for dtype in LOW:
        policy = Policy.default(dtype)
        for condition in policy.conditions:
            for value in condition.values:
                given = {"kernel": "(2, 2)", condition.attribute: value}
                verdict = colors(one(condition.op, **given), dtype=dtype)["n"]
                assert verdict[:3] == (condition.color, "attribute", condition.reason)


def test_an_unknown_operator_is_red_and_said_to_be_unknown() -> None:
    verdict = colors(one("_my_operator"))["n"]
    assert verdict[:2] == (Color.RED, "unknown operator")
    assert "knows nothing about the operator _my_operator" in verdict.reason


def test_an_operator_the_policy_does_not_list_is_red() -> None:
    verdict = colors(one("exp"), policy=Policy(BF16, {}))["n"]
    assert verdict[:2] == (Color.RED, "operator table")
    assert "no entry for exp" in verdict.reason


def test_an_alias_is_judged_as_its_operator() -> None:
    assert colors(one("_Plus", inputs=2))["n"] == colors(one("elemwise_add", inputs=2))["n"]


@pytest.mark.parametrize("op", ["Crop", "InstanceNorm", "_contrib_MultiBoxPrior"])
def test_an_operator_mxnet_has_in_fp32_alone_is_red_whatever_the_lists_say(op: str) -> None:
    policy = Policy.default(F16).with_operators(Color.GREEN, [op], "wanted")
    verdict = colors(one(op), dtype=F16, policy=policy)["n"]
    assert verdict[:2] == (Color.RED, "float32 kernel")


def test_a_user_may_insist_even_there() -> None:
    policy = Policy.default(BF16).with_color_function(lambda node: Color.GREEN)
    assert colors(one("exp"), policy=policy)["n"].color is Color.GREEN


# ---------------------------------------------------------------------- ranges


@pytest.mark.parametrize(
    ("dtype", "op", "attrs", "trouble"),
    [
        (F16, "_plus_scalar", {"scalar": "-1e18"}, "scalar=-1e18 overflows float16"),
        (F16, "_mul_scalar", {"scalar": "65520"}, "overflows"),
        (F16, "_plus_scalar", {"scalar": "1e-12"}, "scalar=1e-12 is too small for float16"),
        (F16, "clip", {"a_min": "-1e9", "a_max": "1"}, "a_min=-1e9 overflows"),
        (F16, "_mul_scalar", {"scalar": "inf"}, "overflows"),
        (BF16, "_plus_scalar", {"scalar": "1e39"}, "overflows bfloat16"),
        (BF16, "_mul_scalar", {"scalar": "1e-39"}, "too small for bfloat16"),
    ],
)
def test_a_scalar_out_of_range_is_red(dtype: DType, op: str, attrs: dict[str, str], trouble: str) -> None:
    verdict = colors(one(op, **attrs), dtype=dtype)["n"]
    assert verdict[:2] == (Color.RED, "scalar range")
    assert trouble in verdict.reason


@pytest.mark.parametrize(
    ("dtype", "op", "attrs"),
    [
        (F16, "_mul_scalar", {"scalar": "65504"}),
        (F16, "_mul_scalar", {"scalar": "0"}),
        (F16, "_mul_scalar", {"scalar": "0.0001"}),
        (BF16, "_plus_scalar", {"scalar": "-1e18"}),
        (BF16, "_plus_scalar", {"scalar": "1e-12"}),
        (F16, "_mul_scalar", {"scalar": "not a number"}),
    ],
)
def test_a_scalar_in_range_is_not_red(dtype: DType, op: str, attrs: dict[str, str]) -> None:
    assert colors(one(op, **attrs), dtype=dtype)["n"].color is Color.GRAY


def test_the_epsilon_of_batch_norm_is_added_in_fp32() -> None:
    assert colors(one("BatchNorm", inputs=5, outputs=3, eps="1e-12"), dtype=F16)["n"].color is Color.GRAY


def weighted(values: np.ndarray[Any, Any], dtype: DType) -> tuple[Color, str, str]:
    net = Net()
    graph = net.graph(net.fc(net.var("x"), "fc"))
    return colors(graph, {"fc_weight": values.astype(np.float32)}, dtype)["fc"][:3]


def test_a_weight_beyond_the_range_is_red_with_its_magnitude() -> None:
    color, rule, reason = weighted(np.array([[1.0, -70000.0]]), F16)
    assert (color, rule) == (Color.RED, "parameter range")
    assert "'fc_weight' reaches 7e+04, beyond float16's largest value 65504" in reason
    assert weighted(np.array([[1.0, -70000.0]]), BF16)[0] is Color.GREEN


def test_a_weight_at_the_edge_of_the_range_is_not_red() -> None:
    assert weighted(np.array([[65504.0, 65519.0]]), F16)[0] is Color.GREEN
    assert weighted(np.array([[65520.0]]), F16)[0] is Color.RED


def test_a_weight_that_mostly_vanishes_is_red_with_its_share() -> None:
    color, rule, reason = weighted(np.array([[1e-9, 1e-9, 1e-9, 1.0]]), F16)
    assert (color, rule) == (Color.RED, "parameter range")
    assert "75% of parameter 'fc_weight' would become zero in float16" in reason
    assert weighted(np.array([[1e-9, 1.0, 1.0, 1.0]]), F16)[0] is Color.GREEN
    assert weighted(np.zeros((2, 2)), F16)[0] is Color.GREEN


def test_infinities_a_model_came_with_are_not_an_overflow() -> None:
    assert weighted(np.array([[np.inf, np.nan, 1.0]]), F16)[0] is Color.GREEN


def test_parameters_that_stay_fp32_are_not_in_the_way() -> None:
    net = Net()
    graph = net.graph(net.bn(net.var("x"), "bn"))
    params = {**net.params, "bn_moving_var": np.full(4, 1e6, np.float32)}
    assert colors(graph, params, F16)["bn"].color is Color.GRAY


# ---------------------------------------------------------------------- names of outputs


def test_a_head_whose_name_no_cast_can_carry_is_red() -> None:
    verdict = colors(one("split", outputs=2, num_outputs=2))["n"]
    assert verdict[:2] == (Color.RED, "output name")


def test_statistics_as_heads_are_red_and_hidden_ones_are_not() -> None:
    net = Net()
    normal = net.bn(net.var("x"), "bn")
    assert colors(net.graph(normal), net.params)["bn"].color is Color.GRAY
    assert colors(net.graph(normal, Entry(normal.node, 1)), net.params)["bn"].rule == "output name"


def test_inner_nodes_of_many_outputs_are_free() -> None:
    net = Net()
    halves = net.op("split", net.var("x"), name="halves", outputs=2, num_outputs=2)
    graph = net.graph(net.op("elemwise_add", halves, Entry(halves.node, 1)))
    assert colors(graph)["halves"].color is Color.GRAY


# ---------------------------------------------------------------------- which rules are asked


def interpolating(case: str) -> Graph:
    """Return a product with weights that are made of positions, or of a parameter besides."""
    net = Net()
    x = net.var("x")
    places = net.op("_contrib_arange_like", x, name="places", axis="1")
    if case == "a parameter besides":
        places = net.op("elemwise_mul", places, net.param("w", 4), name="scaled")
    elif case == "data besides":
        places = net.op("elemwise_mul", places, x, name="scaled")
    elif case == "zeros":
        places = net.op("zeros_like", x, name="zeros")
    elif case == "a cast, as of a converted model":
        places = net.op("amp_cast", places, name="cast", dtype="bfloat16")
    nearness = net.op("_rminus_scalar", net.op("abs", places), scalar="1")
    weight = net.op(
        "Reshape", net.op("Activation", nearness, act_type="relu"), shape="(1, -1)", name="weight"
    )
    return net.graph(net.op("FullyConnected", x, weight, name="n", num_hidden=1, no_bias=True))


@pytest.mark.parametrize(
    "case", ["positions", "a cast, as of a converted model", "a parameter besides", "data besides", "zeros"]
)
def test_weights_that_are_made_of_positions_alone_are_exact(case: str) -> None:
    verdict = colors(interpolating(case))["n"]
    if case in ("positions", "a cast, as of a converted model"):
        assert verdict[:2] == (Color.RED, "weights of positions")
        assert "'weight', which it multiplies by, is made of positions alone" in verdict.reason
    else:
        assert verdict[:2] == (Color.GREEN, "operator table")
