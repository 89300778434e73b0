"""What reads parameters alone is computed once, at conversion: in memory, and part by part in files."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.dtypes import DType
from mxamp.graph import Graph
from mxamp.model import Model, load
from mxamp.params.on_disk import JoinedParameter
from mxamp.params.parameter import ArrayParameter
from mxamp.passes import FoldConstants, fold_constants
from mxamp.policy import Policy
from tests.building import BF16, F16, Net, convert, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import prepared


def recurrent(size: int = 2) -> tuple[Net, Graph]:
    """Return a network with the weights that Gluon's recurrent layers join in every forward pass."""
    net = Net()
    shapes = {"i2h": (4 * size, 3), "h2h": (4 * size, size), "i2h_bias": (4 * size,), "h2h_bias": (4 * size,)}
    flat = [
        net.op("Reshape", net.param(name, *shape), name=f"{name}_flat", shape="-1")
        for name, shape in shapes.items()
    ]
    joined = net.op("_rnn_param_concat", *flat, name="all", dim=0, num_args=4)
    states = [
        net.op("_zeros", name=f"state{number}", shape=f"(1, 0, {size})", dtype="float32")
        for number in range(2)
    ]
    attrs = {"mode": "lstm", "num_layers": 1, "state_size": size, "state_outputs": False}
    return net, net.graph(net.op("RNN", net.var("data"), joined, *states, name="rnn", **attrs))


def joined_by_hand(net: Net) -> np.ndarray[Any, Any]:
    return np.concatenate([values.reshape(-1) for values in net.params.values()])


def test_the_weights_of_a_recurrent_layer_are_joined_once() -> None:
    net, graph = recurrent()
    after, done = prepared(FoldConstants, graph, net.params)
    assert [node.name for node in after.nodes] == ["all", "state0", "state1", "data", "rnn"]
    assert list(done.params) == ["all"]
    np.testing.assert_array_equal(done.params["all"].values(), joined_by_hand(net))
    assert [(change.node, change.into) for change in done.changes] == [
        *((f"{name}_flat", "all") for name in net.params),
        ("all", "all"),
    ]


def test_constants_of_one_name_become_parameters_of_two() -> None:
    """MXNet lets operators share a name, and an operator that of an input; parameters may not."""
    net = Net()
    joined = [
        net.op("Concat", net.param(f"{name}1", 1, 2), net.param(f"{name}2", 1, 2), name="all", dim=0)
        for name in ("a", "b")
    ]
    x = net.op("exp", net.var("x"), name="exp")
    shift = net.op("negative", net.param("c", 2, 2, value=3.0), name="x")
    total = net.op("add_n", x, *joined, shift, name="total", num_args=4)
    after, done = prepared(FoldConstants, net.graph(total), net.params, inserted=("all_1", "x_1"))
    assert sorted(node.name for node in after.nodes) == ["all", "all_1", "exp", "total", "x", "x_1"]
    for name, part in (("all", "a"), ("all_1", "b")):
        by_hand = np.concatenate([net.params[f"{part}{number}"] for number in (1, 2)])
        np.testing.assert_array_equal(done.params[name].values(), by_hand)
    np.testing.assert_array_equal(done.params["x_1"].values(), np.full((2, 2), -3.0))
    assert [change.into for change in done.changes] == ["all", "all_1", "x_1"]


