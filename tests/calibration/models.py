"""A small model for calibrations, and what it computes, in NumPy."""

from __future__ import annotations

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
