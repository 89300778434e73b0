"""sigmoid and tanh become Activation, to FP32's own rounding."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.passes import PreparedNode, RewriteActivations
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepare_graph, prepared

U = 2.0**-24


def single(op: str, **attrs: str) -> Graph:
    net = Net()
    return net.graph(net.op(op, net.var("x", **{"__dtype__": "0", **attrs}), name="y"))


@pytest.mark.parametrize("op", ["sigmoid", "tanh"])
def test_it_becomes_an_activation_of_its_name(op: str) -> None:
    after, done = prepared(RewriteActivations, single(op))
    assert operators(after) == [f"y = Activation(x) {{act_type: {op}}}"]
    assert [(change.node, change.op, change.into) for change in done.changes] == [("y", op, "y")]


@pytest.mark.parametrize("case", ["float16", "float64", "rule", "may be empty"])
def test_refuses(case: str) -> None:
    policy = Policy.default(BF16).excluding(names=["y"]) if case == "rule" else None
    graph = single(
        "sigmoid", **({"__dtype__": {"float16": "2", "float64": "1"}[case]} if "float" in case else {})
    )
    if case == "may be empty":
        graph = Graph(graph.nodes, graph.heads, {**graph.attrs, "is_np_shape": ["int", 1]})
        assert graph.has_numpy_shapes
    assert prepared(RewriteActivations, graph, policy=policy)[0] is graph


@pytest.mark.parametrize(("op", "values"), [("sigmoid", 256), ("tanh", 128)])
def test_few_values_stay_where_no_layer_wrote_them(op: str, values: int) -> None:
    graph = single(op)
    for count, stays in ((values - 1, True), (values, False)):
        after, _ = prepared(RewriteActivations, graph, shapes=[((1, count),)] * 2)
        assert (after is graph) is stays
    assert prepared(RewriteActivations, graph, shapes=[((1, 3, 16),)] * 2)[0] is not graph  # boxes
    net = Net()
    graph = net.graph(net.op(op, net.fc(net.var("x", __dtype__="0"), "fc", hidden=4), name="y"))
    shapes = [(net.params[node.name].shape if node.name in net.params else (1, 4),) for node in graph.nodes]
    after, _ = prepared(RewriteActivations, graph, net.params, shapes=shapes)
    assert operators(after)[-1] == f"y = Activation(fc) {{act_type: {op}}}"


@pytest.mark.parametrize("op", ["sigmoid", "tanh"])
def test_values_are_those_of_the_operator_but_for_rounding(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    graph = single(op)
    done = prepare_graph(graph, {}, Policy.default(BF16), target=Target.builtin("cpu-bf16"))
    assert [change.step for change in done.record(PreparedNode)] == ["activations"]
    edges = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-42, -1e-42, 88.8, -88.8, -87.4, -104.0, 3e38, -3e38]
    x = np.concatenate([np.array(edges), np.linspace(-110, 110, 20003)]).astype(np.float32)
    with np.errstate(over="ignore"):
        exact = 1 / (1 + np.exp(-x.astype(np.float64))) if op == "sigmoid" else np.tanh(x.astype(np.float64))
    (found,) = outputs(monkeypatch, done.graph, {}, {"x": x.reshape(1, -1)}, "MKLDNN")
    np.testing.assert_array_equal(np.isnan(found[0]), np.isnan(exact))
    known = ~np.isnan(exact)
    error = np.abs(found[0].astype(np.float64) - exact)[known]
    assert error.max() <= 2 * U
    normal = np.abs(exact[known]) >= 2.0**-125
    assert (error[normal] / np.abs(exact[known])[normal]).max() <= 8 * U
    zero = x == 0
    assert (np.signbit(found[0][zero]) == np.signbit(exact[zero])).all()
