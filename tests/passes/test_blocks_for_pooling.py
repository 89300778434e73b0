"""Pooling over large planes that a cast wrote reads blocks of channels, and its values stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mxamp.decisions.estimates import estimate
from mxamp.dtypes import DType
from mxamp.graph import Graph
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.ops import FACTS
from mxamp.passes import BlocksForPooling, PlannedNode
from mxamp.passes.state import State
from mxamp.targets import Target
from tests.building import Net, named, planned_state
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import operators

SIZE = 128


def peaks(channels: int = 16, kernel: str = "(3, 3)", **attrs: Any) -> tuple[Net, Graph]:
    """Return a layer, a sigmoid that stays FP32, and a pooling."""
    net = Net()
    weight = net.param("weight", channels, 4, 1, 1)
    layer = net.op(
        "Convolution",
        net.var("data"),
        weight,
        name="layer",
        num_filter=channels,
        kernel="(1, 1)",
        no_bias=True,
    )
    heat = net.op("Activation", layer, name="heat", act_type="sigmoid")
    return net, net.graph(net.op("Pooling", heat, name="pool", kernel=kernel, pad="(1, 1)", **attrs))


def planned(net: Net, graph: Graph, size: int = SIZE, kept: tuple[str, ...] = ("heat", "pool")) -> State:
    channels = net.params["weight"].shape[0]
    image = ((1, channels, size, size),)
    shapes = [
        ((1, 4, size, size),)
        if node.name == "data"
        else ((channels, 4, 1, 1),)
        if node.is_variable
        else image
        for node in graph.nodes
    ]
    return planned_state_with_shapes(graph, net, shapes, dict.fromkeys(kept, "for a test"))


def planned_state_with_shapes(graph: Graph, net: Net, shapes: Any, kept: dict[str, str]) -> State:
    return replace(planned_state(graph, net.params, kept=kept), shapes=shapes)


def test_a_depthwise_layer_of_ones_writes_blocks() -> None:
    net, graph = peaks()
    state = planned(net, graph)
    done = BlocksForPooling().run(state)
    assert done is not None
    after = state.after(done)
    assert operators(after.graph)[-2:] == [
        "pool_blocks = Convolution(heat, pool_ones) {kernel: (1, 1), no_bias: True, num_filter: 16, "
        "num_group: 16}",
        "pool = Pooling(pool_blocks) {kernel: (3, 3), pad: (1, 1)}",
    ]
    assert after.plan is not None
    decisions = {node.name: each for node, each in zip(after.graph.nodes, after.plan.decisions)}
    assert decisions["pool_blocks"] is not None
    assert decisions["pool_blocks"].compute is DType.FLOAT32
    assert [type(record) for record in done.records] == [PlannedNode]
    assert BlocksForPooling().run(after) is None


@pytest.mark.parametrize("case", ["blocks", "low", "small", "24 channels", "global", "no shapes"])
def test_refuses(case: str) -> None:
    net, graph = peaks(
        24 if case == "24 channels" else 16, **({"global_pool": True} if case == "global" else {})
    )
    kept: tuple[str, ...] = ("heat", "pool")
    if case == "blocks":
        kept = ("layer", *kept)  # nothing is cast
    elif case == "low":
        kept = ()
    state = planned(net, graph, 100 if case == "small" else SIZE, kept)
    if case == "no shapes":
        state = planned_state(graph, net.params, kept=dict.fromkeys(kept, "for a test"))
    assert BlocksForPooling().run(state) is None


def test_mxnet_computes_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    ones = net.param("weight", 16, 1, 1, 1, value=1.0)
    attrs = {"num_filter": 16, "num_group": 16, "kernel": "(1, 1)", "no_bias": True}
    layer = net.op("Convolution", net.var("data"), ones, name="layer", **attrs)
    cast = net.op("amp_cast", layer, name="cast", dtype="float32")
    graph = net.graph(net.op("Pooling", cast, name="pool", kernel="(3, 3)", pad="(1, 1)", pool_type="max"))
    image = ((1, 16, SIZE, SIZE),)
    shapes = [((16, 1, 1, 1),) if node.name == "weight" else image for node in graph.nodes]
    state = planned_state_with_shapes(graph, net, shapes, {"layer": "for a test"})
    done = BlocksForPooling().run(state)
    after = state if done is None else state.after(done)
    assert len(after.graph.nodes) == len(graph.nodes) + 2
    data = {"data": on_edges(1, 16, SIZE, SIZE)}
    data["data"][np.isnan(data["data"])] = 0  # which of several values is the largest is a kernel's matter
    (expected,) = outputs(monkeypatch, graph, state.params, data)
    (found,) = outputs(monkeypatch, after.graph, after.params, data, "MKLDNN")
    np.testing.assert_array_equal(found, expected)


NARROW = Target.builtin("cpu-bf16-avx2")


def plain_pooling(channels: int, size: int, *, filters: int = 0, before: str = "clip", **attrs: Any) -> State:
    """Pool what an operator writes that is none of oneDNN's, or a layer that reads so many channels."""
    net = Net()
    weight = net.param("weight", channels, filters or 4, 1, 1)
    layer = net.op(
        "Convolution", net.var("data"), weight, name="layer", num_filter=channels, kernel="(1, 1)",
        no_bias=True,
    )  # fmt: skip
    bounds = {"a_min": -1, "a_max": 1} if before == "clip" else {}
    read = layer if filters else net.op(before, layer, name="read", **bounds)
    attrs = {"kernel": "(3, 3)", "pad": "(1, 1)", **attrs}
    graph = net.graph(net.op("Pooling", read, name="pool", **attrs))
    image = (1, channels, size, size)
    known = {"data": (1, filters or 4, size, size), "weight": weight_shape(net), "pool": image}
    if attrs.get("stride"):
        known["pool"] = (1, channels, size // 2, size // 2)
    shapes = [(known.get(node.name, image),) for node in graph.nodes]
    state = planned_state_with_shapes(graph, net, shapes, dict.fromkeys(("layer", "read", "pool"), "a test"))
    return replace(state, target=NARROW)


def weight_shape(net: Net) -> tuple[int, ...]:
    return tuple(net.params["weight"].shape)


@pytest.mark.parametrize(
    ("case", "writes"),
    [
        pytest.param({"channels": 8, "size": 14}, True, id="a maximum"),
        pytest.param({"channels": 8, "size": 14, "stride": "(2, 2)"}, False, id="few values"),
        pytest.param({"channels": 12, "size": 28}, False, id="no blocks of eight"),
        pytest.param({"channels": 16, "size": 14, "pool_type": "avg"}, True, id="a mean"),
        pytest.param({"channels": 8, "size": 14, "pool_type": "avg"}, False, id="a mean of few values"),
        pytest.param(
            {"channels": 64, "size": 56, "global_pool": True, "pool_type": "avg"}, True, id="planes"
        ),
        pytest.param({"channels": 16, "size": 56, "global_pool": True}, False, id="few planes"),
        pytest.param({"channels": 16, "size": 14, "before": "relu"}, False, id="over what a layer wrote"),
        pytest.param({"channels": 16, "size": 14, "filters": 24}, False, id="behind a layer"),
        pytest.param({"channels": 16, "size": 14, "filters": 20}, True, id="behind a plain matrix product"),
    ],
)
def test_without_avx512_all_plain_planes_are_brought_into_blocks(case: dict[str, Any], writes: bool) -> None:
    state = plain_pooling(**case)
    done = BlocksForPooling().run(state)
    assert (done is not None) is writes
    if done is not None:
        assert "pool_blocks = Convolution" in operators(state.after(done).graph)[-2]
    assert BlocksForPooling().run(replace(state, target=Target.builtin("cpu-bf16"))) is None


def test_the_shapes_may_be_assumed() -> None:
    state = plain_pooling(16, 28)
    assert state.shapes is not None
    assumed = replace(state, shapes=None, assumed_shapes=state.shapes)
    assert BlocksForPooling().run(assumed) is not None
    assert BlocksForPooling().run(replace(assumed, assumed_shapes=None)) is None


@pytest.mark.parametrize("channels", [64, 12])
def test_estimates_know_of_it(channels: int) -> None:
    """What it takes without, where channels fill no blocks, is several times as much."""
    net = Net()
    weight = net.param("weight", channels, 4, 1, 1)
    layer = net.op("Convolution", net.var("x"), weight, num_filter=channels, kernel="(1, 1)", no_bias=True)
    read = net.op("clip", layer, a_min=-1, a_max=1)
    graph = net.graph(net.op("Pooling", read, name="pool", kernel="(3, 3)", pad="(1, 1)"))
    names = [FACTS.canonical(node.op) for node in graph.nodes]
    sizes = {name: value.shape for name, value in net.params.items()}
    shapes = infer_entry_shapes(graph, {"x": (1, 4, 56, 56)}, sizes).entries
    assert NARROW.cost is not None
    pool = graph.nodes.index(named(graph, "pool"))
    known, unknown = (
        estimate(graph, names, target, NARROW.cost, shapes, choices=frozenset()).float32[pool]
        for target in (NARROW, replace(NARROW, rewrites=()))
    )
    assert known < 0.3 * unknown if channels == 64 else known == unknown


def test_estimates_of_what_reads_nothing_are_told_too() -> None:
    net = Net()
    graph = net.graph(net.op("_zeros", shape="(2, 3)"))
    shapes = infer_entry_shapes(graph, {}, {}).entries
    assert NARROW.cost is not None
    found = estimate(graph, ["_zeros"], NARROW, NARROW.cost, shapes, choices=frozenset())
    assert found.float32[0] > 0