@pytest.mark.parametrize("route", ["arrays", "file", "graph"])
def test_every_kind_of_model_is_folded(route: str, tmp_path: Path) -> None:
    net, graph = recurrent()
    model: Any = Model.of(graph, net.params, {})
    if route == "file":
        model.save(tmp_path / "net")
        model = load(tmp_path / "net")
    if route == "arrays":
        found = mxamp.convert_model(graph, net.params, {}, "bfloat16", target="cpu-bf16")
    else:
        found = mxamp.convert_model(
            model.graph, model.arg_params, model.aux_params, "bfloat16", target="cpu-bf16"
        )
    found.save(tmp_path / "out")
    out = load(tmp_path / "out")
    assert list(out.arg_params) == ["all"]
    np.testing.assert_array_equal(out.arg_params["all"].values(), joined_by_hand(net))
    assert list(net.params) == ["i2h", "h2h", "i2h_bias", "h2h_bias"]
    report = found.report
    assert report is not None
    assert "5 nodes of parameters alone computed now: i2h_flat, h2h_flat, i2h_bias_flat and 2" in " ".join(
        str(report).split()
    )
    assert [node.name for node in report.nodes] == [n.name for n in graph.nodes if not n.is_variable]
    assert report.node("i2h_flat").name_after == "all"
    assert {each.name: dict(each.stored) for each in report.parameters} == {
        name: {"all": "float32"} for name in net.params
    }
    assert sum(each.bytes_after for each in report.parameters) == joined_by_hand(net).nbytes
    assert mxamp.verify(tmp_path / "out")


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_it_is_computed_in_float32_and_rounded_once(dtype: DType) -> None:
    net = Net()
    data, weight = net.var("data"), net.param("weight", 4, 3)
    tripled = net.op("_mul_scalar", net.op("transpose", weight, name="turned"), name="tripled", scalar="3")
    tripled = net.op("Reshape", tripled, name="weights", shape="(4, 3)")
    graph = net.graph(
        net.op("FullyConnected", data, tripled, name="fc", num_hidden=4, no_bias=True), net.op("exp", data)
    )
    model = convert(graph, net.params, dtype, prepare=["fold_constants"])
    stored = model.arg_params["weights"]
    assert stored.dtype is dtype
    expected = (net.params["weight"].T * np.float32(3)).reshape(4, 3).astype(dtype.numpy)
    np.testing.assert_array_equal(np.asarray(stored.values()).view(np.uint16), expected.view(np.uint16))
    # A fold of a fold: nothing is left to do in the result.
    again = convert(model.graph, {"weights": stored.numpy()}, dtype, prepare=["fold_constants"])
    assert again.report is not None
    assert not again.report.preparations


def test_constants_that_it_reads_go_too_and_others_stay() -> None:
    net = Net()
    weight = net.param("weight", 4)
    one = net.op("_ones", name="one", shape="(4,)")
    both = net.op("_full", name="both", shape="(4,)", value="2")
    total = net.op("elemwise_add", net.op("elemwise_mul", weight, one, name="once"), both, name="total")
    graph = net.graph(
        net.op("broadcast_add", net.var("data"), total, name="y"),
        net.op("broadcast_mul", net.var("other"), both, name="z"),
    )
    after, done = prepared(FoldConstants, graph, net.params)
    assert [node.name for node in after.nodes] == ["both", "total", "data", "y", "other", "z"]
    np.testing.assert_array_equal(done.params["total"].values(), net.params["weight"] + np.float32(2))


def refused(case: str) -> tuple[Net, Graph, Policy | None]:
    net, policy = Net(), None
    data, weight = net.var("data"), net.param("weight", 1, 4)
    if case == "no bits are known":
        value = net.op("exp", weight, name="value")
    elif case == "positions":
        value = net.op(
            "broadcast_add", weight, net.op("_arange", name="order", start=0, stop=4), name="value"
        )
    elif case == "nothing but constants":
        value = net.op("Reshape", net.op("_ones", shape="(4,)"), name="value", shape="(1, 4)")
    elif case == "an input":
        value = net.op("broadcast_mul", data, weight, name="value")
    elif case == "a cast of the user's":
        value = net.op("Cast", weight, name="value", dtype="float16")
    elif case == "much larger":
        value = net.op("tile", weight, name="value", reps="(8000, 1)")
    elif case == "a rule":
        value = net.op("negative", weight, name="value")
        policy = Policy.default(BF16).excluding(names=["value"])
    else:
        assert case == "an output"
        return net, net.graph(net.op("negative", weight, name="value"), net.op("exp", data)), None
    return net, net.graph(net.op("broadcast_add", data, value, name="y")), policy


@pytest.mark.parametrize(
    "case",
    [
        "no bits are known",
        "positions",
        "nothing but constants",
        "an input",
        "a cast of the user's",
        "much larger",
        "a rule",
        "an output",
    ],
)
def test_refuses(case: str) -> None:
    net, graph, policy = refused(case)
    assert prepared(FoldConstants, graph, net.params, policy)[0] is graph


