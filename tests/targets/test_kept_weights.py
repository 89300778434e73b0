"""Layers whose weights fusion keeps, though the graph computes them anew."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.graph import Entry
from mxamp.targets.kept_weights import layers_of_computed_weights
from tests.building import Net, parameters

NOTE = "keeps the weights of"


def dense(net: Net, data: Entry, weight: Entry) -> Entry:
    return net.op("FullyConnected", data, weight, name="layer", num_hidden=4, no_bias=True)


def convolved(net: Net, data: Entry, weight: Entry, kernel: str = "(1, 1)") -> Entry:
    return net.op("Convolution", data, weight, name="layer", num_filter=4, kernel=kernel, no_bias=True)


@pytest.mark.parametrize("make", [dense, convolved])
def test_what_depends_on_an_input_is_kept(make: Any) -> None:
    net = Net()
    weight = net.op("Reshape", net.op("tanh", net.fc(net.var("other"), "hyper")), shape="(4, -1)")
    graph = net.graph(make(net, net.var("x"), weight))
    names = [graph.nodes[position].name for position in layers_of_computed_weights(graph, net.params)]
    assert names == ["layer"]


@pytest.mark.parametrize("how", ["noise", "noise of its shape", "a Dropout that stays"])
def test_what_is_drawn_anew_is_kept(how: str) -> None:
    net = Net()
    mean = net.param("mean", 4, 4)
    if how == "a Dropout that stays":
        weight = net.op("Dropout", mean, mode="always")
    elif how == "noise":
        weight = net.op("elemwise_add", mean, net.op("_random_normal", shape="(4, 4)"))
    else:
        weight = net.op("elemwise_add", mean, net.op("_random_normal_like", mean))
    graph = net.graph(dense(net, net.var("x"), weight))
    assert layers_of_computed_weights(graph, net.params) == [len(graph.nodes) - 1]


@pytest.mark.parametrize(
    "case", ["a parameter", "of a parameter alone", "a Dropout", "of a shape alone", "a sequence", "a bias"]
)
def test_what_does_not_or_is_not_fused_is_not(case: str) -> None:
    net = Net()
    stored, fed = net.param("weight", 4, 4), net.var("fed")
    if case == "a parameter":
        layer = dense(net, fed, stored)
    elif case == "of a parameter alone":
        layer = dense(net, fed, net.op("tanh", stored))
    elif case == "a Dropout":
        layer = dense(net, fed, net.op("Dropout", stored))
    elif case == "of a shape alone":
        places = net.op("max", net.op("_contrib_arange_like", fed, axis=0), keepdims=True)
        layer = dense(net, fed, net.op("broadcast_mul", stored, net.op("slice_like", places, fed)))
    elif case == "a sequence":
        layer = convolved(net, net.var("x"), net.op("tanh", fed), kernel="(3,)")
    else:
        layer = net.op("FullyConnected", net.var("x"), stored, net.op("tanh", fed), num_hidden=4)
    assert not layers_of_computed_weights(net.graph(layer), net.params)


def test_a_conversion_warns_of_it() -> None:
    net = Net()
    graph = net.graph(dense(net, net.fc(net.var("x"), "first"), net.op("tanh", net.var("fed"))))
    for target, is_told in (("cpu-bf16", True), ("cuda-fp16", False)):
        dtype = "bfloat16" if is_told else "float16"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = mxamp.convert_model(graph, parameters(net.params), {}, dtype, target=target)
        assert any(NOTE in str(warning.message) for warning in caught) is is_told
        assert model.report is not None
        assert any(NOTE in text for text in model.report.warnings) is is_told


@pytest.mark.parametrize("kind", ["dense", "convolution"])
def test_a_converted_block_computes_every_call_with_its_own_weights(kind: str) -> None:
    mx = pytest.importorskip("mxnet", reason="graphs are executed")

    class Hyper(mx.gluon.HybridBlock):  # type: ignore[misc]
        """One network makes the weights of another."""

        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.made = mx.gluon.nn.Dense(64, in_units=6)

        def hybrid_forward(self, api: Any, x: Any, other: Any) -> Any:
            weight = api.tanh(self.made(other))
            if kind == "dense":
                return api.FullyConnected(x, api.reshape(weight, (8, 8)), no_bias=True, num_hidden=8)
            filters = api.reshape(weight, (8, 8, 1, 1))
            images = api.reshape(x, (1, 8, -1, 1))
            return api.Activation(
                api.Convolution(images, filters, no_bias=True, num_filter=8, kernel=(1, 1)), act_type="relu"
            )

    net = Hyper()
    net.initialize(mx.init.Normal(0.5))
    low = mxamp.convert_block(net, "bfloat16", target="cpu-bf16-avx2", input_shapes=[(3, 8), (1, 6)])
    for seed in range(3):
        random = np.random.default_rng(seed)
        given = [mx.nd.array(random.normal(size=shape)) for shape in ((3, 8), (1, 6))]
        np.testing.assert_allclose(low(*given).asnumpy(), net(*given).asnumpy(), rtol=1e-4, atol=1e-5)


def test_a_converted_block_draws_its_weights_anew_in_every_call() -> None:
    mx = pytest.importorskip("mxnet", reason="graphs are executed")

    class Bayesian(mx.gluon.HybridBlock):  # type: ignore[misc]
        """Its weights are noise around a mean."""

        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.mean = self.params.get("mean", shape=(8, 8))

        def hybrid_forward(self, api: Any, x: Any, mean: Any) -> Any:
            weight = mean + api.random.normal(shape=(8, 8))
            return api.FullyConnected(x, weight, no_bias=True, num_hidden=8)

    net = Bayesian()
    net.initialize(mx.init.Normal(0.5))
    low = mxamp.convert_block(net, "bfloat16", target="cpu-bf16-avx2", input_shapes=[(3, 8)])
    called = [low(mx.nd.ones((3, 8))).asnumpy() for _ in range(3)]
    assert np.abs(called[1] - called[2]).max() > 0.1


@pytest.mark.parametrize("ready", ["as it comes", "with another shape each time"])
def test_a_block_that_resizes_is_fused_and_right_when_sizes_change(ready: str) -> None:
    mx = pytest.importorskip("mxnet", reason="graphs are executed")

    class Segmentation(mx.gluon.HybridBlock):  # type: ignore[misc]
        """Its resize is two products with matrices of positions, which no call but a new size changes."""

        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.layer = mx.gluon.nn.Conv2D(19, 1, in_channels=3)

        def hybrid_forward(self, api: Any, x: Any) -> Any:
            return api.contrib.BilinearResize2D(self.layer(x), height=96, width=96)

    net = Segmentation()
    net.initialize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        low = mxamp.convert_block(net, "bfloat16", target="cpu-bf16-avx2", input_shapes=[(1, 3, 24, 24)])
    assert not any(NOTE in str(warning.message) for warning in caught)
    assert [change.node for change in low.report.preparations if change.step == "bilinear_resize"]
    if ready != "as it comes":
        low.hybridize(backend="MKLDNN", static_alloc=True, static_shape=False)
    random = np.random.default_rng(0)
    for size in (24, 24, 31, 31, 24, 40):
        given = mx.nd.array(random.normal(size=(1, 3, size, size)))
        expected = net(given).asnumpy()
        np.testing.assert_allclose(low(given).asnumpy(), expected, atol=1e-5 * np.abs(expected).max())
