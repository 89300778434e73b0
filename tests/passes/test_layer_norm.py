"""A normalisation over the last axis that is spelled out becomes LayerNorm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import RewriteLayerNorm
from mxamp.policy import Policy
from tests.building import BF16, Net, named, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepared

LENGTH = 12
SHAPE = (5, LENGTH)


class Terms(Net):
    """The terms of a normalisation of what a Reshape makes."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape or SHAPE
        data = self.var("data", __dtype__="0")
        self.x = self.op("Reshape", data, name="x", shape=f"({', '.join(map(str, (-1, *self.shape[1:])))})")
        self.mean: dict[str, Any] = {"axis": "(-1,)", "keepdims": True}

    def difference(self) -> Entry:
        return self.op("broadcast_sub", self.x, self.op("mean", self.x, name="mean", **self.mean), name="d")

    def normal(self, spelling: str = "", eps: float = 1e-5) -> Entry:
        d = self.difference()
        square = self.op("elemwise_mul", d, d) if spelling == "product" else self.op("square", d)
        variance = self.op("mean", square, name="variance", **self.mean)
        shifted = self.op("_plus_scalar", variance, name="shifted", scalar=eps)
        if spelling == "rsqrt":
            return self.op("broadcast_mul", d, self.op("rsqrt", shifted), name="n")
        return self.op("broadcast_div", d, self.op("sqrt", shifted, name="root"), name="n")

    def scaled(self, data: Entry, *shape: int) -> Entry:
        return self.op("broadcast_mul", data, self.param("g", *shape or (LENGTH,)), name="scaled")

    def shifted(self, data: Entry, *shape: int) -> Entry:
        return self.op("broadcast_add", self.param("b", *shape or (LENGTH,)), data, name="y")

    def shapes(self, graph: Graph) -> list[Any]:
        pytest.importorskip("mxnet", reason="MXNet infers the shapes")
        from mxamp.runtime.shapes import infer_shapes

        return list(infer_shapes(graph, {"data": self.shape}, parameters(self.params)))


