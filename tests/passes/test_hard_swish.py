"""The gates of hard swishes are computed in blocks, and their values stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.graph import Entry, Graph
from mxamp.passes import PreparedNode, RewriteHardSwish
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, named, parameters, reads
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import operators, prepare_graph, prepared

INSERTED = ["gate_steep", "gate_slope", "gate_shift"]
SIXTH = str(1 / 6)


def layer(net: Net, channels: int, *, dtype: str = "-1", bias: bool = False) -> Entry:
    """Add a pointwise layer of 4 channels."""
    parts = [net.param("layer_weight", channels, 4, 1, 1)]
    parts += [net.param("layer_bias", channels)] if bias else []
    attrs = {"num_filter": channels, "kernel": "(1, 1)", "no_bias": not bias}
    return net.op("Convolution", net.var("data", __dtype__=dtype), *parts, name="layer", **attrs)


def norm(net: Net, data: Entry, channels: int, **attrs: Any) -> Entry:
    """Add a BatchNorm of so many channels."""
    parts = ("gamma", "beta", "moving_mean", "moving_var")
    own = [net.param(f"norm_{part}", channels) for part in parts]
    net.params["norm_moving_var"] += 1.0
    return net.op("BatchNorm", data, *own, name="norm", outputs=3, **{"fix_gamma": False, **attrs})


def swish(net: Net, data: Entry, *, alpha: str = SIXTH, beta: str = "0.5", turned: bool = False) -> Entry:
    """Add a hard swish."""
    gate = net.op("hard_sigmoid", data, name="gate", alpha=alpha, beta=beta)
    return net.op("elemwise_mul", *((gate, data) if turned else (data, gate)), name="swish")


def network(channels: int = 16, *, behind: str = "layer", **changes: Any) -> tuple[Net, Graph]:
    """Return a layer, maybe with a bias or a BatchNorm, and a hard swish."""
    net = Net()
    last = layer(net, channels, dtype=changes.pop("dtype", "-1"), bias=behind == "bias")
    if behind in ("norm", "fixed"):
        last = norm(net, last, channels, fix_gamma=behind == "fixed", **changes.pop("norm", {}))
    return net, net.graph(swish(net, last, **changes))


@pytest.mark.parametrize("turned", [False, True])
def test_the_gate_is_a_depthwise_layer_and_a_clip(turned: bool) -> None:
    net, graph = network(turned=turned)
    after, done = prepared(RewriteHardSwish, graph, net.params, inserted=INSERTED)
    factors = "gate, layer" if turned else "layer, gate"
    assert operators(after)[1:] == [
        "gate_steep = Convolution(layer, gate_slope, gate_shift) {kernel: (1, 1), no_bias: False, "
        "num_filter: 16, num_group: 16}",
        "gate = clip(gate_steep) {a_max: 6.0, a_min: 0.0}",
        f"swish = elemwise_mul({factors})",
    ]
    assert set(done.params["gate_slope"].values().reshape(-1)) == {6.0}
    assert set(done.params["gate_shift"].values()) == {3.0}
    weight = net.params["layer_weight"] * np.float32(1 / 6)
    np.testing.assert_array_equal(done.params["layer_weight"].values(), weight)
    (change,) = done.changes
    assert (change.node, change.op, change.into) == ("gate", "hard_sigmoid", "gate")


def test_the_bias_is_multiplied_as_well() -> None:
    net, graph = network(behind="bias")
    _, done = prepared(RewriteHardSwish, graph, net.params, inserted=INSERTED)
    for name in ("layer_weight", "layer_bias"):
        expected = net.params[name] * np.float32(1 / 6)
        np.testing.assert_array_equal(done.params[name].values(), expected)


def test_behind_a_norm_gamma_and_beta_are() -> None:
    net, graph = network(behind="norm")
    _, done = prepared(RewriteHardSwish, graph, net.params, inserted=INSERTED)
    for name, values in net.params.items():
        factor = np.float32(1 / 6 if name in ("norm_gamma", "norm_beta") else 1)
        np.testing.assert_array_equal(done.params[name].values(), values * factor)


def test_a_fixed_gamma_is_free_then_and_what_was_stored_is_not_read() -> None:
    net, graph = network(behind="fixed")
    after, done = prepared(RewriteHardSwish, graph, net.params, inserted=INSERTED)
    assert named(after, "norm").attrs["fix_gamma"] == "False"
    assert set(done.params["norm_gamma"].values()) == {np.float32(1 / 6)}


@pytest.mark.parametrize(
    ("alpha", "beta", "slope", "shift"), [("0.2", "0.5", 5.0, 2.5), ("0.25", "0.75", 4.0, 3.0)]
)
def test_other_slopes(alpha: str, beta: str, slope: float, shift: float) -> None:
    net, graph = network(alpha=alpha, beta=beta)
    after, done = prepared(RewriteHardSwish, graph, net.params, inserted=INSERTED)
    assert set(done.params["gate_slope"].values().reshape(-1)) == {slope}
    assert set(done.params["gate_shift"].values()) == {shift}
    assert named(after, "gate").attrs == {"a_min": "0.0", "a_max": str(slope)}


def test_the_slopes_of_the_operator_are_those_it_has_without_attributes() -> None:
    net = Net()
    data = layer(net, 16)
    gate = net.op("hard_sigmoid", data, name="gate")
    graph = net.graph(net.op("elemwise_mul", data, gate, name="swish"))
    _, done = prepared(RewriteHardSwish, graph, net.params, inserted=INSERTED)
    assert set(done.params["gate_slope"].values().reshape(-1)) == {5.0}


def _shared(net: Net, last: Entry) -> None:
    """Let something else read the layer's weight."""
    del last
    net.op("exp", Entry([node.name for node in net.nodes].index("layer_weight")), name="other")


