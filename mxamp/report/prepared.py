"""What the report says of nodes and parameters that were gone before anything was decided."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Mapping, NamedTuple, Sequence

from mxamp.dtypes import DType
from mxamp.passes import Preparation, PreparedNode
from mxamp.report.model import NodeReport, ParameterReport

__all__ = ["ParameterForm", "with_prepared", "with_prepared_parameters"]


class ParameterForm(NamedTuple):
    """What the report needs of a parameter, which must not be kept alive for it.

    Attributes
    ----------
    shape
        Its shape.
    dtype
        Its dtype.
    """

    shape: tuple[int, ...]
    dtype: DType


def with_prepared(
    nodes: Sequence[NodeReport],
    starts: Sequence[tuple[int, int]],
    preparation: Preparation,
    origins: Sequence[int],
) -> list[NodeReport]:
    """Return the reports of all nodes of the user's graph, in its order.

    Parameters
    ----------
    nodes
        The reports of the nodes that were decided about, those in bodies behind the node they belong to.
    starts
        For each node that is in no body its position in the prepared graph, and that of its report.
    preparation
        What prepared the graph.
    origins
        For every node of the prepared graph the node of the user's that it is.
    """
    changes = {change.node: change for change in preparation.changes if change.into is not None}
    ends = [start for _, start in starts[1:]] + [len(nodes)]
    decided: dict[int, list[NodeReport]] = {}
    for (position, start), end in zip(starts, ends):
        # A node that was put in is reported behind the one whose values it bounds.
        decided.setdefault(origins[position], []).extend(nodes[start:end])
    by_name = {nodes[start].name: nodes[start] for _, start in starts}
    result = []
    for position, node in enumerate(preparation.before.nodes):
        if position in decided:
            result += decided[position]
        elif node.name in changes:
            result.append(_dropped(changes[node.name], _survivor(node.name, changes, by_name)))
    return result


def _survivor(
    name: str, changes: Mapping[str, PreparedNode], by_name: Mapping[str, NodeReport]
) -> NodeReport | None:
    """Return the report of the node that a node went into, after all passes; None where it is a variable."""
    seen = set()
    while name not in by_name and name in changes and name not in seen:
        seen.add(name)
        name = changes[name].into or name
    return by_name.get(name)


def _dropped(change: PreparedNode, survivor: NodeReport | None) -> NodeReport:
    rule = change.step.replace("_", " ")
    if survivor is None:
        name = change.into or change.node
        return NodeReport(
            change.node, change.op, "gray", rule, change.reason, None, None, (None,), (None,), name
        )
    return replace(
        survivor,
        name=change.node,
        op=change.op,
        rule=rule,
        reason=change.reason,
        multiply_adds=None,
        float32_us=None,
        mixed_us=None,
        cast_us=None,
    )


def with_prepared_parameters(
    reports: Sequence[ParameterReport], users: Mapping[str, ParameterForm], preparation: Preparation
) -> tuple[ParameterReport, ...]:
    """Return the reports of the user's parameters; what was computed from them is reported with them.

    Parameters
    ----------
    reports
        The reports of the parameters that were decided about.
    users
        The user's parameters.
    preparation
        What prepared the graph.

    Returns
    -------
    tuple of ParameterReport
        In the user's order. A parameter that was computed from several is listed by each of them, and each
        has a share of its bytes, as large as its share of the elements. Those that were computed from none
        come last.
    """
    read = preparation.before.variables
    if not preparation.made_from and read.keys() == preparation.graph.variables.keys():
        return tuple(reports)
    by_name = {report.name: report for report in reports}
    found = {
        name: by_name.pop(name)
        if name in by_name
        else ParameterReport(
            name, form.shape, form.dtype.label, {}, math.prod(form.shape) * form.dtype.itemsize, 0
        )
        for name, form in users.items()
        if name in read
    }
    for name, report in list(by_name.items()):
        sources = [source for source in preparation.made_from.get(name, ()) if source in found]
        if not sources:
            by_name[name] = replace(report, bytes_before=0)
            continue
        del by_name[name]
        sizes = [math.prod(found[source].shape) for source in sources]
        done, so_far = 0, 0
        for source, size in zip(sources, sizes):
            so_far += size
            end = report.bytes_after * so_far // max(sum(sizes), 1)
            own = found[source]
            found[source] = replace(
                own,
                stored={**own.stored, **report.stored},
                bytes_after=own.bytes_after + end - done,
                saturation=own.saturation or report.saturation,
            )
            done = end
    return (*found.values(), *by_name.values())
