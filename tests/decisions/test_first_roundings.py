"""The first layers stay FP32 where an output lies few layers behind them and that costs next to nothing."""

from __future__ import annotations

from typing import Any

import mxamp
from mxamp.decisions import LowPrecision, Plan
from mxamp.graph import Entry, Graph
from mxamp.policy import Color, Policy
from mxamp.policy.parts import UserRule
from mxamp.policy.selector import Selector
from mxamp.targets import Target
from tests.building import BF16, F16, Net, plan_for
from tests.decisions.classifiers import conv, low, pooled, reason
from tests.roofline import ROOFLINE

SIZE = 64


def network(
    before: int = 2, behind: int = 4, *, mean: bool = False, thin: int = 32, wide: int = 256
) -> tuple[Net, Graph]:
    """Thin convolutions, wide ones behind a stride, and images as output: the first hardly take any time."""
    net = Net()
    x = net.var("data")
    for number in range(before):
        x = conv(net, x, f"first{number}", thin, thin, kernel=1)
        x = net.op("Activation", x, name=f"relu{number}", act_type="relu")
    for number in range(behind):
        x = conv(net, x, f"wide{number}", wide if number else thin, wide)
    return net, net.graph(pooled(net, x) if mean else x)


def shapes_of(graph: Graph, *, thin: int = 32, wide: int = 256) -> Any:
    found = []
    for node in graph.nodes:
        channels = thin if node.name.startswith(("data", "first", "relu")) else wide
        if node.name.endswith("_weight"):
            kernel = 1 if channels == thin else 3
            inputs = thin if node.name in ("wide0_weight", "data") or channels == thin else wide
            found.append(((channels, inputs, kernel, kernel),))
        else:
            size = 1 if node.name == "pool" else SIZE
            found.append(((1, channels, size, size),))
    return found


def planned(net: Net, graph: Graph, dtype: Any = BF16, target: Target = ROOFLINE, **options: Any) -> Plan:
    return plan_for(graph, net.params, dtype, target=target, shapes=shapes_of(graph), **options)


FIRST = {"first0", "relu0", "first1", "relu1"}


def test_the_first_layers_stay_fp32_and_the_reason_says_why() -> None:
    net, graph = network()
    plan = planned(net, graph)
    assert not FIRST & low(graph, plan)
    assert {"wide0", "wide1", "wide2"} <= low(graph, plan)
    assert "spares a near output the roundings of the first layers" in reason(graph, plan, "first1")


def test_behind_a_mean_over_the_image_they_are_low() -> None:
    net, graph = network(mean=True)
    assert low(graph, planned(net, graph)) >= FIRST


def test_before_many_layers_they_are_low() -> None:
    net, graph = network(before=5, behind=12)
    assert low(graph, planned(net, graph)) >= FIRST


def test_a_small_part_of_the_layers_is_low() -> None:
    net, graph = network(before=1, behind=4)
    assert "first0" in low(graph, planned(net, graph))


def test_one_near_output_among_far_ones_is_enough() -> None:
    net, graph = network(before=2, behind=18)
    assert low(graph, planned(net, graph)) >= FIRST
    near = next(position for position, node in enumerate(graph.nodes) if node.name == "wide2")
    both = net.graph(Entry(near), *graph.heads)
    assert not FIRST & low(both, planned(net, both))


def test_float16_rounds_eight_times_finer() -> None:
    net, graph = network()
    plan = planned(net, graph, F16, Target.builtin("cuda-fp16"))
    assert low(graph, plan) >= FIRST


def test_low_precision_as_an_order_is_one() -> None:
    net, graph = network()
    assert low(graph, planned(net, graph, low_precision=LowPrecision.REQUIRED)) >= FIRST


def test_what_a_rule_of_the_users_wants_low_is_low() -> None:
    net, graph = network()
    wanted = UserRule(Selector.make(names=["first0"]), Color.GREEN, "wanted")
    policy = Policy.default(BF16).with_rules([wanted])
    assert low(graph, planned(net, graph, policy=policy)) >= FIRST


def test_they_are_low_where_that_takes_time() -> None:
    net, graph = network(thin=256)
    plan = plan_for(graph, net.params, BF16, target=ROOFLINE, shapes=shapes_of(graph, thin=256))
    assert low(graph, plan) >= FIRST


def test_a_second_conversion_changes_nothing() -> None:
    net, graph = network()
    options = {"target": ROOFLINE, "input_shapes": {"data": (1, 32, SIZE, SIZE)}}
    first = mxamp.convert_model(graph, net.params, {}, "bfloat16", **options)
    assert first.report is not None
    assert first.report.node("first1").compute == "float32"
    assert first.report.node("wide1").compute == "bfloat16"
    again = mxamp.convert_model(first.graph, dict(first.arg_params), {}, "bfloat16", **options)
    assert again.graph == first.graph
