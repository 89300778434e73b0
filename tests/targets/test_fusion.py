"""Fusion groups are the chains the backend runs as one kernel, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from mxamp.graph import Entry, Graph
from mxamp.ops import FACTS
from mxamp.policy import Policy
from mxamp.targets import Support, Target, folded_patterns, fuses_batch_norm, fusion_groups
from tests.building import BF16, Net, convert, dtypes_of

CONV_BN_RELU_CLIP: list[list[dict[str, Any]]] = [
    [
        {"operators": ["Convolution"]},
        {"operators": ["BatchNorm"], "optional": True},
        {"operators": ["Activation"], "matching": {"act_type": "relu|tanh"}, "optional": True},
        {"operators": ["clip"], "optional": True},
    ]
]


def target(fusion: Any = CONV_BN_RELU_CLIP, **operators: str) -> Target:
    return Target.from_document(
        {
            "name": "fusing",
            "dtype": "bfloat16",
            "device": "cpu",
            "description": "",
            "default": "works",
            "operators": {op: {"support": support} for op, support in operators.items()},
            "fusion": fusion,
        },
        source="fusing.json",
    )


def groups(graph: Graph, where: Target) -> list[list[str]]:
    names = [FACTS.canonical(node.op) for node in graph.nodes]
    found = fusion_groups(graph, names, where)
    assert len({position for group in found for position in group}) == sum(map(len, found))
    return [[graph.nodes[position].name for position in group] for group in found]


def relu(net: Net, entry: Entry, name: str = "relu", act_type: str = "relu") -> Entry:
    return net.op("Activation", entry, name=name, act_type=act_type)


def test_the_longest_chain_is_one_group() -> None:
    net = Net()
    last = relu(net, net.bn(net.conv(net.var("x"), "conv"), "bn"))
    last = net.op("exp", net.op("clip", last, name="clip", a_min=0, a_max=6), name="exp")
    assert groups(net.graph(last), target()) == [["conv", "bn", "relu", "clip"]]


def test_optional_links_may_be_missing() -> None:
    net = Net()
    last = net.op("clip", net.conv(net.var("x"), "conv"), name="clip", a_min=0, a_max=6)
    assert groups(net.graph(last), target()) == [["conv", "clip"]]


def test_a_required_link_may_not() -> None:
    fusion = [[{"operators": ["Convolution"]}, {"operators": ["BatchNorm"]}, {"operators": ["clip"]}]]
    net = Net()
    last = net.op("clip", net.conv(net.var("x"), "conv"), name="clip", a_min=0, a_max=6)
    assert groups(net.graph(last), target(fusion)) == []


def test_a_value_that_is_read_twice_is_not_fused_away() -> None:
    net = Net()
    layer = net.conv(net.var("x"), "conv")
    assert groups(net.graph(relu(net, layer), net.op("exp", layer)), target()) == []


def test_a_value_that_is_a_graph_output_is_not_fused_away() -> None:
    net = Net()
    layer = net.conv(net.var("x"), "conv")
    assert groups(net.graph(relu(net, layer), layer), target()) == []


def test_statistics_that_are_read_keep_batch_norm_apart() -> None:
    net = Net()
    normal = net.bn(net.conv(net.var("x"), "conv"), "bn")
    graph = net.graph(relu(net, normal), net.op("exp", Entry(normal.node, 1)))
    assert groups(graph, target()) == [["conv", "bn"]]


def test_a_chain_continues_through_the_first_input_alone() -> None:
    fusion = [[{"operators": ["Convolution"]}, {"operators": ["elemwise_add"]}]]
    net = Net()
    layer = net.conv(net.var("x"), "conv")
    assert groups(net.graph(net.op("elemwise_add", net.var("y"), layer)), target(fusion)) == []


def test_a_link_may_ask_for_attributes() -> None:
    net = Net()
    graph = net.graph(relu(net, net.conv(net.var("x"), "conv"), act_type="sigmoid"))
    assert groups(graph, target()) == []


def test_a_target_without_patterns_fuses_nothing() -> None:
    net = Net()
    graph = net.graph(relu(net, net.conv(net.var("x"), "conv")))
    assert groups(graph, target([])) == []


def converted(net: Net, last: Entry, **operators: str) -> dict[str, Any]:
    graph = net.graph(last)
    where = target(**operators)
    return dtypes_of(convert(graph, net.params, target=where, policy=Policy.default(BF16)))


def test_an_operator_that_is_slow_alone_is_low_inside_a_group() -> None:
    net = Net()
    clip = net.op("clip", net.conv(net.var("x"), "conv"), name="clip", a_min=0, a_max=6)
    found = converted(net, net.conv(clip, "next"), clip="slow")
    assert found["clip"] == (BF16,)


def test_the_same_operator_outside_a_group_is_fp32() -> None:
    net = Net()
    pooled = net.op("Pooling", net.conv(net.var("x"), "conv"), name="pool", kernel="(1, 1)")
    clip = net.op("clip", pooled, name="clip", a_min=0, a_max=6)
    found = converted(net, net.conv(clip, "next"), clip="slow")
    assert str(found["clip"][0]) == "float32"


def test_a_group_whose_head_cannot_run_low_saves_nothing() -> None:
    net = Net()
    clip = net.op("clip", net.conv(net.var("x"), "conv"), name="clip", a_min=0, a_max=6)
    found = converted(net, net.fc(clip, "next"), clip="slow", Convolution=Support.CRASHES.value)
    assert str(found["clip"][0]) == str(found["conv"][0]) == "float32"


def test_a_red_member_keeps_the_group_apart_and_the_rest_low() -> None:
    net = Net()
    soft = relu(net, net.bn(net.conv(net.var("x"), "conv"), "bn"), "soft", "softrelu")
    found = converted(net, soft)
    assert found["conv"] == (BF16,)
    assert str(found["soft"][0]) == "float32"


def test_a_red_tail_does_not_cost_the_head_of_its_chain_the_fused_low_middle() -> None:
    net = Net()
    clip = net.op("clip", net.bn(net.conv(net.var("x"), "conv"), "bn"), name="clip", a_min=0, a_max=1e39)
    found = converted(net, clip, BatchNorm="slow")
    assert found["bn"][0] is BF16, "conv + bn fuse without the clip"


def test_a_chain_may_come_in_at_any_input_where_the_pattern_says_so() -> None:
    net = Net()
    data = net.var("data")
    added = net.op("elemwise_add", data, net.conv(data, "conv0"), name="add")
    graph = net.graph(net.op("Activation", added, name="relu", act_type="relu"))
    names = [node.op for node in graph.nodes]
    patterns = Target.builtin("cpu-bf16").rounds_once
    groups = fusion_groups(graph, names, Target.builtin("cpu-bf16"), patterns=patterns)
    assert [[graph.nodes[position].name for position in chain] for chain in groups] == [
        ["conv0", "add", "relu"]
    ]
    assert not fusion_groups(graph, names, Target.builtin("cpu-bf16"))  # the placement need not know of it


def test_of_two_chains_that_meet_in_a_sum_the_second_ends_before_it() -> None:
    """As in the first block of each stage of a ResNet: the sum is fused behind one of the convolutions."""
    pattern = [
        {"operators": ["Convolution"]},
        {"operators": ["BatchNorm"], "optional": True},
        {"operators": ["elemwise_add"], "optional": True, "any_input": True},
    ]
    net = Net()
    x = net.var("x")
    left, right = (net.bn(net.conv(x, f"conv{n}"), f"bn{n}") for n in (0, 1))
    total = net.op("elemwise_add", left, right, name="sum")
    assert groups(net.graph(total), target([pattern])) == [["conv0", "bn0", "sum"], ["conv1", "bn1"]]


def test_what_a_conversion_folds_is_a_chain_where_the_backend_fuses_by_itself() -> None:
    cpu = Target.builtin("cpu-bf16")
    alone, *behind = folded_patterns(cpu)
    assert alone.steps[0].operators == cpu.fold_into
    assert all(pattern.steps[1].operators == ("BatchNorm",) for pattern in (alone, *behind))
    assert not folded_patterns(Target.builtin("cuda-fp16"))


@pytest.mark.parametrize("behind", [None, "relu", "sigmoid", "sin"])
def test_what_the_backend_fuses_behind_a_layer_is_in_that_chain(behind: str | None) -> None:
    """Once the norm is gone it stands right behind."""
    cpu, net = Target.builtin("cpu-bf16"), Net()
    layer = net.op("FullyConnected", net.var("x"), net.param("w", 4, 4), num_hidden=4, no_bias=True)
    value = net.bn(layer, "norm")
    if behind is not None:
        is_kind = behind != "sin"
        value = net.op(
            "Activation" if is_kind else behind, value, **({"act_type": behind} if is_kind else {})
        )
    graph = net.graph(value)
    names = [FACTS.canonical(node.op) for node in graph.nodes]
    (chain,) = fusion_groups(graph, names, cpu, patterns=(*cpu.rounds_once, *folded_patterns(cpu)))
    expected = ["FullyConnected", "BatchNorm", *(["Activation"] if behind in ("relu", "sigmoid") else [])]
    assert [names[position] for position in chain] == expected


@pytest.mark.parametrize(
    ("op", "kernel", "is_fused"),
    [
        ("Convolution", "(3, 3)", True),
        ("Convolution", "(3, 3, 3)", True),
        ("Convolution", "(3,)", False),
        ("FullyConnected", "", False),
    ],
)
def test_mxnet_fuses_a_batch_norm_with_layers_of_images_and_volumes(
    op: str, kernel: str, is_fused: bool
) -> None:
    attrs = {"kernel": kernel} if kernel else {}
    assert fuses_batch_norm(Target.builtin("cpu-bf16"), op, attrs) is is_fused
