"""Outputs are spared the roundings that they feel most, where that costs next to nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mxamp
from mxamp.decisions import LowPrecision, Plan
from mxamp.dtypes import DType
from mxamp.graph import Graph
from mxamp.policy import Color, Policy
from mxamp.policy.parts import UserRule
from mxamp.policy.selector import Selector
from mxamp.targets import Target
from tests.building import BF16, F16, F32, Net, plan_for
from tests.decisions.classifiers import classifier, conv, dense, low, pooled, reason, shapes_of
from tests.roofline import ROOFLINE

CPU = Target.builtin("cpu-bf16")


def test_the_last_layer_and_the_mean_before_it_stay_fp32_and_say_what_that_costs() -> None:
    net, graph = classifier(channels=256)
    plan = plan_for(graph, net.params, BF16, target=CPU, shapes=shapes_of(graph, channels=256))
    assert low(graph, plan) == {"conv0", "conv1", "conv2", "conv3", "relu1", "relu2", "relu3"}
    assert "spares an output the rounding that it would feel most, for" in reason(graph, plan, "output")
    assert " us " in reason(graph, plan, "output")


def test_without_shapes_a_small_last_layer_stays_fp32_too() -> None:
    net, graph = classifier()
    plan = plan_for(graph, net.params, BF16, target=CPU)
    assert low(graph, plan) == {"conv0", "conv1", "conv2", "conv3", "relu1", "relu2", "relu3"}
    assert "the weights are a small part" in reason(graph, plan, "output")


def test_without_shapes_a_large_last_layer_is_low() -> None:
    net, graph = classifier(layers=1, classes=1000)
    assert "output" in low(graph, plan_for(graph, net.params, BF16, target=CPU))


def test_without_shapes_vectors_are_no_weights() -> None:
    """A conversion folds BatchNorms, so that its result has fewer parameters when it is converted again."""
    counts = []
    for has_norms in (True, False):
        net = Net()
        data = conv(net, net.var("data"), "conv0", 4, 4)
        data = net.bn(data, "bn") if has_norms else data
        graph = net.graph(dense(net, pooled(net, data), "output", 4, 13))  # 52 of 196, over a quarter
        counts.append("output" not in low(graph, plan_for(graph, net.params, BF16, target=CPU)))
    assert counts[0] is counts[1]


def test_without_costs_the_last_of_large_dense_layers_is_low() -> None:
    """Most of the time goes into reading such layers' weights, and float32 ones are twice as large."""
    for hidden, stays in ((64, True), (2048, False)):
        net = Net()
        hidden_layer = dense(net, pooled(net, conv(net, net.var("data"), "conv0", 64, 64)), "fc0", 64, hidden)
        graph = net.graph(dense(net, hidden_layer, "output", hidden, 10))
        assert ("output" not in low(graph, plan_for(graph, net.params, BF16, target=CPU))) is stays


def test_what_would_make_the_file_much_larger_is_low() -> None:
    net, graph = classifier(layers=2, classes=1000)
    shapes = shapes_of(graph, classes=1000, size=512)
    assert "output" in low(graph, plan_for(graph, net.params, BF16, target=ROOFLINE, shapes=shapes))


@pytest.mark.parametrize("size", [4, 8, 16, 64, 256])
@pytest.mark.parametrize("classes", [10, 100, 400])
def test_no_more_than_a_fiftieth_of_the_time_is_given_up(size: int, classes: int) -> None:
    net, graph = classifier(layers=6, classes=classes)
    shapes = shapes_of(graph, classes=classes, size=size)
    spared = plan_for(graph, net.params, BF16, target=CPU, shapes=shapes)
    fastest = plan_for(
        graph, net.params, BF16, target=CPU, shapes=shapes, low_precision=LowPrecision.REQUIRED
    )
    assert _time(graph, spared) <= 1.02 * _time(graph, fastest)


def _time(graph: Graph, plan: Plan) -> float:
    """Return what a plan takes, its nodes and its casts."""
    fast = {n for n, node in enumerate(graph.nodes) if node.name in low(graph, plan)}
    assert plan.estimates is not None
    total = sum(plan.estimates.mixed(fast))
    for position, node in enumerate(graph.nodes):
        for entry in node.inputs:
            if graph.nodes[entry.node].is_variable and graph.nodes[entry.node].name != "data":
                continue
            if (entry.node in fast) != (position in fast):
                total += plan.estimates.cast(entry, down=position in fast)
    if graph.heads[0].node in fast:
        total += plan.estimates.cast(graph.heads[0], down=False)
    return total


@pytest.mark.parametrize("with_shapes", [False, True])
def test_a_model_whose_last_layer_alone_can_be_low_is_converted_unless_that_hardly_gains(
    with_shapes: bool,
) -> None:
    net, graph = classifier(layers=2, channels=512, classes=800)
    shapes = shapes_of(graph, channels=512, classes=800) if with_shapes else None
    assert "output" not in low(graph, plan_for(graph, net.params, BF16, target=CPU, shapes=shapes))
    kept = UserRule(Selector.make(names=["conv0", "conv1"]), Color.RED, "kept")
    policy = Policy.default(BF16).with_rules([kept])
    plan = plan_for(graph, net.params, BF16, target=CPU, policy=policy, shapes=shapes)
    # By the costs, with shapes, it gains 0.2 % of the pass.
    assert ("output" in low(graph, plan)) != with_shapes


