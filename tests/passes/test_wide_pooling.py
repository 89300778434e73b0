"""A maximum over a wide window is taken in steps, and is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.passes import PreparedNode, State, WidePooling
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import CPUS, operators, prepare_graph, prepared, targets_that_choose

STEP = WidePooling.step


def network(kernel: tuple[int, ...], **attrs: Any) -> Graph:
    net = Net()
    given = {"kernel": kernel, "pad": tuple(size // 2 for size in kernel), "pool_type": "max", **attrs}
    return net.graph(net.op("Pooling", net.var("data", __dtype__="0"), name="pool", **given))


def shapes_of(graph: Graph, *shape: int) -> list[tuple[tuple[int, ...]]]:
    return [(shape,)] * len(graph.nodes)


def rewritten(graph: Graph, target: str = "cpu-bf16-avx2", shape: tuple[int, ...] | None = None) -> State:
    shapes = None if shape is None else shapes_of(graph, *shape)
    chosen = Target.builtin(target)
    return prepare_graph(graph, {}, Policy.default(BF16), [STEP], target=chosen, shapes=shapes)


def test_nine_places_and_the_rest() -> None:
    after, done = prepared(WidePooling, network((13, 13)), inserted=["pool_of_nine"])
    assert operators(after) == [
        "pool_of_nine = Pooling(data) {kernel: (9, 9), pad: (4, 4), pool_type: max}",
        "pool = Pooling(pool_of_nine) {kernel: (5, 5), pad: (2, 2), pool_type: max}",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("pool", "pool")]


@pytest.mark.parametrize(
    ("target", "shape", "kernel"),
    [
        ("cpu-bf16", (1, 32, 19, 19), (13, 13)),
        ("cpu-bf16", (1, 3, 19, 19), (5, 5)),
        ("cpu-bf16-avx2", (1, 12, 19, 19), (9, 7)),
    ],
)
def test_one_axis_and_the_other(target: str, shape: tuple[int, ...], kernel: tuple[int, int]) -> None:
    done = rewritten(network(kernel), target, shape)
    (high, wide), (above, beside) = kernel, (size // 2 for size in kernel)
    assert operators(done.graph) == [
        f"pool_columns = Pooling(data) {{kernel: ({high}, 1), pad: ({above}, 0), pool_type: max}}",
        f"pool = Pooling(pool_columns) {{kernel: (1, {wide}), pad: (0, {beside}), pool_type: max}}",
    ]


@pytest.mark.parametrize(
    ("target", "shape", "kernel"),
    [
        ("cpu-bf16", (1, 32, 19, 19), (9, 9)),
        ("cpu-bf16", (1, 32, 19, 19), (1, 13)),
        ("cpu-bf16", (1, 4, 19, 19), (7, 7)),
        ("cpu-bf16", (1, 3, 19, 19), (3, 3)),
        ("cpu-bf16-avx2", (1, 32, 19, 19), (9, 9)),
        ("cpu-bf16-avx2", (1, 3, 19, 19), (1, 9)),
    ],
)
def test_where_there_is_a_kernel_or_nothing_to_save_it_stays(
    target: str, shape: tuple[int, ...], kernel: tuple[int, int]
) -> None:
    graph = network(kernel)
    assert rewritten(graph, target, shape).graph is graph


@pytest.mark.parametrize("shape", [(2, 32, 12, 15), (1, 3, 7, 9), (1, 24, 20, 20)])
@pytest.mark.parametrize("kernel", [(13, 13), (11, 5)])
def test_mxnet_finds_the_same_behind_a_layer(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], kernel: tuple[int, int]
) -> None:
    net = Net()
    weight = net.param("weight", shape[1], shape[1], 1, 1)
    options = {"kernel": (1, 1), "num_filter": shape[1], "no_bias": True}
    layer = net.op("Convolution", net.var("data"), weight, name="layer", **options)
    given = {"kernel": kernel, "pad": tuple(size // 2 for size in kernel), "pool_type": "max"}
    graph, params = net.graph(net.op("Pooling", layer, name="pool", **given)), parameters(net.params)
    of_weight = net.params["weight"].shape
    shapes = [(of_weight if node.name == "weight" else shape,) for node in graph.nodes]
    chosen = Target.builtin("cpu-bf16")
    done = prepare_graph(graph, params, Policy.default(BF16), [STEP], target=chosen, shapes=shapes)
    assert {change.step for change in done.record(PreparedNode)} == {STEP}
    values = {"data": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    (expected,) = outputs(monkeypatch, graph, params, values)
    (found,) = outputs(monkeypatch, done.graph, done.params, values, "MKLDNN")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kernel", [(13, 13), (11, 11), (15, 3), (1, 11), (31, 17), (17, 9)])
@pytest.mark.parametrize("shape", [(1, 8, 19, 19), (2, 3, 7, 40), (1, 1, 1, 1)])
def test_mxnet_finds_the_same(
    monkeypatch: pytest.MonkeyPatch, kernel: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    graph = network(kernel)
    done = rewritten(graph)
    assert {change.step for change in done.record(PreparedNode)} == {STEP}
    # What is below all padding of another kind is found, too.
    values = {"data": np.random.default_rng(0).standard_normal(shape).astype(np.float32) - 100}
    (expected,) = outputs(monkeypatch, graph, {}, values)
    for backend in ("NONE", "MKLDNN"):
        (found,) = outputs(monkeypatch, done.graph, done.params, values, backend)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("kernel", "attrs"),
    [
        ((9, 9), {}),
        ((13, 13), {"stride": (2, 2)}),
        ((13, 13), {"pad": (0, 0)}),
        ((13, 13), {"pool_type": "avg"}),
        ((13, 13), {"global_pool": True}),
        ((12, 12), {}),
        ((13, 13), {"layout": "NHWC"}),
        ((13,), {}),
        ((13, 13, 13), {}),
    ],
)
def test_refuses(kernel: tuple[int, ...], attrs: dict[str, Any]) -> None:
    graph = network(kernel, **attrs)
    assert prepared(WidePooling, graph)[0] is graph


def test_an_input_of_any_dtype_and_a_node_that_a_rule_picks_stay() -> None:
    net = Net()
    attrs = {"kernel": (13, 13), "pad": (6, 6), "pool_type": "max"}
    graph = net.graph(net.op("Pooling", net.var("data"), name="pool", **attrs))
    assert prepared(WidePooling, graph)[0] is graph
    graph, policy = network((13, 13)), Policy.default(BF16).excluding(names=["pool"])
    assert prepared(WidePooling, graph, None, policy)[0] is graph


def test_it_runs_for_cpus() -> None:
    assert targets_that_choose(STEP, network((13, 13)), {}) == list(CPUS)
