"""Random parameters: reproducible, and of a size that keeps activations in range."""

from __future__ import annotations

import numpy as np

from mxamp.runtime.random_weights import random_parameters
from tests.building import Net


def shapes_of(net: Net) -> dict[str, tuple[int, ...]]:
    return {name: values.shape for name, values in net.params.items()}


def wide_fc(net: Net, data, name: str):
    weight = net.param(f"{name}_weight", 512, 512)
    return net.op("FullyConnected", data, weight, name=name, num_hidden=512, no_bias=True)


def test_same_seed_gives_the_same_values_whatever_the_names():
    values = []
    for prefix in ("net0_", "net1_"):
        net = Net()
        graph = net.graph(net.bn(net.conv(net.var("data"), f"{prefix}conv"), f"{prefix}bn"))
        values.append(list(random_parameters(graph, shapes_of(net), seed=3).values()))
    for first, second in zip(*values):
        np.testing.assert_array_equal(first, second)


def test_other_seed_gives_other_values():
    net = Net()
    graph = net.graph(net.conv(net.var("data"), "conv"))
    first, second = (random_parameters(graph, shapes_of(net), seed=seed)["conv_weight"] for seed in (0, 1))
    assert not np.array_equal(first, second)


def test_variances_of_batchnorm_are_positive_and_not_trivial():
    net = Net()
    graph = net.graph(net.bn(net.var("data"), "bn"))
    values = random_parameters(graph, shapes_of(net), seed=0)
    assert values["bn_moving_var"].min() > 0.5
    assert all(np.ptp(value) > 0 for value in values.values())


def test_values_are_float32():
    net = Net()
    graph = net.graph(net.bn(net.conv(net.var("data"), "conv"), "bn"))
    assert {value.dtype for value in random_parameters(graph, shapes_of(net), seed=0).values()} == {
        np.dtype(np.float32)
    }


def test_weights_before_a_rectifier_make_up_for_what_it_drops():
    net = Net()
    relu = net.op("Activation", wide_fc(net, net.var("data"), "before"), name="relu", act_type="relu")
    graph = net.graph(wide_fc(net, relu, "last"))
    values = random_parameters(graph, shapes_of(net), seed=0)
    ratio = values["before_weight"].var() / values["last_weight"].var()
    np.testing.assert_allclose(ratio, 2, rtol=0.05)


def test_end_of_a_residual_branch_is_smaller():
    net = Net()
    data = net.var("data")
    graph = net.graph(wide_fc(net, net.op("elemwise_add", data, wide_fc(net, data, "branch")), "last"))
    values = random_parameters(graph, shapes_of(net), seed=0)
    assert values["branch_weight"].std() < 0.5 * values["last_weight"].std()


def test_residual_branch_that_ends_with_an_activation_is_smaller():
    net = Net()
    data = net.var("data")
    leaky = net.op("LeakyReLU", net.bn(net.conv(data, "branch"), "inside"), act_type="leaky")
    graph = net.graph(net.bn(net.conv(net.op("elemwise_add", data, leaky), "last"), "outside"))
    values = random_parameters(graph, shapes_of(net), seed=0)
    assert values["inside_gamma"].max() < 0.5 < values["outside_gamma"].min()


def test_trunk_that_a_residual_sum_also_reads_keeps_its_size():
    net = Net()
    trunk = net.op("Activation", net.bn(net.conv(net.var("data"), "stem"), "trunk"), act_type="relu")
    graph = net.graph(net.op("elemwise_add", trunk, net.conv(trunk, "branch")))
    assert random_parameters(graph, shapes_of(net), seed=0)["trunk_gamma"].min() > 0.5
