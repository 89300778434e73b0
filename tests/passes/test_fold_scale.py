"""A layer multiplies by the number that its result is multiplied by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import FoldScale
from mxamp.policy import Policy
from tests.building import BF16, Net, named, reads
from tests.passes.preparing import prepared


def scaled(
    net: Net, layer: Entry, op: str = "_mul_scalar", scalar: str = "0.17", name: str = "scaled"
) -> Entry:
    attrs = {} if op == "negative" else {"scalar": scalar}
    return net.op(op, layer, name=name, **attrs)


def layer(net: Net, kind: str, dtype: str = "0") -> Entry:
    x = net.var("x", __dtype__=dtype)
    if kind == "FullyConnected":
        return net.fc(x, "layer")
    if kind == "Deconvolution":
        weight, bias = net.param("layer_weight", 4, 3, 2, 2), net.param("layer_bias", 3)
        return net.op(
            kind, x, weight, bias, name="layer", num_filter=3, kernel="(2, 2)", stride="(2, 2)", no_bias=False
        )
    if kind == "BatchNorm":
        return net.bn(x, "layer")
    weight, bias = net.param("layer_weight", 5, 4, 3, 3), net.param("layer_bias", 5)
    return net.op("Convolution", x, weight, bias, name="layer", num_filter=5, kernel="(3, 3)", pad="(1, 1)")


KINDS = ("Convolution", "Deconvolution", "FullyConnected", "BatchNorm")


@pytest.mark.parametrize(
    ("op", "scalar", "factor"),
    [("_mul_scalar", "0.17", 0.17), ("_div_scalar", "6.0", 1 / 6), ("negative", "", -1.0)],
)
@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_multiplied(kind: str, op: str, scalar: str, factor: float) -> None:
    net = Net()
    graph = net.graph(net.op("exp", scaled(net, layer(net, kind), op, scalar), name="y"))
    after, done = prepared(FoldScale, graph, net.params)
    assert reads(after, "y") == ["layer"]
    assert [(change.node, change.into) for change in done.changes] == [("scaled", "layer")]
    touched = [name for name in net.params if not name.endswith(("mean", "var"))]
    for name in net.params:
        expected = net.params[name].astype(np.float64) * (factor if name in touched else 1.0)
        np.testing.assert_array_equal(done.params[name].values(), expected.astype(np.float32))


def test_products_one_after_the_other_are_one_number() -> None:
    net = Net()
    first = scaled(net, layer(net, "Convolution"), scalar="0.9", name="first")
    second = scaled(net, first, "_div_scalar", scalar="0.1", name="second")
    graph = net.graph(net.op("exp", scaled(net, second, "negative", name="third"), name="y"))
    after, done = prepared(FoldScale, graph, net.params)
    assert reads(after, "y") == ["layer"]
    assert [change.node for change in done.changes] == ["first", "second", "third"]
    for name in ("layer_weight", "layer_bias"):
        expected = net.params[name].astype(np.float64) * -(0.9 * (1 / 0.1))
        np.testing.assert_array_equal(done.params[name].values(), expected.astype(np.float32))


def test_a_batch_norm_whose_scale_is_one_has_one_of_its_own() -> None:
    net = Net()
    norm = layer(net, "BatchNorm")
    net.nodes[norm.node].attrs["fix_gamma"] = "True"
    net.params["layer_gamma"][:] = 7.0  # which nobody looks at
    graph = net.graph(net.op("exp", scaled(net, norm), name="y"))
    after, done = prepared(FoldScale, graph, net.params)
    assert named(after, "layer").attrs["fix_gamma"] == "False"
    np.testing.assert_array_equal(done.params["layer_gamma"].values(), np.full(4, 0.17, np.float32))


@pytest.mark.parametrize(
    "case",
    [
        *("no layer", "layer is read", "layer is an output", "product is an output", "weight is shared"),
        *("zero", "huge", "not a number", "float16", "rule for the product", "rule for the layer"),
    ],
)
def test_refuses(case: str) -> None:
    net, policy = Net(), None
    made = layer(net, "Convolution", "2" if case == "float16" else "0")
    source = net.op("exp", made) if case == "no layer" else made
    scalar = {"zero": "0.0", "huge": "1e9", "not a number": "nan"}.get(case, "0.17")
    product = scaled(net, source, scalar=scalar)
    heads = [product if case == "product is an output" else net.op("exp", product, name="y")]
    if case == "layer is read":
        heads.append(net.op("exp", made, name="z"))
    elif case == "layer is an output":
        heads.append(made)
    elif case == "weight is shared":
        weight = next(Entry(at) for at, node in enumerate(net.nodes) if node.name == "layer_weight")
        heads.append(net.op("sum", weight, name="z"))
    elif case.startswith("rule"):
        policy = Policy.default(BF16).excluding(names=["scaled" if case.endswith("product") else "layer"])
    graph = net.graph(*heads)
    assert prepared(FoldScale, graph, net.params, policy)[0] is graph


@pytest.mark.parametrize("scalar", ["0.17", "0.125", "-3.0"])
@pytest.mark.parametrize("kind", KINDS)
def test_mxnet_computes_the_same_but_for_rounding(kind: str, scalar: str) -> None:
    pytest.importorskip("mxnet", reason="runs the model")
    from mxamp.model import Model
    from mxamp.runtime.executor import run_outputs

    net = Net()
    made: Any = scaled(net, layer(net, kind), scalar=scalar)
    graph: Graph = net.graph(net.op("_plus_scalar", made, name="y", scalar="0"))
    after, done = prepared(FoldScale, graph, net.params)
    shape = (3, 4) if kind == "FullyConnected" else (2, 4, 9, 7)
    data = {"x": np.random.default_rng(1).normal(0, 2, shape).astype(np.float32)}
    states = {name: value for name, value in net.params.items() if "moving" in name}
    args = {name: value for name, value in net.params.items() if "moving" not in name}
    changed = {name: done.params[name].values() for name in args}
    (expected,) = run_outputs(Model.of(graph, args, states), data)
    (found,) = run_outputs(Model.of(after, changed, states), data)
    off = (found - expected) / np.abs(expected).max()
    assert np.abs(off).max() < 8 * 2.0**-24
    assert abs(off.mean()) < 2.0**-25
    if scalar == "0.125":
        np.testing.assert_array_equal(found, expected)
