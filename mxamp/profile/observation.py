"""What a run of one converted graph says about the nodes of the graph that was decided on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Mapping, Sequence, Tuple

import numpy as np

from mxamp.decisions.placing import MeasuredTimes
from mxamp.errors import GraphError
from mxamp.graph.graph import Entry, Graph
from mxamp.report.build import Rewrites
from mxamp.targets.work import Shapes

Cast = Tuple[Entry, bool]
"""The entry that is cast, and whether it is cast down."""

_PREFIX = "n"


@dataclass(frozen=True)
class Observation:
    """Times of one run, by the nodes of the graph before conversion. In microseconds.

    Attributes
    ----------
    times
        Operator node -> its time. What ran as one kernel counts at its first node.
    kernels
        The first node of each fused kernel -> all of its nodes.
    casts
        Cast -> its time.
    readers
        Cast -> the nodes that read it.
    total
        Of all that ran.
    """

    times: Mapping[int, float]
    kernels: Mapping[int, tuple[int, ...]]
    casts: Mapping[Cast, float]
    readers: Mapping[Cast, tuple[int, ...]]
    total: float

    @cached_property
    def first_of_kernel(self) -> Mapping[int, int]:
        """Node of a fused kernel -> the kernel's first."""
        return {position: first for first, kernel in self.kernels.items() for position in kernel}


def with_positions_as_names(graph: Graph) -> Graph:
    """Return the graph with operators called by their positions, so that each name says which node it is.

    Names of users repeat, and the backend makes new ones from them.
    """
    nodes = [
        node if node.is_variable else node._replace(name=f"{_PREFIX}{position}")
        for position, node in enumerate(graph.nodes)
    ]
    return Graph(tuple(nodes), graph.heads, graph.attrs, graph.head_versions)


def observation(rewrites: Rewrites, result: Mapping[str, Any]) -> Observation:
    """Read the times of a run.

    Parameters
    ----------
    rewrites
        How the graph that ran was made.
    result
        What :func:`mxamp.runtime.node_times.time_nodes` returned of it, its nodes named by
        :func:`with_positions_as_names`.

    Raises
    ------
    GraphError
        When it names nodes that the graph does not have.
    """
    microseconds: Mapping[str, float] = result["microseconds"]
    fused: Mapping[str, Sequence[str]] = result["fused"]
    before, after = rewrites.decided.graph, rewrites.converted.graph
    origins: dict[int, list[int]] = {}
    for old, node in enumerate(before.nodes):
        new = rewrites.converted.since_plan.forward(old)
        if new is not None and not node.is_variable:
            origins.setdefault(new, []).append(old)
    casts_by_node = {
        cast.node: (rewrites.origin(cast), cast.dtype.is_low_precision) for cast in rewrites.casts.casts
    }
    times = {p: 0.0 for own in origins.values() for p in own}
    kernels: dict[int, tuple[int, ...]] = {}
    casts: dict[Cast, float] = {}
    for name, time in microseconds.items():
        ran = [_position(member, after) for member in fused.get(name, [name])]
        members = sorted({old for position in ran for old in origins.get(position, ())})
        if members:
            times[members[0]] += time
            if len(ran) > 1:
                kernels[members[0]] = tuple(members)
        elif ran[0] in casts_by_node:
            casts[casts_by_node[ran[0]]] = time
    readers = {
        cast: tuple(sorted({p for use in after.uses[node].get(0, ()) for p in origins.get(use.node, ())}))
        for node, cast in casts_by_node.items()
    }
    return Observation(times, kernels, casts, readers, sum(microseconds.values()))


def _position(name: str, graph: Graph) -> int:
    number = name[len(_PREFIX) :]
    if name.startswith(_PREFIX) and number.isdigit() and int(number) < len(graph.nodes):
        return int(number)
    raise GraphError(f"The run timed a node {name!r}, which is none of the graph's.")


