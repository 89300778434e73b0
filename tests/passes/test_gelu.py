"""A GELU that is spelled out becomes the operator."""

from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import RewriteGelu
from mxamp.policy import Policy
from tests.building import BF16, Net, named
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import CPUS, operators, prepared, targets_that_choose


class Terms(Net):
    """The terms of a GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.x = self.var("x", __dtype__="0")

    def cdf(self, *, by: str = "_div_scalar", number: float | None = None, one: float = 1.0) -> Entry:
        root = math.sqrt(2.0) if by == "_div_scalar" else math.sqrt(0.5)
        inner = self.op(by, self.x, name="inner", scalar=root if number is None else number)
        return self.op("_plus_scalar", self.op("erf", inner, name="erf"), name="sum", scalar=one)

    def half(self, entry: Entry, name: str = "half") -> Entry:
        return self.op("_mul_scalar", entry, name=name, scalar=0.5)


SPELLINGS: dict[str, Callable[[Terms], Entry]] = {
    "half of x": lambda net: net.op("elemwise_mul", net.half(net.x), net.cdf(), name="y"),
    "half of the sum": lambda net: net.op("broadcast_mul", net.half(net.cdf()), net.x, name="y"),
    "half of the product": lambda net: net.half(net.op("elemwise_mul", net.x, net.cdf(), name="whole"), "y"),
    "a product with the root": lambda net: net.op(
        "elemwise_mul", net.cdf(by="_mul_scalar", number=0.7071068), net.half(net.x), name="y"
    ),
    "divided by two": lambda net: net.op(
        "elemwise_mul", net.cdf(), net.op("_div_scalar", net.x, name="half", scalar=2), name="y"
    ),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_terms_are_one_operator(monkeypatch: pytest.MonkeyPatch, spelling: str) -> None:
    net = Terms()
    graph = net.graph(SPELLINGS[spelling](net))  # an output, whose name stays
    after, done = prepared(RewriteGelu, graph)
    assert operators(after) == ["y = LeakyReLU(x) {act_type: gelu}"]
    assert {change.into for change in done.changes} == {"y"}
    special = pytest.importorskip("scipy.special", reason="the exact values are SciPy's")
    x = np.random.default_rng(0).normal(0, 2, (64, 100)).astype(np.float32)
    exact = 0.5 * x.astype(np.float64) * (1 + special.erf(x.astype(np.float64) / math.sqrt(2)))
    (found,) = outputs(monkeypatch, after, {}, {"x": x})
    error = (found - exact) / np.maximum(np.abs(x), 1e-30)
    assert np.abs(error).max() <= 6 * 2.0**-24
    assert abs(error.mean()) <= 2.0**-24
    edges = {"x": on_edges(4, 16)}
    with np.errstate(all="ignore"):
        (expected,) = outputs(monkeypatch, graph, {}, edges)
        (found,) = outputs(monkeypatch, after, {}, edges)
    # Twice the largest values are infinite before they are halved.
    fits = np.isfinite(expected) | ~np.isfinite(edges["x"])
    np.testing.assert_allclose(found[fits], expected[fits], rtol=1e-5, atol=1e-5)


def test_each_of_several_is_found() -> None:
    net = Terms()
    first = net.op("elemwise_mul", net.half(net.x), net.cdf(), name="y")
    net.x = first
    second = net.op(
        "elemwise_mul",
        net.half(net.x, "half2"),
        net.op(
            "_plus_scalar",
            net.op("erf", net.op("_div_scalar", net.x, name="inner2", scalar=2**0.5), name="erf2"),
            name="sum2",
            scalar=1,
        ),
        name="z",
    )
    after, _ = prepared(RewriteGelu, net.graph(second))
    assert [node.op for node in after.nodes if not node.is_variable] == ["LeakyReLU", "LeakyReLU"]


def test_x_may_be_a_multiple_itself() -> None:
    net = Terms()
    net.x = net.op("_mul_scalar", net.x, name="less", scalar=0.25)
    after, _ = prepared(RewriteGelu, net.graph(net.half(net.op("elemwise_mul", net.x, net.cdf()), "y")))
    assert operators(after) == [
        "less = _mul_scalar(x) {scalar: 0.25}",
        "y = LeakyReLU(less) {act_type: gelu}",
    ]


@pytest.mark.parametrize("is_numpy", [False, True])
def test_of_a_number_without_axes_there_is_none(is_numpy: bool) -> None:
    net = Terms()
    net.x = net.op("_np_sum" if is_numpy else "sum", net.x)
    graph = net.graph(net.op("elemwise_mul", net.half(net.x), net.cdf(), name="y"))
    graph = Graph(graph.nodes, graph.heads, {"is_np_shape": ["int", 1]} if is_numpy else {})
    shapes = [((3, 4),), *[((() if is_numpy else (1,)),)] * (len(graph.nodes) - 1)]
    after, _ = prepared(RewriteGelu, graph, shapes=shapes)
    assert (named(after, "y").op == "LeakyReLU") != is_numpy


def test_a_part_that_another_reads_stays_beside_it() -> None:
    net = Terms()
    half = net.half(net.x)
    y = net.op("elemwise_mul", half, net.cdf(), name="y")
    after, _ = prepared(RewriteGelu, net.graph(net.op("elemwise_add", y, half, name="both")))
    assert named(after, "y").op == "LeakyReLU"
    assert named(after, "half").op == "_mul_scalar"


def refused(case: str) -> tuple[Terms, Graph]:
    """Return terms that must stay."""
    net = Terms()
    if case == "of any size":  # which the sum with another tells, and no operator would
        net.x = net.op("FullyConnected", net.op("_zeros", shape="(0, 4)"), net.param("weight", 4, 4))
        y = net.op("elemwise_mul", net.half(net.x), net.cdf(), name="y")
        return net, net.graph(net.op("elemwise_add", y, net.var("other", __dtype__="0")))
    if case == "float16":
        net.nodes[0] = net.nodes[0]._replace(attrs={"__dtype__": "2"})
    if case == "any dtype":
        net.nodes[0] = net.nodes[0]._replace(attrs={})
    given: dict[str, Any] = {"another root": {"number": 1.5}, "another sum": {"one": 2.0}}.get(case, {})
    cdf = net.cdf(**given)
    if case == "another x":
        other = net.op("_mul_scalar", net.op("exp", net.x), name="half", scalar=0.5)
        return net, net.graph(net.op("elemwise_mul", other, cdf, name="y"))
    if case == "no half":
        return net, net.graph(net.op("elemwise_mul", net.x, cdf, name="y"))
    y = net.op("elemwise_mul", net.half(net.x), cdf, name="y")
    if case == "a sum that another reads":
        return net, net.graph(net.op("elemwise_add", y, cdf))
    if case == "an output within":
        return net, net.graph(y, cdf)
    return net, net.graph(y)


@pytest.mark.parametrize(
    "case",
    [
        *("float16", "any dtype", "another root", "another sum", "another x", "no half", "rule"),
        *("a sum that another reads", "an output within", "of any size"),
    ],
)
def test_refuses(case: str) -> None:
    net, graph = refused(case)
    policy = Policy.default(BF16).excluding(names=["erf"]) if case == "rule" else None
    assert prepared(RewriteGelu, graph, net.params, policy)[0] is graph


def test_targets_of_cpus_name_it() -> None:
    net = Terms()
    graph = net.graph(net.op("elemwise_mul", net.half(net.x), net.cdf(), name="y"))
    assert targets_that_choose("gelu", graph, {}) == CPUS
