"""What is added to a layer's result along its filters becomes its bias."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import FoldBias
from mxamp.policy import Policy
from tests.building import BF16, Net, named, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import prepared

FILTERS = 5

LAYERS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "Convolution": ((FILTERS, 4, 3, 3), {"num_filter": FILTERS, "kernel": "(3, 3)", "pad": "(1, 1)"}),
    "Deconvolution": ((4, FILTERS, 2, 2), {"num_filter": FILTERS, "kernel": "(2, 2)", "stride": "(2, 2)"}),
    "FullyConnected": ((FILTERS, 4 * 6 * 6), {"num_hidden": FILTERS}),
}
SHAPES = {
    "Convolution": [(1, FILTERS, 1, 1), (FILTERS, 1, 1), (1, 1, 1, 1), (1,), (1, 1)],
    "Deconvolution": [(1, FILTERS, 1, 1), (FILTERS, 1, 1), (1, 1, 1)],
    "FullyConnected": [(1, FILTERS), (FILTERS,), (1, 1), (1,)],
}
EVERY = [(kind, shape) for kind, shapes in SHAPES.items() for shape in shapes]


class Sum(Net):
    """A layer, and an array of parameters that is added to what it makes."""

    def __init__(self, kind: str = "Convolution", *, bias: bool = False, **attrs: Any) -> None:
        super().__init__()
        weight, own = LAYERS[kind]
        read = [self.param("layer_weight", *weight)]
        if bias:
            self.bias = self.param("layer_bias", FILTERS)
            read.append(self.bias)
        own = {**own, "no_bias": not bias, **attrs}
        self.layer = self.op(kind, self.var("x"), *read, name="layer", **own)

    def added(self, *shape: int, op: str = "broadcast_add", turned: bool = False) -> Entry:
        added = self.param("added", *shape)
        inputs = (added, self.layer) if turned else (self.layer, added)
        return self.op(op, *inputs, name="sum")


@pytest.mark.parametrize("bias", [False, True], ids=["without a bias", "with a bias"])
@pytest.mark.parametrize("turned", [False, True], ids=["layer first", "layer last"])
@pytest.mark.parametrize(("kind", "shape"), EVERY)
def test_a_layer_adds_it(
    monkeypatch: pytest.MonkeyPatch, kind: str, shape: tuple[int, ...], turned: bool, bias: bool
) -> None:
    net = Sum(kind, bias=bias)
    graph = net.graph(net.op("Activation", net.added(*shape, turned=turned), name="y", act_type="relu"))
    after, done = prepared(FoldBias, graph, net.params, inserted=["layer_bias_1" if bias else "layer_bias"])
    assert named(after, "layer").op == kind
    assert "added" not in after.variables
    assert [node.name for node in after.nodes if not node.is_variable] == ["layer", "y"]
    assert [(change.node, change.into) for change in done.changes] == [("sum", "layer")]
    given = np.broadcast_to(net.params["added"].reshape(-1), FILTERS).astype(np.float64)
    if bias:
        given = given + net.params["layer_bias"]
    (name,) = [name for name in done.params if "bias" in name and name in after.variables]
    np.testing.assert_array_equal(done.params[name].values(), given.astype(np.float32))
    data = {"x": np.random.default_rng(1).normal(size=(2, 4, 6, 6)).astype(np.float32)}
    (expected,) = outputs(monkeypatch, graph, parameters(net.params), data)
    (found,) = outputs(monkeypatch, after, done.params, data)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_output", [False, True])
def test_sums_one_behind_the_other_are_one_bias(monkeypatch: pytest.MonkeyPatch, is_output: bool) -> None:
    net = Sum(bias=True)
    first = net.added(1, FILTERS, 1, 1)
    second = net.op("broadcast_sub", first, net.param("more", FILTERS, 1, 1), name="second")
    third = net.op("broadcast_add", net.param("one", 1), second, name="third")
    graph = net.graph(third if is_output else net.op("Activation", third, name="y", act_type="relu"))
    name = "third" if is_output else "layer"
    after, done = prepared(FoldBias, graph, net.params, inserted=["layer_bias_1"])
    assert [node.name for node in after.nodes if node.op != "null"] == [name] if is_output else [name, "y"]
    assert {change.into for change in done.changes} == {name}
    assert len(done.changes) == 3
    data = {"x": np.random.default_rng(0).normal(size=(2, 4, 6, 6)).astype(np.float32)}
    (expected,) = outputs(monkeypatch, graph, parameters(net.params), data)
    (found,) = outputs(monkeypatch, after, done.params, data)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_sum_between_that_something_else_reads_is_the_last() -> None:
    net = Sum()
    first = net.added(FILTERS, 1, 1)
    second = net.op("broadcast_add", first, net.param("more", FILTERS, 1, 1), name="second")
    graph = net.graph(second, first)
    after, _ = prepared(FoldBias, graph, net.params, inserted=["layer_bias"])
    assert [node.name for node in after.nodes if node.op != "null"] == ["sum", "second"]


def test_a_difference_is_a_sum() -> None:
    net = Sum()
    graph = net.graph(net.added(FILTERS, 1, 1, op="broadcast_sub"))  # an output, whose name stays
    after, done = prepared(FoldBias, graph, net.params, inserted=["layer_bias"])
    assert named(after, "sum").op == "Convolution"
    assert [(change.node, change.into) for change in done.changes] == [("layer", "sum")]
    (name,) = [name for name in done.params if name.endswith("bias")]
    np.testing.assert_array_equal(done.params[name].values(), -net.params["added"].reshape(-1))


def test_the_rest_of_the_layer_stays() -> None:
    net = Sum(__mark__="here")
    after, _ = prepared(FoldBias, net.graph(net.added(FILTERS, 1, 1)), net.params, inserted=["layer_bias"])
    layer = named(after, "sum")
    assert {key: layer.attrs[key] for key in ("kernel", "pad", "no_bias", "__mark__")} == {
        "kernel": "(3, 3)",
        "pad": "(1, 1)",
        "no_bias": "False",
        "__mark__": "here",
    }


def refused(case: str) -> tuple[Sum, Graph]:
    """Return a sum that must stay."""
    if case == "a dense layer of any rank":
        net = Sum("FullyConnected", flatten=False)
        return net, net.graph(net.added(1, FILTERS))
    if case == "places last":
        net = Sum(layout="NHWC")
        return net, net.graph(net.added(FILTERS, 1, 1))
    if case == "a kernel that nobody can read":
        net = Sum(kernel="three by three")
        return net, net.graph(net.added(FILTERS, 1, 1))
    net = Sum(bias=case == "a shared bias")
    if case == "subtracted from":
        return net, net.graph(net.added(FILTERS, 1, 1, op="broadcast_sub", turned=True))
    shape = {
        "of places": (1, 1, 1, 6),
        "of rows": (6, 1),
        "of images": (2, 1, 1, 1),
        "more axes": (1, 1, FILTERS, 1, 1),
        "as many columns": (FILTERS,),  # MXNet broadcasts from the last axis on
        "as many columns in a row": (1, FILTERS),
        "as many rows": (FILTERS, 1),
    }
    added = net.added(*shape.get(case, (FILTERS, 1, 1)))
    if case == "read again":
        return net, net.graph(net.op("elemwise_add", added, net.layer))
    if case == "an output":
        return net, net.graph(added, net.layer)
    if case == "a shared bias":
        return net, net.graph(added, net.op("exp", net.bias))
    return net, net.graph(added)


@pytest.mark.parametrize(
    "case",
    [
        *("of places", "of rows", "of images", "more axes", "read again", "an output", "a shared bias"),
        *("subtracted from", "a dense layer of any rank", "places last"),
        *("as many columns", "as many columns in a row", "as many rows", "a kernel that nobody can read"),
    ],
)
def test_refuses(case: str) -> None:
    net, graph = refused(case)
    assert prepared(FoldBias, graph, net.params)[0] is graph


@pytest.mark.parametrize("value", [-3.4e38, 1e9, np.inf, np.nan])
def test_a_mask_is_no_bias(value: float) -> None:
    net = Sum()
    graph = net.graph(net.added(FILTERS, 1, 1))
    net.params["added"][1] = value
    assert prepared(FoldBias, graph, net.params)[0] is graph


@pytest.mark.parametrize("name", ["sum", "layer"])
def test_what_a_rule_of_the_users_picks_stays(name: str) -> None:
    net = Sum()
    graph = net.graph(net.added(FILTERS, 1, 1))
    assert prepared(FoldBias, graph, net.params, Policy.default(BF16).excluding(names=[name]))[0] is graph
