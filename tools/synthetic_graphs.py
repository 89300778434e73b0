"""Graphs of any length, to see how the time of a conversion grows with the size of a graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mxamp.graph.graph import Entry, Graph, Node

__all__ = ["CHANNELS", "INPUT_SHAPE", "SyntheticModel", "chain"]

CHANNELS = 4
"""Channels of every tensor in a chain."""

INPUT_SHAPE = (1, CHANNELS, 4, 4)
"""The shape a chain takes its input in: small, so that only the graph is large."""

_BLOCK = ("Convolution", "Activation", "Convolution", "Activation", "softmax")
"""The operators of a chain, over and over: the last stays FP32, so every block has a cast down and one up."""


class SyntheticModel(NamedTuple):
    """A graph with its parameters.

    Attributes
    ----------
    graph : mxamp.graph.graph.Graph
        The graph; its input is ``data``.
    args : dict
        Argument name -> float32 array.
    auxs : dict
        Auxiliary states; there are none.
    """

    graph: Graph
    args: dict[str, NDArray[np.float32]]
    auxs: dict[str, NDArray[np.float32]]


def chain(nodes: int, *, seed: int = 0) -> SyntheticModel:
    """Build a chain of convolutions, activations and softmaxes, each reading the one before.

    Parameters
    ----------
    nodes : int
        How many nodes the graph has, variables included; at least 3.
    seed : int, default 0
        Seed of the weights.

    Returns
    -------
    SyntheticModel
        A model that MXNet can run.

    Raises
    ------
    ValueError
        When `nodes` is too small.
    """
    if nodes < 3:
        raise ValueError(f"a chain has an input, a weight and a convolution: at least 3 nodes, not {nodes}")
    random = np.random.default_rng(seed)
    built = [Node("null", "data")]
    args: dict[str, NDArray[np.float32]] = {}
    last = 0
    number = 0
    while len(built) < nodes:
        op = _BLOCK[number % len(_BLOCK)]
        name = f"{op.lower()}{number}"
        if op == "Convolution" and len(built) + 2 <= nodes:
            weight = (
                random.standard_normal((CHANNELS, CHANNELS, 1, 1), np.float32) / np.float32(CHANNELS) ** 0.5
            )
            args[f"{name}_weight"] = weight.astype(np.float32)
            built.append(Node("null", f"{name}_weight"))
            attrs = {"kernel": "(1, 1)", "no_bias": "True", "num_filter": str(CHANNELS)}
            built.append(Node(op, name, attrs, (Entry(last), Entry(len(built) - 1))))
        elif op == "softmax":
            built.append(Node(op, name, {"axis": "1"}, (Entry(last),)))
        else:
            # Also where one node is left and a convolution would need two.
            built.append(Node("Activation", name, {"act_type": "relu"}, (Entry(last),)))
        last = len(built) - 1
        number += 1
    graph = Graph(tuple(built), (Entry(last),), {"mxnet_version": ["int", 10901]})
    return SyntheticModel(graph, args, {})
