"""What it costs to store a parameter in both dtypes, because its readers disagree."""

from __future__ import annotations

import math
from typing import AbstractSet, Mapping

from mxamp.dtypes import DType
from mxamp.graph.graph import Graph
from mxamp.params.parameter import Parameter
from mxamp.placement import PlacementProblem, stored_twice

_ELEMENTS_A_CAST = 1 << 12
"""Where only casts are counted: a copy of so many values counts as one. A smaller one is free."""

_ELEMENTS_A_NANOSECOND = 5
"""Where there are times: a copy costs what reading it once takes, at 10 bytes a nanosecond."""


def copy_costs(
    graph: Graph, castable: AbstractSet[str], params: Mapping[str, Parameter], *, in_time: bool
) -> dict[int, int]:
    """Return for every parameter that may be stored in both dtypes what the second copy costs.

    Parameters
    ----------
    graph
        The graph.
    castable
        The float32 parameters that are cast when the model is saved.
    params
        Parameters by name.
    in_time
        Whether costs are nanoseconds; else they are casts.

    Returns
    -------
    dict
        Position of the parameter -> cost. One that a single place reads is left out.
    """
    divisor = _ELEMENTS_A_NANOSECOND if in_time else _ELEMENTS_A_CAST
    heads = frozenset(head.node for head in graph.heads)
    return {
        position: math.prod(params[name].shape) // divisor
        for name, position in graph.variables.items()
        if name in castable and len(graph.uses[position].get(0, ())) + (position in heads) > 1
    }


def readers_of_what_grows(
    problem: PlacementProblem,
    low: AbstractSet[int],
    castable: AbstractSet[str],
    params: Mapping[str, Parameter],
    dtype: DType,
) -> Mapping[int, str]:
    """Return the low nodes because of which the parameters would take more bytes than in float32.

    Parameters
    ----------
    problem
        The graph and what is open; its ``copies`` name what may be stored twice.
    low
        The low nodes of a placement.
    castable, params
        See :func:`copy_costs`.
    dtype
        The low dtype.

    Returns
    -------
    dict
        Low reader of a parameter that is stored twice -> that parameter's name; empty where nothing grows.
    """
    graph = problem.graph
    twice = stored_twice(problem, low)
    if not twice or dtype.is_emulated_only:
        return {}
    growth = 0
    for name, position in graph.variables.items():
        if name not in castable:
            continue
        size = math.prod(params[name].shape)
        if position in twice:
            growth += size * dtype.itemsize
        elif any(use.node in low for use in graph.uses[position].get(0, ())):
            growth -= size * (DType.FLOAT32.itemsize - dtype.itemsize)
    if growth <= 0:
        return {}
    return {
        use.node: graph.nodes[position].name
        for position in sorted(twice)
        for use in graph.uses[position].get(0, ())
        if use.node in low
    }
