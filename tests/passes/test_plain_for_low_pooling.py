"""Pooling in the low dtype reads plain planes where channels come in groups of eight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mxamp.dtypes import DType
from mxamp.graph import Graph
from mxamp.passes import PlainForLowPooling, PlannedNode
from mxamp.passes.state import State
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, convert, planned_state
from tests.passes.preparing import operators

SIDE = 10


def grouped(groups: int = 8, **attrs: Any) -> tuple[Net, Graph]:
    net = Net()
    weight = net.param("weight", 64, 64 // groups, 3, 3)
    options = {"num_filter": 64, "num_group": groups, "kernel": "(3, 3)", "pad": "(1, 1)", "no_bias": True}
    layer = net.op("Convolution", net.var("data"), weight, name="layer", **options)
    relu = net.op("Activation", layer, name="relu", act_type="relu")
    given = {"kernel": "(1, 1)", "global_pool": True, "pool_type": "avg", **attrs}
    return net, net.graph(net.op("Pooling", relu, name="pool", **given))


def planned(net: Net, graph: Graph, kept: tuple[str, ...] = ()) -> State:
    shapes = tuple(
        (net.params[node.name].shape,) if node.name in net.params else ((1, 64, SIDE, SIDE),)
        for node in graph.nodes
    )
    return replace(planned_state(graph, net.params, kept=dict.fromkeys(kept, "for a test")), shapes=shapes)


@pytest.mark.parametrize("attrs", [{}, {"global_pool": False, "kernel": "(3, 3)", "pad": "(1, 1)"}])
def test_low_pooling_behind_groups_of_eight_reads_plain_planes(attrs: dict[str, Any]) -> None:
    net, graph = grouped(**attrs)
    state = planned(net, graph)
    done = PlainForLowPooling().run(state)
    assert done is not None
    after = state.after(done)
    names = [line.split(" {")[0] for line in operators(after.graph)[-2:]]
    assert names == ["pool_plain = Reshape(relu)", "pool = Pooling(pool_plain)"]
    assert after.plan is not None
    decisions = {node.name: each for node, each in zip(after.graph.nodes, after.plan.decisions)}
    assert decisions["pool_plain"] is not None
    assert decisions["pool_plain"].inputs == decisions["pool_plain"].outputs == (DType.BFLOAT16,)
    assert [type(record) for record in done.records] == [PlannedNode]
    assert PlainForLowPooling().run(after) is None


@pytest.mark.parametrize(
    ("groups", "kept", "attrs"),
    [
        (8, ("pool",), {}),  # float32 has a kernel for eight
        (4, (), {}),
        (32, (), {}),
        (1, (), {}),
        (8, (), {"layout": "NHWC"}),
    ],
)
def test_refuses(groups: int, kept: tuple[str, ...], attrs: dict[str, Any]) -> None:
    net, graph = grouped(groups, **attrs)
    assert PlainForLowPooling().run(planned(net, graph, kept)) is None


def test_a_rule_keeps_it_as_it_is() -> None:
    net, graph = grouped()
    state = planned(net, graph)
    policy = Policy.default(BF16).excluding(names=["pool"])
    assert PlainForLowPooling().run(replace(state, policy=policy)) is None


def test_a_conversion_for_cpus_has_it() -> None:
    net, graph = grouped()
    converted = convert(
        graph,
        net.params,
        target=Target.builtin("cpu-bf16"),
        shapes=planned(net, graph).shapes,
        low_precision="required",
    )
    names = {node.name: node.op for node in converted.graph.nodes}
    assert names["pool_plain"] == "Reshape"
    assert next(node for node in converted.report.nodes if node.name == "pool").compute == "bfloat16"
