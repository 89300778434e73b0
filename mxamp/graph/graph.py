"""The graph: nodes, entries and uses.

A :class:`Graph` is a value. Nodes refer to each other by position, every node comes after the nodes it
reads, and nothing is ever assigned in place: a pass reads one graph and builds the next with
:class:`mxamp.graph.builder.GraphBuilder`. That makes sharing safe, traversal a plain loop (a chain of
100,000 nodes needs no recursion), and equality structural.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Mapping, NamedTuple

VARIABLE = "null"
"""The operator name NNVM gives to variables: graph inputs, arguments and auxiliary states."""


class Entry(NamedTuple):
    """NNVM's unit of data flow: one output of one node. Casts are decided per entry."""

    node: int
    output: int = 0


class Use(NamedTuple):
    """One place where an entry is read: input number ``input`` of node ``node``."""

    node: int
    input: int


class Node(NamedTuple):
    """One node: a variable (``op == "null"``) or an operator call.

    Attributes
    ----------
    op
        MXNet operator name.
    name
        The node's name, as the user wrote it or MXNet generated it.
    attrs
        Operator attributes and user attributes (``__shape__``, ``__dtype__``, ``__lr_mult__`` ...), all
        strings. Treat as read-only.
    inputs
        The entries it reads, auxiliary states included.
    num_outputs
        How many entries it produces, hidden ones included (BatchNorm produces three).
    subgraphs
        The bodies of a control-flow operator.
    control_deps
        Nodes that must run before it without passing data.
    input_versions
        NNVM's version number of each input; empty when all are 0, which is nearly always.
    """

    op: str
    name: str
    attrs: Mapping[str, str] = {}
    inputs: tuple[Entry, ...] = ()
    num_outputs: int = 1
    subgraphs: tuple[Graph, ...] = ()
    control_deps: tuple[int, ...] = ()
    input_versions: tuple[int, ...] = ()

    @property
    def is_variable(self) -> bool:
        """Whether the node is a graph input, an argument or an auxiliary state."""
        return self.op == VARIABLE

    def __str__(self) -> str:
        return f"node {self.name!r} ({self.op})"


@dataclass(frozen=True)
class Graph:
    """A computation graph in topological order.

    Attributes
    ----------
    nodes
        Every node comes after all nodes it reads.
    heads
        The entries the graph returns, in order.
    attrs
        Graph attributes as ``symbol.json`` holds them, e.g. ``{"mxnet_version": ["int", 10901]}``.
    head_versions
        NNVM's version number of each head; empty when all are 0.
    """

    nodes: tuple[Node, ...]
    heads: tuple[Entry, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    head_versions: tuple[int, ...] = ()

    @cached_property
    def uses(self) -> tuple[Mapping[int, tuple[Use, ...]], ...]:
        """For every node: output index -> the places that read it. Outputs nobody reads are absent."""
        found: list[dict[int, list[Use]]] = [{} for _ in self.nodes]
        for consumer, node in enumerate(self.nodes):
            for number, (producer, index) in enumerate(node.inputs):
                found[producer].setdefault(index, []).append(Use(consumer, number))
        return tuple([{index: tuple(places) for index, places in uses.items()} for uses in found])

    @cached_property
    def variables(self) -> Mapping[str, int]:
        """Variable name -> node position, in topological order."""
        return {node.name: position for position, node in enumerate(self.nodes) if node.op == VARIABLE}

    @cached_property
    def operator_count(self) -> int:
        """The number of nodes that are not variables."""
        return sum(node.op != VARIABLE for node in self.nodes)

    @cached_property
    def bodies(self) -> tuple[Graph, ...]:
        """The bodies of its control-flow nodes, in the order of the nodes."""
        return tuple([body for node in self.nodes if node.subgraphs for body in node.subgraphs])

    @property
    def has_numpy_shapes(self) -> bool:
        """Whether it was saved under NumPy shape semantics, where () is a scalar and 0 an empty axis."""
        flag = self.attrs.get("is_np_shape")
        return isinstance(flag, (list, tuple)) and bool(flag) and bool(flag[-1])

    def uses_of(self, entry: Entry) -> tuple[Use, ...]:
        """Return the places that read ``entry`` (heads are not uses)."""
        return self.uses[entry.node].get(entry.output, ())

    @cached_property
    def visits(self) -> tuple[int, ...]:
        """For each node when nnvm's ``DFSVisit`` comes by; -1 where no head depends on it.

        A node comes after what it reads and waits for, in that order, from the first head on
        (nnvm/graph.h). That is the order in which MXNet runs nodes and plans memory, and it is not always the
        order in which the file stores them.
        """
        seen = bytearray(len(self.nodes))
        order: list[int] = []
        for head in self.heads:
            if seen[head.node]:
                continue
            seen[head.node] = 1
            stack = [(head.node, 0)]
            while stack:
                position, number = stack.pop()
                node = self.nodes[position]
                reads = len(node.inputs)
                if number < reads + len(node.control_deps):
                    stack.append((position, number + 1))
                    child = node.inputs[number].node if number < reads else node.control_deps[number - reads]
                    if not seen[child]:
                        seen[child] = 1
                        stack.append((child, 0))
                else:
                    order.append(position)
        ranks = [-1] * len(self.nodes)
        for rank, position in enumerate(order):
            ranks[position] = rank
        return tuple(ranks)

    def input_order(self) -> tuple[int, ...]:
        """Return the positions of the variables in the order of MXNet's ``Symbol.list_inputs``."""
        visits = self.visits
        read = [
            position
            for position, node in enumerate(self.nodes)
            if node.op == VARIABLE and visits[position] >= 0
        ]
        return tuple(sorted(read, key=visits.__getitem__))

    def describe(self, entry: Entry) -> str:
        """Name an entry for a message: ``conv0``, or ``split0[1]`` where it is not the first output."""
        node = self.nodes[entry.node]
        return node.name if entry.output == 0 else f"{node.name}[{entry.output}]"
