"""Build the report of a conversion from its plan and what the rewriter did."""

from __future__ import annotations

from typing import Mapping, Optional, Sequence, Tuple

from mxamp.decisions import Plan
from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph
from mxamp.graph.multiply_adds import multiply_adds
from mxamp.graph.output_names import output_names
from mxamp.params.parameter import Parameter
from mxamp.passes import InsertCasts
from mxamp.report.model import CastReport, NodeReport, ParameterReport, Report

__all__ = ["Shapes", "build_report"]

Shapes = Sequence[Tuple[Optional[Tuple[int, ...]], ...]]
"""For every node, the shape of each output; None where it is not known."""


def build_report(
    before: Graph,
    after: Graph,
    plan: Plan,
    rewrite: InsertCasts,
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
    before, after
        The graphs before and after conversion.
    plan
        The decisions for ``before``.
    rewrite
        The pass that carried them out.
    params
        The parameters before conversion.
    target_dtype, target
        What was converted to, and for which target.
    inputs
        Names of the variables that are no parameters.
    shapes
        Shapes of the entries of ``before``, where known.
    warnings
        What the user should know.
    """
    nodes: list[NodeReport] = []
    _add_nodes(nodes, before, plan, "", rewrite.positions, after, shapes)
    heads = [_name(dtype) for dtype in _head_dtypes(before, plan)]
    return Report(
        target_dtype=target_dtype.label,
        target=target,
        nodes=tuple(nodes),
        casts=_casts(before, after, rewrite, plan, shapes),
        parameters=_parameters(before, rewrite, params),
        inputs={name: rewrite.new_variables[name].label for name in inputs},
        outputs=dict(zip(output_names(before), heads)),
        warnings=tuple(warnings),
    )


def _name(dtype: DType | None) -> str | None:
    return None if dtype is None else dtype.label


def _add_nodes(
    nodes: list[NodeReport],
    graph: Graph,
    plan: Plan,
    prefix: str,
    positions: Sequence[int],
    after: Graph | None,
    shapes: Shapes | None,
) -> None:
    for position, (node, decision) in enumerate(zip(graph.nodes, plan.decisions)):
        if decision is None:
            continue
        nodes.append(
            NodeReport(
                name=prefix + node.name,
                op=node.op,
                color=decision.color.value,
                rule=decision.rule,
                reason=decision.reason,
                compute=_name(decision.compute),
                accumulation=_name(decision.accumulation),
                outputs=tuple([_name(dtype) for dtype in decision.outputs]),
                inputs=tuple([_name(dtype) for dtype in decision.inputs]),
                name_after=prefix
                + (after.nodes[positions[position]].name if after is not None else node.name),
                multiply_adds=multiply_adds(graph, position, shapes) if shapes is not None else None,
            )
        )
        for body, inner in zip(node.subgraphs, decision.bodies):
            _add_nodes(nodes, body, inner, f"{prefix}{node.name}/", (), None, None)


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


def _casts(
    before: Graph, after: Graph, rewrite: InsertCasts, plan: Plan, shapes: Shapes | None
) -> tuple[CastReport, ...]:
    reports = []
    heads = set(after.heads)
    old_name = {new: before.nodes[old].name for old, new in enumerate(rewrite.positions)}
    for cast in rewrite.casts:
        origin = before.nodes[cast.origin.node]
        decision = plan.decisions[cast.origin.node]
        source = (
            decision.outputs[cast.origin.output]
            if decision is not None
            else rewrite.new_variables.get(origin.name, DType.FLOAT32)
        )
        consumers = [
            old_name.get(use.node, after.nodes[use.node].name) for use in after.uses[cast.node].get(0, ())
        ]
        if Entry(cast.node) in heads:
            consumers.append("(output)")
        reports.append(
            CastReport(
                name=after.nodes[cast.node].name,
                entry=before.describe(cast.origin),
                direction="down" if cast.dtype.is_low_precision else "up",
                from_dtype=_name(source),
                to_dtype=cast.dtype.label,
                consumers=tuple(dict.fromkeys(consumers)),
                bytes=_cast_bytes(cast.origin, source, cast.dtype, shapes),
            )
        )
    return tuple(reports)


def _cast_bytes(origin: Entry, source: DType | None, target: DType, shapes: Shapes | None) -> int | None:
    shape = shapes[origin.node][origin.output] if shapes is not None else None
    if shape is None or source is None:
        return None
    elements = 1
    for size in shape:
        elements *= size
    return elements * (source.itemsize + target.itemsize)


def _parameters(
    before: Graph, rewrite: InsertCasts, params: Mapping[str, Parameter]
) -> tuple[ParameterReport, ...]:
    twins: dict[str, dict[str, DType]] = {}
    for name, stored in rewrite.parameters.items():
        twins.setdefault(stored.source, {})[name] = stored.dtype
    reports = []
    for name, parameter in params.items():
        if name not in before.variables:
            continue
        held = {name: parameter.dtype, **twins.get(name, {})}
        elements = 1
        for size in parameter.shape:
            elements *= size
        reports.append(
            ParameterReport(
                name=name,
                shape=tuple(parameter.shape),
                dtype_before=parameter.dtype.label,
                stored={twin: dtype.label for twin, dtype in held.items()},
                bytes_before=elements * parameter.dtype.itemsize,
                bytes_after=elements * sum([dtype.itemsize for dtype in held.values()]),
            )
        )
    return tuple(reports)
