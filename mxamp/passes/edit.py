"""Build the next graph out of one: what is put in, what is replaced, what goes, and where nodes went."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import (
    Callable,
    Hashable,
    Iterator,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
    cast,
)

from mxamp.graph.builder import GraphBuilder
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node, Use
from mxamp.graph.node_map import NodeMap
from mxamp.params.parameter import Parameter

Made = TypeVar("Made")

NodeShapes = Tuple[Optional[Tuple[int, ...]], ...]
"""The shape of each output of a node; None where it is not known."""


@dataclass(frozen=True)
class Edited:
    """A graph that was made out of another.

    Attributes
    ----------
    graph
        The graph.
    nodes
        Where the nodes went.
    params
        Parameters that were added, or have other values now.
    made_from
        Parameter that was added -> the parameters before that its values come from.
    shapes
        Position -> the shape of each output, for nodes that are not shaped as those they come from. None
        where shapes are not followed.
    inserted
        What :class:`GraphEdit` called a node that was put in -> its position.
    """

    graph: Graph
    nodes: NodeMap
    params: Mapping[str, Parameter] = field(default_factory=dict)
    made_from: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shapes: Mapping[int, NodeShapes] | None = field(default_factory=dict)
    inserted: Mapping[int, int] = field(default_factory=dict)


def said_of(parameter: Parameter) -> dict[str, str]:
    """Return what the variable of a parameter says of it, where none of its readers may tell Module."""
    return {"__shape__": str(parameter.shape), "__dtype__": str(parameter.dtype.value)}


class _Unread(NamedTuple):
    """What an edit leaves without readers.

    Attributes
    ----------
    nodes
        The parameters that had readers before, and the nodes put in, that have none.
    less_read
        The parameters that have fewer than before.
    """

    nodes: frozenset[int]
    less_read: Sequence[int]


class GraphEdit:
    """Changes to a graph: said in any order, and made by :meth:`finish`.

    All positions and entries are those of the graph before. What is put in is read by the entry that
    :meth:`insert` or :meth:`add_parameter` returns.

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
        self._nodes = list(graph.nodes)
        """Those before, changed where they are, and behind them those that are put in."""
        self._in_front: dict[int, list[int]] = defaultdict(list)
        self._behind: dict[int, list[int]] = defaultdict(list)
        self._gone: set[int] = set()
        self._instead: dict[Entry, Entry] = {}
        self._origins: dict[int, int] = {}
        self._values: dict[str, Parameter] = {}
        self._made_from: dict[str, Sequence[str]] = {}
        self._shapes: dict[int, NodeShapes] = {}
        self._made: dict[Hashable, object] = {}

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return what was put in under a key, for the first that asks for it and for all others."""
        if key not in self._made:
            self._made[key] = make()
        return cast("Made", self._made[key])

    def node(self, entry: Entry) -> Node:
        """Return the node of an entry as it is by now."""
        return self._nodes[self._carrier(entry).node]

    def replace(self, position: int, node: Node, *, shapes: NodeShapes | None = None) -> None:
        """Put another node in the place of one.

        Parameters
        ----------
        position
            Which.
        node
            The node that is there from now on.
        shapes
            The shape of each output, where it is another now.
        """
        if node.input_versions and len(node.input_versions) != len(node.inputs):
            node = node._replace(input_versions=())
        self._nodes[position] = node
        if shapes is not None:
            self._shapes[position] = shapes

    def connect(self, use: Use, entry: Entry) -> None:
        """Let one input of a node read another entry."""
        node = self._nodes[use.node]
        inputs = list(node.inputs)
        inputs[use.input] = entry
        self._nodes[use.node] = node._replace(inputs=tuple(inputs))

    def drop(self, position: int, *instead: Entry) -> None:
        """Leave a node out: whoever reads its outputs reads these entries, output by output."""
        self._gone.add(position)
        for output, entry in enumerate(instead):
            self._instead[Entry(position, output)] = self._carrier(entry)

    def merge(self, position: int, into: int) -> None:
        """Leave a node out whose values another computes now."""
        self.drop(position, Entry(into))
        self._origins[into] = position

    def insert(
        self,
        node: Node,
        *,
        before: int | None = None,
        after: int | None = None,
        origin: int | None = None,
        shapes: NodeShapes | None = None,
    ) -> Entry:
        """Put a node in and return its first output.

        Parameters
        ----------
        node
            The node. Its name is changed where it is taken.
        before, after
            The node that it stands in front of or behind, and behind what was put there before; one of the
            two.
        origin
            The node that it belongs to; by default the one it stands beside.
        shapes
            The shape of each output, where it is not that of ``origin``.
        """
        return self._put_in(
            node._replace(name=self._builder.free_name(node.name)), before, after, origin, shapes
        )

    def insert_behind(self, node: Node, *, shapes: NodeShapes | None = None) -> Entry:
        """Put a node behind the one whose first output it reads, for all that read that, and return its own.

        Parameters
        ----------
        node
            The node. Its name is changed where it is taken.
        shapes
            The shape of each output, where it is not that of the node before.
        """
        source = Entry(node.inputs[0].node)
        found = self.insert(node, after=source.node, shapes=shapes)
        for use in self._graph.uses_of(source):
            self.connect(use, found)
        return found

    def add_parameter(
        self, name: str, parameter: Parameter, made_from: Sequence[str] = (), *, before: int
    ) -> Entry:
        """Put a parameter in and return it.

        Parameters
        ----------
        name
            What to call it; changed where the name is taken, but it may be that of ``before``, which must be
            dropped then, unless a variable has that name as well.
        parameter
            Its values.
        made_from
            The parameters that they come from.
        before
            The node that it stands in front of.
        """
        is_variable = name in self._params or name in self._values or name in self._graph.variables
        if is_variable or name != self._graph.nodes[before].name:
            name = self._builder.free_name(name)
        self._values[name] = parameter
        self._made_from[name] = tuple(made_from)
        variable = Node(VARIABLE, name, said_of(parameter))
        return self._put_in(variable, before, None, None, (parameter.shape,))

    def change_parameter(self, position: int, parameter: Parameter) -> None:
        """Give a parameter other values."""
        node = self._graph.nodes[position]
        self._values[node.name] = parameter
        if parameter.shape != self._params[node.name].shape:
            self._shapes[position] = (parameter.shape,)
            if "__shape__" in node.attrs:
                self.replace(position, node._replace(attrs={**node.attrs, "__shape__": str(parameter.shape)}))

    def finish(self) -> Edited:
        """Return the new graph, without new nodes and parameters that nobody reads, or not any more."""
        graph, builder = self._graph, self._builder
        order = list(self._order())
        unread = self._unread(order)
        for position in unread.less_read:
            self._say_what_it_is(position)
        places: dict[int, int] = {}
        origins = []
        is_moved = False
        for position in order:
            if position in unread.nodes:
                continue
            node = self._nodes[position]
            if node.inputs:
                read = self._read(node)
                if is_moved or read is not node.inputs:
                    inputs = tuple([Entry(places[producer], output) for producer, output in read])
                    node = node._replace(inputs=inputs)
            if node.control_deps:
                awaited = self._awaited(node)
                node = node._replace(control_deps=tuple([places[dep] for dep in awaited if dep in places]))
            place = places[position] = builder.add(node)
            is_moved = is_moved or place != position
            origins.append(self._origins.get(position, position))
        heads = [self._carrier(head) for head in graph.heads]
        after = builder.build(
            [Entry(places[head.node], head.output) for head in heads], graph.attrs, graph.head_versions
        )
        count = len(graph.nodes)
        return Edited(
            after,
            NodeMap([places.get(self._carrier(Entry(position)).node) for position in range(count)], origins),
            {name: value for name, value in self._values.items() if name in after.variables},
            {name: value for name, value in self._made_from.items() if name in after.variables},
            {places[position]: shapes for position, shapes in self._shapes.items() if position in places},
            {position: place for position, place in places.items() if position >= count},
        )

    def part(
        self,
        position: int,
        op: str,
        what: str,
        /,
        *inputs: Entry,
        like: tuple[int, ...] | None,
        **attrs: str,
    ) -> Entry:
        """Put a node of one output in front of one that it is a part of from now on, and return its output.

        Parameters
        ----------
        position
            The node that is computed by parts.
        op
            The operator of the part.
        what
            What it is called, behind the name of that node.
        inputs
            What it reads.
        like
            Its shape, None where that is not known.
        attrs
            Its attributes.
        """
        made = Node(op, f"{self._nodes[position].name}_{what}", attrs, inputs)
        return self.insert(made, before=position, shapes=(like,))

    def _put_in(
        self,
        node: Node,
        before: int | None,
        after: int | None,
        origin: int | None,
        shapes: NodeShapes | None,
    ) -> Entry:
        position = len(self._nodes)
        self._nodes.append(node)
        if before is not None:
            self._in_front[before].append(position)
            beside = before
        else:
            assert after is not None  # one of the two
            self._behind[after].append(position)
            beside = after
        self._origins[position] = beside if origin is None else origin
        if shapes is not None:
            self._shapes[position] = shapes
        return Entry(position)

    def _carrier(self, entry: Entry) -> Entry:
        """Return what is read where an entry was."""
        while entry in self._instead:
            entry = self._instead[entry]
        return entry

    def _read(self, node: Node) -> Sequence[Entry]:
        """Return what a node reads."""
        if self._instead.keys().isdisjoint(node.inputs):
            return node.inputs
        return [self._carrier(entry) for entry in node.inputs]

    def _awaited(self, node: Node) -> Sequence[int]:
        """Return the nodes that run before a node, and hand it nothing."""
        return [self._carrier(Entry(dep)).node for dep in node.control_deps]

    def _order(self) -> Iterator[int]:
        """Yield the nodes of the new graph in their order."""
        for position in range(len(self._graph.nodes)):
            yield from self._in_front.get(position, ())
            if position not in self._gone:
                yield position
            yield from self._behind.get(position, ())

    def _say_what_it_is(self, position: int) -> None:
        """Let a parameter say shape and dtype: Module infers them from readers, and who told may be gone."""
        node = self._nodes[position]
        self._nodes[position] = node._replace(attrs={**node.attrs, **said_of(self._params[node.name])})

    def _unread(self, order: Sequence[int]) -> _Unread:
        """Return what nobody reads any more, and the parameters that have lost some of their readers."""
        readers = [0] * len(self._nodes)

        def count(position: int, change: int) -> None:
            node = self._nodes[position]
            if node.inputs:
                for producer, _ in self._read(node):
                    readers[producer] += change
            for dep in self._awaited(node) if node.control_deps else ():
                readers[dep] += change

        for position in order:
            count(position, 1)
        for head in self._graph.heads:
            readers[self._carrier(head).node] += 1
        unread = set()
        for position in reversed(order):
            is_new = position >= len(self._graph.nodes)
            node = self._nodes[position]
            if not readers[position] and (
                is_new or (node.is_variable and node.name in self._params and self._graph.uses[position])
            ):
                unread.add(position)
                count(position, -1)
        less_read = [
            position
            for name, position in self._graph.variables.items()
            if name in self._params
            and 0 < readers[position] < sum(map(len, self._graph.uses[position].values()))
        ]
        return _Unread(frozenset(unread), less_read)
