"""What the outputs of nodes supply and what their inputs demand: the casts that a placement would take."""

from __future__ import annotations

from typing import AbstractSet, Mapping, Sequence

from mxamp.decisions.bodies import wanted_by_bodies
from mxamp.decisions.decision import Plan
from mxamp.decisions.inputs import DecisionInputs
from mxamp.dtypes import DType
from mxamp.graph.graph import VARIABLE, Node
from mxamp.ops import FACTS, InputRole
from mxamp.ops.casts import AMP_CAST, CASTABLE, cast_target
from mxamp.placement import Demand, Supply
from mxamp.policy.color import Verdict
from mxamp.policy.context import ColoringContext

_NEVER_LOW: tuple[DType | None, ...] = ()
"""Stands for the outputs of a node that cannot be low."""

_SUPPLIES_EITHER = (Supply.EITHER,)

_ANY_DTYPE = frozenset({InputRole.LIKE, InputRole.FREE})
"""The roles of inputs that are read in whatever dtype they come."""


class Edges:
    """Supply and demand in one graph.

    Parameters
    ----------
    given
        What the plan is made from.
    context
        The facts of its nodes, and the dtypes of entries before conversion.
    verdicts
        The color of every node.
    castable
        The FP32 parameters that may be had in either dtype.
    bodies
        Control-flow node -> the plans of its bodies.
    """

    def __init__(
        self,
        given: DecisionInputs,
        context: ColoringContext,
        verdicts: Sequence[Verdict],
        castable: frozenset[str],
        bodies: Mapping[int, tuple[Plan, ...]],
    ) -> None:
        self.given, self.context, self.verdicts, self.bodies = given, context, verdicts, bodies
        self.graph, self.dtypes, self.low = given.graph, context.dtypes, given.policy.target_dtype
        self.castable_params = castable
        self._outputs_if_low: dict[int, tuple[DType | None, ...]] = {}

    def supply(self, open_nodes: AbstractSet[int]) -> list[tuple[Supply, ...]]:
        """Return what the outputs of every node supply, where some nodes are free to be low."""
        low = self.low
        supply: list[tuple[Supply, ...]] = []
        for position, (node, dtypes) in enumerate(zip(self.graph.nodes, self.dtypes)):
            if node.op == VARIABLE:
                supply.append(self._variable_supply(node.name))
                continue
            if_low = self.output_if_low(position) if position in open_nodes else _NEVER_LOW
            offers = []
            for index, dtype in enumerate(dtypes):
                if dtype is not None and dtype not in CASTABLE:
                    offers.append(Supply.EITHER)
                elif dtype is low:
                    offers.append(Supply.LOW)
                elif if_low and if_low[index] is low:
                    offers.append(Supply.CHOSEN)
                else:
                    offers.append(Supply.FP32)
            supply.append(tuple(offers))
        return supply

    def _variable_supply(self, name: str) -> tuple[Supply]:
        given = self.given
        if name in self.castable_params or name in given.free_inputs:
            return _SUPPLIES_EITHER
        dtype = given.variables.get(name, DType.FLOAT32)
        if dtype not in CASTABLE:
            return _SUPPLIES_EITHER
        return (Supply.LOW if dtype is self.low or name in given.low_inputs else Supply.FP32,)

    def output_if_low(self, position: int) -> tuple[DType | None, ...]:
        """Return the dtypes of the outputs of a node that computes low."""
        known = self._outputs_if_low.get(position)
        if known is not None:
            return known
        node, facts = self.graph.nodes[position], self.context.facts[position]
        assert facts is not None  # only nodes with facts can be low
        changed = self.attrs_if_low(position)
        attrs = {**node.attrs, **dict(changed)} if changed else node.attrs
        outputs = facts.output_dtypes(attrs, self.low, node.num_outputs)
        self._outputs_if_low[position] = outputs
        return outputs

    def attrs_if_low(self, position: int) -> tuple[tuple[str, str], ...]:
        """Return the attributes by which an operator hands on FP32 though it computes low."""
        verdict, facts = self.verdicts[position], self.context.facts[position]
        if verdict.output is None or facts is None:
            return ()
        node = self.graph.nodes[position]
        rule = facts.outputs[0]
        key = getattr(rule, "key", None)
        if key is None or node.attrs.get(key, "None") != "None":
            return ()
        return ((key, verdict.output.label),)

    def demand(self, open_nodes: AbstractSet[int]) -> list[tuple[Demand, ...]]:
        """Return what the inputs of every node demand, where some nodes are free to be low."""
        demand: list[tuple[Demand, ...]] = []
        for position, (node, facts) in enumerate(zip(self.graph.nodes, self.context.facts)):
            if not node.inputs:
                demand.append(())
                continue
            if facts is None:
                roles: Sequence[InputRole | None] = (None,) * len(node.inputs)
            else:
                roles = facts.all_roles(len(node.inputs), node.attrs)
            is_open = position in open_nodes
            needs = []
            for number, ((producer, index), role) in enumerate(zip(node.inputs, roles)):
                dtype = self.dtypes[producer][index]
                if dtype is not None and dtype not in CASTABLE:
                    needs.append(Demand.ANY)
                elif dtype is DType.FLOAT32 and self._casts_to_another_low_dtype(node):
                    needs.append(Demand.FP32)
                elif role is None:
                    needs.append(self._demand_without_facts(position, node, number, dtype))
                elif role in _ANY_DTYPE or (role is InputRole.KEPT and dtype is None):
                    needs.append(Demand.ANY)  # no conversion changes a dtype that nobody knows
                elif is_open and role.shares_dtype:
                    needs.append(Demand.CHOSEN)
                else:  # fixed: it reads what it always read
                    needs.append(Demand.LOW if dtype is self.low else Demand.FP32)
            demand.append(tuple(needs))
        return demand

    def _casts_to_another_low_dtype(self, node: Node) -> bool:
        """Return whether a cast of the user's makes 16 bits of other 16: MXNet makes noise, or raises."""
        if not FACTS.is_cast(node.op):
            return False
        target = cast_target(node.attrs, str(node))
        return target.is_low_precision and target is not self.low

    def _demand_without_facts(self, position: int, node: Node, number: int, dtype: DType | None) -> Demand:
        if node.op == AMP_CAST:
            return Demand.ANY  # what it hands on does not depend on what it reads
        if position in self.bodies:
            wanted = wanted_by_bodies(node, number, self.bodies[position])
            return Demand.LOW if wanted is self.low else Demand.FP32
        return Demand.LOW if dtype is self.low else Demand.FP32
