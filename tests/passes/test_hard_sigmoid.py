"""Hard sigmoids and hard swishes become one operator, where that is what they are and nobody looks inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import RewriteHardSigmoid
from mxamp.policy import Policy
from tests.building import BF16, Net
from tests.passes.preparing import operators, prepared

HARD = "hard_sigmoid(data) {alpha: 0.16666666666666666, beta: 0.5}"


def gate(net: Net, data: Entry, **changes: Any) -> dict[str, Entry]:
    """Add the chain as GluonCV's MobileNetV3 writes it, with other attributes where a test wants them."""
    plus = net.op("_plus_scalar", data, name="plus", scalar=changes.get("plus", 3.0))
    clip = net.op("clip", plus, name="clip", a_min=changes.get("low", 0), a_max=changes.get("high", 6))
    by = changes.get("by", ("_div_scalar", "6.0"))
    return {"plus": plus, "clip": clip, "gate": net.op(by[0], clip, name="gate", scalar=by[1])}


def sigmoid(dtype: str = "0", **changes: Any) -> Graph:
    net = Net()
    data = net.var("data", __dtype__=dtype)
    nodes = gate(net, data, **changes)
    return net.graph(nodes["gate"], *(nodes[name] for name in changes.get("heads", ())))


@pytest.mark.parametrize("by", [("_div_scalar", "6.0"), ("_mul_scalar", "0.16666666666666666")], ids=str)
def test_a_hard_sigmoid_is_one_operator(by: tuple[str, str]) -> None:
    after, done = prepared(RewriteHardSigmoid, sigmoid(by=by))
    assert operators(after) == [f"gate = {HARD}"]
    assert [(change.node, change.into) for change in done.changes] == [
        ("plus", "gate"),
        ("clip", "gate"),
        ("gate", "gate"),
    ]


def test_a_hard_swish_keeps_its_product() -> None:
    net = Net()
    data = net.var("data", __dtype__="0")
    product = net.op("elemwise_mul", data, gate(net, data)["gate"], name="swish")
    after, _ = prepared(RewriteHardSigmoid, net.graph(product))
    assert operators(after) == [f"gate = {HARD}", "swish = elemwise_mul(data, gate)"]


@pytest.mark.parametrize("op", ["elemwise_mul", "broadcast_mul"])
def test_a_hard_swish_that_is_divided_last_is_one_too(op: str) -> None:
    after, done = prepared(RewriteHardSigmoid, divided_last(op))
    assert operators(after) == [f"clip = {HARD}", f"swish = {op}(data, clip)"]
    assert [(change.node, change.into) for change in done.changes] == [
        ("plus", "clip"),
        ("clip", "clip"),
        ("product", "swish"),
        ("swish", "swish"),
    ]


def divided_last(op: str, other: str = "data") -> Graph:
    net = Net()
    data = net.var("data", __dtype__="0")
    factor = data if other == "data" else net.var(other)
    plus = net.op("_plus_scalar", data, name="plus", scalar=3)
    clip = net.op("clip", plus, name="clip", a_min=0, a_max=6)
    product = net.op(op, factor, clip, name="product")
    return net.graph(net.op("_div_scalar", product, name="swish", scalar=6))


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(sigmoid(plus=2.5), id="another offset"),
        pytest.param(sigmoid(low=-1), id="another lower bound"),
        pytest.param(sigmoid(high=5), id="another upper bound"),
        pytest.param(sigmoid(by=("_div_scalar", "3")), id="another divisor"),
        pytest.param(sigmoid(by=("_mul_scalar", "0.16667")), id="not float32's sixth"),
        pytest.param(sigmoid(by=("_plus_scalar", "6")), id="no division"),
        pytest.param(sigmoid(heads=["clip"]), id="an inner value is an output"),
        pytest.param(sigmoid(heads=["plus"]), id="the sum is an output"),
        pytest.param(sigmoid("4"), id="integers"),
        pytest.param(sigmoid("-1"), id="an input of any dtype"),
        pytest.param(sigmoid("2"), id="float16"),
        pytest.param(divided_last("broadcast_mul", "other"), id="the product with something else"),
    ],
)
def test_refuses(graph: Graph) -> None:
    after, _ = prepared(RewriteHardSigmoid, graph)
    assert after is graph


@pytest.mark.parametrize("op", ["_contrib_arange_like", "ones_like"])
def test_refuses_where_the_shape_alone_is_read(op: str) -> None:
    net = Net()
    values = gate(net, net.var("data", __dtype__="0"))["gate"]
    graph = net.graph(net.op(op, values, name="shaped"))
    assert prepared(RewriteHardSigmoid, graph)[0] is graph
    both = net.graph(net.op(op, values, name="shaped"), net.op("exp", values, name="read"))
    assert prepared(RewriteHardSigmoid, both)[0] is not both


def test_refuses_where_an_inner_value_is_read() -> None:
    net = Net()
    nodes = gate(net, net.var("data", __dtype__="0"))
    graph = net.graph(net.op("elemwise_add", nodes["gate"], nodes["clip"], name="sum"))
    after, _ = prepared(RewriteHardSigmoid, graph)
    assert after is graph


@pytest.mark.parametrize("name", ["plus", "clip", "gate"])
def test_what_a_rule_of_the_users_picks_stays(name: str) -> None:
    graph = sigmoid()
    after, _ = prepared(RewriteHardSigmoid, graph, policy=Policy.default(BF16).excluding(names=[name]))
    assert after is graph


@pytest.mark.parametrize(
    ("graph", "is_product"),
    [
        pytest.param(sigmoid(), False, id="hard sigmoid"),
        pytest.param(divided_last("elemwise_mul"), True, id="hard swish"),
    ],
)
def test_mxnet_computes_the_same_up_to_the_bound(graph: Graph, is_product: bool) -> None:
    mx = pytest.importorskip("mxnet", reason="both forms are executed")
    from mxamp.runtime.symbol import symbol_from_graph

    edge = np.float32([-3, 3, 0, -0.0, np.inf, -np.inf, np.nan])
    near = [np.nextafter(np.float32(x), np.float32(y)) for x in (-3, 3) for y in (-9, 9)]
    data = np.concatenate([np.linspace(-4, 4, 200_001, dtype=np.float32), edge[:4], np.float32(near)])
    outside = np.concatenate([edge[4:], np.float32([-1e30, 1e30])])
    found = []
    for one in (graph, prepared(RewriteHardSigmoid, graph)[0]):
        symbol = symbol_from_graph(one)
        values = []
        for part in (data, outside):
            executor = symbol.bind(mx.cpu(), {"data": mx.nd.array(part, dtype="float32")})
            values.append(executor.forward()[0].asnumpy().astype(np.float64))
        found.append(values)
    bound = 2.7 * 2.0**-24 * np.ones(data.shape)
    if is_product:
        bound = np.abs(data) * (bound + 2 * 2.0**-24)
    assert (np.abs(found[0][0] - found[1][0]) <= bound).all()
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-6, atol=0)
