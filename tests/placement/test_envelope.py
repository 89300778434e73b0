"""The envelope of time and error has every corner: by enumeration on small graphs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mxamp.placement import (
    PlacementProblem,
    RoundingPrice,
    placement_cost,
    rounding_cost,
    trade_offs,
)
from tests.placement.test_place import allowed, chain
from tests.placement.test_place_costs import costed, with_costs


@st.composite
def with_errors(draw: st.DrawFn) -> tuple[PlacementProblem, list[RoundingPrice]]:
    problem = draw(costed(most_nodes=8, most_free=6))
    sets = st.frozensets(st.sampled_from(range(len(problem.graph.nodes))), min_size=1, max_size=3)
    prices = draw(st.lists(st.tuples(sets, st.integers(0, 9)), max_size=6))
    return problem, [RoundingPrice(nodes, float(error)) for nodes, error in prices]


@given(with_errors())
def test_for_every_weight_of_the_error_a_corner_is_as_good_as_any_placement(
    drawn: tuple[PlacementProblem, list[RoundingPrice]],
) -> None:
    problem, prices = drawn
    assert problem.costs is not None
    bare = with_costs(problem, dict(problem.costs.nodes))
    bare = PlacementProblem(
        **{**vars(bare), "costs": type(problem.costs)(problem.costs.nodes, problem.costs.casts)}
    )
    corners = trade_offs(problem, prices)
    every = [(placement_cost(bare, low), rounding_cost(prices, low)) for low in allowed(problem)]
    for weight in (0.01, 0.1, 0.3, 0.5, 0.9, 1.0, 1.7, 3.0, 10.0, 100.0):
        best = min(time + weight * error for time, error in every)
        found = min(corner.time + weight * corner.error for corner in corners)
        np.testing.assert_allclose(found, best, rtol=1e-4, atol=1e-3)


@given(with_errors())
def test_corners_become_slower_and_more_exact_and_never_only_one(
    drawn: tuple[PlacementProblem, list[RoundingPrice]],
) -> None:
    corners = trade_offs(*drawn)
    assert corners
    for faster, slower in zip(corners, corners[1:]):
        assert faster.time < slower.time
        assert faster.error > slower.error


def test_a_chain_gives_up_its_dearest_roundings_one_after_the_other() -> None:
    sketch, nodes = chain("rfrfrfr")
    times = {2: (100, 50), 4: (100, 60), 6: (100, 70)}
    problem = with_costs(sketch.problem(nodes[-1]), times, (5, 5))
    prices = [RoundingPrice(frozenset({node}), error) for node, error in ((2, 1.0), (4, 4.0), (6, 9.0))]
    corners = trade_offs(problem, prices)
    assert [set(corner.low) for corner in corners] == [{2, 4, 6}, {2, 4}, {2}, set()]
    assert [corner.error for corner in corners] == [14.0, 5.0, 1.0, 0.0]


def test_without_prices_there_is_one_corner_the_fastest() -> None:
    sketch, nodes = chain("f")
    problem = with_costs(sketch.problem(nodes[-1]), {1: (100, 50)}, (5, 5))
    (corner,) = trade_offs(problem, [])
    assert (set(corner.low), corner.time, corner.error) == ({1}, 60, 0.0)
