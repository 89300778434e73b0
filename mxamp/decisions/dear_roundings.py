"""The roundings that a model's outputs feel most, as its structure alone shows, and whether to spare them.

What the last layer before an output hands on is rounded to the low dtype and cast straight back to FP32: the
output carries that rounding as it is, and the rounding of the last layer's weights. Every rounding further up
is averaged by the layers behind it, those before a mean over the image most of all; behind it few values
are left, and none averages another. So the nodes from the last mean over the image to the output are the ones
by whose FP32 the outputs gain most. Where that costs next to nothing, they stay FP32.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import AbstractSet, FrozenSet, Iterator, Mapping, Sequence, Tuple

from mxamp.decisions.estimates import Estimates
from mxamp.dtypes import DType
from mxamp.graph.graph import Graph
from mxamp.ops import OperatorFacts
from mxamp.ops.roles import Averaging
from mxamp.params.parameter import Parameter
from mxamp.placement import Demand, PlacementProblem, Price, place, totals

Tail = Tuple[FrozenSet[int], ...]
"""The nodes before one output that had best stay FP32: a region that leaves out no dear rounding first, then
smaller ones, for where that costs too much."""

GIVEN_UP = 0.02
"""The share of the estimated time of a forward pass that may be given up."""

_COARSE_BITS = 8
"""Formats with so many bits of significand, or fewer: float16 rounds to 11, eight times finer."""

WHY_AFFORDABLE = (
    "float32 spares an output the rounding that it would feel most, and the weights are a small part of the "
    "model's"
)
"""Why what :func:`affordable_unpriced` returns stays FP32."""

GROWTH = 0.25
"""How much the file may grow, as a share of the converted parameters, so that weights stay FP32."""

_SHARE_OF_DENSE = 0.25
_SHARE_OF_IMAGES = 1 / 512
"""Where no times are known: the most that the weights of what stays FP32 may be of all weights. A dense layer
uses each of its weights once a sample, and the layers before it theirs once a place of the image; a layer
that writes an image may do so at more places than most others."""


def spares(dtype: DType) -> bool:
    """Whether roundings to a format are so coarse that outputs are spared them.

    Parameters
    ----------
    dtype
        The low dtype.
    """
    return dtype.format.significand_bits <= _COARSE_BITS


# ---------------------------------------------------------------------- where they are


def find_tails(
    graph: Graph,
    facts: Sequence[OperatorFacts | None],
    *,
    layers: AbstractSet[int],
    choices: AbstractSet[int],
    fixed: AbstractSet[int],
    head_demand: Sequence[Demand],
    shapes: Sequence[tuple[tuple[int, ...] | None, ...]] | None,
) -> list[Tail]:
    """Return the regions before every output that stays FP32, those that hold a choice.

    Parameters
    ----------
    graph
        The graph.
    facts
        What is known of the operator of every node.
    layers
        The sums of products, whose result is worth rounding at other places: the GREEN nodes.
    choices
        The nodes that may be low.
    fixed
        Nodes that are left as they are, for the user wants them low or they are low already.
    head_demand
        What each graph output needs.
    shapes
        For every node the shape of each output, where known.

    Returns
    -------
    list
        One tail an output; an output that a join of several values leads to has none.
    """
    found: dict[Tail, None] = {}
    for head, demand in zip(graph.heads, head_demand):
        if demand is not Demand.FP32:
            continue
        chain: list[int] = []
        ends: list[int] = []  # how long the chain is at the mean, at the first layer, at the mean before it
        has_layer = False
        for position in _back(graph, head.node):
            if position in fixed:
                break
            chain.append(position)
            if position in layers and not has_layer:
                has_layer = True
                ends.append(len(chain))
            elif is_mean(graph, facts, position, shapes):
                ends.append(len(chain))
                if has_layer:
                    break
        regions = dict.fromkeys(frozenset(choices & set(chain[:end])) for end in reversed(ends))
        tail = tuple(region for region in regions if region)
        if tail:
            found[tail] = None
    return list(found)


def _back(graph: Graph, position: int) -> Iterator[int]:
    """Yield a node and what leads to it, as long as that is one value."""
    while not graph.nodes[position].is_variable:
        yield position
        computed = {
            entry.node for entry in graph.nodes[position].inputs if not graph.nodes[entry.node].is_variable
        }
        if len(computed) != 1:
            return
        (position,) = computed


def is_mean(
    graph: Graph,
    facts: Sequence[OperatorFacts | None],
    position: int,
    shapes: Sequence[tuple[tuple[int, ...] | None, ...]] | None,
) -> bool:
    """Whether a node averages an image, as far as is known."""
    of_node = facts[position]
    averaging = Averaging.NOTHING if of_node is None else of_node.averages(graph.nodes[position].attrs)
    if averaging is not Averaging.WINDOW:
        return averaging is Averaging.IMAGE
    output = None if shapes is None else shapes[position][0]
    return output is None or math.prod(output[2:]) == 1


# ---------------------------------------------------------------------- what it costs


def spare(
    problem: PlacementProblem, estimates: Estimates, tails: Sequence[Tail]
) -> tuple[PlacementProblem, set[int]]:
    """Return a problem in which the low precision of tails has a price, and its cheapest placement.

    Parameters
    ----------
    problem
        The problem, with costs and without prices.
    estimates
        What the costs were made from.
    tails
        The tails.

    Returns
    -------
    tuple of (PlacementProblem, set of int)
        The prices are those that the placement does not pay.

    Notes
    -----
    The prices of all tails add up to :data:`GIVEN_UP` of a time that no placement falls short of. A placement
    that is the cheapest with prices takes at most that much longer than the one without: otherwise that one
    would be cheaper, paying all of them.
    """
    assert problem.costs is not None  # where there are none, nothing can be weighed
    budget = int(GIVEN_UP * 1000 * estimates.least)
    tried = [0] * len(tails)
    while True:
        prices = [Price(tail[number], budget // len(tails)) for tail, number in zip(tails, tried)]
        priced = replace(problem, costs=replace(problem.costs, prices=prices))
        low = place(priced)
        paid = [not price.nodes.isdisjoint(low) for price in prices]
        smaller = [
            number + 1 if is_paid and number + 1 < len(tail) else number
            for tail, number, is_paid in zip(tails, tried, paid)
        ]
        if smaller == tried:
            kept = [price for price, is_paid in zip(prices, paid) if not is_paid]
            return replace(problem, costs=replace(problem.costs, prices=kept)), low
        tried = smaller


def what_it_takes(problem: PlacementProblem, low: AbstractSet[int]) -> int:
    """Return what a placement takes longer than the same with the spared nodes low, in the unit of costs.

    Parameters
    ----------
    problem
        What :func:`spare` returned.
    low
        The placement.
    """
    assert problem.costs is not None  # it has prices
    spared = {node for price in problem.costs.prices for node in price.nodes}
    unpriced = problem.unpriced
    return totals(unpriced, low).cost - totals(unpriced, low | (spared & problem.free)).cost


def why_spared(problem: PlacementProblem, chosen: AbstractSet[int]) -> dict[int, str]:
    """Return for the nodes that stay FP32 for the outputs' sake what that takes.

    Parameters
    ----------
    problem
        What :func:`spare` returned.
    chosen
        The placement.
    """
    assert problem.costs is not None  # it has prices
    spared = {p for price in problem.costs.prices for p in price.nodes} - chosen
    if not spared:
        return {}
    more = max(0, what_it_takes(problem, chosen)) / 1000
    return dict.fromkeys(
        spared,
        "spares an output the rounding that it would feel most, for "
        f"{more:.3g} us a forward pass, as estimated",
    )


def without_large(graph: Graph, tails: Sequence[Tail], params: Mapping[str, Parameter]) -> list[Tail]:
    """Return the tails with the regions whose weights would not make the model's file much larger."""
    most = GROWTH * _all_weights(params)
    small = [
        tuple(region for region in tail if weights_read(graph, region, params) <= most) for tail in tails
    ]
    return [tail for tail in small if tail]


