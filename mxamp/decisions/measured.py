"""What a plan's choices cost, from times measured while the whole model ran."""

from __future__ import annotations

import math
from typing import AbstractSet, Iterable, Sequence

from mxamp.decisions.estimates import Estimates, estimate
from mxamp.decisions.placing import MeasuredTimes
from mxamp.graph.graph import Entry, Graph
from mxamp.targets import Target, fusion_groups
from mxamp.targets.work import Shapes


def measured_estimates(
    graph: Graph,
    names: Sequence[str],
    target: Target,
    shapes: Shapes,
    times: MeasuredTimes,
    *,
    choices: AbstractSet[int],
    apart: AbstractSet[int] = frozenset(),
) -> Estimates:
    """Return what the units of a graph cost, as measured in it.

    Parameters
    ----------
    graph, names, target, shapes, choices, apart
        See :func:`mxamp.decisions.estimates.estimate`.
    times
        What was measured, in FP32 at the least. Where a node was not measured low, its time is that in FP32,
        multiplied by the ratio that the target's table gives; where the table knows nothing either, both cost
        the same and the casts decide.

    Notes
    -----
    Units are the chains that the target fuses, joined with the sets that really ran as one kernel. Such a
    kernel may hold nodes that must be FP32, and then it falls apart when the others are low: what those nodes
    took in the low run is charged to them.
    """
    table = None
    if target.cost is not None:
        table = estimate(graph, names, target, target.cost, shapes, choices=choices, apart=apart)
    may_join = choices - apart
    chains = fusion_groups(
        graph, names, target, among=may_join, patterns=(*target.rounds_once, *target.fusion)
    )
    kernels = [*times.fused, *times.fused_low]
    groups = _joined([*chains, *([p for p in kernel if p in may_join] for kernel in kernels)])
    count = len(graph.nodes)
    float32 = [times.float32.get(position, 0.0) for position in range(count)]
    low = {
        position: times.low[position]
        if position in times.low
        else float32[position] * _ratio(table, position)
        for position in choices
    }
    _charge_what_falls_apart(times, choices, float32, low)

    def casts(*, down: bool) -> Sequence[tuple[float, ...]]:
        return [
            tuple(
                [
                    _cast(times, table, Entry(position, index), shape, down=down)
                    for index, shape in enumerate(outputs)
                ]
            )
            for position, outputs in enumerate(shapes)
        ]

    return Estimates(
        groups=groups,
        float32=float32,
        low=low,
        casts=casts(down=False),
        is_measured=True,
        casts_down=casts(down=True),
        in_model=frozenset(times.float32).intersection(set(times.low) | (set(range(count)) - choices)),
        float32_beside=[times.float32_beside.get(position, time) for position, time in enumerate(float32)]
        if times.float32_beside
        else None,
    )


def _joined(sets: Iterable[Sequence[int]]) -> Sequence[tuple[int, ...]]:
    """Return disjoint groups: sets that share a node become one."""
    owner: dict[int, list[int]] = {}
    for members in sets:
        joined: list[int] = []
        for group in {id(owner[p]): owner[p] for p in members if p in owner}.values():
            joined.extend(group)
        joined.extend(p for p in members if p not in owner)
        for position in joined:
            owner[position] = joined
    distinct = {id(group): group for group in owner.values()}
    return [tuple(sorted(group)) for group in distinct.values() if len(group) > 1]


def _charge_what_falls_apart(
    times: MeasuredTimes, choices: AbstractSet[int], float32: Sequence[float], low: dict[int, float]
) -> None:
    """Add to a kernel's first choice what its other nodes take once they are no longer fused with it."""
    for kernel in times.fused:
        head = kernel[0]
        open_nodes = [position for position in kernel if position in choices]
        fixed = sum(times.low.get(position, 0.0) for position in kernel if position not in choices)
        if not open_nodes or len(open_nodes) == len(kernel):
            continue
        if head not in choices:  # the kernel's time stays with the head, which is FP32 in any case
            fixed = max(0.0, fixed - float32[head])
        low[open_nodes[0]] += fixed


def _ratio(table: Estimates | None, position: int) -> float:
    """Return how many times its FP32 time a node takes when low, as the table has it; 1 where it has not."""
    if table is None or not table.float32[position] or not table.low.get(position):
        return 1.0
    return table.low[position] / table.float32[position]


def _cast(
    times: MeasuredTimes, table: Estimates | None, entry: Entry, shape: tuple[int, ...] | None, *, down: bool
) -> float:
    """Return what casting an entry costs: measured, or by what the other casts cost, or by the table."""
    measured = (times.casts_down if down else times.casts_up).get(entry)
    if measured is not None:
        return measured
    if times.cast_overhead is not None and times.cast_per_element is not None:
        return times.cast_overhead + times.cast_per_element * (0 if shape is None else math.prod(shape))
    return 0.0 if table is None else table.cast(entry, down=down)
