"""Build a new graph node by node; the only way passes make graphs."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Sequence

from mxamp.graph.graph import Entry, Graph, Node


class GraphBuilder:
    """Collects nodes in topological order and hands out names that are still free.

    Parameters
    ----------
    reserved_names
        Names that :meth:`free_name` must not give out: those of the graph being rewritten.
    """

    def __init__(self, reserved_names: Iterable[str] = ()) -> None:
        self._nodes: list[Node] = []
        self._names = set(reserved_names)

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, node: Node) -> int:
        """Append a node whose inputs were added before, and return its position."""
        position = len(self._nodes)
        self._nodes.append(node)
        return position

    def node(self, position: int) -> Node:
        """Return a node added before."""
        return self._nodes[position]

    def free_name(self, wanted: str) -> str:
        """Return ``wanted``, or ``wanted_1``, ``wanted_2`` ... where that name is taken, and take it."""
        name, attempt = wanted, 0
        while name in self._names:
            attempt += 1
            name = f"{wanted}_{attempt}"
        self._names.add(name)
        return name

    def build(
        self,
        heads: Sequence[Entry],
        attrs: Mapping[str, Any],
        head_versions: tuple[int, ...] = (),
    ) -> Graph:
        """Return the finished graph."""
        return Graph(tuple(self._nodes), tuple(heads), dict(attrs), head_versions)
