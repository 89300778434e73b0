"""What lies in the order of a layer of volumes MXNet cannot bring into every other."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.graph import Entry
from mxamp.passes.volumes import of_volumes
from tests.building import Net


@pytest.mark.parametrize(("kernel", "is_volume"), [("(1, 1, 1)", True), ("(1, 1)", False)])
def test_shapes_and_activations_hand_on_the_order(kernel: str, is_volume: bool) -> None:
    net = Net()
    made = net.op("Pooling", net.var("x"), kernel=kernel)
    flat = net.op("Flatten", net.op("tanh", made))
    plain = net.op("softmax", flat)
    found = of_volumes(net.graph(net.op("exp", plain)))
    assert [entry.node in found for entry in (made, flat, plain)] == [is_volume, is_volume, False]


@pytest.mark.parametrize("layer", ["Convolution", "exp"])
def test_mxnet_raises(layer: str) -> None:
    """So it is known that a version of MXNet can do it."""
    mx = pytest.importorskip("mxnet", reason="runs the graph")
    net = Net()
    x = net.var("x")
    y: Entry = net.op("exp", x)
    if layer == "Convolution":
        weight = net.param("weight", 16, 16, 1, 1, 1)
        y = net.op(layer, x, weight, num_filter=16, kernel="(1, 1, 1)", no_bias=True)
    from mxamp.runtime.symbol import symbol_from_graph

    symbol = symbol_from_graph(net.graph(net.op("transpose", net.op("Flatten", y))))
    values = {**net.params, "x": np.ones((2, 16, 4, 4, 4), np.float32)}
    bound = symbol.bind(mx.cpu(), {name: mx.nd.array(values[name]) for name in symbol.list_arguments()})
    if layer == "exp":
        assert bound.forward()[0].asnumpy().shape == (1024, 2)
    else:
        with pytest.raises(mx.base.MXNetError, match="reorder primitive"):
            bound.forward()[0].asnumpy()
