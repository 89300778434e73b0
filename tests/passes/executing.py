"""Running a graph before and after a pass, for what must stay the same bit for bit."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.params.parameter import Parameter

__all__ = ["on_edges", "outputs"]

EDGES = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-42, -1e-42, 3e38, -3e38)


def on_edges(*shape: int) -> np.ndarray:
    """Return values with infinities, NaN, zeros of both signs and subnormal numbers among them."""
    draw = np.random.default_rng(3)
    data = draw.normal(0, 3, shape).astype(np.float32)
    return np.where(draw.random(shape) < 0.3, draw.choice(np.array(EDGES, np.float32), shape), data)


def outputs(
    monkeypatch: pytest.MonkeyPatch,
    graph: Graph,
    params: Mapping[str, Parameter],
    data: Mapping[str, np.ndarray],
    backend: str = "NONE",
) -> list[Any]:
    """Return what MXNet computes of a graph."""
    mx = pytest.importorskip("mxnet", reason="graphs are executed")
    from mxamp.runtime.symbol import symbol_from_graph

    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", backend)
    arrays = {name: mx.nd.array(value.values()) for name, value in params.items()}
    arrays.update({name: mx.nd.array(values) for name, values in data.items()})
    symbol = symbol_from_graph(graph)
    states = {name: arrays.pop(name) for name in symbol.list_auxiliary_states()}
    bound = symbol.bind(mx.cpu(), arrays, aux_states=states)
    return [output.asnumpy() for output in bound.forward()]
