"""A maximum over a wide window is taken in steps, and is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.passes import PreparedNode, State, WidePooling
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepare_graph, prepared, targets_that_choose

STEP = WidePooling.step


def network(kernel: tuple[int, ...], **attrs: Any) -> Graph:
    net = Net()
    given = {"kernel": kernel, "pad": tuple(size // 2 for size in kernel), "pool_type": "max", **attrs}
    return net.graph(net.op("Pooling", net.var("data", __dtype__="0"), name="pool", **given))


def rewritten(graph: Graph) -> State:
    return prepare_graph(
        graph, {}, Policy.default(BF16), [STEP], target=Target.builtin("cpu-bf16-avx2"), shapes=None
    )


def test_nine_places_and_the_rest() -> None:
    after, done = prepared(WidePooling, network((13, 13)), inserted=["pool_of_nine"])
    assert operators(after) == [
        "pool_of_nine = Pooling(data) {kernel: (9, 9), pad: (4, 4), pool_type: max}",
        "pool = Pooling(pool_of_nine) {kernel: (5, 5), pad: (2, 2), pool_type: max}",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("pool", "pool")]


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


def test_no_target_with_avx512_names_it() -> None:
    assert not targets_that_choose(STEP, network((13, 13)), {})
