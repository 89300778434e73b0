"""A network for faces, in which one BatchNorm follows a single pixel."""

from __future__ import annotations

from typing import Any

from mxamp.graph import Entry, Graph
from mxamp.model import Model
from tests.building import Net, parameters

CHANNELS = 32
PIXELS = (2, CHANNELS, 5, 5)


def norm(net: Net, data: Entry, name: str, **attrs: Any) -> Entry:
    values = [
        net.param(f"{name}_{part}", CHANNELS, value=value)
        for part, value in (("gamma", 1.5), ("beta", 0.25), ("moving_mean", 0.5), ("moving_var", 2.0))
    ]
    return net.op("BatchNorm", data, *values, name=name, outputs=3, fix_gamma=False, **attrs)


def face_network(kernel: int = 5) -> tuple[Net, Graph]:
    """Return the end of a MobileFaceNet whose embedding is as wide as its last convolution."""
    net = Net()
    weight = net.param("conv_weight", CHANNELS, 1, kernel, kernel)
    pixel = net.op(
        "Convolution",
        net.var("data"),
        weight,
        name="conv",
        num_filter=CHANNELS,
        num_group=CHANNELS,
        kernel=(kernel, kernel),
        no_bias=True,
    )
    flat = net.op("Flatten", norm(net, pixel, "conv_bn"), name="flat")
    weight = net.param("fc_weight", CHANNELS, CHANNELS * (6 - kernel) ** 2)
    dense = net.op("FullyConnected", flat, weight, name="fc", num_hidden=CHANNELS, no_bias=True)
    return net, net.graph(norm(net, dense, "fc_bn"))


def model_of(net: Net, graph: Graph) -> Model:
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    args = {name: value for name, value in net.params.items() if name not in auxs}
    return Model(graph, parameters(args), parameters(auxs))
