"""What the passes between the decisions and the casts have in common: they carry the plan over."""

from __future__ import annotations

from mxamp.decisions import Plan
from mxamp.errors import PassError
from mxamp.passes.base import Pass
from mxamp.passes.records import PlannedNode
from mxamp.passes.state import State


class PlannedPass(Pass):
    """A pass over a graph that was decided about. It decides nothing: the new graph computes as planned."""

    step = ""
    """What the report calls the pass."""

    def requires(self, state: State) -> None:
        """Check that there is a plan, and that it was made for this graph."""
        self.plan(state)

    def ensures(self, before: State, after: State) -> None:
        """Check that outputs kept their names, and that every operator has a decision."""
        super().ensures(before, after)
        for node, decision in zip(after.graph.nodes, self.plan(after).decisions):
            if decision is None and not node.is_variable:
                raise PassError(f"There is no decision for {node}.")

    def plan(self, state: State) -> Plan:
        """Return the decisions for a graph."""
        plan = state.plan
        if plan is None or len(plan.decisions) != len(state.graph.nodes):
            raise PassError("The plan was made for another graph: it has other nodes.")
        if len(plan.heads) != len(state.graph.heads):
            raise PassError("The plan was made for another graph: it has other outputs.")
        return plan

    def changed(self, state: State, position: int, reason: str, *, is_gone: bool = False) -> PlannedNode:
        """Say what became of a node, and why.

        Parameters
        ----------
        state
            Before the pass.
        position
            The node.
        reason
            What the report says besides what was decided; instead of that, where the node is gone.
        is_gone
            Whether another node computes its values now.
        """
        node = state.since_plan.first(position)
        if node is None:  # it was put in by a pass
            node = state.since_plan.back(position)
        return PlannedNode(node, self.step.replace("_", " "), reason, is_gone)
