"""A model with its data, as a value that a file can hold."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Mapping

import numpy as np
from numpy.typing import NDArray

from mxamp.graph.graph import Entry, Graph
from mxamp.graph.symbol_reader import parse_symbol
from mxamp.graph.symbol_writer import write_symbol

__all__ = ["Arrays", "RandomModel", "reachable"]

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class RandomModel:
    """A graph, its parameters, and several sets of values for its inputs.

    Attributes
    ----------
    graph
        The graph. What is neither a parameter nor an auxiliary state is an input.
    args, auxs
        Parameters and auxiliary states by name.
    data
        Sets of values, each by input name, to run the model on one after the other.
    positions
        The inputs that hold positions: token numbers, box coordinates.
    """

    graph: Graph
    args: Arrays
    auxs: Arrays
    data: tuple[Arrays, ...]
    positions: frozenset[str] = frozenset()

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs."""
        return {name: values.shape for name, values in self.data[0].items()}

    def with_graph(self, graph: Graph) -> RandomModel:
        """Return the model with another graph, without what that does not read."""
        graph = reachable(graph)

        def read(arrays: Arrays) -> Arrays:
            return {name: values for name, values in arrays.items() if name in graph.variables}

        return RandomModel(
            graph, read(self.args), read(self.auxs), tuple(map(read, self.data)), self.positions
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return the model as plain data, for JSON."""
        return {
            "symbol": write_symbol(self.graph, compact=True),
            "args": _texts(self.args),
            "auxs": _texts(self.auxs),
            "data": [_texts(values) for values in self.data],
            "positions": sorted(self.positions),
        }

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> RandomModel:
        """Return the model that :meth:`to_mapping` wrote."""
        return cls(
            parse_symbol(given["symbol"]),
            _arrays(given["args"]),
            _arrays(given["auxs"]),
            tuple(_arrays(values) for values in given["data"]),
            frozenset(given["positions"]),
        )


def reachable(graph: Graph) -> Graph:
    """Return the graph without what no output needs: MXNet never stores it."""
    needed = set()
    pending = [head.node for head in graph.heads]
    while pending:
        position = pending.pop()
        if position not in needed:
            needed.add(position)
            pending.extend(entry.node for entry in graph.nodes[position].inputs)
    kept = sorted(needed)
    new = {old: position for position, old in enumerate(kept)}

    def moved(entry: Entry) -> Entry:
        return Entry(new[entry.node], entry.output)

    nodes = (graph.nodes[old]._replace(inputs=tuple(map(moved, graph.nodes[old].inputs))) for old in kept)
    return Graph(tuple(nodes), tuple(map(moved, graph.heads)), graph.attrs)


def _texts(arrays: Arrays) -> dict[str, list[Any]]:
    return {
        name: [
            str(values.dtype),
            list(values.shape),
            base64.b64encode(np.ascontiguousarray(values).tobytes()).decode(),
        ]
        for name, values in arrays.items()
    }


def _arrays(texts: Mapping[str, list[Any]]) -> Arrays:
    return {
        name: np.frombuffer(base64.b64decode(text), dtype).reshape(shape).copy()
        for name, (dtype, shape, text) in texts.items()
    }
