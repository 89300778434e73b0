"""What loops and branches take: what was decided inside, for every iteration."""

from __future__ import annotations

from typing import Mapping, Sequence

from mxamp.decisions.decision import Plan
from mxamp.decisions.estimates import Estimates, LoopTime
from mxamp.dtypes import DType
from mxamp.graph.graph import VARIABLE, Entry, Graph
from mxamp.ops.control_flow import CONTROL_FLOW
from mxamp.targets.work import Shapes

_CALLED_ALONE = 0.27
"""What handing each node of a body to the engine takes, as a share of a call. Of Keras' recurrent networks,
25 to 160 iterations of some 30 nodes, 2.5 to 3.0 microseconds a node were missing (AMD EPYC of family 26)."""


def loop_times(
    graph: Graph, shapes: Shapes, bodies: Mapping[int, Sequence[Plan]], call_us: float
) -> Mapping[int, LoopTime]:
    """Return what the control-flow nodes of a graph take.

    Parameters
    ----------
    graph
        The graph.
    shapes
        For every node, the shape of each output.
    bodies
        Control-flow node -> the plans of its bodies; without those whose shapes are not known.
    call_us
        What calling a body takes, in microseconds.

    Notes
    -----
    A loop whose end depends on data is taken to run as often as it may, and of branches the longest counts.
    """
    found = {}
    for position, plans in bodies.items():
        node = graph.nodes[position]
        inputs = [shapes[entry.node][entry.output] for entry in node.inputs]
        steps = CONTROL_FLOW[node.op].iterations(node.attrs, inputs)
        times = [_body_time(body, plan) for body, plan in zip(node.subgraphs, plans)]
        known = [time for time in times if time is not None]
        if len(known) < len(times) or not known:
            continue
        if steps is None:  # the condition, and one of the branches
            known = [known[0], max(known[1:], default=known[0])]
        nodes = sum(body.operator_count for body in node.subgraphs)
        calls = call_us * (len(known) + _CALLED_ALONE * nodes)
        float32, mixed = (sum(column) + calls for column in zip(*known))
        found[position] = LoopTime(float32 * (steps or 1), mixed * (steps or 1))
    return found


def _body_time(body: Graph, plan: Plan) -> LoopTime | None:
    estimates = plan.estimates
    if estimates is None:
        return None
    low = {
        position
        for position, decision in enumerate(plan.decisions)
        if decision is not None and decision.compute is not None and decision.compute.is_low_precision
    }
    mixed = sum(estimates.mixed(low)) + _cast_time(body, plan, estimates)
    return LoopTime(sum(estimates.float32), mixed)


def _cast_time(body: Graph, plan: Plan, estimates: Estimates) -> float:
    """Return what the casts take that a plan brings about."""
    casts = set()
    for node, decision in zip(body.nodes, plan.decisions):
        for entry, need in zip(node.inputs, () if decision is None else decision.inputs):
            casts.add((entry, need))
    casts.update(zip(body.heads, plan.heads))
    return sum(
        estimates.cast(entry, down=need.is_low_precision)
        for entry, need in casts
        if need is not None and _dtype(body, plan, entry) not in (None, need)
    )


def _dtype(body: Graph, plan: Plan, entry: Entry) -> DType | None:
    """Return the dtype in which an entry is handed on; None where that is not known, or whatever is asked."""
    node, decision = body.nodes[entry.node], plan.decisions[entry.node]
    if node.op == VARIABLE:
        if node.name in plan.cast_offline:
            return None
        return plan.variables_after.get(node.name, plan.variables_before.get(node.name, DType.FLOAT32))
    return None if decision is None else decision.outputs[entry.output]