def test_low_precision_that_is_required_is_an_order() -> None:
    net, graph = classifier()
    for shapes in (None, shapes_of(graph)):
        plan = plan_for(
            graph, net.params, BF16, target=CPU, shapes=shapes, low_precision=LowPrecision.REQUIRED
        )
        assert "output" in low(graph, plan)


def test_what_the_user_wants_low_is_low() -> None:
    net, graph = classifier()
    wanted = UserRule(Selector.make(names=["output"]), Color.GREEN, "wanted")
    policy = Policy.default(BF16).with_rules([wanted])
    assert "output" in low(graph, plan_for(graph, net.params, BF16, target=CPU, policy=policy))


def test_an_output_that_leaves_low_is_spared_nothing() -> None:
    net, graph = classifier()
    plan = plan_for(graph, net.params, BF16, target=CPU, low_heads=frozenset({0}))
    assert "output" in low(graph, plan)


def test_float16_rounds_eight_times_finer_and_spares_nothing() -> None:
    net, graph = classifier()
    assert "output" in low(graph, plan_for(graph, net.params, F16))


def test_behind_a_join_of_two_values_nothing_is_spared() -> None:
    net = Net()
    x = conv(net, net.var("data"), "conv0", 3, 64)
    y = conv(net, x, "conv1", 64, 64)
    graph = net.graph(net.op("elemwise_add", x, y, name="sum"))
    assert {"conv0", "conv1", "sum"} <= low(graph, plan_for(graph, net.params, BF16, target=CPU))


def test_a_layer_that_writes_an_image_is_spared_where_it_is_small() -> None:
    net = Net()
    x = net.var("data")
    for number, (before, after) in enumerate([(3, 64), (64, 64), (64, 64), (64, 1)]):
        x = conv(net, x, f"conv{number}", before, after, kernel=3 if after > 1 else 1)
    graph = net.graph(x)
    assert low(graph, plan_for(graph, net.params, BF16, target=CPU)) == {"conv0", "conv1", "conv2"}


def test_pooling_over_a_part_of_the_image_is_no_mean_over_it() -> None:
    net = Net()
    x = conv(net, conv(net, net.var("data"), "conv0", 3, 256), "conv1", 256, 256)
    x = pooled(net, x, kernel="(2, 2)", global_pool=False, stride="(2, 2)")
    graph = net.graph(conv(net, x, "output", 256, 1, kernel=1))
    known = {"pool": (1, 256, 16, 16), "output": (1, 1, 16, 16), "output_weight": (1, 256, 1, 1)}
    shapes = [
        (known.get(node.name, shape[0]),) for node, shape in zip(graph.nodes, shapes_of(graph, channels=256))
    ]
    plan = plan_for(graph, net.params, BF16, target=CPU, shapes=shapes)
    assert low(graph, plan) & {"pool", "output"} == {"pool"}


def test_the_reason_names_both_dtypes_of_what_is_stored() -> None:
    net, graph = classifier()
    plan = plan_for(graph, net.params, BF16, target=CPU)
    made = {node.name: d for node, d in zip(graph.nodes, plan.decisions) if d is not None}
    assert made["output"].inputs == (F32, F32)
    assert made["conv3"].inputs == (BF16, BF16)
    assert isinstance(made["output"].compute, DType)
    assert np.prod(net.params["output_weight"].shape) == 640


def test_behind_layers_that_are_low_already_nothing_is_looked_for() -> None:
    net = Net()
    x = pooled(net, net.var("data"))
    x = conv(net, conv(net, x, "conv0", 4, 2, kernel=1), "conv1", 2, 4, kernel=1)
    product = net.op("broadcast_mul", net.var("other"), x, name="product")
    graph = net.graph(product, dense(net, net.var("signal"), "output", 4, 1))
    unpriced = replace(Target.builtin("cpu-bf16"), cost=None)
    first = mxamp.convert_model(graph, net.params, {}, "bfloat16", target=unpriced)
    assert first.report is not None
    assert [first.report.node(name).compute for name in ("conv1", "output")] == ["bfloat16", "float32"]
    again = mxamp.convert_model(first.graph, {**first.arg_params}, {}, "bfloat16", target=unpriced)
    assert again.graph == first.graph


def test_shapes_assumed_for_times_that_are_not_known_say_nothing_of_means() -> None:
    """A second conversion assumes none, so it would take this window for a mean and the first would not."""
    net = Net()
    window = {"kernel": "(2, 1)", "stride": "(2, 1)", "pad": "(1, 0)", "pool_type": "avg"}
    data = net.var("data")
    layer = conv(net, conv(net, pooled(net, data), "conv0", 4, 2, kernel=1), "conv1", 2, 4, kernel=1)
    averaged = net.op("Pooling", net.op("broadcast_mul", data, layer), name="window", **window)
    weight = net.param("output_weight", 1, 4)
    narrow = net.op(
        "FullyConnected",
        net.op("Concat", data, data, dim=1, num_args=2),
        weight,
        name="output",
        num_hidden=1,
        no_bias=True,
        flatten=False,
    )
    maps = net.op("Correlation", narrow, narrow, kernel_size=1, max_displacement=1, pad_size=1)
    first = mxamp.convert_model(net.graph(averaged, maps), net.params, {}, "bfloat16")
    again = mxamp.convert_model(first.graph, dict(first.arg_params), {}, "bfloat16")
    assert again.graph == first.graph
