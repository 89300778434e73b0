"""The roundings of the first layers, spared where few layers lie between them and an output.

Roundings add up in squares along the layers that lead to an output. In a network of a hundred layers the
first few are a few hundredths of its error. In one whose output lies a handful of layers behind the input,
with no mean over the image on the way (:mod:`mxamp.decisions.dear_roundings`), they are most of it.
"""

from __future__ import annotations

import math
from typing import AbstractSet, Sequence

from mxamp.decisions.dear_roundings import GIVEN_UP, is_mean, what_it_takes
from mxamp.decisions.estimates import Estimates
from mxamp.decisions.inputs import DecisionInputs
from mxamp.ops import OperatorFacts
from mxamp.placement import Demand, PlacementProblem, totals
from mxamp.policy.color import Color, Verdict

WHY_FIRST = "spares a near output the roundings of the first layers, for hardly any time, as estimated"

_FEW = 16
"""The most layers before an output: at 36 and 39 nothing was gained by FP32 in a quarter of them."""

_SHARE = 1 / 4
"""The fewest of them that are worth sparing: the error is then 0.87 of what it was."""

_MOST = 2 / 3
"""The most: with more in FP32 the rest is hardly worth its casts."""

_OF_GAIN = 1 / 4
"""The most that may be given up of what low precision gains."""


def first_nodes(
    problem: PlacementProblem,
    chosen: AbstractSet[int],
    *,
    facts: Sequence[OperatorFacts | None],
    verdicts: Sequence[Verdict],
    given: DecisionInputs,
    is_part_low: bool,
    estimates: Estimates,
) -> frozenset[int]:
    """Return the low nodes of a placement that had best stay FP32 because they come first.

    Parameters
    ----------
    problem
        The problem, with costs.
    chosen
        The placement.
    facts
        What is known of the operator of every node.
    verdicts
        What the policy says of every node. The GREEN ones are the layers; what would reach a node that a rule
        of the user's picks is left as it is.
    given
        What is known about the graph.
    is_part_low
        Whether layers are low already, which this placement does not decide.
    estimates
        What the costs were made from.

    Returns
    -------
    frozenset
        Empty where every output has many layers before it or lies behind a mean over the image, where casts
        would be more, and where it takes longer.
    """
    layers = {position for position, verdict in enumerate(verdicts) if verdict.color is Color.GREEN}
    fixed = {position for position, verdict in enumerate(verdicts) if verdict.by_user}
    depths = _depths(facts, layers, given)
    behind = [
        depths.get(head.node, 0)
        for head, demand in zip(problem.graph.heads, problem.head_demand)
        if demand is Demand.FP32
    ]
    nearest = min(filter(None, behind), default=0)
    if not 0 < nearest <= _FEW:
        return frozenset()
    low = set(chosen)
    cost, casts = totals(problem, low)
    budget = int(GIVEN_UP * 1000 * estimates.least) - max(0, what_it_takes(problem, low))
    if not is_part_low:  # else most of the gain is there already
        gain = totals(problem, problem.low).cost - cost
        budget = min(budget, int(gain * _OF_GAIN))
    found: frozenset[int] = frozenset()
    for most in range(math.ceil(nearest * _SHARE), math.floor(nearest * _MOST) + 1):
        first = frozenset(position for position, depth in depths.items() if depth <= most) & chosen
        rest = low - first
        if first & (problem.low | fixed) or not (is_part_low or rest & layers):
            break
        sparing = totals(problem, rest)
        if sparing.cost - cost <= budget and sparing.casts <= casts:
            found = first
    return found


def _depths(
    facts: Sequence[OperatorFacts | None], layers: AbstractSet[int], given: DecisionInputs
) -> dict[int, int]:
    """Return how many layers lead to each node, on the longest way; none for what only a mean leads to."""
    found: dict[int, int] = {}
    for position, node in enumerate(given.graph.nodes):
        if node.is_variable:
            if node.name not in given.params:
                found[position] = 0
        elif not is_mean(given.graph, facts, position, given.shapes):
            before = [found[entry.node] for entry in node.inputs if entry.node in found]
            if before:
                found[position] = max(before) + (position in layers)
    return found
