"""Everything a rule may look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Mapping, Sequence, Tuple

from mxamp.graph.graph import VARIABLE, Entry, Graph
from mxamp.graph.infer import EntryDtypes
from mxamp.graph.output_names import cast_names
from mxamp.ops import FACTS, OperatorFacts
from mxamp.params.parameter import Parameter
from mxamp.policy.color import Verdict
from mxamp.policy.policy import Policy
from mxamp.policy.view import NodeView

Shape = Tuple[int, ...]


@dataclass(frozen=True)
class ColoringContext:
    """A graph with what is known about it.

    Attributes
    ----------
    graph
        The graph.
    dtypes
        The dtype of every entry before conversion.
    policy
        The policy.
    params
        Parameters by variable name, auxiliary states included.
    shapes
        For every node, the shape of each output where known; None when no shapes are.
    saturated
        The parameters that are clamped to the dtype's range when they are cast, and so never overflow.
    """

    graph: Graph
    dtypes: EntryDtypes
    policy: Policy
    params: Mapping[str, Parameter] = field(default_factory=dict)
    shapes: Sequence[tuple[Shape | None, ...]] | None = None
    saturated: frozenset[str] = frozenset()

    @cached_property
    def facts(self) -> Sequence[OperatorFacts | None]:
        """The facts of every node's operator; None for variables, casts, control flow, unknown operators."""
        of = FACTS.of
        return [None if node.op == VARIABLE else of(node.op, node.attrs) for node in self.graph.nodes]

    @cached_property
    def names(self) -> Sequence[str]:
        """The canonical operator name of every node."""
        return [node.op if facts is None else facts.name for node, facts in zip(self.graph.nodes, self.facts)]

    @cached_property
    def table_verdicts(self) -> dict[str, Verdict]:
        """Operator -> what the policy's tables say of it; filled in as they are asked."""
        return {}

    @cached_property
    def head_outputs(self) -> Mapping[int, tuple[int, ...]]:
        """Node position -> which of its outputs are graph outputs."""
        found: dict[int, list[int]] = {}
        for node, output in self.graph.heads:
            found.setdefault(node, []).append(output)
        return {node: tuple(outputs) for node, outputs in found.items()}

    @cached_property
    def cast_names(self) -> Mapping[Entry, str]:
        """The graph outputs that can be cast, with the names of the casts; see :func:`cast_names`."""
        return cast_names(self.graph)

    @cached_property
    def sparse(self) -> Mapping[int, str]:
        """Node position -> the sparse variable that it is, or that it alone reads and may hand on as sparse.

        A parameter is as it is stored; an input as its ``__storage_type__`` says, 1 for row_sparse and 2 for
        csr. Of operators those with one input may keep the storage (``abs``, ``slice``).
        """
        found: dict[int, str] = {}
        for position, node in enumerate(self.graph.nodes):
            if node.op == VARIABLE:
                parameter = self.params.get(node.name)
                declared = node.attrs.get("__storage_type__") in ("1", "2")
                if declared if parameter is None else parameter.is_sparse:
                    found[position] = node.name
            elif found and len(node.inputs) == 1 and node.inputs[0].node in found:
                found[position] = found[node.inputs[0].node]
        return found

    def parameter(self, position: int) -> Parameter | None:
        """Return the parameter a node is, if it is one."""
        node = self.graph.nodes[position]
        return self.params.get(node.name) if node.op == VARIABLE else None

    def view(self, position: int) -> NodeView:
        """Return what a color function sees of a node."""
        graph = self.graph
        node = graph.nodes[position]
        shapes: list[Shape | None] = []
        param_shapes: dict[str, Shape] = {}
        for entry in node.inputs:
            parameter = self.parameter(entry.node)
            if parameter is not None:
                param_shapes[graph.nodes[entry.node].name] = parameter.shape
                shapes.append(parameter.shape)
            else:
                shapes.append(self.shapes[entry.node][entry.output] if self.shapes is not None else None)
        readers = sorted({use.node for places in graph.uses[position].values() for use in places})
        attrs: Mapping[str, Any] = dict(node.attrs)
        return NodeView(
            op=node.op,
            name=node.name,
            attrs=attrs,
            input_names=tuple(graph.describe(entry) for entry in node.inputs),
            input_shapes=tuple(shapes),
            param_shapes=param_shapes,
            producers=tuple(graph.nodes[entry.node].op for entry in node.inputs),
            consumers=tuple((graph.nodes[reader].name, graph.nodes[reader].op) for reader in readers),
        )