SPELLINGS = {
    "whole": lambda net: net.shifted(net.scaled(net.normal())),
    "a product": lambda net: net.shifted(net.scaled(net.normal("product"))),
    "rsqrt": lambda net: net.shifted(net.scaled(net.normal("rsqrt"))),
    "axes of one": lambda net: net.shifted(net.scaled(net.normal(), 1, LENGTH), 1, LENGTH),
    "no product": lambda net: net.shifted(net.normal()),
    "no sum": lambda net: net.scaled(net.normal()),
    "neither": lambda net: net.normal(),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("shape", [SHAPE, (2, 3, LENGTH)])
def test_terms_are_one_operator(
    monkeypatch: pytest.MonkeyPatch, spelling: str, shape: tuple[int, ...]
) -> None:
    net = Terms(*shape)
    head = SPELLINGS[spelling](net)
    graph = net.graph(head)  # an output, whose name stays
    name = graph.nodes[head.node].name
    added = [f"{name}_{part}" for part in ("gamma", "beta")]
    inserted = {
        "no product": added[:1],
        "no sum": added[1:],
        "neither": added,
        "axes of one": added,
    }.get(spelling, [])
    after, done = prepared(RewriteLayerNorm, graph, net.params, inserted=inserted, shapes=net.shapes(graph))
    assert [node.op for node in after.nodes if not node.is_variable] == ["Reshape", "LayerNorm"]
    assert named(after, name).attrs == {"axis": "-1", "eps": "1e-05"}
    assert {change.into for change in done.changes} == {name}
    x = np.random.default_rng(0).normal(3, 2, (7, *shape[1:])).astype(np.float32)
    (expected,) = outputs(monkeypatch, graph, parameters(net.params), {"data": x})
    (found,) = outputs(monkeypatch, after, dict(done.params), {"data": x})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ratio", [1, 10, 100])
def test_how_far_it_is_from_the_exact_value(monkeypatch: pytest.MonkeyPatch, ratio: int) -> None:
    """Rows of 768 values, with means of up to so many times their deviation."""
    net = Terms(64, 768)
    graph = net.graph(net.normal())
    after, done = prepared(RewriteLayerNorm, graph, inserted=["n_gamma", "n_beta"], shapes=net.shapes(graph))
    draw = np.random.default_rng(0)
    x = (draw.uniform(-ratio, ratio, (256, 1)) + draw.normal(size=(256, 768))).astype(np.float32)
    exact = x.astype(np.float64)
    exact = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(exact.var(-1, keepdims=True) + 1e-5)
    (found,) = outputs(monkeypatch, after, dict(done.params), {"data": x})
    error = found - exact
    assert np.sqrt(np.mean(error**2)) <= 5e-7 * ratio
    assert np.abs(error).max() <= 5e-6 * ratio
    assert abs(error.mean()) <= 5e-8 * ratio


def test_several_are_found_and_share_a_parameter() -> None:
    net = Terms()
    first = net.scaled(net.normal())
    g = named(net.graph(first), "scaled").inputs[1]
    net.x = net.op("tanh", first, name="between")
    graph = net.graph(net.op("exp", net.op("broadcast_mul", net.normal(), g, name="again"), name="end"))
    after, _ = prepared(
        RewriteLayerNorm,
        graph,
        net.params,
        inserted=["scaled_beta", "again_beta"],
        shapes=net.shapes(graph),
    )
    assert [line for line in operators(after) if "LayerNorm" in line] == [
        "scaled = LayerNorm(x, g, scaled_beta) {axis: -1, eps: 1e-05}",
        "again = LayerNorm(between, g, again_beta) {axis: -1, eps: 1e-05}",
    ]


def refused(case: str) -> tuple[Terms, Graph]:
    """Return terms that must stay."""
    net = Terms()
    net.mean.update({"another axis": {"axis": 0}, "no axis kept": {"keepdims": False}}.get(case, {}))
    if case == "any length":
        net.x = net.op("exp", net.var("other", __dtype__="0"), name="x")
    elif case == "float16":
        net.nodes[0] = net.nodes[0]._replace(attrs={"__dtype__": "2"})
    if case == "no axis kept":
        net.x = net.op("Reshape", net.x, shape="(12, 12)")
    y = net.normal(eps={"less than nothing": -1e-5, "too little to be read": 1e-45}.get(case, 1e-5))
    if case == "another mean":
        quotient = net.nodes[y.node]
        other = net.op("broadcast_sub", net.x, net.op("mean", net.op("exp", net.x), **net.mean))
        return net, net.graph(net.op(quotient.op, other, quotient.inputs[1], name="y"))
    end = net.op("exp", y, name="end")
    parts = {"a part that is read": "d", "an output within": "variance"}
    if case in parts:
        position = next(at for at, node in enumerate(net.nodes) if node.name == parts[case])
        part = Entry(position)
        return net, net.graph(end, part if case == "an output within" else net.op("tanh", part))
    return net, net.graph(end)


@pytest.mark.parametrize(
    "case",
    [
        *("another axis", "any length", "float16", "less than nothing", "another mean", "rule"),
        *("a part that is read", "an output within", "too little to be read"),
    ],
)
def test_refuses(case: str) -> None:
    net, graph = refused(case)
    policy = Policy.default(BF16).excluding(names=["root"]) if case == "rule" else None
    shapes = None if case == "any length" else net.shapes(graph)
    assert prepared(RewriteLayerNorm, graph, net.params, policy, shapes=shapes)[0] is graph


@pytest.mark.parametrize("op", ["broadcast_mul", "broadcast_add"])
def test_what_is_no_parameter_along_the_last_axis_stays_behind(op: str) -> None:
    net = Terms(5, 3, LENGTH)
    y = net.op(op, net.normal(), net.param("g", 3, 1), name="y")
    graph = net.graph(y)
    after, _ = prepared(
        RewriteLayerNorm, graph, net.params, inserted=["n_gamma", "n_beta"], shapes=net.shapes(graph)
    )
    assert operators(after)[-1] == f"y = {op}(n, g)"
