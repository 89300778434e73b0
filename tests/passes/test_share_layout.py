"""A convolution that several plain readers share is reordered once."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import ShareLayout
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, named, parameters, reads
from tests.passes.preparing import prepare_graph, prepared


def hard_swish(*, norm: bool = False) -> tuple[Net, Entry]:
    net = Net()
    layer = net.conv(net.var("data"), "conv")
    if norm:
        layer = net.bn(layer, "bn")
    gate = net.op("hard_sigmoid", layer, name="gate")
    return net, net.op("elemwise_mul", layer, gate, name="swish")


def test_a_hard_swish_reads_one_reshape() -> None:
    net, last = hard_swish()
    after, done = prepared(ShareLayout, net.graph(last), inserted=["conv_plain"])
    assert reads(after, "conv_plain") == ["conv"]
    assert reads(after, "gate") == ["conv_plain"]
    assert reads(after, "swish") == ["conv_plain", "gate"]
    assert [(change.node, change.op, change.into) for change in done.changes] == [
        ("conv", "Convolution", "conv")
    ]


def test_behind_a_batch_norm() -> None:
    net, last = hard_swish(norm=True)
    after, _ = prepared(ShareLayout, net.graph(last), inserted=["bn_plain"])
    assert reads(after, "bn_plain") == ["bn"]
    assert reads(after, "swish") == ["bn_plain", "gate"]


def test_an_operator_that_reads_the_layer_twice_counts_twice() -> None:
    net = Net()
    layer = net.conv(net.var("data"), "conv")
    after, _ = prepared(
        ShareLayout, net.graph(net.op("elemwise_mul", layer, layer, name="square")), inserted=["conv_plain"]
    )
    assert reads(after, "square") == ["conv_plain", "conv_plain"]


def test_operators_of_onednn_go_on_reading_the_layer() -> None:
    net, last = hard_swish()
    layer = next(Entry(n) for n, node in enumerate(net.nodes) if node.name == "conv")
    other = net.conv(layer, "next")
    after, _ = prepared(ShareLayout, net.graph(last, other), inserted=["conv_plain"])
    assert reads(after, "next")[0] == "conv"


def one_reader() -> Graph:
    net = Net()
    return net.graph(net.op("hard_sigmoid", net.conv(net.var("data"), "conv")))


def one_plain_reader() -> Graph:
    net = Net()
    layer = net.conv(net.var("data"), "conv")
    return net.graph(net.op("hard_sigmoid", layer), net.op("Activation", layer, act_type="tanh"))


def as_an_output() -> Graph:
    net, last = hard_swish()
    return net.graph(last, next(Entry(n) for n, node in enumerate(net.nodes) if node.name == "conv"))


def no_layer() -> Graph:
    net = Net()
    data = net.op("exp", net.var("data"))
    return net.graph(net.op("elemwise_mul", data, data), net.conv(net.var("other"), "conv"))


def with_layer(**attrs: str) -> Graph:
    net, last = hard_swish()
    position = next(n for n, node in enumerate(net.nodes) if node.name == "conv")
    node = net.nodes[position]
    net.nodes[position] = node._replace(attrs={**node.attrs, **attrs})
    return net.graph(last)


def channels_last() -> Graph:
    return with_layer(layout="NHWC")


def read_in_blocks() -> Graph:
    """Let a layer read the sigmoid as well: blocks are wanted of it."""
    net, layer, gate = swish()
    return net.graph(net.op("elemwise_mul", layer, gate), net.conv(gate, "next"))


def gate_as_an_output() -> Graph:
    net, layer, gate = swish()
    return net.graph(net.op("elemwise_mul", layer, gate), gate)


@pytest.mark.parametrize("kernel", ["(1,)", "(1, 1)", "(1, 1, 1)"])
def test_sequences_images_and_volumes(kernel: str) -> None:
    after, _ = prepared(ShareLayout, with_layer(kernel=kernel), inserted=["conv_plain"])
    axes = 2 + len(kernel.strip("(,)").split(","))
    assert named(after, "conv_plain").attrs["shape"] == str((0,) * axes)


def swish() -> tuple[Net, Entry, Entry]:
    net = Net()
    layer = net.conv(net.var("data"), "conv")
    return net, layer, net.op("Activation", layer, name="gate", act_type="sigmoid")


def test_a_swish_is_computed_in_plain_order() -> None:
    net, layer, gate = swish()
    graph = net.graph(net.op("elemwise_mul", layer, gate, name="swish"))
    after, _ = prepared(ShareLayout, graph, inserted=["conv_plain"])
    assert reads(after, "gate") == ["conv_plain"]
    assert reads(after, "swish") == ["conv_plain", "gate"]


def test_a_mish_has_two_activations() -> None:
    net = Net()
    layer = net.conv(net.var("data"), "conv")
    inner = net.op("Activation", layer, name="inner", act_type="softrelu")
    gate = net.op("Activation", inner, name="gate", act_type="tanh")
    after, _ = prepared(
        ShareLayout, net.graph(net.op("elemwise_mul", layer, gate, name="mish")), inserted=["conv_plain"]
    )
    assert reads(after, "inner") == ["conv_plain"]
    assert reads(after, "mish") == ["conv_plain", "gate"]


@pytest.mark.parametrize(
    "make",
    [
        *(one_reader, one_plain_reader, as_an_output, no_layer, channels_last, read_in_blocks),
        gate_as_an_output,
    ],
)
def test_refuses(make) -> None:
    graph = make()
    after, _ = prepared(ShareLayout, graph)
    assert after is graph


def test_what_a_rule_of_the_users_picks_stays() -> None:
    net, last = hard_swish()
    graph = net.graph(last)
    policy = Policy.default(BF16).excluding(operators=["hard_sigmoid"])
    assert prepared(ShareLayout, graph, policy=policy)[0] is graph


def test_gpus_have_no_blocks() -> None:
    net, last = hard_swish()
    graph = net.graph(last)
    for name, inserted in (("cpu-bf16", True), ("cuda-fp16", False)):
        target = Target.builtin(name)
        policy = Policy.default(target.dtype)
        after = prepare_graph(graph, parameters(net.params), policy, target=target).graph
        assert any(node.name == "conv_plain" for node in after.nodes) is inserted


@pytest.mark.parametrize("kind", ["hard", "sigmoid"])
def test_mxnet_computes_the_same_bits(kind: str) -> None:
    pytest.importorskip("mxnet", reason="runs the model")
    from mxamp.model import Model
    from mxamp.runtime.executor import run_outputs

    net, last = hard_swish()
    if kind == "sigmoid":
        net, layer, gate = swish()
        last = net.op("elemwise_mul", layer, gate)
    graph = net.graph(last)
    after, _ = prepared(ShareLayout, graph, inserted=["conv_plain"])
    data = {"data": np.random.default_rng(4).uniform(-4, 4, (2, 4, 9, 7)).astype(np.float32)}
    (expected,), (found,) = (run_outputs(Model.of(each, net.params, {}), data) for each in (graph, after))
    np.testing.assert_array_equal(found, expected)
