"""Build the report of a conversion from its plan and what the rewriter did."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Mapping, Optional, Sequence, Tuple

from mxamp.decisions import Decision, Plan
from mxamp.decisions.estimates import estimate
from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.graph.multiply_adds import multiply_adds
from mxamp.graph.output_names import output_names
from mxamp.ops import FACTS
from mxamp.params.saturate import Saturation
from mxamp.passes import FoldedNorms, InsertCasts, InsertedCast, Preparation, RewrittenMask
from mxamp.report.guard import GuardReport
from mxamp.report.model import (
    CastReport,
    MaskReport,
    NodeReport,
    ParameterReport,
    PlanReport,
    PreparationReport,
    Report,
    SaturationReport,
    TimeReport,
)
from mxamp.report.prepared import ParameterForm, with_prepared, with_prepared_parameters
from mxamp.targets import Target

__all__ = ["ParameterForm", "Rewrites", "Shapes", "build_report"]

Shapes = Sequence[Tuple[Optional[Tuple[int, ...]], ...]]
"""For every node, the shape of each output; None where it is not known."""


@dataclass(frozen=True)
class Rewrites:
    """A conversion's graphs, plan and passes.

    Attributes
    ----------
    before
        The user's graph.
    prepared
        The graph after the passes that come before casts.
    after
        The converted graph.
    plan
        The decisions for ``before``.
    fold
        What came between ``before`` and ``prepared``.
    insert
        The pass from ``prepared`` to ``after``.
    shapes
        For every node of ``before`` the shape of each output, where known.
    """

    before: Graph
    prepared: Graph
    after: Graph
    plan: Plan
    fold: FoldedNorms
    insert: InsertCasts
    shapes: Shapes | None = None

    @cached_property
    def positions(self) -> Sequence[int]:
        """For every node of ``before`` its position in ``after``; -1 for variables that are gone."""
        return [self.insert.positions[p] if p >= 0 else -1 for p in self.fold.positions]

    @cached_property
    def origins(self) -> Mapping[int, int]:
        """Node of ``prepared`` -> the node of ``before`` whose values it computes."""
        return {new: old for old, new in enumerate(self.fold.positions)}

    def describe(self, entry: Entry) -> str:
        """Name an entry of ``prepared`` as the user would."""
        origin = self.origins.get(entry.node)
        if origin is None:
            return self.prepared.describe(entry)
        return self.before.describe(Entry(origin, entry.output))


def build_report(
    rewrites: Rewrites,
    params: Mapping[str, ParameterForm],
    *,
    target_dtype: DType,
    target: str,
    inputs: Sequence[str],
    shapes: Shapes | None = None,
    warnings: Sequence[str] = (),
    saturations: Mapping[str, Saturation] | None = None,
    masks: Sequence[RewrittenMask] = (),
    users: Mapping[str, ParameterForm] | None = None,
    preparation: Preparation | None = None,
    origins: Sequence[int] = (),
    race: Sequence[PlanReport] = (),
    guard: GuardReport | None = None,
    machine: str = "",
    here: Target | None = None,
    nothing_low: str | None = None,
    assumed_shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Report:
    """Return the report.

    Parameters
    ----------
    rewrites
        What was done.
    params
        The parameters before conversion, of the prepared graph.
    target_dtype, target
        What was converted to, and for which target.
    inputs
        Names of the variables that are no parameters.
    shapes
        Shapes of the entries of the user's graph, where known.
    warnings
        What the user should know.
    saturations
        Parameter -> what clamping it lost.
    masks
        What became of masks, before ``rewrites``.
    users
        The user's parameters, where they are others than ``params``.
    preparation
        What prepared the graph, before that; its parameters are not looked at.
    origins
        For every node of the graph that was rewritten the node before preparation that it is.
    race
        The plans that were run against each other.
    guard
        What the guard measured.
    machine
        The machine that the target's costs are of.
    here
        What describes this machine, where that is not the target.
    nothing_low
        Why nothing was converted.
    assumed_shapes
        Input -> the shape that was assumed to weigh costs.
    """
    nodes: list[NodeReport] = []
    casts = _casts(rewrites, shapes)
    starts = _add_nodes(nodes, rewrites, shapes, _Times(rewrites, target_dtype))
    changes = preparation.changes if preparation is not None else ()
    of_user: Sequence[NodeReport] = nodes
    if preparation is not None and changes:
        of_user = with_prepared(nodes, starts, preparation, origins)
    parameters = _parameters(rewrites, params, saturations or {})
    if preparation is not None and users is not None:
        parameters = with_prepared_parameters(parameters, users, preparation)
    prepared, plan = rewrites.prepared, rewrites.fold.plan
    heads = [_name(dtype) for dtype in _head_dtypes(prepared, plan)]
    return Report(
        target_dtype=target_dtype.label,
        target=target,
        nodes=tuple(of_user),
        casts=casts,
        parameters=parameters,
        inputs={name: rewrites.insert.new_variables[name].label for name in inputs},
        outputs=dict(zip(output_names(rewrites.before), heads)),
        warnings=tuple(warnings),
        masks=tuple([MaskReport(**vars(mask)) for mask in masks]),
        preparations=tuple([PreparationReport(**vars(change)) for change in changes]),
        time=_time(rewrites, nodes, casts, machine),
        time_here=None if here is None else _time_here(rewrites, here, target_dtype),
        race=tuple(race),
        guard=guard,
        nothing_low=nothing_low,
        assumed_shapes=dict(assumed_shapes or {}),
    )


def _name(dtype: DType | None) -> str | None:
    return None if dtype is None else dtype.label


class _Times:
    """What the plan expects nodes to take; for a plan without estimates, nothing."""

    def __init__(self, rewrites: Rewrites, low: DType) -> None:
        plan = rewrites.plan
        self._estimates = plan.estimates
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
        for cast in rewrites.insert.casts:
            origin = rewrites.origins.get(cast.origin.node)
            if origin is not None:
                self._casts[origin] = self._casts.get(origin, 0.0) + (_cast_us(rewrites, cast) or 0.0)

    def add_to(self, report: NodeReport, position: int, *, is_folded: bool) -> NodeReport:
        """Return the report of a node with what the node is expected to take."""
        if self._estimates is None:
            return report
        return replace(
            report,
            float32_us=_rounded(self._estimates.float32[position]),
            mixed_us=0.0 if is_folded else _rounded(self._mixed[position]),
            cast_us=_rounded(self._casts.get(position, 0.0)),
            is_time_measured=position in self._estimates.in_model,
        )


def _rounded(microseconds: float) -> float:
    return round(microseconds, 2)


def _cast_us(rewrites: Rewrites, cast: InsertedCast) -> float | None:
    """Return what a cast is expected to take."""
    estimates, origin = rewrites.plan.estimates, rewrites.origins.get(cast.origin.node)
    if estimates is None or origin is None:
        return None
    return _rounded(estimates.cast(Entry(origin, cast.origin.output), down=cast.dtype.is_low_precision))


def _time(
    rewrites: Rewrites, nodes: Sequence[NodeReport], casts: Sequence[CastReport], machine: str
) -> TimeReport | None:
    estimates = rewrites.plan.estimates
    if estimates is None:
        return None
    cast_us = sum(cast.us or 0.0 for cast in casts)
    measured = sum(node.is_time_measured for node in nodes)
    return TimeReport(
        float32_us=_rounded(sum(node.float32_us or 0.0 for node in nodes)),
        mixed_us=_rounded(sum(node.mixed_us or 0.0 for node in nodes) + cast_us),
        casts_us=_rounded(cast_us),
        is_measured=estimates.is_measured,
        measured_nodes=measured,
        machine="" if measured else machine,
    )


def _time_here(rewrites: Rewrites, here: Target, low: DType) -> TimeReport | None:
    """Return what the plan is expected to take on another target than the one that it was made for."""
    if rewrites.shapes is None or here.cost is None:
        return None
    graph = rewrites.before
    positions = {
        position
        for position, decision in enumerate(rewrites.plan.decisions)
        if decision is not None and decision.compute is low
    }
    names = [node.op if node.is_variable else FACTS.canonical(node.op) for node in graph.nodes]
    found = estimate(graph, names, here, here.cost, rewrites.shapes, choices=positions)
    casts = 0.0
    for cast in rewrites.insert.casts:
        origin = rewrites.origins.get(cast.origin.node)
        if origin is not None:
            casts += found.cast(Entry(origin, cast.origin.output), down=cast.dtype.is_low_precision)
    mixed = [us for position, us in enumerate(found.mixed(positions)) if position not in rewrites.fold.layers]
    return TimeReport(
        float32_us=_rounded(sum(found.float32)),
        mixed_us=_rounded(sum(mixed) + casts),
        casts_us=_rounded(casts),
        is_measured=found.is_measured,
        machine=here.cost.machine,
    )


def _add_nodes(
    nodes: list[NodeReport], rewrites: Rewrites, shapes: Shapes | None, times: _Times
) -> Sequence[tuple[int, int]]:
    """Add what happened to every operator; return where each begins: its position, and that in ``nodes``."""
    starts = []
    before, folded = rewrites.before, rewrites.fold.layers
    for position, (node, decision) in enumerate(zip(before.nodes, rewrites.plan.decisions)):
        if decision is None:
            continue
        name_after = rewrites.after.nodes[rewrites.positions[position]].name
        if position in folded:
            layer = before.nodes[folded[position]].name
            decision = decision._replace(
                rule="fold batch norm",
                reason=f"folded into the weights of {layer!r}, each rounded once; it costs nothing any more",
            )
        elif position in rewrites.fold.subnormal:
            layer = before.nodes[rewrites.fold.subnormal[position]].name
            decision = decision._replace(
                reason=f"{decision.reason}; not folded into {layer!r}, whose weights would become subnormal"
            )
        elif position in rewrites.fold.convolved:
            decision = decision._replace(
                reason=f"{decision.reason}; written as a depthwise Convolution, which is faster"
            )
        work = multiply_adds(before, position, shapes) if shapes is not None else None
        report = _node_report(node, decision, node.name, name_after, work)
        starts.append((position, len(nodes)))
        nodes.append(times.add_to(report, position, is_folded=position in folded))
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


def _head_dtypes(graph: Graph, plan: Plan) -> Sequence[DType | None]:
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


def _casts(rewrites: Rewrites, shapes: Shapes | None) -> tuple[CastReport, ...]:
    reports = []
    after, insert = rewrites.after, rewrites.insert
    heads = set(after.heads)
    # A layer that a BatchNorm was folded into is what reads; what it hands on goes by the BatchNorm's name.
    reader: dict[int, str] = {}
    for old, new in enumerate(rewrites.positions):
        reader.setdefault(new, rewrites.before.nodes[old].name)
    read_by: dict[int, list[int]] = {cast.node: [] for cast in insert.casts}
    for position, node in enumerate(after.nodes):
        for entry in node.inputs:
            if entry.node in read_by:
                read_by[entry.node].append(position)
    for cast in insert.casts:
        consumers = [reader.get(position, after.nodes[position].name) for position in read_by[cast.node]]
        if Entry(cast.node) in heads:
            consumers.append("(output)")
        moved = _cast_bytes(rewrites, cast, shapes)
        source = rewrites.describe(cast.origin)
        name = after.nodes[cast.node].name
        reports.append(_cast_report(cast, name, source, consumers, moved, _cast_us(rewrites, cast)))
    for body in insert.body_casts:
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


def _cast_bytes(rewrites: Rewrites, cast: InsertedCast, shapes: Shapes | None) -> int | None:
    """Return the bytes that a forward pass reads and writes for a cast."""
    origin = rewrites.origins.get(cast.origin.node)
    if shapes is None or origin is None or cast.before is None:
        return None
    shape = shapes[origin][cast.origin.output]
    return None if shape is None else math.prod(shape) * (cast.before.itemsize + cast.dtype.itemsize)


def _parameters(
    rewrites: Rewrites, params: Mapping[str, ParameterForm], saturations: Mapping[str, Saturation]
) -> tuple[ParameterReport, ...]:
    held: dict[str, dict[str, DType]] = {}
    for name, form in rewrites.insert.parameters.items():
        held.setdefault(form.source, {})[name] = form.dtype
    after = rewrites.after.variables
    reports = []
    for name, parameter in params.items():
        if name not in rewrites.before.variables:
            continue
        successor = rewrites.fold.successors.get(name)
        stored = {name: parameter.dtype, **held.get(name, {})} if name in after else {}
        if successor is not None:
            stored = held[successor]
        elements = math.prod(parameter.shape)
        own = [dtype.itemsize for dtype in stored.values()]
        added = 0
        if name in rewrites.fold.biases:  # the bias that folding added belongs to the weight beside it
            bias, channels = rewrites.fold.biases[name]
            stored = {**stored, bias: held.get(bias, {}).get(bias, DType.FLOAT32)}
            added = channels * stored[bias].itemsize
        reports.append(
            ParameterReport(
                name=name,
                shape=parameter.shape,
                dtype_before=parameter.dtype.label,
                stored={twin: dtype.label for twin, dtype in stored.items()},
                bytes_before=elements * parameter.dtype.itemsize,
                bytes_after=elements * sum(own) + added,
                saturation=_saturation(saturations.get(name)),
            )
        )
    return tuple(reports)


def _saturation(found: Saturation | None) -> SaturationReport | None:
    return None if found is None else SaturationReport(**vars(found))
