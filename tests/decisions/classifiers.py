"""Classifiers, and what a plan says of their nodes."""

from __future__ import annotations

from typing import Any

from mxamp.decisions import Plan
from mxamp.graph import Entry, Graph
from tests.building import Net


def conv(net: Net, data: Entry, name: str, channels: int, filters: int, kernel: int = 3) -> Entry:
    weight = net.param(f"{name}_weight", filters, channels, kernel, kernel)
    window = {"kernel": f"({kernel}, {kernel})", "pad": f"({kernel // 2}, {kernel // 2})"}
    return net.op("Convolution", data, weight, name=name, num_filter=filters, no_bias=True, **window)


def dense(net: Net, data: Entry, name: str, columns: int, hidden: int) -> Entry:
    weight = net.param(f"{name}_weight", hidden, columns)
    return net.op("FullyConnected", data, weight, name=name, num_hidden=hidden, no_bias=True)


def pooled(net: Net, data: Entry, **attrs: Any) -> Entry:
    return net.op(
        "Pooling", data, name="pool", **{"kernel": "(1, 1)", "global_pool": True, "pool_type": "avg", **attrs}
    )


def classifier(layers: int = 4, channels: int = 64, classes: int = 10) -> tuple[Net, Graph]:
    """Convolutions, a mean over the image, and a dense layer."""
    net = Net()
    x = net.var("data")
    x = conv(net, x, "conv0", 3, channels)
    for number in range(1, layers):
        x = conv(net, x, f"conv{number}", channels, channels)
        x = net.op("Activation", x, name=f"relu{number}", act_type="relu")
    x = net.op("Flatten", pooled(net, x), name="flatten")
    return net, net.graph(dense(net, x, "output", channels, classes))


def shapes_of(graph: Graph, channels: int = 64, classes: int = 10, size: int = 32) -> Any:
    known = {
        "data": (1, 3, size, size),
        "pool": (1, channels, 1, 1),
        "flatten": (1, channels),
        "output": (1, classes),
        "output_weight": (classes, channels),
        "conv0_weight": (channels, 3, 3, 3),
    }
    image, weight = (1, channels, size, size), (channels, channels, 3, 3)
    return [
        (known.get(node.name, weight if node.name.endswith("_weight") else image),) for node in graph.nodes
    ]


def low(graph: Graph, plan: Plan) -> set[str]:
    return {
        node.name
        for node, decision in zip(graph.nodes, plan.decisions)
        if decision is not None and decision.compute is not None and decision.compute.is_low_precision
    }


def reason(graph: Graph, plan: Plan, name: str) -> str:
    (found,) = [d for node, d in zip(graph.nodes, plan.decisions) if node.name == name]
    assert found is not None
    return found.reason
