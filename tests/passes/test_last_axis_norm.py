"""A LayerNorm along another axis is one along the last between two transposes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import PreparedNode, RewriteLastAxisNorm
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import CPUS, operators, prepare_graph, prepared, targets_that_choose

STEP = RewriteLastAxisNorm.step
INSERTED = ["n_lines", "n_last_axis"]


def network(channels: int, *, behind: str = "Pooling", **attrs: Any) -> tuple[Net, Graph]:
    """Return a LayerNorm of an image, or of what nothing is known of."""
    net = Net()
    data: Entry = net.var("data")
    if behind == "Pooling":
        data = net.op("Pooling", data, name="source", kernel="(1, 1)")
    scale, shift = net.param("gamma", channels), net.param("beta", channels)
    # MXNet counts the mean and the deviation among the outputs, though only the first is there to be read.
    return net, net.graph(net.op("LayerNorm", data, scale, shift, name="n", outputs=3, **attrs))


def shapes_of(graph: Graph, channels: int, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...]]]:
    return [((channels,) if node.name in ("gamma", "beta") else shape,) for node in graph.nodes]


def test_it_is_turned_there_and_back() -> None:
    net, graph = network(16, axis=1, eps=1e-3)
    shapes = shapes_of(graph, 16, (4, 16, 32, 64))
    after, done = prepared(RewriteLastAxisNorm, graph, net.params, inserted=INSERTED, shapes=shapes)
    assert operators(after)[-3:] == [
        "n_lines = transpose(source) {axes: (0, 2, 3, 1)}",
        "n_last_axis = LayerNorm(n_lines, gamma, beta) {axis: -1, eps: 0.001}",
        "n = transpose(n_last_axis) {axes: (0, 3, 1, 2)}",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("n", "n")]
    assert after.nodes[-1].num_outputs == 1


def test_axes_behind_become_one_where_their_number_is_not_certain() -> None:
    net, graph = network(60, axis=1, behind="nothing")
    inserted = ["n_rest", *INSERTED, "n_back"]
    shapes = shapes_of(graph, 60, (2, 60, 40))
    after, _ = prepared(RewriteLastAxisNorm, graph, net.params, inserted=inserted, shapes=shapes)
    assert operators(after)[-5:] == [
        "n_rest = Reshape(data) {shape: (0, 0, -1)}",
        "n_lines = transpose(n_rest) {axes: (0, 2, 1)}",
        "n_last_axis = LayerNorm(n_lines, gamma, beta) {axis: -1}",
        "n_back = transpose(n_last_axis) {axes: (0, 2, 1)}",
        "n = reshape_like(n_back, data)",
    ]


@pytest.mark.parametrize(
    ("attrs", "shape", "behind"),
    [
        ({}, (4, 16, 32, 16), "Pooling"),  # the last axis
        ({"axis": 3}, (4, 16, 32, 16), "Pooling"),
        ({"axis": 1, "output_mean_var": True}, (4, 16, 32, 64), "Pooling"),
        ({"axis": 1}, (1, 16, 8, 8), "Pooling"),  # too little
        ({"axis": -3}, (4, 16, 32, 64), "nothing"),  # of how many axes?
    ],
)
def test_refuses(attrs: dict[str, Any], shape: tuple[int, ...], behind: str) -> None:
    net, graph = network(16, behind=behind, **attrs)
    shapes = shapes_of(graph, 16, shape)
    assert prepared(RewriteLastAxisNorm, graph, net.params, shapes=shapes)[0] is graph


def test_a_rule_of_the_users_keeps_it() -> None:
    net, graph = network(16, axis=1)
    policy = Policy.default(BF16).excluding(names=["n"])
    shapes = shapes_of(graph, 16, (4, 16, 32, 64))
    assert prepared(RewriteLastAxisNorm, graph, net.params, policy, shapes=shapes)[0] is graph


def test_cpus_choose_it() -> None:
    net, graph = network(16, axis=1)
    shapes = shapes_of(graph, 16, (4, 16, 32, 64))
    assert targets_that_choose(STEP, graph, parameters(net.params), shapes) == list(CPUS)


@pytest.mark.parametrize("shape", [(2, 24, 12, 10), (3, 24, 40), (2, 24, 5, 4, 6)])
@pytest.mark.parametrize(("offset", "bound"), [(0.0, 3e-7), (10.0, 3e-6)])
def test_mxnet_computes_the_same_up_to_rounding(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], offset: float, bound: float
) -> None:
    net, graph = network(24, axis=1, behind="Pooling" if len(shape) == 4 else "nothing")
    given = prepare_graph(
        *(graph, parameters(net.params), Policy.default(BF16), [STEP]),
        target=Target.builtin("cpu-bf16"),
        shapes=shapes_of(graph, 24, shape),
    )
    assert {change.step for change in given.record(PreparedNode)} == {STEP}
    random = np.random.default_rng(0)
    data = (random.standard_normal(shape) + offset).astype(np.float32)
    (found,) = outputs(monkeypatch, given.graph, given.params, {"data": data})
    exact = data.astype(np.float64)
    centred = exact - exact.mean(axis=1, keepdims=True)
    exact = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    turn = (1, 24) + (1,) * (len(shape) - 2)
    for name, join in (("gamma", np.multiply), ("beta", np.add)):
        exact = join(exact, net.params[name].astype(np.float64).reshape(turn))
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert error <= bound, f"{error:.1e}"
