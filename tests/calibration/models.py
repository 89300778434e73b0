"""Models for calibrations: a small one, and one with every kind of layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxamp.model import Model
from tests.building import Net, parameters


def small_model() -> Model:
    """Convolution, BatchNorm, relu, a depthwise convolution, pooling, and a layer at the end."""
    net = Net()
    x = net.op("Activation", net.bn(net.conv(net.var("data"), "conv0"), "bn0"), name="relu0", act_type="relu")
    weight = net.param("conv1_weight", 4, 1, 3, 3)
    x = net.op(
        "Convolution", x, weight, name="conv1", num_filter=4, kernel="(3, 3)", num_group=4, no_bias=True
    )
    x = net.op("Pooling", x, name="pool0", kernel="(1, 1)", global_pool=True, pool_type="avg")
    weight, bias = net.param("fc0_weight", 3, 4), net.param("fc0_bias", 3)
    graph = net.graph(net.op("FullyConnected", x, weight, bias, name="fc0", num_hidden=3))
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    args = {name: value for name, value in net.params.items() if name not in auxs}
    return Model(graph, parameters(args), parameters(auxs))


def deep_model(seed: int = 0, channels: int = 20) -> Model:
    """Convolutions, BatchNorms, a depthwise and a transposed one, and two layers of matrices."""
    random = np.random.default_rng(seed)
    net = Net()

    def parameter(name: str, *shape: int) -> Any:
        entry = net.param(name, *shape)
        scale = np.sqrt(2.0 / max(np.prod(shape[1:]), 1))
        net.params[name] = (scale * random.standard_normal(shape)).astype(np.float32)
        return entry

    def norm(x: Any, name: str) -> Any:
        values = {
            "gamma": random.uniform(0.5, 1.5, channels),
            "beta": random.normal(0, 0.3, channels),
            "moving_mean": random.normal(0, 0.3, channels),
            "moving_var": random.uniform(0.5, 2, channels),
        }
        entries = []
        for part, given in values.items():
            entries.append(net.param(f"{name}_{part}", channels))
            net.params[f"{name}_{part}"] = given.astype(np.float32)
        return net.op("BatchNorm", x, *entries, name=name, outputs=3, fix_gamma=False)

    def convolution(x: Any, name: str, reads: int, op: str = "Convolution", **attrs: Any) -> Any:
        shape = (channels, reads, 3, 3)
        return net.op(
            op,
            x,
            parameter(f"{name}_weight", *shape),
            name=name,
            kernel="(3, 3)",
            num_filter=channels,
            no_bias=True,
            **attrs,
        )

    def relu(x: Any, name: str) -> Any:
        return net.op("Activation", x, name=name, act_type="relu")

    x = relu(norm(convolution(net.var("data"), "conv0", 4, pad="(1, 1)"), "bn0"), "relu0")
    x = relu(norm(convolution(x, "conv1", 1, pad="(1, 1)", num_group=channels), "bn1"), "relu1")
    x = relu(norm(convolution(x, "conv2", channels, pad="(1, 1)"), "bn2"), "relu2")
    x = relu(convolution(x, "up0", channels, "Deconvolution", stride="(2, 2)"), "relu3")
    x = net.op("Pooling", x, name="pool0", kernel="(1, 1)", global_pool=True, pool_type="avg")
    hidden = net.op(
        "FullyConnected",
        x,
        parameter("fc0_weight", 16, channels),
        parameter("fc0_bias", 16),
        name="fc0",
        num_hidden=16,
    )
    out = net.op("dot", relu(hidden, "relu4"), parameter("dot0_weight", 16, 5), name="dot0")
    graph = net.graph(out)
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    args = {name: value for name, value in net.params.items() if name not in auxs}
    return Model(graph, parameters(args), parameters(auxs))