REFUSED: dict[str, dict[str, Any]] = {
    "24 channels": {"channels": 24},
    "a slope that rounding changes": {"alpha": "0.166"},
    "no slope": {"alpha": "0"},
    "falling": {"alpha": "-0.25"},
    "no number": {"alpha": "a sixth"},
    "no finite shift": {"beta": "inf"},
    "float16": {"dtype": "2"},
    "another axis": {"behind": "norm", "norm": {"axis": "2"}},
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case: str) -> None:
    net, graph = network(**REFUSED[case])
    if case == "float16":
        net.params = {name: values.astype(np.float16) for name, values in net.params.items()}
    assert prepared(RewriteHardSwish, graph, net.params)[0] is graph


@pytest.mark.parametrize(
    "case", ["seen", "gate seen", "read thrice", "another factor", "no layer", "weight shared", "no image"]
)
def test_refuses_where_it_would_show(case: str) -> None:
    net = Net()
    if case == "no layer":
        data = net.op("Pooling", layer(net, 16), name="pool", kernel="(2, 2)")
    elif case == "no image":
        weight = net.param("w", 16, 4)
        data = net.op("FullyConnected", net.var("data"), weight, name="fc", num_hidden=16, no_bias=True)
    else:
        data = layer(net, 16)
    gate = net.op("hard_sigmoid", data, name="gate", alpha=SIXTH, beta="0.5")
    factor = net.op("tanh", data, name="tanh") if case == "another factor" else data
    heads = [net.op("elemwise_mul", factor, gate, name="swish")]
    if case == "seen":
        heads.append(data)
    elif case == "gate seen":
        heads.append(gate)
    elif case == "read thrice":
        heads.append(net.op("tanh", data, name="tanh"))
    elif case == "weight shared":
        _shared(net, data)
        heads.append(Entry(len(net.nodes) - 1))
    graph = net.graph(*heads)
    assert prepared(RewriteHardSwish, graph, net.params)[0] is graph


@pytest.mark.parametrize("name", ["layer", "gate", "swish"])
def test_what_a_rule_of_the_users_picks_stays(name: str) -> None:
    net, graph = network()
    policy = Policy.default(BF16).excluding(names=[name])
    assert prepared(RewriteHardSwish, graph, net.params, policy)[0] is graph


def test_an_input_is_no_parameter() -> None:
    _, graph = network()
    assert prepared(RewriteHardSwish, graph, {})[0] is graph


