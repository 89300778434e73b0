"""What the report says of nodes that were gone before anything was decided."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping, Sequence

from mxamp.passes import Preparation, PreparedNode
from mxamp.report.model import NodeReport

__all__ = ["with_prepared"]


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
