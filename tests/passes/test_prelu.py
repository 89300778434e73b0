"""PReLU becomes depthwise convolutions where the target runs those faster, and its values stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mxamp
from mxamp.graph import Entry
from mxamp.model import Model
from mxamp.passes import RewritePReLU
from mxamp.policy import Policy
from mxamp.targets import Target
from mxamp.targets.fusion_defect import lost_branches
from tests.building import BF16, Net, parameters
from tests.passes.preparing import CPUS, operators, prepare_graph, prepared, targets_that_choose

INSERTED = ["p_minus", "p_slope", "p_positive", "p_mirrored", "p_negative", "p_scaled"]
SLOPES = [0.25, -0.5, 1.75, 0.0, -0.0, 1.0, -1.0, 3.3, 1e-20, -1e-20, 0.1, 0.2, 0.3, 0.7, 64.0, -3.0]


def network(
    channels: int = 16, *, slopes: object = None, op: str = "LeakyReLU", act: str = "prelu"
) -> tuple[Net, Entry]:
    """Return data -> Convolution -> PReLU."""
    net = Net()
    weight = net.param("weight", channels, 3, 3, 3)
    layer = net.op(
        "Convolution",
        net.var("data"),
        weight,
        name="conv",
        num_filter=channels,
        kernel="(3, 3)",
        no_bias=True,
    )
    gamma = net.param("gamma", channels)
    net.params["gamma"] = np.resize(np.asarray(SLOPES if slopes is None else slopes, np.float32), channels)
    return net, net.op(op, layer, gamma, name="p", act_type=act)


@pytest.mark.parametrize("op", ["LeakyReLU", "_npx_leaky_relu"])
def test_prelu_becomes_two_depthwise_convolutions(op: str) -> None:
    net, last = network(op=op)
    graph = net.graph(last)
    after, done = prepared(RewritePReLU, graph, net.params, inserted=INSERTED)
    assert [line.split(" = ")[1].split("(")[0] for line in operators(after)] == [
        "Convolution",
        "Activation",
        "Convolution",
        "Activation",
        "Convolution",
        "elemwise_add",
    ]
    assert after.nodes[after.heads[0].node].name == "p"
    np.testing.assert_array_equal(done.params["p_slope"].values().reshape(-1), -net.params["gamma"])
    assert set(done.params) == {"weight", "p_minus", "p_slope"}
    (change,) = done.changes
    assert (change.node, change.op, change.into) == ("p", op, "p")


@pytest.mark.parametrize("op", ["LeakyReLU", "_npx_leaky_relu"])
@pytest.mark.parametrize("size", [1, 16])
def test_one_slope_is_that_of_a_leaky_relu(op: str, size: int) -> None:
    net = Net()
    dense = net.op("FullyConnected", net.var("data"), net.param("w", 16, 4), num_hidden=16, no_bias=True)
    net.params["gamma"] = np.full(size, 0.1, np.float32)
    last = net.op(op, dense, net.var("gamma"), name="p", act_type="prelu")
    after, done = prepared(RewritePReLU, net.graph(last), net.params)
    node = after.nodes[-1]
    assert (node.op, node.attrs["act_type"], len(node.inputs)) == (op, "leaky", 1)
    assert np.float32(node.attrs["slope"]) == np.float32(0.1)
    (change,) = done.changes
    assert (change.node, change.op, change.into) == ("p", op, "p")


def test_a_leaky_relu_has_the_same_bits() -> None:
    mx = pytest.importorskip("mxnet", reason="both are executed")
    special = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38]
    draw = np.random.default_rng(0)
    values = [*special, *(draw.standard_normal(5000) * 10.0 ** draw.integers(-40, 38, 5000))]
    data = mx.nd.array(np.asarray(values, np.float32).reshape(1, -1))
    for slope in (0.25, 0.1, -0.5, 1.7, 3e-5, 1.0):
        learned = mx.nd.LeakyReLU(data, mx.nd.array([slope]), act_type="prelu").asnumpy()
        fixed = mx.nd.LeakyReLU(data, act_type="leaky", slope=float(np.float32(slope))).asnumpy()
        np.testing.assert_array_equal(learned.view(np.uint32), fixed.view(np.uint32))


def test_one_weight_serves_all_layers() -> None:
    net, first = network(32)
    other = net.param("other", 32)
    net.params["other"] = net.params["gamma"][::-1].copy()
    second = net.op("LeakyReLU", net.bn(first, "bn"), other, name="q", act_type="prelu")
    names = [*INSERTED, *(name.replace("p_", "q_") for name in INSERTED if name != "p_minus")]
    after, done = prepared(RewritePReLU, net.graph(second), net.params, inserted=names)
    assert done.params["p_slope"].shape == (32, 1, 1, 1)
    assert "q_minus" not in done.params
    readers = {use.node for use in after.uses[after.variables["p_minus"]][0]}
    assert [after.nodes[reader].name for reader in sorted(readers)] == ["p_mirrored", "q_mirrored"]


@pytest.mark.parametrize(
    "case",
    [
        "28 channels",
        "one zero",
        "nan",
        "infinite",
        "two axes",
        "no channels known",
        "an input",
        "leaky",
        "float16",
        "rule",
    ],
)
def test_refuses(case: str) -> None:
    policy = None
    if case == "28 channels":
        net, last = network(28)
    elif case == "one zero":
        net, last = network(28, slopes=[0.0])
    elif case in ("nan", "infinite"):
        net, last = network(slopes=[*SLOPES[:-1], np.nan if case == "nan" else -np.inf])
    elif case == "leaky":
        net, last = network(act="leaky")
    elif case == "rule":
        net, last = network()
        policy = Policy.default(BF16).excluding(names=["p"])
    else:
        net = Net()
        data = net.var("data", **({"__dtype__": "2"} if case == "float16" else {}))
        if case == "two axes":
            layer = net.op(
                "FullyConnected", data, net.param("w", 16, 4), name="fc", num_hidden=16, no_bias=True
            )
        elif case == "no channels known":
            layer = net.op("Pooling", data, name="pool", kernel="(2, 2)")
        else:
            w = net.var("w", __dtype__="2") if case == "float16" else net.param("w", 16, 4, 1, 1)
            layer = net.op("Convolution", data, w, name="conv", num_filter=16, kernel="(1, 1)", no_bias=True)
        gamma = net.var("gamma") if case == "an input" else net.param("gamma", 16)
        if case == "float16":
            net.params["gamma"] = net.params["gamma"].astype(np.float16)
        last = net.op("LeakyReLU", layer, gamma, name="p", act_type="prelu")
    graph = net.graph(last)
    assert prepared(RewritePReLU, graph, net.params, policy)[0] is graph


def test_targets_choose() -> None:
    net, last = network()
    graph, given = net.graph(last), parameters(net.params)
    assert targets_that_choose("prelu", graph, given) == CPUS
    good_prelu = replace(Target.builtin("cpu-bf16"), rewrites=())
    assert prepare_graph(graph, given, Policy.default(BF16), target=good_prelu).graph is graph


def values_on_edges(layers: int, size: int = 8) -> np.ndarray:
    """Return images with infinities, zeros of both signs and subnormal numbers among them."""
    draw = np.random.default_rng(3)
    data = draw.normal(0, 3, (2, layers, size, size)).astype(np.float32)
    special = np.array([np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 3e38, -3e38], np.float32)
    return np.where(draw.random(data.shape) < 0.3, draw.choice(special, data.shape), data)


@pytest.mark.parametrize("backend", ["NONE", "MKLDNN"])
@pytest.mark.parametrize("behind", ["nothing", "relu and output"])
def test_mxnet_computes_the_same_values(monkeypatch: pytest.MonkeyPatch, backend: str, behind: str) -> None:
    mx = pytest.importorskip("mxnet", reason="both graphs are executed")
    from mxamp.runtime.symbol import symbol_from_graph

    # A depthwise layer of ones hands the data on as it is, so that every edge reaches the PReLU.
    net = Net()
    ones = net.param("ones", 16, 1, 1, 1, value=1.0)
    layer = net.op(
        "Convolution",
        net.var("data"),
        ones,
        name="conv",
        kernel="(1, 1)",
        num_filter=16,
        num_group=16,
        no_bias=True,
    )
    gamma = net.param("gamma", 16)
    net.params["gamma"] = np.array(SLOPES, np.float32)
    heads = [net.op("LeakyReLU", layer, gamma, name="p", act_type="prelu")]
    if behind != "nothing":
        heads = [net.op("Activation", heads[0], name="relu", act_type="relu"), layer, heads[0]]
    graph = net.graph(*heads)
    done = prepare_graph(graph, parameters(net.params), Policy.default(BF16), ["prelu", "keep_branches"])
    assert not lost_branches(done.graph)
    data = values_on_edges(16)
    results = []
    for each, given, how in ((graph, parameters(net.params), "NONE"), (done.graph, done.params, backend)):
        monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", how)
        arrays = {name: mx.nd.array(value.values()) for name, value in given.items()}
        bound = symbol_from_graph(each).bind(mx.cpu(), {**arrays, "data": mx.nd.array(data)})
        results.append([output.asnumpy() for output in bound.forward()])
    # Zeros are equal whatever their sign. 0 times an infinity is NaN, which Activation makes 0.
    known = ~(np.isinf(data) & (np.abs(np.array(SLOPES, np.float32)).reshape(1, 16, 1, 1) == 0))
    assert known.mean() > 0.9
    for expected, found in zip(*results):
        np.testing.assert_array_equal(found[known], expected[known])


def test_it_converts_and_the_report_says_so() -> None:
    pytest.importorskip("mxnet", reason="runs the model")
    from mxamp.runtime.executor import run_outputs

    net, last = network()
    graph = net.graph(last)
    data = {"data": np.random.default_rng(5).normal(0, 1, (1, 3, 9, 9)).astype(np.float32)}
    converted = mxamp.convert_model(graph, net.params, {}, "bfloat16", target="cpu-bf16")
    report = converted.report
    assert report is not None
    assert report.node("p").compute == "bfloat16"
    assert "1 PReLU written as depthwise convolutions: p." in str(report)
    stored = {each.name: dict(each.stored) for each in report.parameters}
    assert stored["gamma"] == {"p_slope": "bfloat16"}
    (expected,), (found,) = (
        run_outputs(model, data) for model in (Model.of(graph, net.params, {}), converted)
    )
    assert np.linalg.norm(found - expected) < 2**-7 * np.linalg.norm(expected)
