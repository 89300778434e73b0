"""What the report says of nodes and parameters that were gone before anything was decided."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Mapping, NamedTuple, Sequence

from mxamp.dtypes import DType
from mxamp.passes import PreparedNode, State
from mxamp.report.model import NodeReport, ParameterReport


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
    nodes: Sequence[NodeReport], starts: Sequence[tuple[int, int]], user: State, decided: State
) -> Sequence[NodeReport]:
    """Return the reports of all nodes of the user's graph, in its order.

    Parameters
    ----------
    nodes
        The reports of the nodes that were decided about, those in bodies behind the node they belong to.
    starts
        For each node that is in no body its position in the graph that was decided about, and that of its
        report.
    user, decided
        The user's model, and the one that was decided about.
    """
    prepared = decided.record(PreparedNode)
    if not prepared:
        return nodes
    changes = {change.node: change for change in prepared if change.into is not None}
    ends = [start for _, start in starts[1:]] + [len(nodes)]
    found: dict[int, list[NodeReport]] = {}
    for (position, start), end in zip(starts, ends):
        # A node that was put in is reported behind the one whose values it bounds.
        found.setdefault(decided.nodes.back(position), []).extend(nodes[start:end])
    by_name = {nodes[start].name: nodes[start] for _, start in starts}
    result = []
    for position, node in enumerate(user.graph.nodes):
        if position in found:
            result += found[position]
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


def with_made(
    reports: Sequence[ParameterReport], users: Mapping[str, ParameterForm], user: State, planned: State
) -> tuple[ParameterReport, ...]:
    """Return the reports of the user's parameters; what was computed from them is reported with them.

    Parameters
    ----------
    reports
        The reports of the parameters that casts were made of.
    users
        The user's parameters.
    user, planned
        The user's model, and the one before casts.

    Returns
    -------
    tuple of ParameterReport
        In the user's order. A parameter that was computed from several is listed by each of them, and each
        has a share of its bytes, as large as its share of the elements. Those that were computed from none
        come last.
    """
    read = user.graph.variables
    if not planned.made_from and read.keys() == planned.graph.variables.keys():
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
        sources = [source for source in planned.made_from.get(name, ()) if source in found]
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
