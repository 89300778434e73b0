"""A decision says what a node computes in, sums in, hands on, and why."""

from __future__ import annotations

from typing import Any

from mxamp.decisions import Decision
from mxamp.dtypes import DType
from mxamp.graph import Entry
from mxamp.policy import Color, Policy
from mxamp.targets import OperatorSupport, Support, Target
from tests.building import BF16, F16, F32, Net, plan_for


def decisions(net: Net, *heads: Entry, dtype: DType = BF16, **options: Any) -> dict[str, Decision]:
    graph = net.graph(*heads)
    plan = plan_for(graph, net.params, dtype, **options)
    return {
        node.name: decision for node, decision in zip(graph.nodes, plan.decisions) if decision is not None
    }


def test_a_layer_computes_low_and_sums_in_fp32() -> None:
    net = Net()
    made = decisions(net, net.fc(net.var("x"), "fc"))["fc"]
    assert (made.color, made.compute, made.accumulation) == (Color.GREEN, BF16, F32)
    assert (made.inputs, made.outputs) == ((BF16, BF16), (BF16,))
    assert made.reason


def test_softmax_computes_low_and_hands_on_fp32() -> None:
    net = Net()
    made = decisions(net, net.op("softmax", net.fc(net.var("x"), "fc"), name="p"), dtype=F16)["p"]
    assert (made.compute, made.accumulation, made.outputs) == (F16, F32, (F32,))
    assert made.attrs == (("dtype", "float32"),)


def test_batch_norm_reads_low_data_and_fp32_statistics() -> None:
    net = Net()
    made = decisions(net, net.bn(net.conv(net.var("x"), "conv"), "bn"))["bn"]
    assert made.inputs == (BF16, F32, F32, F32, F32)
    assert made.outputs == (BF16, F32, F32)


def test_the_reason_of_a_free_node_is_the_placements() -> None:
    net = Net()
    first = net.op("relu", net.var("x"), name="before")
    last = net.op("relu", net.fc(first, "fc"), name="after")
    made = decisions(net, last)
    for name, dtype in (("before", "float32"), ("after", "bfloat16")):
        of_the_policy, of_the_placement = made[name].reason.rsplit("; ", 1)
        assert of_the_policy == Policy.default(BF16).operators["relu"].reason
        assert of_the_placement.startswith(dtype)
        assert "fewest casts" in of_the_placement


def test_the_reason_of_what_the_target_refuses_is_the_targets() -> None:
    net = Net()
    support = {"Convolution": OperatorSupport(Support.CRASHES, "seen to crash")}
    target = Target("t", BF16, "cpu", "", support, Support.WORKS)
    made = decisions(net, net.conv(net.var("x"), "conv"), target=target)["conv"]
    assert (made.color, made.compute) == (Color.GREEN, F32)
    assert made.reason == "Convolution crashes MXNet in bfloat16 on t: seen to crash"


def test_the_reason_of_a_red_node_is_the_policys() -> None:
    net = Net()
    made = decisions(net, net.op("exp", net.var("x"), name="e"))["e"]
    assert (made.color, made.compute) == (Color.RED, F32)
    assert made.reason == Policy.default(BF16).operators["exp"].reason


def test_what_computes_low_already_is_left_and_said_so() -> None:
    net = Net()
    made = decisions(net, net.op("exp", net.var("x", __dtype__="12"), name="e"))["e"]
    assert (made.compute, made.outputs) == (BF16, (BF16,))
    assert made.reason == "computes in bfloat16 already"


def test_integers_and_doubles_are_no_matter_for_casts() -> None:
    net = Net()
    whole = net.op("_plus_scalar", net.var("i", __dtype__="4"), name="whole", scalar=1)
    double = net.op("_plus_scalar", net.var("d", __dtype__="1"), name="double", scalar=1)
    made = decisions(net, whole, double)
    assert made["whole"].reason == "works on int32, which no cast touches"
    assert made["double"].reason == "computes in float64 already"
    assert made["whole"].inputs == made["double"].inputs == (None,)


def test_what_reads_nothing_has_nothing_to_cast() -> None:
    net = Net()
    made = decisions(net, net.op("_arange", name="a", stop=4))["a"]
    assert made.reason == "reads no floating-point data; there is nothing to cast"


def test_casts_of_the_original_graph_are_kept_and_said_so() -> None:
    net = Net()
    x = net.var("x")
    made = decisions(
        net, net.op("Cast", x, name="c", dtype="float16"), net.op("amp_cast", x, name="a", dtype="float16")
    )
    assert made["c"].reason == made["a"].reason == "a cast of the original graph is kept as it is"


def test_every_node_has_a_decision_with_a_reason() -> None:
    net = Net()
    features = net.op("mystery", net.bn(net.conv(net.var("x"), "conv"), "bn"), name="u")
    found = net.op("topk", net.fc(features, "fc"), name="top", ret_typ="both", outputs=2)
    made = decisions(net, found, Entry(found.node, 1))
    assert set(made) == {"conv", "bn", "u", "fc", "top"}
    assert all(decision.reason and decision.rule for decision in made.values())


def test_a_node_that_is_kept_is_float32_whatever_its_color_and_says_why() -> None:
    net = Net()
    first = net.fc(net.op("relu", net.fc(net.var("x"), "fc0"), name="r0"), "fc1")
    kept = {"fc1": "measured: it costs time", "not there": "nothing"}
    made = decisions(net, first, kept=kept)
    assert (made["fc1"].compute, made["fc1"].reason) == (F32, "measured: it costs time")
    assert (made["fc1"].color, made["fc1"].inputs) == (Color.GREEN, (F32, F32))
    assert made["fc0"].compute is BF16


def test_what_is_kept_breaks_a_fused_group() -> None:
    net = Net()
    head = net.op("Activation", net.conv(net.var("x"), "c0"), name="r0", act_type="relu")
    target = Target.builtin("generic-bf16")
    assert {d.compute for d in decisions(net, head, target=target).values()} == {BF16}
    assert {d.compute for d in decisions(net, head, target=target, kept={"c0": "m"}).values()} == {F32}


def test_a_node_that_must_be_float32_anyway_keeps_its_own_reason() -> None:
    net = Net()
    made = decisions(net, net.op("exp", net.fc(net.var("x"), "fc"), name="e"), kept={"e": "measured: no"})
    assert "measured" not in made["e"].reason
