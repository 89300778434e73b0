"""Deciding inside the bodies of control flow, whose states and results keep their dtypes."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Sequence

from mxamp.decisions.decision import Plan
from mxamp.decisions.inputs import DecisionInputs
from mxamp.decisions.low_precision import LowPrecision
from mxamp.dtypes import DType
from mxamp.graph.control_flow import body_inputs, invariant_inputs
from mxamp.graph.graph import Node
from mxamp.graph.infer import EntryDtypes
from mxamp.graph.shapes import infer_body_shapes


def decide_bodies(
    given: DecisionInputs, node: Node, dtypes: EntryDtypes, decide: Callable[[DecisionInputs], Plan]
) -> tuple[Plan, ...]:
    """Decide inside the bodies of a control-flow node.

    Parameters
    ----------
    given
        What the plan of the graph is made from, in which the node lies.
    node
        The node.
    dtypes
        The dtypes of the entries of that graph.
    decide
        Makes the plan of one body.
    """
    invariant = invariant_inputs(node)
    # A body does not say that its sizes have NumPy's meaning, and in the other one its shapes would be wrong.
    shapes = None if given.graph.has_numpy_shapes else given.shapes
    outer_shapes = None if shapes is None else [shapes[entry.node][entry.output] for entry in node.inputs]
    plans = []
    for number, body in enumerate(node.subgraphs):
        mapping = body_inputs(node, number)
        variables = {}
        for name, outer in mapping.items():
            producer, index = node.inputs[outer]
            variables[name] = dtypes[producer][index] or DType.FLOAT32
        plans.append(
            decide(
                DecisionInputs(
                    graph=body,
                    variables=variables,
                    params={
                        name: given.params[source]
                        for name, outer in mapping.items()
                        for source in [given.graph.nodes[node.inputs[outer].node].name]
                        if outer in invariant
                        and source in given.params
                        and given.graph.nodes[node.inputs[outer].node].is_variable
                    },
                    policy=given.policy,
                    target=given.target,
                    kept={
                        name[len(node.name) + 1 :]: reason
                        for name, reason in given.kept.items()
                        if name.startswith(f"{node.name}/")
                    },
                    free_inputs=frozenset(
                        name
                        for name, outer in mapping.items()
                        if outer in invariant and variables[name] is DType.FLOAT32
                    ),
                    shapes=None if outer_shapes is None else infer_body_shapes(node, number, outer_shapes),
                    are_shapes_assumed=given.are_shapes_assumed,
                    # Where costs must decide outside, they do in a body whose shapes are known.
                    low_precision=None
                    if given.low_precision is LowPrecision.PROFITABLE
                    else given.low_precision,
                    # What was measured is of nodes outside.
                    placing=None
                    if given.placing is None or not given.placing.in_bodies
                    else replace(given.placing, times=None),
                )
            )
        )
    return _with_agreed_invariants(node, plans, given.policy.target_dtype)


def _with_agreed_invariants(node: Node, plans: Sequence[Plan], low: DType) -> tuple[Plan, ...]:
    """Make an invariant low at the boundary if every reader in every body wants it low.

    Where readers disagree it crosses the boundary in FP32 and is cast inside.
    """
    votes: dict[int, set[DType | None]] = {}
    for number, plan in enumerate(plans):
        body = node.subgraphs[number]
        for name, outer in body_inputs(node, number).items():
            position = body.variables[name]
            wanted = votes.setdefault(outer, set())
            for use in body.uses[position].get(0, ()):
                decision = plan.decisions[use.node]
                wanted.add(decision.inputs[use.input] if decision is not None else None)
            if any(head.node == position for head in body.heads):
                wanted.add(DType.FLOAT32)
    invariant = invariant_inputs(node)
    agreed = {outer for outer, wanted in votes.items() if outer in invariant and wanted == {low}}
    return tuple(
        replace(
            plan,
            variables_after={
                name: low for name, outer in body_inputs(node, number).items() if outer in agreed
            },
        )
        for number, plan in enumerate(plans)
    )


def wanted_by_bodies(node: Node, number: int, plans: Sequence[Plan]) -> DType | None:
    """Return the dtype in which the bodies take input ``number`` of their node."""
    for body_number, plan in enumerate(plans):
        for name, outer in body_inputs(node, body_number).items():
            if outer == number and name in plan.variables_after:
                return plan.variables_after[name]
    return None
