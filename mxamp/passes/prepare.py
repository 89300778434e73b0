"""What the passes that prepare a graph have in common: they keep every value, and say what they did."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import AbstractSet, Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.errors import PassError
from mxamp.graph.builder import GraphBuilder
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node, new_tuple
from mxamp.graph.infer import EntryDtypes, infer_dtypes, variable_dtypes
from mxamp.graph.output_names import output_names
from mxamp.ops.casts import AMP_CAST
from mxamp.params.parameter import Parameter
from mxamp.passes.base import GraphPass
from mxamp.policy.policy import Policy

__all__ = ["PreparationPass", "PreparedNode", "Surroundings", "rebuild"]


@dataclass(frozen=True)
class PreparedNode:
    """What a pass did to one node.

    Attributes
    ----------
    node
        The node.
    op
        Its operator.
    step
        The pass, as ``prepare`` names it.
    into
        What carries its value now, or computes what it was a part of: the name of a node, its own where it
        was rewritten in place. None where the pass left it alone although it is of its kind.
    reason
        Why.
    """

    node: str
    op: str
    step: str
    into: str | None
    reason: str


class PreparationPass(GraphPass):
    """A pass over the user's graph that comes before anything is decided.

    Parameters
    ----------
    params
        The parameters and auxiliary states by name; only their dtypes are looked at.
    policy
        The policy: nodes that a rule of the user's picks are left alone, so that the rule still does.
    """

    step = ""
    """What ``prepare`` calls the pass."""

    operators: frozenset[str] = frozenset()
    """The operators, by any of their names, without one of which there is nothing to do."""

    device = ""
    """The device whose backend gains by it; empty for all."""

    def __init__(self, params: Mapping[str, Parameter], policy: Policy) -> None:
        self._params = params
        self._policy = policy
        self.positions: Sequence[int] = ()
        """For every node of the new graph the node before whose values it has. Set by :meth:`run`."""
        self.changes: tuple[PreparedNode, ...] = ()
        """What became of nodes, in graph order. Set by :meth:`run`."""

    def run(self, graph: Graph) -> Graph:
        """Return the rewritten graph, or the graph itself where there was nothing to do."""
        self.positions = range(len(graph.nodes))
        if self.operators and self.operators.isdisjoint([node.op for node in graph.nodes]):
            return graph
        return self.rewrite(graph, Surroundings(graph, self._params, self._policy))

    def rewrite(self, graph: Graph, around: Surroundings) -> Graph:
        """Do it; the graph holds one of :attr:`operators`."""
        raise NotImplementedError

    def ensures(self, before: Graph, after: Graph) -> None:
        """Check that the names of inputs and outputs are kept."""
        if output_names(before) != output_names(after) or list(before.variables) != list(after.variables):
            raise PassError("The names of the graph's inputs or outputs changed.")


class Surroundings:
    """What is asked about a graph while it is prepared; found out when it is asked."""

    def __init__(self, graph: Graph, params: Mapping[str, Parameter], policy: Policy) -> None:
        self._graph = graph
        self._params = params
        self._policy = policy

    @cached_property
    def heads(self) -> frozenset[int]:
        """The nodes that are graph outputs: their names are those of the outputs."""
        return frozenset(head.node for head in self._graph.heads)

    @cached_property
    def _awaited(self) -> frozenset[int]:
        return frozenset(dep for node in self._graph.nodes for dep in node.control_deps)

    def is_fixed(self, position: int) -> bool:
        """Whether a node must stay as it is, whatever it computes, though not where it is a graph output."""
        node = self._graph.nodes[position]
        return (
            bool(node.control_deps or node.input_versions or node.subgraphs)
            or position in self._awaited
            or any(rule.selector.picks(node) for rule in self._policy.rules)
        )

    @cached_property
    def dtypes(self) -> EntryDtypes:
        """The dtype of every entry; inputs that say nothing about theirs are float32."""
        return infer_dtypes(self._graph, self._variables)

    @cached_property
    def certain_dtypes(self) -> EntryDtypes:
        """The dtype of every entry, None where it depends on what an input is fed with."""
        certain = {
            name: dtype
            for name, dtype in self._variables.items()
            if name in self._params
            or self._graph.nodes[self._graph.variables[name]].attrs.get("__dtype__", "-1") != "-1"
        }
        found = infer_dtypes(self._graph, certain)
        for node in self._graph.nodes:
            # An integer passes through amp_cast, which inference takes for a cast where it knows nothing.
            if node.op == AMP_CAST and found[node.inputs[0].node][node.inputs[0].output] is None:
                return [(None,) * node.num_outputs for node in self._graph.nodes]
        return found

    @cached_property
    def _variables(self) -> Mapping[str, DType]:
        return variable_dtypes(
            self._graph, {name: parameter.dtype for name, parameter in self._params.items()}
        )

    def only_reader(self, position: int) -> int | None:
        """Return the one node that reads a node, once and its first output; None where there is no such."""
        uses = self._graph.uses[position]
        if position in self.heads or len(uses) != 1 or 0 not in uses or len(uses[0]) != 1:
            return None
        return uses[0][0].node


def rebuild(
    graph: Graph,
    gone: AbstractSet[int],
    instead: Mapping[Entry, Entry],
    changed: Mapping[int, Node] | None = None,
) -> tuple[Graph, Sequence[int]]:
    """Return the graph without some nodes, and for each node the one before that it is.

    Parameters
    ----------
    graph
        The graph before.
    gone
        The nodes to leave out; none is a graph output, and nothing reads them but through ``instead``.
    instead
        What is read instead of an entry that is gone: an entry that stays, in positions before.
    changed
        Nodes to put in the place of others; their inputs are positions before.
    """
    changed = changed or {}
    builder = GraphBuilder()
    places: list[int] = []
    origins: list[int] = []
    first_gone = min(gone, default=len(graph.nodes))
    for position, node in enumerate(graph.nodes):
        if position in gone:
            places.append(-1)
            continue
        if position in changed:
            node = changed[position]
        if node.op != VARIABLE and position > first_gone:  # before that, nothing has moved
            inputs = [instead.get(entry, entry) for entry in node.inputs] if instead else node.inputs
            node = node.reading(
                tuple([new_tuple(Entry, (places[producer], index)) for producer, index in inputs]),
                tuple([places[dep] for dep in node.control_deps]),
            )
        places.append(builder.add(node))
        origins.append(position)
    heads = [Entry(places[head.node], head.output) for head in graph.heads]
    return builder.build(heads, graph.attrs, graph.head_versions), origins
