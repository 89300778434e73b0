"""A softmax along another axis is one along the last between two transposes."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import PreparedNode, RewriteLastAxisSoftmax
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net
from tests.passes.executing import outputs
from tests.passes.preparing import CPUS, operators, prepare_graph, prepared, targets_that_choose

STEP = RewriteLastAxisSoftmax.step
INSERTED = ["s_lines", "s_last_axis"]


def network(op: str = "softmax", *, behind: str = "Pooling", **attrs: object) -> Graph:
    """Return a softmax of an image, or of what a transpose turned."""
    net = Net()
    data: Entry = net.var("data")
    if behind == "Pooling":
        data = net.op("Pooling", data, name="source", kernel="(1, 1)")
    elif behind == "transpose":
        data = net.op("transpose", data, name="source", axes="(0, 2, 1)")
    return net.graph(net.op(op, data, name="s", **attrs))


def shapes_of(graph: Graph, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...]]]:
    return [(shape,)] * len(graph.nodes)


@pytest.mark.parametrize(
    ("op", "attrs", "there", "back"),
    [
        ("softmax", {"axis": 1}, "(0, 2, 3, 1)", "(0, 3, 1, 2)"),
        ("softmax", {"axis": -3}, "(0, 2, 3, 1)", "(0, 3, 1, 2)"),
        ("softmax", {"axis": 2}, "(0, 1, 3, 2)", "(0, 1, 3, 2)"),
        ("softmax", {"axis": 0}, "(1, 2, 3, 0)", "(3, 0, 1, 2)"),
        ("SoftmaxActivation", {"mode": "channel"}, "(0, 2, 3, 1)", "(0, 3, 1, 2)"),
    ],
)
def test_it_is_turned_there_and_back(op: str, attrs: dict[str, object], there: str, back: str) -> None:
    graph = network(op, **attrs)
    shapes = shapes_of(graph, (4, 16, 32, 64))
    after, done = prepared(RewriteLastAxisSoftmax, graph, inserted=INSERTED, shapes=shapes)
    assert operators(after)[-3:] == [
        f"s_lines = transpose(source) {{axes: {there}}}",
        "s_last_axis = softmax(s_lines) {axis: -1}",
        f"s = transpose(s_last_axis) {{axes: {back}}}",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("s", "s")]


def test_axes_behind_become_one_where_their_number_is_not_certain() -> None:
    graph = network(axis=2, behind="nothing", temperature=2.0)
    inserted = ["s_rest", *INSERTED, "s_back"]
    shapes = shapes_of(graph, (8, 1152, 10, 1))
    after, _ = prepared(RewriteLastAxisSoftmax, graph, inserted=inserted, shapes=shapes)
    assert operators(after)[-5:] == [
        "s_rest = Reshape(data) {shape: (0, 0, 0, -1)}",
        "s_lines = transpose(s_rest) {axes: (0, 1, 3, 2)}",
        "s_last_axis = softmax(s_lines) {axis: -1, temperature: 2.0}",
        "s_back = transpose(s_last_axis) {axes: (0, 1, 3, 2)}",
        "s = reshape_like(s_back, data)",
    ]


@pytest.mark.parametrize("shape", [(4, 16, 32, 64), (2, 40, 10), (2, 40, 10, 1), (3, 16, 2, 3, 5), (2048, 9)])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_form_is_right_for_other_numbers_of_axes(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], axis: int
) -> None:
    graph = network(axis=axis, behind="nothing")
    usual = shapes_of(graph, (16, 16, 1000))
    cpu = Target.builtin("cpu-bf16")
    done = prepare_graph(graph, {}, Policy.default(BF16), [STEP], target=cpu, shapes=usual)
    assert {change.step for change in done.record(PreparedNode)} == {STEP}
    values = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    (found,) = outputs(monkeypatch, done.graph, {}, {"data": values})
    exact = np.exp(values.astype(np.float64) - values.max(axis=axis, keepdims=True))
    exact /= exact.sum(axis=axis, keepdims=True)
    assert found.shape == shape
    np.testing.assert_allclose(found, exact, rtol=4e-6)
    assert abs(float(np.mean(found / exact - 1))) < 1e-7


def test_shapes_and_the_temperature_go_with_it() -> None:
    graph = network(axis=1, temperature=2.0)
    shapes = shapes_of(graph, (4, 16, 32, 64))
    done = prepare_graph(
        graph, {}, Policy.default(BF16), [STEP], target=Target.builtin("cpu-bf16"), shapes=shapes
    )
    assert operators(done.graph)[-2] == "s_last_axis = softmax(s_lines) {axis: -1, temperature: 2.0}"
    turned = ((4, 32, 64, 16),)
    assert list(done.shapes or ())[-3:] == [turned, turned, ((4, 16, 32, 64),)]


@pytest.mark.parametrize(
    ("attrs", "shape"),
    [
        pytest.param({"axis": -1}, (4, 16, 32, 64), id="last axis"),
        pytest.param({"axis": 3}, (4, 16, 32, 64), id="last of four"),
        pytest.param({"axis": 1, "use_length": True}, (4, 16, 32, 64), id="length"),
        pytest.param({"axis": 1, "dtype": "float64"}, (4, 16, 32, 64), id="dtype"),
        pytest.param({"axis": 1}, (1, 8, 16, 15), id="few values"),
        pytest.param({"axis": 1}, (1, 7, 32, 64), id="few values of few channels"),
        pytest.param({"axis": 1}, (4, 3, 64, 64), id="few channels"),
        pytest.param({"axis": 1}, None, id="no shape"),
        pytest.param({"axis": -3, "behind": "nothing"}, (4, 16, 32, 64), id="axis of what rank"),
        pytest.param({"axis": 3, "behind": "nothing"}, (4, 16, 32, 64), id="usually the last axis"),
        pytest.param(
            {"op": "SoftmaxActivation", "mode": "channel", "behind": "nothing"},
            (4, 16, 32, 64),
            id="rank not certain",
        ),
        pytest.param({"op": "SoftmaxActivation", "mode": "instance"}, (4, 16, 32, 64), id="instance"),
        pytest.param({"op": "log_softmax", "axis": 1}, (4, 16, 32, 64), id="log_softmax"),
    ],
)
def test_refuses(attrs: dict[str, object], shape: tuple[int, ...] | None) -> None:
    graph = network(**attrs)
    shapes = None if shape is None else shapes_of(graph, shape)
    assert prepared(RewriteLastAxisSoftmax, graph, shapes=shapes)[0] is graph


def test_what_a_rule_of_the_users_picks_stays() -> None:
    graph = network(axis=1)
    policy = Policy.default(BF16).excluding(names=["s"])
    shapes = shapes_of(graph, (4, 16, 32, 64))
    assert prepared(RewriteLastAxisSoftmax, graph, policy=policy, shapes=shapes)[0] is graph


@pytest.mark.parametrize(
    ("op", "behind", "shape", "attrs"),
    [
        ("softmax", "Pooling", (2, 21, 32, 33), {"axis": 1}),
        ("softmax", "Pooling", (2, 21, 32, 33), {"axis": 2, "temperature": 3.0}),
        ("softmax", "transpose", (2, 700, 21), {"axis": 1}),
        ("SoftmaxActivation", "Pooling", (2, 21, 32, 33), {"mode": "channel"}),
        ("SoftmaxActivation", "transpose", (2, 700, 21), {"mode": "channel"}),
    ],
)
@pytest.mark.parametrize("magnitude", [1.0, 80.0])
def test_mxnet_computes_the_same_values(
    monkeypatch: pytest.MonkeyPatch,
    op: str,
    behind: str,
    shape: tuple[int, ...],
    attrs: dict[str, object],
    magnitude: float,
) -> None:
    graph = network(op, behind=behind, **attrs)
    known = shape if len(shape) == 4 else (shape[0], shape[2], shape[1])
    done = prepare_graph(
        graph,
        {},
        Policy.default(BF16),
        [STEP],
        target=Target.builtin("cpu-bf16"),
        shapes=shapes_of(graph, known),
    )
    assert {change.step for change in done.record(PreparedNode)} == {STEP}
    values = np.random.default_rng(4).uniform(-magnitude, magnitude, shape).astype(np.float32)
    (expected,) = outputs(monkeypatch, graph, {}, {"data": values})
    (found,) = outputs(monkeypatch, done.graph, {}, {"data": values})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-37)


def test_targets_choose() -> None:
    graph = network(axis=1)
    assert targets_that_choose(STEP, graph, {}, shapes_of(graph, (4, 16, 32, 64))) == CPUS
