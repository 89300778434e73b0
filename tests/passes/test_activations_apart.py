"""An activation behind a layer that is one plain matrix product is kept apart from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.passes import ActivationsApart, PreparedNode, State
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepare_graph, prepared, targets_that_choose

STEP = ActivationsApart.step
AVX2 = Target.builtin("cpu-bf16-avx2")


def network(
    act: tuple[str, dict[str, Any]] = ("Activation", {"act_type": "relu"}),
    *,
    filters: int = 12,
    channels: int = 12,
    with_sum: bool = False,
    norm: bool = False,
    reader: bool = False,
    **attrs: Any,
) -> tuple[Net, Entry]:
    net = Net()
    data = net.var("data", __dtype__="0")
    weight = net.param("weight", filters, channels // int(attrs.get("num_group", 1)), 1, 1)
    given = {"kernel": "(1, 1)", "num_filter": filters, "no_bias": True, **attrs}
    value = net.op("Convolution", data, weight, name="layer", **given)
    if norm:
        parts = {"gamma": 1.5, "beta": 0.25, "mean": 0.125, "var": 2.0}
        statistics = [net.param(name, filters, value=number) for name, number in parts.items()]
        value = net.op("BatchNorm", value, *statistics, name="norm", outputs=3, fix_gamma=False)
    if with_sum:
        value = net.op("elemwise_add", value, data, name="sum")
    op, options = act
    last = net.op(op, value, name="act", **options)
    return net, net.op("elemwise_mul", last, value, name="product") if reader else last


def shapes(net: Net, last: Entry, data: tuple[int, ...]) -> list[Any]:
    known = {name: values.shape for name, values in net.params.items()}
    return list(infer_entry_shapes(net.graph(last), {"data": data}, known).entries)


def apart(net: Net, last: Entry, data: tuple[int, ...], target: Target = AVX2) -> State:
    return prepare_graph(
        net.graph(last),
        parameters(net.params),
        Policy.default(BF16),
        [STEP],
        target=target,
        shapes=shapes(net, last, data),
    )


IMAGE = (1, 12, 28, 28)


@pytest.mark.parametrize("with_sum", [False, True])
@pytest.mark.parametrize("norm", [False, True])
def test_a_reshape_keeps_it_apart(with_sum: bool, norm: bool) -> None:
    net, last = network(with_sum=with_sum, norm=norm)
    graph = net.graph(last)
    after, done = prepared(
        ActivationsApart,
        graph,
        net.params,
        inserted=["act_apart"],
        target=AVX2,
        shapes=shapes(net, last, IMAGE),
    )
    source = "sum" if with_sum else "norm" if norm else "layer"
    assert operators(after)[-2:] == [
        f"act_apart = Reshape({source}) {{shape: (0, 0, 0, -1)}}",
        "act = Activation(act_apart) {act_type: relu}",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("act", "act")]


@pytest.mark.parametrize(
    ("options", "data"),
    [
        pytest.param({"filters": 16, "channels": 16}, (1, 16, 28, 28), id="blocks"),
        pytest.param({}, (1, 12, 10, 10), id="few values"),
        pytest.param({"reader": True}, IMAGE, id="another reader"),
        pytest.param({"act": ("LeakyReLU", {"act_type": "elu"})}, IMAGE, id="what is not fused"),
        pytest.param({"act": ("clip", {"a_min": -1, "a_max": 1})}, IMAGE, id="a clip below zero"),
        pytest.param({"act": ("relu", {})}, IMAGE, id="an operator that is not fused"),
    ],
)
def test_refuses(options: dict[str, Any], data: tuple[int, ...]) -> None:
    net, last = network(**options)
    assert not apart(net, last, data).record(PreparedNode)


def test_what_takes_long_is_kept_apart_of_few_values_too() -> None:
    costly = ("Activation", {"act_type": "tanh"})
    assert apart(*network(costly), (1, 12, 8, 8)).record(PreparedNode)
    assert apart(*network(with_sum=True), (1, 12, 8, 8)).record(PreparedNode)
    assert not apart(*network(), (1, 12, 8, 8)).record(PreparedNode)


@pytest.mark.parametrize(
    ("rows", "hidden", "kind", "is_apart"),
    [(4096, 1, "relu", True), (1024, 1, "relu", False), (1024, 1, "tanh", True), (4096, 4, "tanh", False)],
)
def test_a_column_of_a_dense_layer(
    monkeypatch: pytest.MonkeyPatch, rows: int, hidden: int, kind: str, is_apart: bool
) -> None:
    net = Net()
    weight = net.param("weight", hidden, 6)
    attrs = {"num_hidden": hidden, "no_bias": True, "flatten": False}
    layer = net.op("FullyConnected", net.var("data", __dtype__="0"), weight, name="layer", **attrs)
    last = net.op("Activation", layer, name="act", act_type=kind)
    data = (2, rows // 2, 6)
    done = apart(net, last, data)
    assert bool(done.record(PreparedNode)) == is_apart
    values = {"data": np.random.default_rng(1).standard_normal(data).astype(np.float32)}
    (expected,) = outputs(monkeypatch, net.graph(last), parameters(net.params), values)
    (found,) = outputs(monkeypatch, done.graph, done.params, values, "MKLDNN")
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


def test_a_node_that_a_rule_picks_stays() -> None:
    net, last = network()
    policy = Policy.default(BF16).excluding(names=["act"])
    known = shapes(net, last, IMAGE)
    graph = net.graph(last)
    assert prepared(ActivationsApart, graph, net.params, policy, target=AVX2, shapes=known)[0] is graph


@pytest.mark.parametrize(
    "act",
    [
        *(("Activation", {"act_type": kind}) for kind in ("relu", "sigmoid", "tanh", "softrelu")),
        *(("LeakyReLU", {"act_type": kind, "slope": 0.1}) for kind in ("leaky", "gelu")),
        ("clip", {"a_min": 0, "a_max": 6}),
    ],
    ids=lambda act: str(act[1].get("act_type", act[0])),
)
@pytest.mark.parametrize("options", [{}, {"with_sum": True}, {"filters": 36, "num_group": 12}], ids=str)
def test_mxnet_computes_the_same(
    monkeypatch: pytest.MonkeyPatch, act: tuple[str, dict[str, Any]], options: dict[str, Any]
) -> None:
    net, last = network(act, **options)
    done = apart(net, last, (2, 12, 28, 28))
    assert {change.step for change in done.record(PreparedNode)} == {STEP}
    given = parameters(net.params)
    for shape in ((2, 12, 28, 28), (1, 12, 3, 5)):
        values = {"data": 4 * np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
        (expected,) = outputs(monkeypatch, net.graph(last), given, values)
        (found,) = outputs(monkeypatch, done.graph, done.params, values, "MKLDNN")
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


def test_groups_are_plain_products_without_avx512_alone() -> None:
    # Groups get no more channels, as other layers do where that pays.
    net, last = network(filters=36, channels=36, num_group=12)
    known = shapes(net, last, (1, 36, 28, 28))
    chosen = targets_that_choose(STEP, net.graph(last), parameters(net.params), known)
    assert not chosen
    assert apart(net, last, (1, 36, 28, 28)).record(PreparedNode)


def test_targets_that_compute_in_float32_name_it() -> None:
    net, last = network(filters=54, channels=54)
    known = shapes(net, last, (1, 54, 28, 28))
    chosen = targets_that_choose(STEP, net.graph(last), parameters(net.params), known)
    assert chosen == ["cpu-bf16-intel"], "low layers have other kernels"
    for name in ("cpu-bf16-emulated", "cpu-bf16-avx2"):
        assert STEP in Target.builtin(name).rewrites
