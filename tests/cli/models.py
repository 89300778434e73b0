"""A model for the command line."""

from __future__ import annotations

from mxamp.model import Model
from tests.building import Net, parameters


def small_model() -> Model:
    """Two convolutions around a BatchNorm, and exp, which stays in float32."""
    net = Net()
    relu = net.op("Activation", net.conv(net.var("data"), "conv0"), name="relu0", act_type="relu")
    # Behind the activation, where it cannot be folded into the convolution.
    second = net.conv(net.bn(relu, "bn0"), "conv1")
    graph = net.graph(net.op("exp", second, name="exp0"))
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    args = {name: value for name, value in net.params.items() if name not in auxs}
    return Model(graph, parameters(args), parameters(auxs))
