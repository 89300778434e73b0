"""The envelope of time and error has every corner: by enumeration on small graphs."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mxamp.placement import (
    PlacementProblem,
    RoundingPrice,
    fastest_placement,
    impossible_below,
    least_error,
    rounding_cost,
    totals,
    trade_offs,
)
from tests.placement.sketches import allowed, chain, costed, with_costs


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
    bare = problem.unpriced
    corners = trade_offs(problem, prices)
    every = [(totals(bare, low).cost, rounding_cost(prices, low)) for low in allowed(problem)]
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


@settings(max_examples=25)
@given(with_errors(), st.sampled_from([0.0, 0.05, 0.3, 1.0, 5.0]))
def test_the_least_error_within_a_time_is_no_worse_than_the_corners_and_no_better_than_all(
    drawn: tuple[PlacementProblem, list[RoundingPrice]], share: float
) -> None:
    problem, prices = drawn
    found = least_error(problem, prices, share)
    every = [(totals(problem.unpriced, low).cost, rounding_cost(prices, low)) for low in allowed(problem)]
    fastest = min(time for time, _ in every)
    assert set(found.low) in allowed(problem)
    assert (found.time, found.error) == (
        totals(problem.unpriced, set(found.low)).cost,
        rounding_cost(prices, found.low),
    )
    # Costs are scaled to 2^-29 of their sum, so that the fastest is found to within that.
    assert found.time <= (fastest + 1) * (1 + share)
    assert found.error >= min(error for time, error in every if time <= (fastest + 1) * (1 + share))
    corners = [corner for corner in trade_offs(problem, prices) if corner.time <= fastest * (1 + share)]
    assert found.error <= min(corner.error for corner in corners) + 1e-9


def test_what_an_envelope_leaves_of_the_time_is_spent_on_the_dearest_that_fits() -> None:
    sketch, nodes = chain("rfrfrfr")
    # Per nanosecond the first is the better bargain, and too long for the time that is left.
    times = {2: (1000, 900), 4: (1000, 990), 6: (1000, 985)}
    problem = with_costs(sketch.problem(nodes[-1]), times, (0, 0))
    prices = [RoundingPrice(frozenset({node}), error) for node, error in ((2, 100.0), (4, 2.0), (6, 4.0))]
    found = least_error(problem, prices, 20 / 2875)
    assert set(found.low) == {2, 4}
    assert found.error == 102.0
    assert set(least_error(problem, prices, 0.0).low) == {2, 4, 6}
    assert set(least_error(problem, prices, 1.0).low) == set()


def test_other_placements_count_and_what_is_not_allowed_does_not() -> None:
    sketch, nodes = chain("rfrfr")
    problem = with_costs(sketch.problem(nodes[-1]), {2: (100, 50), 4: (100, 90)}, (0, 0))
    prices = [RoundingPrice(frozenset({2}), 5.0), RoundingPrice(frozenset({4}), 3.0)]
    assert set(least_error(problem, prices, 0.1).low) == {2}
    assert set(least_error(problem, prices, 0.1, allows=lambda low: len(low) > 1).low) == {2, 4}
    assert set(least_error(problem, prices, 0.1, others=[{2}]).low) == {2}
    assert set(least_error(problem, prices, 0.0, others=[set()]).low) == {2, 4}


@settings(max_examples=25)
@given(with_errors(), st.sampled_from([0.0, 0.05, 0.3, 1.0, 5.0]))
def test_no_placement_falls_below_the_envelope_at_a_time_and_the_corners_do_not_rise_above_it(
    drawn: tuple[PlacementProblem, list[RoundingPrice]], share: float
) -> None:
    problem, prices = drawn
    corners = trade_offs(problem, prices)
    fastest = fastest_placement(problem, prices)
    assert (fastest.time, fastest.error) == (corners[0].time, corners[0].error)
    limit = fastest.time * (1 + share)
    bound = impossible_below(problem, prices, limit)
    every = [(totals(problem.unpriced, low).cost, rounding_cost(prices, low)) for low in allowed(problem)]
    assert bound <= min(error for time, error in every if time <= limit) + 1e-3
    assert bound <= min(corner.error for corner in corners if corner.time <= limit) + 1e-9
    if limit >= corners[-1].time:
        assert bound == corners[-1].error
