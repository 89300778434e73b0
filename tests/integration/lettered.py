"""Models that a letter tells apart."""

from __future__ import annotations

import numpy as np

from mxamp.model import Model
from tests.building import Net, parameters


def model(letter):
    """Return one of two models that a mix of would load: the names agree, the weights and a scale do not."""
    net = Net()
    value = float(ord(letter))
    hidden = net.fc(net.var("data"), "fc0")
    graph = net.graph(net.op("_mul_scalar", hidden, name="scaled", scalar=value))
    return Model(
        graph, parameters({name: np.full_like(array, value) for name, array in net.params.items()}), {}
    )


def letter_of(graph, args):
    """Return which model a pair of files is; a mix is none."""
    scalar = next(node.attrs["scalar"] for node in graph.nodes if node.name == "scaled")
    values = {float(value) for name in args for value in args[name].reshape(-1)}
    assert values == {float(scalar)}, "a mix of two models"
    return chr(int(float(scalar)))
