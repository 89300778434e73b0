"""A conversion takes as long as its graph has nodes: twice as many, twice the calls. Nothing is timed."""

from __future__ import annotations

import sys
from typing import Any, Callable

import pytest

import mxamp
from mxamp.graph import Entry
from mxamp.targets import Target
from tests.building import Net

NODES = 200
MOST = 2.15
"""Of twice the nodes; what a conversion does once makes it less than two, tables that grow a little more."""

Grown = Callable[[int], "tuple[Net, Entry]"]


def _layer(net: Net, x: Entry, name: str, *, filters: int = 16, channels: int = 16) -> Entry:
    weight = net.param(f"{name}_weight", filters, channels, 1, 1)
    return net.op("Convolution", x, weight, name=name, kernel="(1, 1)", num_filter=filters, no_bias=True)


def layers(nodes: int) -> tuple[Net, Entry]:
    net = Net()
    x = net.var("data")
    for number in range(nodes // 2):
        x = net.op("Activation", _layer(net, x, f"layer{number}"), act_type="relu")
    return net, x


def poolings(nodes: int) -> tuple[Net, Entry]:
    net = Net()
    x = _layer(net, net.var("data"), "layer")
    for _ in range(nodes):
        x = net.op("Pooling", x, kernel="(3, 3)", pad="(1, 1)", pool_type="max")
    return net, x


def maxima_along_a_sum(nodes: int) -> tuple[Net, Entry]:
    net = Net()
    total = x = _layer(net, net.var("data"), "layer")
    found = []
    for _ in range(nodes // 2):
        total = net.op("elemwise_add", total, x)
        found.append(net.op("max", total, axis=1))
    return net, net.op("add_n", *found, num_args=len(found))


def readers_of_one(nodes: int) -> tuple[Net, Entry]:
    net = Net()
    x = _layer(net, net.var("data"), "layer")
    read = [net.op("_plus_scalar", x, scalar=float(number)) for number in range(nodes)]
    return net, net.op("add_n", *read, num_args=nodes)


def sums_of_one(nodes: int) -> tuple[Net, Entry]:
    net = Net()
    total = x = _layer(net, net.var("data"), "layer")
    for _ in range(nodes):
        total = net.op("elemwise_add", total, x)
    return net, total


def parts_of_one(nodes: int) -> tuple[Net, Entry]:
    net = Net()
    x = net.var("data")
    parts = [net.op("_mul_scalar", x, scalar=float(number)) for number in range(nodes)]
    return net, net.op("Concat", *parts, dim=1, num_args=nodes)


def cells(nodes: int) -> tuple[Net, Entry]:
    net = Net()
    state = x = net.var("data")
    weight = net.param("weight", 64, 64)
    for _ in range(nodes // 4):
        gates = net.op("FullyConnected", state, weight, num_hidden=64, no_bias=True, flatten=False)
        gate = net.op("Activation", net.op("broadcast_add", gates, x), act_type="sigmoid")
        state = net.op("elemwise_mul", gate, state)
    return net, state


def _calls(grown: Grown, nodes: int, target: str, shape: tuple[int, ...]) -> int:
    """Return how many functions a conversion calls."""
    net, last = grown(nodes)
    graph, count = net.graph(last), 0

    def counting(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counting)
    try:
        dtype = Target.builtin(target).dtype.label
        mxamp.convert_model(graph, net.params, {}, dtype, target=target, input_shapes={"data": shape})
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("target", ["cpu-bf16-zen5", "cpu-bf16-avx2", "cuda-fp16"])
@pytest.mark.parametrize(
    "grown",
    [layers, poolings, maxima_along_a_sum, readers_of_one, sums_of_one, parts_of_one, cells],
)
def test_twice_the_nodes_take_twice_the_calls(grown: Grown, target: str) -> None:
    shape = (2, 64) if grown is cells else (1, 16, 8, 8)
    _calls(grown, 20, target, shape)  # what is read once a process
    few, many = (_calls(grown, nodes, target, shape) for nodes in (NODES, 2 * NODES))
    assert many < MOST * few, f"{few} calls for {NODES} nodes, {many} for twice as many"
