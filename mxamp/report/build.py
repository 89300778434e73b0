"""Build the report of a conversion from its plan and what the rewriter did."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Mapping, Optional, Sequence, Tuple

from mxamp.decisions import Decision, Plan
from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.graph.multiply_adds import multiply_adds
from mxamp.graph.output_names import output_names
from mxamp.params.parameter import Parameter
from mxamp.passes import FoldBatchNorm, InsertCasts, InsertedCast
from mxamp.report.model import CastReport, NodeReport, ParameterReport, Report

__all__ = ["Rewrites", "Shapes", "build_report"]

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
        The pass from ``before`` to ``prepared``; it may not have run.
    insert
        The pass from ``prepared`` to ``after``.
    """

    before: Graph
    prepared: Graph
    after: Graph
    plan: Plan
    fold: FoldBatchNorm
    insert: InsertCasts

    @cached_property
    def positions(self) -> Sequence[int]:
        """For every node of ``before`` its position in ``after``; -1 for variables that are gone."""
        to_prepared = self.fold.positions or range(len(self.before.nodes))
        return [self.insert.positions[p] if p >= 0 else -1 for p in to_prepared]

    @cached_property
    def origins(self) -> Mapping[int, int]:
        """Node of ``prepared`` -> the node of ``before`` whose values it computes."""
        to_prepared = self.fold.positions or range(len(self.before.nodes))
        return {new: old for old, new in enumerate(to_prepared)}

    def describe(self, entry: Entry) -> str:
        """Name an entry of ``prepared`` as the user would."""
        origin = self.origins.get(entry.node)
        if origin is None:
            return self.prepared.describe(entry)
        return self.before.describe(Entry(origin, entry.output))


def build_report(
    rewrites: Rewrites,
    params: Mapping[str, Parameter],
    *,
    target_dtype: DType,
    target: str,
    inputs: Sequence[str],
    shapes: Shapes | None = None,
    warnings: Sequence[str] = (),
) -> Report:
    """Return the report.

    Parameters
    ----------
    rewrites
        What was done.
    params
        The parameters before conversion.
    target_dtype, target
        What was converted to, and for which target.
    inputs
        Names of the variables that are no parameters.
    shapes
        Shapes of the entries of the user's graph, where known.
    warnings
        What the user should know.
    """
    nodes: list[NodeReport] = []
    _add_nodes(nodes, rewrites, shapes)
    prepared, plan = rewrites.prepared, rewrites.fold.plan
    heads = [_name(dtype) for dtype in _head_dtypes(prepared, plan)]
    return Report(
        target_dtype=target_dtype.label,
        target=target,
        nodes=tuple(nodes),
        casts=_casts(rewrites, shapes),
        parameters=_parameters(rewrites, params),
        inputs={name: rewrites.insert.new_variables[name].label for name in inputs},
        outputs=dict(zip(output_names(rewrites.before), heads)),
        warnings=tuple(warnings),
    )


def _name(dtype: DType | None) -> str | None:
    return None if dtype is None else dtype.label


def _add_nodes(nodes: list[NodeReport], rewrites: Rewrites, shapes: Shapes | None) -> None:
    before, folded = rewrites.before, rewrites.fold.folded
    for position, (node, decision) in enumerate(zip(before.nodes, rewrites.plan.decisions)):
        if decision is None:
            continue
        name_after = rewrites.after.nodes[rewrites.positions[position]].name
        if position in folded:
            layer = before.nodes[folded[position]].name
            decision = replace(
                decision,
                rule="fold batch norm",
                reason=f"folded into the weights of {layer!r}, each rounded once; it costs nothing any more",
            )
        work = multiply_adds(before, position, shapes) if shapes is not None else None
        nodes.append(_node_report(node, decision, node.name, name_after, work))
        _add_bodies(nodes, node, decision, node.name)


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
    for cast in insert.casts:
        consumers = [
            reader.get(use.node, after.nodes[use.node].name) for use in after.uses[cast.node].get(0, ())
        ]
        if Entry(cast.node) in heads:
            consumers.append("(output)")
        moved = _cast_bytes(rewrites, cast, shapes)
        entry = rewrites.describe(cast.origin)
        reports.append(_cast_report(cast, after.nodes[cast.node].name, entry, consumers, moved))
    for body in insert.body_casts:
        for cast in body.casts:
            consumers = [
                f"{body.path}/{body.after.nodes[use.node].name}"
                for use in body.after.uses[cast.node].get(0, ())
            ]
            if Entry(cast.node) in body.after.heads:
                consumers.append(f"{body.path} (result)")
            name = f"{body.path}/{body.after.nodes[cast.node].name}"
            entry = f"{body.path}/{body.before.describe(cast.origin)}"
            reports.append(_cast_report(cast, name, entry, consumers, None))
    return tuple(reports)


def _cast_report(
    cast: InsertedCast, name: str, entry: str, consumers: Sequence[str], moved: int | None
) -> CastReport:
    return CastReport(
        name=name,
        entry=entry,
        direction="down" if cast.dtype.is_low_precision else "up",
        from_dtype=_name(cast.before),
        to_dtype=cast.dtype.label,
        consumers=tuple(dict.fromkeys(consumers)),
        bytes=moved,
    )


def _cast_bytes(rewrites: Rewrites, cast: InsertedCast, shapes: Shapes | None) -> int | None:
    """Return the bytes that a forward pass reads and writes for a cast."""
    origin = rewrites.origins.get(cast.origin.node)
    if shapes is None or origin is None or cast.before is None:
        return None
    shape = shapes[origin][cast.origin.output]
    return None if shape is None else math.prod(shape) * (cast.before.itemsize + cast.dtype.itemsize)


def _parameters(rewrites: Rewrites, params: Mapping[str, Parameter]) -> tuple[ParameterReport, ...]:
    held: dict[str, dict[str, DType]] = {}
    for name, form in rewrites.insert.parameters.items():
        held.setdefault(form.source, {})[name] = form.dtype
    biases = {weight: bias for bias, weight in rewrites.fold.biases.items()}
    after = rewrites.after.variables
    reports = []
    for name, parameter in params.items():
        if name not in rewrites.before.variables:
            continue
        stored = {name: parameter.dtype, **held.get(name, {})} if name in after else {}
        elements = math.prod(parameter.shape)
        added = 0
        if name in biases:  # the bias that folding added belongs to the weight beside it
            dtype = held[biases[name]][biases[name]]
            channels = rewrites.fold.arg_params[biases[name]].shape[0]
            added = channels * dtype.itemsize
            stored = {**stored, biases[name]: dtype}
        own = [dtype.itemsize for twin, dtype in stored.items() if twin != biases.get(name)]
        reports.append(
            ParameterReport(
                name=name,
                shape=tuple(parameter.shape),
                dtype_before=parameter.dtype.label,
                stored={twin: dtype.label for twin, dtype in stored.items()},
                bytes_before=elements * parameter.dtype.itemsize,
                bytes_after=elements * sum(own) + added,
            )
        )
    return tuple(reports)
