"""Build the report of a conversion from its plan and what the rewriter did."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Mapping, Sequence

from mxamp.decisions import Decision, Plan
from mxamp.decisions.estimates import estimate
from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.graph.multiply_adds import multiply_adds
from mxamp.graph.output_names import output_names
from mxamp.ops import FACTS
from mxamp.params.saturate import Saturation
from mxamp.passes import InsertedCast, InsertedCasts, PlannedNode, PreparedNode, RewrittenMask, State
from mxamp.report.guard import GuardReport
from mxamp.report.model import (
    CastReport,
    NodeReport,
    ParameterReport,
    PlanReport,
    Report,
    TimeReport,
)
from mxamp.report.prepared import ParameterForm, with_made, with_prepared
from mxamp.targets import CostModel, Target

"""For every node, the shape of each output; None where it is not known."""


@dataclass(frozen=True)
class Rewrites:
    """What a conversion went through; without the values of parameters, which it must not keep alive.

    Attributes
    ----------
    user
        The user's model.
    decided
        The prepared one, with the decisions.
    planned
        After the passes that come before casts.
    converted
        With casts.
    users, forms
        The parameters of ``user``, in the shapes that they have when they are decided about, and those of
        ``planned``.
    """

    user: State
    decided: State
    planned: State
    converted: State
    users: Mapping[str, ParameterForm]
    forms: Mapping[str, ParameterForm]

    @classmethod
    def of(cls, user: State, planned: State, converted: State) -> Rewrites:
        """Return the states without their parameters."""
        decided = planned.decided
        assert decided is not None  # nothing is converted without decisions
        users = {**_forms(user), **_forms(decided)}
        decided = replace(decided, params={})
        return cls(
            replace(user, params={}),
            decided,
            replace(planned, params={}, decided=decided),
            replace(converted, params={}, decided=decided),
            {name: users[name] for name in user.params},
            _forms(planned),
        )

    @property
    def plan(self) -> Plan:
        """The decisions."""
        plan = self.decided.plan
        assert plan is not None  # it was decided about
        return plan

    @cached_property
    def casts(self) -> InsertedCasts:
        """The casts that were put in, and what is stored cast."""
        (inserted,) = self.converted.record(InsertedCasts)
        return inserted

    def origin(self, cast: InsertedCast) -> Entry:
        """Return the entry of the graph that was decided about whose values a cast carries."""
        return Entry(self.planned.since_plan.back(cast.origin.node), cast.origin.output)


def _forms(state: State) -> Mapping[str, ParameterForm]:
    return {name: ParameterForm(value.shape, value.dtype) for name, value in state.params.items()}


def build_report(
    rewrites: Rewrites,
    *,
    inputs: Sequence[str],
    warnings: Sequence[str] = (),
    saturations: Mapping[str, Saturation] | None = None,
    race: Sequence[PlanReport] = (),
    guard: GuardReport | None = None,
    here: Target | None = None,
    nothing_low: str | None = None,
    assumed_shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Report:
    """Return the report.

    Parameters
    ----------
    rewrites
        What was done.
    inputs
        Names of the variables that are no parameters.
    warnings
        What the user should know.
    saturations
        Parameter -> what clamping it lost.
    race
        The plans that were run against each other.
    guard
        What the guard measured.
    here
        What describes this machine, where that is not the target.
    nothing_low
        Why nothing was converted.
    assumed_shapes
        Input -> the shape that was assumed, to prepare the graph by and, where the plan rests on them, to
        weigh costs.
    """
    decided, converted = rewrites.decided, rewrites.converted
    low, target, planned = decided.policy.target_dtype, decided.target, rewrites.planned
    nodes: list[NodeReport] = []
    casts = _casts(rewrites)
    parameters = _parameters(rewrites, saturations or {})
    starts = _add_nodes(nodes, rewrites, _Times(rewrites, low))
    changes = decided.record(PreparedNode)
    heads = [_name(dtype) for dtype in _head_dtypes(planned)]
    return Report(
        target_dtype=low.label,
        target=target.name,
        nodes=tuple(with_prepared(nodes, starts, rewrites.user, decided)),
        casts=casts,
        parameters=with_made(parameters, rewrites.users, rewrites.user, planned),
        inputs={name: rewrites.casts.variables[name].label for name in inputs},
        outputs=dict(zip(output_names(decided.graph), heads)),
        warnings=tuple(warnings),
        masks=converted.record(RewrittenMask),
        preparations=changes,
        time=_time(rewrites, nodes, casts, target.cost),
        time_here=None if here is None else _time_here(rewrites, here, low),
        race=tuple(race),
        guard=guard,
        nothing_low=nothing_low,
        assumed_shapes=dict(assumed_shapes or {}),
        weighs_assumed=bool(assumed_shapes and decided.plan is not None and decided.plan.rests_on_assumed),
    )


def _name(dtype: DType | None) -> str | None:
    return None if dtype is None else dtype.label


class _Times:
    """What the plan expects nodes to take; for a plan without estimates, nothing."""

    def __init__(self, rewrites: Rewrites, low: DType) -> None:
        plan = rewrites.plan
        self._estimates, self._is_float32 = plan.estimates, plan.is_float32
        if plan.estimates is None:
            return
        self._mixed = plan.estimates.mixed(
            {
                position
                for position, decision in enumerate(plan.decisions)
                if decision is not None and decision.compute is low
            }
        )
        self._casts: dict[int, float] = {}
        for cast in rewrites.casts.casts:
            origin = rewrites.origin(cast).node
            self._casts[origin] = self._casts.get(origin, 0.0) + (_cast_us(rewrites, cast) or 0.0)

    def add_to(self, report: NodeReport, position: int, *, is_gone: bool) -> NodeReport:
        """Return the report of a node with what the node is expected to take."""
        if self._estimates is None:
            return report
        # Where nothing is low the model is what FP32 is prepared to: what a pass took out is in neither.
        is_in_neither = is_gone and self._is_float32
        return replace(
            report,
            float32_us=0.0 if is_in_neither else _rounded(self._estimates.float32[position]),
            mixed_us=0.0 if is_gone else _rounded(self._mixed[position]),
            cast_us=_rounded(self._casts.get(position, 0.0)),
            is_time_measured=position in self._estimates.in_model,
        )


def _rounded(microseconds: float) -> float:
    return round(microseconds, 2)


def _cast_us(rewrites: Rewrites, cast: InsertedCast) -> float | None:
    """Return what a cast is expected to take."""
    estimates = rewrites.plan.estimates
    if estimates is None:
        return None
    return _rounded(estimates.cast(rewrites.origin(cast), down=cast.dtype.is_low_precision))


def _time(
    rewrites: Rewrites, nodes: Sequence[NodeReport], casts: Sequence[CastReport], cost: CostModel | None
) -> TimeReport | None:
    estimates = rewrites.plan.estimates
    if estimates is None:
        return None
    cast_us = sum(cast.us or 0.0 for cast in casts)
    measured = sum(node.is_time_measured for node in nodes)
    call_us = 0.0 if measured or cost is None else cost.call_us
    return TimeReport(
        float32_us=_rounded(sum(node.float32_us or 0.0 for node in nodes) + call_us),
        mixed_us=_rounded(sum(node.mixed_us or 0.0 for node in nodes) + cast_us + call_us),
        casts_us=_rounded(cast_us),
        is_measured=estimates.is_measured,
        measured_nodes=measured,
        machine="" if measured or cost is None else cost.machine,
    )


def _time_here(rewrites: Rewrites, here: Target, low: DType) -> TimeReport | None:
    """Return what the plan is expected to take on another target than the one that it was made for."""
    graph, shapes = rewrites.decided.graph, rewrites.decided.shapes
    if shapes is None or here.cost is None:
        return None
    positions = {
        position
        for position, decision in enumerate(rewrites.plan.decisions)
        if decision is not None and decision.compute is low
    }
    names = [node.op if node.is_variable else FACTS.canonical(node.op) for node in graph.nodes]
    found = estimate(graph, names, here, here.cost, shapes, choices=positions)
    casts = 0.0
    for cast in rewrites.casts.casts:
        casts += found.cast(rewrites.origin(cast), down=cast.dtype.is_low_precision)
    gone = {change.node for change in rewrites.planned.record(PlannedNode) if change.is_gone}
    mixed = [us for position, us in enumerate(found.mixed(positions)) if position not in gone]
    float32 = mixed if rewrites.plan.is_float32 else found.float32
    return TimeReport(
        float32_us=_rounded(sum(float32) + here.cost.call_us),
        mixed_us=_rounded(sum(mixed) + casts + here.cost.call_us),
        casts_us=_rounded(casts),
        is_measured=found.is_measured,
        machine=here.cost.machine,
    )


def _add_nodes(nodes: list[NodeReport], rewrites: Rewrites, times: _Times) -> Sequence[tuple[int, int]]:
    """Add what happened to every operator; return where each begins: its position, and that in ``nodes``."""
    starts = []
    decided, converted = rewrites.decided, rewrites.converted
    changes = {change.node: change for change in converted.record(PlannedNode)}
    for position, (node, decision) in enumerate(zip(decided.graph.nodes, rewrites.plan.decisions)):
        if decision is None:
            continue
        place = converted.since_plan.forward(position)
        name_after = node.name if place is None else converted.graph.nodes[place].name
        change = changes.get(position)
        is_gone = change is not None and change.is_gone
        if change is not None and is_gone:
            decision = decision._replace(rule=change.step, reason=change.reason)
        elif change is not None:
            decision = decision._replace(reason=f"{decision.reason}; {change.reason}")
        work = multiply_adds(decided.graph, position, decided.shapes) if decided.shapes is not None else None
        report = _node_report(node, decision, node.name, name_after, work)
        starts.append((position, len(nodes)))
        nodes.append(times.add_to(report, position, is_gone=is_gone))
        _add_bodies(nodes, node, decision, node.name)
    return starts


def _add_bodies(nodes: list[NodeReport], node: Node, decision: Decision, path: str) -> None:
    for body, plan in zip(node.subgraphs, decision.bodies):
        for inner, inner_decision in zip(body.nodes, plan.decisions):
            if inner_decision is not None:
                name = f"{path}/{inner.name}"
                nodes.append(_node_report(inner, inner_decision, name, name, None))
                _add_bodies(nodes, inner, inner_decision, name)


def _node_report(node: Node, decision: Decision, name: str, name_after: str, work: int | None) -> NodeReport:
    return NodeReport(
        name=name,
        op=node.op,
        color=decision.color.value,
        rule=decision.rule,
        reason=decision.reason,
        compute=_name(decision.compute),
        accumulation=_name(decision.accumulation),
        outputs=tuple([_name(dtype) for dtype in decision.outputs]),
        inputs=tuple([_name(dtype) for dtype in decision.inputs]),
        name_after=name_after,
        multiply_adds=work,
    )


def _head_dtypes(planned: State) -> Sequence[DType | None]:
    graph, plan = planned.graph, planned.plan
    assert plan is not None  # it is carried out by the casts
    found = []
    for head, wanted in zip(graph.heads, plan.heads):
        decision = plan.decisions[head.node]
        if wanted is None:
            wanted = (
                decision.outputs[head.output]
                if decision is not None
                else plan.variables_before.get(graph.nodes[head.node].name)
            )
        found.append(wanted)
    return found


def _casts(rewrites: Rewrites) -> tuple[CastReport, ...]:
    reports = []
    before, after, insert = rewrites.decided.graph, rewrites.converted.graph, rewrites.casts
    heads = set(after.heads)

    def reader(position: int) -> str:
        # A layer that a BatchNorm was folded into reads; what it hands on goes by the BatchNorm's name.
        known = rewrites.converted.since_plan.first(position)
        return after.nodes[position].name if known is None else before.nodes[known].name

    read_by: dict[int, list[int]] = {cast.node: [] for cast in insert.casts}
    for position, node in enumerate(after.nodes):
        for entry in node.inputs:
            if entry.node in read_by:
                read_by[entry.node].append(position)
    for cast in insert.casts:
        consumers = [reader(position) for position in read_by[cast.node]]
        if Entry(cast.node) in heads:
            consumers.append("(output)")
        moved = _cast_bytes(rewrites, cast)
        source = before.describe(rewrites.origin(cast))
        name = after.nodes[cast.node].name
        reports.append(_cast_report(cast, name, source, consumers, moved, _cast_us(rewrites, cast)))
    for body in insert.bodies:
        for cast in body.casts:
            consumers = [
                f"{body.path}/{body.after.nodes[use.node].name}"
                for use in body.after.uses[cast.node].get(0, ())
            ]
            if Entry(cast.node) in body.after.heads:
                consumers.append(f"{body.path} (result)")
            name = f"{body.path}/{body.after.nodes[cast.node].name}"
            source = f"{body.path}/{body.before.describe(cast.origin)}"
            reports.append(_cast_report(cast, name, source, consumers, None))
    return tuple(reports)


def _cast_report(
    cast: InsertedCast,
    name: str,
    entry: str,
    consumers: Sequence[str],
    moved: int | None,
    microseconds: float | None = None,
) -> CastReport:
    return CastReport(
        name=name,
        entry=entry,
        direction="down" if cast.dtype.is_low_precision else "up",
        from_dtype=_name(cast.before),
        to_dtype=cast.dtype.label,
        consumers=tuple(dict.fromkeys(consumers)),
        bytes=moved,
        us=microseconds,
    )


def _cast_bytes(rewrites: Rewrites, cast: InsertedCast) -> int | None:
    """Return the bytes that a forward pass reads and writes for a cast."""
    origin, shapes = rewrites.origin(cast), rewrites.decided.shapes
    if shapes is None or cast.before is None:
        return None
    shape = shapes[origin.node][origin.output]
    return None if shape is None else math.prod(shape) * (cast.before.itemsize + cast.dtype.itemsize)


def _parameters(rewrites: Rewrites, saturations: Mapping[str, Saturation]) -> Sequence[ParameterReport]:
    """Return the reports of the parameters that casts were made of."""
    held: dict[str, dict[str, DType]] = {}
    for name, form in rewrites.casts.parameters.items():
        held.setdefault(form.source, {})[name] = form.dtype
    after = rewrites.converted.graph.variables
    reports = []
    for name, parameter in rewrites.forms.items():
        if name not in rewrites.planned.graph.variables:
            continue
        stored = {name: parameter.dtype, **held.get(name, {})} if name in after else {}
        elements = math.prod(parameter.shape)
        reports.append(
            ParameterReport(
                name=name,
                shape=parameter.shape,
                dtype_before=parameter.dtype.label,
                stored={twin: dtype.label for twin, dtype in stored.items()},
                bytes_before=elements * parameter.dtype.itemsize,
                bytes_after=elements * sum(dtype.itemsize for dtype in stored.values()),
                saturation=saturations.get(name),
            )
        )
    return reports
