"""Build the next graph out of one, node by node: what stays, what goes, what is put in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Sequence, Tuple

from mxamp.dtypes import DType
from mxamp.graph.builder import GraphBuilder
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.params.parameter import Parameter

__all__ = ["Edited", "GraphEdit", "NodeShapes"]

NodeShapes = Tuple[Optional[Tuple[int, ...]], ...]
"""The shape of each output of a node; None where it is not known."""


@dataclass(frozen=True)
class Edited:
    """A graph that was made out of another.

    Attributes
    ----------
    graph
        The graph.
    positions
        For every node the node before whose values it has, or helps to compute.
    params
        Parameters that were added, or have other values now.
    made_from
        Parameter that was added -> the parameters before that its values come from.
    shapes
        Position -> the shape of each output, for nodes put in that are not shaped as the node before.
    """

    graph: Graph
    positions: Sequence[int]
    params: Mapping[str, Parameter] = field(default_factory=dict)
    made_from: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shapes: Mapping[int, NodeShapes] = field(default_factory=dict)


class GraphEdit:
    """One walk over a graph that builds the next.

    For each node in order, exactly one of :meth:`keep`, :meth:`replace` and :meth:`redirect` is called;
    before it, :meth:`insert` and :meth:`add_parameter` may put nodes in. :meth:`finish` drops what nobody
    reads any more.

    Parameters
    ----------
    graph
        The graph; never changed.
    params
        Its parameters and auxiliary states by name.
    """

    def __init__(self, graph: Graph, params: Mapping[str, Parameter]) -> None:
        self._graph = graph
        self._params = params
        # A file may hold parameters that the graph does not use; their names are taken too.
        self._builder = GraphBuilder([*(node.name for node in graph.nodes), *params])
        self._entries: list[tuple[Entry, ...]] = []
        self._origins: list[int] = []
        self._own: dict[int, int] = {}
        self._added: dict[str, Parameter] = {}
        self._made_from: dict[str, Sequence[str]] = {}
        self._shapes: dict[int, NodeShapes] = {}

    def entry(self, before: Entry) -> Entry:
        """Return what carries the value of an entry of the graph before, of a node that was walked over."""
        return self._entries[before.node][before.output]

    def node(self, entry: Entry) -> Node:
        """Return the node that makes an entry of the new graph."""
        return self._builder.node(entry.node)

    def keep(self, node: Node) -> None:
        """Keep the next node, or put one with the same meaning in its place: its inputs are those before."""
        inputs = tuple([self.entry(entry) for entry in node.inputs])
        deps = tuple([self._entries[dep][0].node for dep in node.control_deps])
        self._place(node.reading(inputs, deps))

    def replace(self, node: Node) -> None:
        """Put another node in the place of the next: its inputs are entries of the new graph."""
        deps = self._graph.nodes[len(self._entries)].control_deps
        self._place(node._replace(control_deps=tuple([self._entries[dep][0].node for dep in deps])))

    def redirect(self, *entries: Entry) -> None:
        """Drop the next node: whoever reads its outputs reads these entries of the new graph."""
        self._entries.append(entries)

    def insert(
        self,
        node: Node,
        *,
        origin: int | None = None,
        shapes: NodeShapes | None = None,
    ) -> Entry:
        """Put a node in and return its first output; its inputs are entries of the new graph.

        Parameters
        ----------
        node
            The node. Its name is changed where it is taken.
        origin
            The node before that it belongs to; by default the next.
        shapes
            The shape of each output, where it is not that of ``origin``.
        """
        position = self._builder.add(node._replace(name=self._builder.free_name(node.name)))
        self._origins.append(len(self._entries) if origin is None else origin)
        if shapes is not None:
            self._shapes[position] = shapes
        return Entry(position)

    def add_parameter(self, name: str, parameter: Parameter, made_from: Sequence[str] = ()) -> Entry:
        """Put a parameter in and return it.

        Parameters
        ----------
        name
            What to call it; changed where the name is taken, but it may be that of the next node, which must
            be redirected then.
        parameter
            Its values.
        made_from
            The parameters that they come from.
        """
        if name != self._graph.nodes[len(self._entries)].name or name in self._params:
            name = self._builder.free_name(name)
        attrs = {"__shape__": str(parameter.shape)}
        if parameter.dtype is not DType.FLOAT32:
            attrs["__dtype__"] = str(parameter.dtype.value)
        position = self._builder.add(Node(VARIABLE, name, attrs))
        self._origins.append(len(self._entries))
        self._shapes[position] = (parameter.shape,)
        self._added[name] = parameter
        self._made_from[name] = tuple(made_from)
        return Entry(position)

    def finish(self) -> Edited:
        """Return the new graph, without what was read before and is not any more; inputs stay."""
        heads = [self.entry(head) for head in self._graph.heads]
        nodes = [self._builder.node(position) for position in range(len(self._builder))]
        unread = self._unread(nodes, heads)
        if not unread:
            graph = self._builder.build(heads, self._graph.attrs, self._graph.head_versions)
            return Edited(graph, self._origins, self._added, self._made_from, self._shapes)
        builder = GraphBuilder()
        places: list[int] = []
        for position, node in enumerate(nodes):
            if position in unread:
                places.append(-1)
                continue
            inputs = tuple([Entry(places[entry.node], entry.output) for entry in node.inputs])
            places.append(
                builder.add(node.reading(inputs, tuple([places[dep] for dep in node.control_deps])))
            )
        heads = [Entry(places[head.node], head.output) for head in heads]
        graph = builder.build(heads, self._graph.attrs, self._graph.head_versions)
        kept = graph.variables
        return Edited(
            graph,
            [origin for position, origin in enumerate(self._origins) if position not in unread],
            {name: value for name, value in self._added.items() if name in kept},
            {name: value for name, value in self._made_from.items() if name in kept},
            {places[position]: value for position, value in self._shapes.items() if position not in unread},
        )

    def _place(self, node: Node) -> None:
        position = self._builder.add(node)
        self._own[position] = len(self._entries)
        self._origins.append(len(self._entries))
        self._entries.append(tuple([Entry(position, output) for output in range(node.num_outputs)]))

    def _unread(self, nodes: Sequence[Node], heads: Sequence[Entry]) -> frozenset[int]:
        """Return what had readers before, or was put in, and has none."""
        readers = [0] * len(nodes)
        for node in nodes:
            for entry in node.inputs:
                readers[entry.node] += 1
            for dep in node.control_deps:
                readers[dep] += 1
        for head in heads:
            readers[head.node] += 1
        unread = set()
        for position in range(len(nodes) - 1, -1, -1):
            node = nodes[position]
            before = self._own.get(position)
            if readers[position] or (before is not None and not self._graph.uses[before]):
                continue
            if node.is_variable and node.name not in self._params and node.name not in self._added:
                continue  # an input
            unread.add(position)
            for entry in node.inputs:
                readers[entry.node] -= 1
            for dep in node.control_deps:
                readers[dep] -= 1
        return frozenset(unread)
