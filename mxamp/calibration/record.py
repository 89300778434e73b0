"""What was calibrated, told apart from anything else: entries by name, models by hashes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Mapping, NamedTuple

import numpy as np

from mxamp.files.digest import new_digest
from mxamp.graph.graph import Entry, Graph
from mxamp.params.parameter import Parameter

_READ_OF_A_PARAMETER = 4096
"""How many values of a parameter its record hashes: training changes all of them."""


class EntryName(NamedTuple):
    """One output of one node of the user's graph."""

    node: str
    output: int = 0

    @classmethod
    def of(cls, graph: Graph, entry: Entry) -> EntryName:
        """Name an entry of a graph."""
        return cls(graph.nodes[entry.node].name, entry.output)

    def __str__(self) -> str:
        return self.node if self.output == 0 else f"{self.node}[{self.output}]"


@dataclass(frozen=True)
class ModelRecord:
    """Which model was calibrated.

    Attributes
    ----------
    graph
        The hash of its graph: operators, names, attributes, and what reads what.
    params
        The hash of its parameters: names, shapes, dtypes, and the first 4096 values of each.
    """

    graph: str
    params: str

    @classmethod
    def of(cls, graph: Graph, params: Mapping[str, Parameter]) -> ModelRecord:
        """Record a model."""
        structure, values = new_digest(), new_digest()
        _add_graph(structure, graph)
        for name in graph.variables:
            parameter = params.get(name)
            if parameter is None or parameter.is_sparse:
                continue
            size = int(np.prod(parameter.shape, dtype=np.int64))
            first = parameter.part(0, min(_READ_OF_A_PARAMETER, size))
            values.update(f"{name} {parameter.shape} {parameter.dtype}".encode())
            values.update(np.ascontiguousarray(first).view(np.uint8).data)
        return cls(structure.hexdigest(), values.hexdigest())


def _add_graph(digest: Any, graph: Graph) -> None:
    for node in graph.nodes:
        attrs = sorted(node.attrs.items())
        digest.update(
            json.dumps([node.op, node.name, attrs, [list(entry) for entry in node.inputs]]).encode()
        )
        for body in node.subgraphs:
            _add_graph(digest, body)
    digest.update(json.dumps([list(head) for head in graph.heads]).encode())
