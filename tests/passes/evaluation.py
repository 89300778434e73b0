"""Evaluate small graphs with NumPy, in whatever dtypes they have: each operator's result rounded once."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import numpy as np

from mxamp.dtypes import DType
from mxamp.graph import Entry, Graph

__all__ = ["Array", "evaluate"]

Array = np.ndarray[Any, Any]


def evaluate(graph: Graph, values: Mapping[str, Array], head: Entry | None = None) -> Array:
    """Return one entry of a graph, by default its first output."""
    found: list[Array] = []
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            if node.is_variable:
                found.append(values[node.name])
            else:
                result = _FUNCTIONS[node.op](node.attrs, *(found[entry.node] for entry in node.inputs))
                found.append(np.asarray(result))
    return found[(head or graph.heads[0]).node]


def _scalar(attrs: Mapping[str, str], data: Array, key: str = "scalar") -> Any:
    return data.dtype.type(np.float32(attrs[key]))


def _softmax(data: Array) -> Array:
    """Return the softmax of rows, each step rounded to the data's dtype."""
    powers = np.exp(data - data.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _full(attrs: Mapping[str, str]) -> Array:
    shape = tuple(int(size) for size in attrs["shape"].strip("()").split(","))
    return np.full(shape, np.float32(attrs["value"]), np.float32)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "broadcast_add": lambda attrs, x, y: x + y,
    "broadcast_sub": lambda attrs, x, y: x - y,
    "broadcast_mul": lambda attrs, x, y: x * y,
    "where": lambda attrs, condition, x, y: np.where(condition != 0, x, y),
    "ones_like": lambda attrs, x: np.ones_like(x),
    "negative": lambda attrs, x: -x,
    "_full": _full,
    "_mul_scalar": lambda attrs, x: x * _scalar(attrs, x),
    "_plus_scalar": lambda attrs, x: x + _scalar(attrs, x),
    "_minus_scalar": lambda attrs, x: x - _scalar(attrs, x),
    "_rminus_scalar": lambda attrs, x: _scalar(attrs, x) - x,
    "_maximum_scalar": lambda attrs, x: np.maximum(x, _scalar(attrs, x)),
    "_equal_scalar": lambda attrs, x: (x == _scalar(attrs, x)).astype(x.dtype),
    "_greater_scalar": lambda attrs, x: (x > _scalar(attrs, x)).astype(x.dtype),
    "clip": lambda attrs, x: np.clip(x, _scalar(attrs, x, "a_min"), _scalar(attrs, x, "a_max")),
    "max": lambda attrs, x: np.broadcast_to(x.max(axis=-1, keepdims=True), x.shape),
    "argmax": lambda attrs, x: np.argmax(x, axis=-1).astype(np.float32),
    "erf": lambda attrs, x: x,
    "exp": lambda attrs, x: np.exp(x),
    "relu": lambda attrs, x: np.maximum(x, 0),
    "amp_cast": lambda attrs, x: x.astype(DType.parse(attrs["dtype"]).numpy),
    "softmax": lambda attrs, x: _softmax(x),
}
"""``erf`` stands for a layer, whose values nobody knows; here it is the identity."""