def affordable_unpriced(
    graph: Graph,
    facts: Sequence[OperatorFacts | None],
    tails: Sequence[Tail],
    params: Mapping[str, Parameter],
) -> frozenset[int]:
    """Return what may stay FP32 where no times are known: what the weights show to be a small part.

    Parameters
    ----------
    graph, facts
        The graph, and what is known of the operator of every node.
    tails
        The tails.
    params
        Parameters by name.
    """
    total = _all_weights(params)
    dense = {position for position, known in enumerate(facts) if known is not None and known.is_dense}
    for size in range(max(map(len, tails), default=0)):
        regions = [tail[min(size, len(tail) - 1)] for tail in tails]
        # All outputs or none: some would be spared by the accident of their order.
        found = frozenset().union(*regions)
        layers = [position for position in found if weights_read(graph, {position}, params)]
        is_dense = dense.issuperset(layers)
        share = _SHARE_OF_DENSE if is_dense else _SHARE_OF_IMAGES
        has_layers = all(weights_read(graph, region, params) for region in regions)
        # Where most weights are those of other dense layers, most of the time goes into reading weights, and
        # this one's would be twice as large: in OpenVINO 4 % of VGG-16's time and 17 % of AlexNet's.
        is_read = is_dense and weights_read(graph, dense - found, params) > total / 2
        if has_layers and not is_read and weights_read(graph, found, params) <= share * total:
            return found
    return frozenset()


def weights_read(graph: Graph, region: AbstractSet[int], params: Mapping[str, Parameter]) -> int:
    """Return how many values the weights have that a region reads."""
    read = {graph.nodes[entry.node].name for position in region for entry in graph.nodes[position].inputs}
    return sum(_values(params[name]) for name in read if name in params)


def _all_weights(params: Mapping[str, Parameter]) -> int:
    return sum(map(_values, params.values()))


def _values(parameter: Parameter) -> int:
    """Return how many values a weight has; none for a vector.

    Biases and what a BatchNorm learned weigh next to nothing, and a conversion that folds BatchNorms leaves
    others than it found: whoever counts them decides otherwise where its result is converted again.
    """
    return math.prod(parameter.shape) if len(parameter.shape) > 1 else 0