def test_what_an_output_reads_is_folded_though_it_is_not() -> None:
    net = Net()
    turned = net.op("transpose", net.param("weight", 2, 3), name="turned")
    graph = net.graph(net.op("negative", turned, name="y"))
    after, _ = prepared(FoldConstants, graph, net.params)
    assert [node.name for node in after.nodes] == ["turned", "y"]


def test_what_the_caller_owns_is_copied() -> None:
    net = Net()
    flat = net.op("Reshape", net.param("weight", 2, 3), name="flat", shape="-1")
    graph = net.graph(net.op("broadcast_add", net.var("data"), flat, name="y"))
    _, done = prepared(FoldConstants, graph, net.params)
    before = net.params["weight"].copy()
    net.params["weight"][:] = 0
    np.testing.assert_array_equal(done.params["flat"].values(), before.reshape(-1))


def test_files_are_joined_part_by_part_and_other_results_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, graph = recurrent(size=900)  # 6.5 MB
    turned = net.op("transpose", net.param("weight", 1000, 1000), name="turned")
    graph = net.graph(*graph.heads, net.op("broadcast_add", net.var("other"), turned, name="y"))
    Model.of(graph, net.params, {}).save(tmp_path / "net")
    monkeypatch.setattr(fold_constants, "IN_MEMORY", 1 << 20)  # turned needs twice as much
    model = load(tmp_path / "net")
    tracemalloc.start()
    found = mxamp.convert_model(
        model.graph, model.arg_params, model.aux_params, "bfloat16", target="cpu-bf16"
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000, "the parameters were read"
    joined = found.arg_params["all"]
    assert isinstance(joined, JoinedParameter)
    assert "turned" not in found.arg_params
    del net.params["weight"]
    np.testing.assert_array_equal(joined.values(), joined_by_hand(net))
    for start, stop in ((0, 5), (10_790, 10_811), (4 * 900 * 903 - 1, 4 * 900 * 903 + 3)):
        np.testing.assert_array_equal(joined.part(start, stop), joined_by_hand(net)[start:stop])
    restored = pickle.loads(pickle.dumps(joined))
    assert isinstance(restored, ArrayParameter)
    np.testing.assert_array_equal(restored.values(), joined_by_hand(net))


def test_the_range_of_joined_tensors_is_that_of_all() -> None:
    small, large = np.full(3, 1e-9, np.float32), np.array([[1.0, 7e4]], np.float32)
    joined = JoinedParameter([ArrayParameter(small), ArrayParameter(large)], (5,))
    whole = ArrayParameter(np.concatenate([small, large.reshape(-1)]))
    assert joined.magnitude_bound >= 7e4
    assert joined.range_loss(F16) == whole.range_loss(F16)
    assert joined.range_loss(BF16) is None
    assert not joined.is_on_disk


def test_mxnet_computes_the_same_bits() -> None:
    pytest.importorskip("mxnet", reason="runs the model")
    from mxamp.runtime.executor import run_outputs

    net, graph = recurrent()
    after, done = prepared(FoldConstants, graph, net.params)
    data = {"data": np.random.default_rng(1).normal(0, 1, (5, 2, 3)).astype(np.float32)}
    folded = {name: value.values() for name, value in done.params.items()}
    (expected,), (found,) = (
        run_outputs(Model.of(each, arrays, {}), data)
        for each, arrays in ((graph, net.params), (after, folded))
    )
    np.testing.assert_array_equal(found, expected)


def test_a_recurrent_block_is_folded() -> None:
    mx = pytest.importorskip("mxnet", reason="converts a Gluon block")
    block = mx.gluon.rnn.LSTM(4, 2)
    block.initialize(mx.init.Uniform(0.5))
    block.hybridize()
    data = mx.nd.random.normal(shape=(5, 2, 3))
    expected = block(data).asnumpy()
    converted = mxamp.convert_block(block, "bfloat16", input_shapes=[(5, 2, 3)], target="cpu-bf16")
    assert not any(node.op == "_rnn_param_concat" for node in converted.model.graph.nodes)
    np.testing.assert_array_equal(converted(data).asnumpy(), expected)
    assert np.abs(expected).max() > 0.01


def normalized_weight(net: Net, kind: str) -> Any:
    """Return what makes a layer's weight, of 6 filters of 4 channels, anew in every forward pass."""
    v = net.param("v", 6, 4, 3, 3)
    if kind == "weight norm":
        rows = net.op("Reshape", v, shape="(0, -1)")
        norm = net.op("norm", rows, axis="1", keepdims=True)
        unit = net.op("broadcast_div", v, net.op("Reshape", norm, shape="(-1, 1, 1, 1)"))
        return net.op("broadcast_mul", net.param("g", 6, 1, 1, 1), unit)
    if kind == "spectral norm":
        left = net.op("dot", net.param("u", 1, 6), net.op("Reshape", v, shape="(0, -1)"))
        sigma = net.op("dot", left, net.param("w", 1, 36), transpose_b=True)
        return net.op("broadcast_div", v, net.op("Reshape", sigma, shape="(1, 1, 1, 1)"))
    over = {"axis": "(1, 2, 3)", "keepdims": True}
    centered = net.op("broadcast_sub", v, net.op("mean", v, **over))
    variance = net.op("mean", net.op("square", centered), **over)
    return net.op("broadcast_mul", centered, net.op("rsqrt", net.op("_plus_scalar", variance, scalar=1e-5)))


@pytest.mark.parametrize("kind", ["weight norm", "spectral norm", "weight standardization"])
def test_normalized_weights_become_what_they_are(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    weight = normalized_weight(net, kind)
    attrs = {"kernel": "(3, 3)", "num_filter": 6, "no_bias": True}
    graph = net.graph(net.op("Convolution", net.var("data"), weight, name="layer", **attrs))
    after, done = prepared(FoldConstants, graph, net.params)
    assert [node.op for node in after.nodes] == ["null", "null", "Convolution"]
    (made,) = done.params.values()
    v = net.params["v"].astype(np.float64)
    if kind == "weight norm":
        expected = net.params["g"] * v / np.sqrt((v**2).sum((1, 2, 3), keepdims=True))
    elif kind == "spectral norm":
        expected = v / (net.params["u"].astype(np.float64) @ v.reshape(6, -1) @ net.params["w"].T).item()
    else:
        apart = v - v.mean((1, 2, 3), keepdims=True)
        expected = apart / np.sqrt((apart**2).mean((1, 2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(made.values(), expected, rtol=1e-6, atol=1e-7)
    pytest.importorskip("mxnet", reason="MXNet computes the same")
    data = {"data": np.random.default_rng(0).standard_normal((1, 4, 9, 9)).astype(np.float32)}
    (theirs,) = outputs(monkeypatch, graph, parameters(net.params), data)
    (ours,) = outputs(monkeypatch, after, done.params, data)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6 * np.abs(theirs).max())


def noisy(size: int, *, summed: bool) -> tuple[Net, Graph]:
    """Return a layer whose weight is a mean and noise, a product of two vectors (NoisyNet)."""
    net = Net()
    noise = net.op("broadcast_mul", net.param("out", size, 1), net.param("in", 1, size), name="noise")
    weight = net.op("elemwise_add", net.param("mean", size, size), noise, name="weight") if summed else noise
    return net, net.graph(
        net.op("FullyConnected", net.var("data"), weight, name="layer", num_hidden=size, no_bias=True)
    )


def test_what_is_large_on_the_way_alone_is_computed() -> None:
    net, graph = noisy(200, summed=True)
    after, done = prepared(FoldConstants, graph, net.params)
    assert {node.name for node in after.nodes} == {"data", "weight", "layer"}
    expected = net.params["mean"] + net.params["out"] * net.params["in"]
    np.testing.assert_array_equal(done.params["weight"].values(), expected)
    # As a weight it would be a hundred times what it is made of.
    net, graph = noisy(200, summed=False)
    assert prepared(FoldConstants, graph, net.params)[0] is graph
