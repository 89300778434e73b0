"""A softmax along places reads plain order, for there is no kernel for blocks of channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.graph import Entry, write_symbol
from mxamp.passes import PlainSoftmax
from mxamp.policy import Policy
from tests.building import BF16, Net, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import CPUS, operators, prepared, targets_that_choose


def layer(net: Net, data: Entry, filters: int = 16, **attrs: Any) -> Entry:
    weight = net.param("weight", filters, 4, 1, 1)
    return net.op(
        *("Convolution", data, weight),
        name="layer",
        num_filter=filters,
        kernel="(1, 1)",
        no_bias=True,
        **attrs,
    )


def carried(net: Net, entry: Entry, how: str) -> Entry:
    if how == "as it is":
        return entry
    if how == "activated":
        return net.op("Activation", entry, name="carried", act_type="relu")
    if how == "scaled":  # what is computed in its place is brought back into its order
        return net.op("_mul_scalar", net.op("tanh", entry), name="carried", scalar=0.5)
    return net.op("Pooling", entry, name="carried", kernel="(3, 3)", pad="(1, 1)", pool_type="max")


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
@pytest.mark.parametrize("axis", [None, -1, 3])
@pytest.mark.parametrize("how", ["as it is", "activated", "scaled", "pooled"])
def test_a_reshape_brings_plain_order(
    monkeypatch: pytest.MonkeyPatch, op: str, axis: int | None, how: str
) -> None:
    net = Net()
    axes = {} if axis is None else {"axis": axis}
    graph = net.graph(net.op(op, carried(net, layer(net, net.var("x")), how), name="y", **axes))
    after, done = prepared(PlainSoftmax, graph, net.params, inserted=["y_plain"])
    assert operators(after)[-2].startswith("y_plain = Reshape(")
    assert [(change.node, change.into) for change in done.changes] == [("y", "y")]
    data = {"x": np.random.default_rng(0).normal(size=(2, 4, 5, 6)).astype(np.float32)}
    (found,) = outputs(monkeypatch, after, done.params, data)
    (before,) = outputs(monkeypatch, graph, parameters(net.params), data)
    np.testing.assert_allclose(found, before, rtol=1e-5, atol=5e-6)


def test_the_same_again_changes_nothing() -> None:
    net = Net()
    graph = net.graph(net.op("softmax", layer(net, net.var("x")), name="y"))
    for target in CPUS:
        model = mxamp.convert_model(graph, net.params, {}, "bfloat16", target=target)
        again = mxamp.convert_model(model.graph, model.arg_params, {}, "bfloat16", target=target)
        assert "y_plain" in [node.name for node in model.graph.nodes]
        assert write_symbol(again.graph) == write_symbol(model.graph)


@pytest.mark.parametrize(
    "case",
    [
        "channels",
        "places before the last",
        "a length",
        "no blocks",
        "an input",
        "a slice",
        "low precision",
        "rule",
    ],
)
def test_refuses(case: str) -> None:
    net = Net()
    data = net.var("x", **({"__dtype__": "12"} if case == "low precision" else {}))
    source = data if case == "an input" else layer(net, data, 15 if case == "no blocks" else 16)
    if case == "a slice":
        source = net.op("slice_axis", source, axis=1, begin=0, end=8)
    axis = {"channels": 1, "places before the last": 2}.get(case, -1)
    more = [net.var("length")] if case == "a length" else []
    graph = net.graph(net.op("softmax", source, *more, name="y", axis=axis))
    policy = Policy.default(BF16).excluding(names=["y"]) if case == "rule" else None
    assert prepared(PlainSoftmax, graph, net.params, policy)[0] is graph


def test_targets_choose() -> None:
    net = Net()
    graph = net.graph(net.op("softmax", layer(net, net.var("x")), name="y"))
    assert targets_that_choose("plain_softmax", graph, parameters(net.params)) == CPUS