def combine(
    float32: Observation,
    low: Observation | None,
    mixed: Sequence[tuple[Observation, frozenset[int]]],
    shapes: Shapes,
) -> MeasuredTimes:
    """Put together what several runs say.

    Parameters
    ----------
    float32
        The run in FP32.
    low
        The run in which everything was low that may be; where there is none, nodes have the times of the
        mixed runs in which they were low.
    mixed
        Other runs, each with the nodes that were low in it.
    shapes
        For every node the shape of each output.

    Notes
    -----
    A cast hands on a plain layout, which its reader may have to put in order again. So what a reader takes
    longer in a mixed run than among its like belongs to the casts that it reads, in equal parts.
    """
    found: dict[Cast, list[float]] = {}
    for run in (run for run in (float32, low) if run is not None):
        for cast, time in run.casts.items():
            found.setdefault(cast, []).append(time)
    for run, low_nodes in mixed:
        longer = _longer(run, low_nodes, float32, low)
        head = run.first_of_kernel
        reading: dict[int, list[Cast]] = {}
        for cast, readers in run.readers.items():
            for reader in {head.get(position, position) for position in readers}:
                reading.setdefault(reader, []).append(cast)
        extra: dict[Cast, float] = {}
        for reader, read in reading.items():
            for cast in read:
                extra[cast] = extra.get(cast, 0.0) + longer.get(reader, 0.0) / len(read)
        for cast, time in run.casts.items():
            found.setdefault(cast, []).append(max(0.0, time + extra.get(cast, 0.0)))
    costs = {cast: sum(times) / len(times) for cast, times in found.items()}
    overhead, per_element = _line([(_elements(shapes, entry), cost) for (entry, _), cost in costs.items()])
    return MeasuredTimes(
        float32=float32.times,
        low=low.times if low is not None else _low_in_some(mixed),
        fused=tuple(float32.kernels.values()),
        fused_low=tuple(low.kernels.values()) if low is not None else (),
        casts_down={entry: cost for (entry, down), cost in costs.items() if down},
        casts_up={entry: cost for (entry, down), cost in costs.items() if not down},
        cast_overhead=overhead,
        cast_per_element=per_element,
    )


def refined(
    times: MeasuredTimes,
    run: Observation,
    low_nodes: frozenset[int],
    float32: Observation,
    low: Observation | None,
) -> MeasuredTimes:
    """Return times that are those of one mixed run, for everything that took part in it as it is there.

    Parameters
    ----------
    times
        What is known.
    run, low_nodes
        The run, and the nodes that were low in it.
    float32, low
        The runs that ``times`` come from.
    """
    own = {p: run.times[p] for p in run.times if _runs_alike(p, run, low if p in low_nodes else float32)}
    casts = [
        {entry: time for (entry, down), time in run.casts.items() if down is wanted}
        for wanted in (True, False)
    ]
    return replace(
        times,
        low={**times.low, **{p: time for p, time in own.items() if p in low_nodes}},
        float32_beside={**times.float32, **{p: time for p, time in own.items() if p not in low_nodes}},
        casts_down={**times.casts_down, **casts[0]},
        casts_up={**times.casts_up, **casts[1]},
    )


def _longer(
    run: Observation, low_nodes: frozenset[int], float32: Observation, low: Observation | None
) -> Mapping[int, float]:
    """Return how much longer kernels took in a run than where all others were like them."""
    longer = {}
    for position, time in run.times.items():
        alike = low if position in low_nodes else float32
        if alike is not None and _runs_alike(position, run, alike):
            longer[position] = time - alike.times.get(position, 0.0)
    return longer


def _runs_alike(position: int, run: Observation, other: Observation | None) -> bool:
    """Whether a node is fused with the same nodes in two runs."""
    if other is None:
        return False
    first, other_first = run.first_of_kernel.get(position), other.first_of_kernel.get(position)
    if first is None or other_first is None:
        return first is other_first
    return run.kernels[first] == other.kernels[other_first]


def _low_in_some(mixed: Sequence[tuple[Observation, frozenset[int]]]) -> Mapping[int, float]:
    """Return what nodes took in the runs in which they were low."""
    found: dict[int, list[float]] = {}
    for run, low_nodes in mixed:
        for position in low_nodes:
            if position in run.times:
                found.setdefault(position, []).append(run.times[position])
    return {position: sum(times) / len(times) for position, times in found.items()}


def _elements(shapes: Shapes, entry: Entry) -> int:
    shape = shapes[entry.node][entry.output]
    return 0 if shape is None else math.prod(shape)


def _line(points: Sequence[tuple[int, float]]) -> tuple[float | None, float | None]:
    """Return what casts cost by their size: an overhead and a slope, neither below zero."""
    if not points:
        return None, None
    sizes = np.array([size for size, _ in points], np.float64)
    costs = np.array([cost for _, cost in points], np.float64)
    # Errors are in proportion to the times, or nearly so.
    weights = 1.0 / np.maximum(costs, 1.0)
    if len(set(sizes)) > 1:
        slope, overhead = np.polyfit(sizes, costs, 1, w=weights)
        if slope >= 0 and overhead >= 0:
            return float(overhead), float(slope)
    total = float(np.sum(weights**2 * sizes**2))
    if not total:
        return float(np.median(costs)), 0.0
    return 0.0, float(np.sum(weights**2 * sizes * costs)) / total
