"""Which nodes certainly hand on values, where axes of length 0 exist."""

from __future__ import annotations

from typing import Any

import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import State
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters

KERNEL = {"kernel": "(1, 1)"}
POOLING: dict[str, tuple[dict[str, Any], bool]] = {
    "the largest": ({**KERNEL, "pool_type": "max"}, True),
    "means": ({**KERNEL, "pool_type": "avg"}, True),
    "means to the end": ({**KERNEL, "pool_type": "avg", "pooling_convention": "full"}, False),
    "the largest to the end": ({**KERNEL, "pool_type": "max", "pooling_convention": "full"}, True),
    "sums, in a loop of MXNet's": ({**KERNEL, "pool_type": "sum"}, False),
    "channels last, in a loop of MXNet's": ({**KERNEL, "layout": "NHWC"}, False),
    "all, with a kernel of no axes": ({"global_pool": True, "kernel": "()"}, False),
    "all, without a kernel, in a loop of MXNet's": ({"global_pool": True}, False),
}


def is_never_empty(net: Net, entry: Entry, data: tuple[int, ...] | None = None) -> bool:
    graph = net.graph(net.op("exp", entry))
    graph = Graph(graph.nodes, graph.heads, {**graph.attrs, "is_np_shape": ["int", 1]})
    shapes = None if data is None else [(data if node.name == "x" else None,) for node in graph.nodes]
    state = State.of(
        graph, parameters(net.params), Policy.default(BF16), Target.builtin("cpu-bf16"), shapes=shapes
    )
    return entry.node in state.never_empty


@pytest.mark.parametrize("case", POOLING)
def test_pooling_with_a_kernel_of_onednns_raises_where_nothing_is_pooled(case: str) -> None:
    attrs, raises = POOLING[case]
    net = Net()
    assert is_never_empty(net, net.op("Pooling", net.var("x", __dtype__="0"), **attrs)) is raises


@pytest.mark.parametrize(("dtype", "raises"), [("0", True), ("1", False)], ids=["float32", "float64"])
@pytest.mark.parametrize("layer", ["conv", "fc"])
def test_layers_raise_in_float32(layer: str, dtype: str, raises: bool) -> None:
    net = Net()
    data = net.var("x", __dtype__=dtype)
    made = getattr(net, layer)(data)
    if dtype == "1":
        net.params = {name: values.astype("float64") for name, values in net.params.items()}
    assert is_never_empty(net, made, (1, 4) if layer == "fc" else None) is raises


@pytest.mark.parametrize("data", [None, (1, 2, 2), (1, 4, 1, 1)])
def test_a_layer_of_other_axes_may_be_of_nothing(data: tuple[int, ...] | None) -> None:
    net = Net()
    assert not is_never_empty(net, net.fc(net.var("x", __dtype__="0")), data)


def test_an_input_may_be_empty() -> None:
    net = Net()
    assert not is_never_empty(net, net.op("tanh", net.var("x", __dtype__="0")))