def test_targets_choose() -> None:
    net, graph = network()
    for name, chosen in (("cpu-bf16", True), ("cuda-fp16", False)):
        target = Target.builtin(name)
        state = prepare_graph(graph, parameters(net.params), Policy.default(target.dtype), target=target)
        assert any(change.step == "hard_swish" for change in state.record(PreparedNode)) is chosen
    without = replace(Target.builtin("cpu-bf16"), rewrites=())
    state = prepare_graph(graph, parameters(net.params), Policy.default(BF16), target=without)
    assert not any(change.step == "hard_swish" for change in state.record(PreparedNode))


def passing(net: Net) -> Graph:
    """Return a layer that passes on what it reads, and a hard swish behind it."""
    weight = net.param("layer_weight", 16, 1, 1, 1, value=1.0)
    attrs = {"num_filter": 16, "num_group": 16, "kernel": "(1, 1)", "no_bias": True}
    return net.graph(swish(net, net.op("Convolution", net.var("data"), weight, name="layer", **attrs)))


@pytest.mark.parametrize("backend", ["NONE", "MKLDNN"])
def test_mxnet_computes_the_same_up_to_the_bound(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    net = Net()
    graph = passing(net)
    after, done = prepared(RewriteHardSwish, graph, net.params, inserted=INSERTED)
    data = np.linspace(-4, 4, 16 * 64 * 64, dtype=np.float32).reshape(1, 16, 64, 64)
    near = [np.nextafter(np.float32(x), np.float32(y)) for x in (-3, 3) for y in (-9, 9)]
    data.reshape(-1)[: len(near)] = near
    (expected,) = outputs(monkeypatch, graph, parameters(net.params), {"data": data})
    (found,) = outputs(monkeypatch, after, done.params, {"data": data}, backend)
    exact = data.astype(np.float64) * np.clip(data.astype(np.float64) / 6 + 0.5, 0, 1)
    for values in (expected, found):
        assert (np.abs(values - exact) <= 6 * 2.0**-24 * np.abs(data)).all()


def test_infinities_and_nan_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    graph = passing(net)
    after, done = prepared(RewriteHardSwish, graph, net.params, inserted=INSERTED)
    data = on_edges(1, 16, 8, 8)
    (expected,) = outputs(monkeypatch, graph, parameters(net.params), {"data": data})
    (found,) = outputs(monkeypatch, after, done.params, {"data": data})
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-44)  # subnormal numbers lose bits


def test_converted_it_has_no_larger_error(monkeypatch: pytest.MonkeyPatch) -> None:
    mx = pytest.importorskip("mxnet", reason="networks are executed")
    from mxamp.runtime.symbol import symbol_from_graph

    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "MKLDNN")
    draw = np.random.default_rng(7)
    errors = []
    for rewrites in ((), ("hard_swish",)):
        net, graph = network(64, behind="norm")
        target = replace(Target.builtin("cpu-bf16"), rewrites=rewrites)
        arrays = {name: mx.nd.array(values) for name, values in net.params.items()}
        auxs = {name: arrays.pop(name) for name in list(arrays) if "moving" in name}
        symbol = symbol_from_graph(graph)
        model = mxamp.convert_model(symbol, arrays, auxs, "bfloat16", target=target)
        data = draw.normal(0, 20, (4, 4, 16, 16)).astype(np.float32)
        results = []
        for sym, args, aux in ((symbol, arrays, auxs), tuple(model)):
            bound = sym.bind(mx.cpu(), {**args, "data": mx.nd.array(data)}, aux_states=aux)
            results.append(bound.forward()[0].asnumpy().astype(np.float64))
        errors.append(np.linalg.norm(results[1] - results[0]) / np.linalg.norm(results[0]))
    assert errors[1] <= 1.1 * errors[0]
    assert errors[1] < 2.0**-7


def test_the_rewritten_node_keeps_its_own_attributes() -> None:
    net, graph = network()
    nodes = [
        node._replace(attrs={**node.attrs, "__layout__": "NCHW"}) if node.name == "gate" else node
        for node in graph.nodes
    ]
    after, _ = prepared(RewriteHardSwish, replace(graph, nodes=tuple(nodes)), net.params, inserted=INSERTED)
    assert named(after, "gate").attrs["__layout__"] == "NCHW"
    assert reads(after, "gate") == ["gate_steep"]
