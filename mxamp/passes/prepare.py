"""What the passes that prepare a graph have in common: they keep every value, and say what they did."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.graph.infer import (
    EntryDtypes,
    certain_dtypes,
    infer_dtypes,
    undeclared_inputs,
    variable_dtypes,
)
from mxamp.ops.casts import CAST_OPERATORS, CASTABLE
from mxamp.params.parameter import Parameter
from mxamp.passes.edit import Edited, NodeShapes
from mxamp.policy.policy import Policy
from mxamp.targets import Target

__all__ = ["PreparationPass", "Prepared", "PreparedNode", "Surroundings"]


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


@dataclass(frozen=True)
class Prepared:
    """What a pass made of a graph.

    Attributes
    ----------
    edited
        The graph after, and how it came about.
    changes
        What became of nodes, in graph order.
    """

    edited: Edited
    changes: tuple[PreparedNode, ...]


class PreparationPass:
    """A pass over the user's graph that comes before anything is decided."""

    step = ""
    """What ``prepare`` calls the pass."""

    operators: frozenset[str] = frozenset()
    """The operators, by any of their names, without one of which there is nothing to do."""

    device = ""
    """The device whose backend gains by it; empty for all."""

    asks_target = False
    """Whether it runs only for targets that name it (:attr:`mxamp.targets.Target.rewrites`)."""

    @property
    def name(self) -> str:
        """What messages call the pass."""
        return type(self).__name__

    def runs_for(self, target: Target) -> bool:
        """Return whether a target gains by the pass."""
        if self.asks_target and self.step not in target.rewrites:
            return False
        return self.device in ("", target.device)

    def run(self, graph: Graph, around: Surroundings) -> Prepared | None:
        """Return what the pass made of the graph, None where there was nothing to do."""
        if self.operators and self.operators.isdisjoint([node.op for node in graph.nodes]):
            return None
        return self.rewrite(graph, around)

    def rewrite(self, graph: Graph, around: Surroundings) -> Prepared | None:
        """Do it; the graph holds one of :attr:`operators`."""
        raise NotImplementedError

    def changed(self, node: Node, reason: str, *, into: str | None = None) -> PreparedNode:
        """Say that a node was rewritten, in place or into another, and why."""
        return PreparedNode(node.name, node.op, self.step, node.name if into is None else into, reason)


class Surroundings:
    """What is asked about a graph while it is prepared; found out when it is asked.

    Parameters
    ----------
    graph
        The graph.
    params
        Its parameters and auxiliary states by name.
    policy
        The policy: nodes that a rule of the user's picks are left alone, so that the rule still does.
    target
        What the model is converted for.
    shapes
        For every node the shape of each output, where known. They are those of one call: a pass may choose by
        them what is fastest, and must be right for all others.
    low_inputs
        The inputs that will arrive in low precision; a cast to that is one that does nothing.
    """

    def __init__(
        self,
        graph: Graph,
        params: Mapping[str, Parameter],
        policy: Policy,
        target: Target,
        shapes: Sequence[NodeShapes] | None = None,
        low_inputs: Mapping[str, DType] | None = None,
    ) -> None:
        self._graph = graph
        self.params = params
        self.policy = policy
        self.target = target
        self._shapes = shapes
        self._low_inputs = low_inputs or {}

    @cached_property
    def heads(self) -> frozenset[int]:
        """The nodes that are graph outputs: their names are those of the outputs.

        So are those whose name a cast took that :class:`~mxamp.passes.InsertCasts` put behind them, or else
        converting again would find more to prepare.
        """
        nodes = self._graph.nodes
        found = {head.node for head in self._graph.heads}
        for position in list(found):
            node = nodes[position]
            if node.op in CAST_OPERATORS and node.inputs:
                source = node.inputs[0].node
                if nodes[source].name in {f"{node.name}_{dtype}" for dtype in CASTABLE}:
                    found.add(source)
        return frozenset(found)

    @cached_property
    def _awaited(self) -> frozenset[int]:
        return frozenset(dep for node in self._graph.nodes for dep in node.control_deps)

    def is_fixed(self, position: int, *, updating: bool = True) -> bool:
        """Whether a node must stay as it is, whatever it computes, though not where it is a graph output.

        Parameters
        ----------
        position
            The node.
        updating
            Whether one that updates a state in training, as BatchNorm its statistics, is such a node.
        """
        node = self._graph.nodes[position]
        return (
            bool(node.control_deps or (updating and node.input_versions) or node.subgraphs)
            or position in self._awaited
            or any(rule.selector.picks(node) for rule in self.policy.rules)
        )

    @cached_property
    def dtypes(self) -> EntryDtypes:
        """The dtype of every entry; inputs that say nothing about theirs are float32."""
        return infer_dtypes(self._graph, self._variables)

    @cached_property
    def certain_dtypes(self) -> EntryDtypes:
        """The dtype of every entry, None where it depends on what an input is fed with.

        Inputs that will arrive in low precision are float32 here: they are cast up wherever the model
        computes in that, and :meth:`arriving_dtype` tells of them.
        """
        unsaid = [
            name for name in self._graph.variables if name not in self.params and name not in self._low_inputs
        ]
        return certain_dtypes(self._graph, self._variables, undeclared_inputs(self._graph, unsaid))

    def arriving_dtype(self, entry: Entry) -> DType | None:
        """Return what :attr:`certain_dtypes` says of an entry, low for an input that will arrive so."""
        node = self._graph.nodes[entry.node]
        low = self._low_inputs.get(node.name) if node.is_variable else None
        return self.certain_dtypes[entry.node][entry.output] if low is None else low

    @cached_property
    def _variables(self) -> Mapping[str, DType]:
        return variable_dtypes(
            self._graph, {name: parameter.dtype for name, parameter in self.params.items()}
        )

    def shape(self, entry: Entry) -> tuple[int, ...] | None:
        """Return the shape of an entry: a parameter's always, others' in the call that is known."""
        parameter = self.parameter(entry)
        if parameter is not None:
            return parameter.shape
        return None if self._shapes is None else self._shapes[entry.node][entry.output]

    def parameter(self, entry: Entry) -> Parameter | None:
        """Return the parameter or auxiliary state that an entry is; None where it is none."""
        node = self._graph.nodes[entry.node]
        return self.params.get(node.name) if node.op == VARIABLE else None

    def only_reader(self, position: int) -> int | None:
        """Return the one node that reads a node, once and its first output; None where there is no such."""
        uses = self._graph.uses[position]
        if position in self.heads or len(uses) != 1 or 0 not in uses or len(uses[0]) != 1:
            return None
        return uses[0][0].node
