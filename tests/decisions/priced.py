"""A target with costs that are easily added up."""

from __future__ import annotations

from typing import Any

from mxamp.graph import Graph
from mxamp.targets import Target
from tests.building import Net

FUSES_CONV_BN_RELU = [
    [
        {"operators": ["Convolution"]},
        {"operators": ["BatchNorm"], "optional": True},
        {"operators": ["Activation"], "optional": True},
    ]
]


def target(cost: dict[str, Any] | None = None, **changes: Any) -> Target:
    """Return a target where low is twice as fast, a byte takes a microsecond, and overheads are nothing."""
    costs = {
        "measured": False,
        "source": "a test",
        "flops_per_us": {"float32": 1, "low": 2},
        "bytes_per_us": {"float32": 1, "low": 1},
        "overhead_us": {"float32": 0, "low": 0},
        "cast": {"bytes_per_us": 1, "overhead_us": 0},
        **(cost or {}),
    }
    return Target.from_document(
        {
            "name": "priced",
            "dtype": "bfloat16",
            "device": "cpu",
            "description": "",
            "default": "works",
            "operators": {},
            "rounds_once": FUSES_CONV_BN_RELU,
            "cost": costs,
            **changes,
        },
        source="priced.json",
    )


def shapes_of(graph: Graph, net: Net, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...] | None, ...]]:
    """Return shapes for a graph in which every operator keeps the shape of its input."""
    return [
        (net.params[node.name].shape if node.name in net.params else shape,) * node.num_outputs
        for node in graph.nodes
    ]
