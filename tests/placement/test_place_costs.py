"""With costs a placement is the cheapest: by enumeration on small graphs, against others on larger ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mxamp.placement import (
    Crossing,
    PlacementCosts,
    PlacementProblem,
    Price,
    Supply,
    Totals,
    change_in_float32,
    place,
    totals,
)
from tests.placement.sketches import Sketch, allowed, chain, costed, problems, with_costs

# ---------------------------------------------------------------------- claims


def test_a_node_that_is_faster_low_than_two_casts_cost_is_low() -> None:
    sketch, nodes = chain("f")
    assert place(with_costs(sketch.problem(nodes[-1]), {1: (100, 50)}, (20, 20))) == {1}


def test_a_node_that_is_not_is_fp32() -> None:
    sketch, nodes = chain("f")
    assert place(with_costs(sketch.problem(nodes[-1]), {1: (100, 50)}, (30, 30))) == set()


def test_a_node_that_is_slower_low_is_fp32_between_low_ones_where_casts_are_cheap() -> None:
    sketch, nodes = chain("fff")
    problem = sketch.problem(nodes[-1])
    times = {1: (100, 50), 2: (10, 40), 3: (100, 50)}
    assert place(with_costs(problem, times, (5, 5))) == {1, 3}
    assert place(with_costs(problem, times, (20, 20))) == {1, 2, 3}


def test_up_and_down_are_charged_apart() -> None:
    sketch, nodes = chain("f")
    # One cast down of the input and one up of the output, at 30 and 10.
    problem = with_costs(sketch.problem(nodes[-1]), {1: (100, 50)}, (10, 30))
    assert totals(problem, {1}).cost == 50 + 30 + 10
    assert totals(problem, set()).cost == 100
    assert place(problem) == {1}


def test_a_group_costs_what_its_members_cost_together() -> None:
    sketch, nodes = chain("ff")
    problem = sketch.problem(nodes[-1], groups=[(1, 2)])
    assert place(with_costs(problem, {1: (100, 50), 2: (0, 20)})) == {1, 2}
    assert place(with_costs(problem, {1: (100, 50), 2: (0, 49)})) == set()


def priced(problem: PlacementProblem, *prices: tuple[set[int], int]) -> PlacementProblem:
    assert problem.costs is not None
    wanted = [Price(frozenset(nodes), cost) for nodes, cost in prices]
    return replace(problem, costs=replace(problem.costs, prices=wanted))


def test_a_price_is_paid_once_however_many_of_its_nodes_are_low() -> None:
    sketch, nodes = chain("ff")
    problem = with_costs(sketch.problem(nodes[-1]), {1: (100, 50), 2: (100, 50)}, (10, 10))
    assert place(priced(problem, ({1, 2}, 79))) == {1, 2}
    assert place(priced(problem, ({1, 2}, 81))) == set()
    assert totals(priced(problem, ({1, 2}, 79)), {1, 2}).cost == 50 + 50 + 10 + 10 + 79
    assert totals(priced(problem, ({1, 2}, 79)), set()).cost == 200


def test_prices_of_each_node_keep_only_what_is_too_dear_in_fp32() -> None:
    sketch, nodes = chain("ff")
    problem = with_costs(sketch.problem(nodes[-1]), {1: (100, 50), 2: (100, 50)}, (10, 10))
    assert place(priced(problem, ({1}, 1), ({2}, 60))) == {1}


def test_the_price_of_what_is_low_in_any_case_changes_nothing() -> None:
    sketch, nodes = chain("gf")
    problem = with_costs(sketch.problem(nodes[-1]), {2: (100, 50)}, (10, 10))
    assert place(priced(problem, ({1, 2}, 10_000))) == {1, 2}


def test_neighbours_of_different_dtypes_pay_besides_their_casts() -> None:
    sketch, nodes = chain("ff")
    problem = with_costs(sketch.problem(nodes[-1]), {1: (100, 10), 2: (100, 120)}, (10, 10))
    assert problem.costs is not None

    def crossed(up: int, down: int) -> PlacementProblem:
        assert problem.costs is not None
        return replace(problem, costs=replace(problem.costs, crossings=[Crossing(1, 2, up, down)]))

    assert totals(crossed(5, 7), {1}).cost == 10 + 100 + 10 + 10 + 5
    assert totals(crossed(5, 7), {2}).cost == 100 + 120 + 10 + 10 + 7
    assert totals(crossed(5, 7), {1, 2}).cost == totals(problem, {1, 2}).cost
    assert place(crossed(19, 1000)) == {1}
    assert place(crossed(21, 0)) == {1, 2}


def test_a_neighbour_that_is_fixed_makes_the_other_pay() -> None:
    sketch, nodes = chain("fr")
    problem = with_costs(sketch.problem(nodes[-1]), {1: (100, 50)}, (10, 10))
    assert problem.costs is not None
    for price, low in ((29, {1}), (31, set())):
        costs = replace(problem.costs, crossings=[Crossing(1, 2, price, 0)])
        assert place(replace(problem, costs=costs)) == low


def test_what_fixed_nodes_cost_changes_nothing() -> None:
    sketch, nodes = chain("gfr")
    problem = with_costs(sketch.problem(nodes[-1]), {1: (0, 1000), 2: (10, 5), 3: (5, 0)}, (3, 3))
    assert place(problem) == {1, 2}


def test_costs_of_hours_are_scaled_to_fit_and_still_compared() -> None:
    sketch, nodes = chain("fff")
    hour = 3600 * 10**9
    times = {1: (2 * hour, hour), 2: (hour, 2 * hour), 3: (2 * hour, hour)}
    assert place(with_costs(sketch.problem(nodes[-1]), times, (hour // 10, hour // 10))) == {1, 3}
    assert place(with_costs(sketch.problem(nodes[-1]), times, (hour, hour))) == set()


def test_ten_thousand_nodes_with_costs_are_placed() -> None:
    random = np.random.default_rng(0)
    sketch = Sketch()
    last = sketch.add("x")
    for number in range(10_000):
        # Every fourth node also reads one that is a little further up, as residual networks do.
        others = [last] if number % 4 or number < 8 else [last, last - 7]
        last = sketch.add("fffr"[int(random.integers(4))], *others)
    problem = sketch.problem(last)
    times = {n: (int(a), int(b)) for n, (a, b) in enumerate(random.integers(1, 100_000, (last + 1, 2)))}
    problem = with_costs(problem, {n: times[n] for n in problem.free}, (9_000, 9_000))
    low = place(problem)
    assert totals(problem, low).cost <= totals(problem, set()).cost


# ---------------------------------------------------------------------- properties


@given(costed(most_nodes=9, most_free=7))
def test_no_placement_costs_less(problem: PlacementProblem) -> None:
    low = place(problem)
    assert low in allowed(problem)
    assert totals(problem, low).cost == min(totals(problem, other).cost for other in allowed(problem))


@given(costed(most_nodes=9, most_free=7), st.integers(2**20, 2**40))
def test_what_is_scaled_to_32_bits_is_as_cheap_to_within_rounding(
    problem: PlacementProblem, unit: int
) -> None:
    assert problem.costs is not None
    large = PlacementCosts(
        {n: (fp32 * unit, low * unit) for n, (fp32, low) in problem.costs.nodes.items()},
        [tuple((up * unit, down * unit) for up, down in outputs) for outputs in problem.costs.casts],
        [Price(nodes, cost * unit) for nodes, cost in problem.costs.prices],
        [one._replace(up=one.up * unit, down=one.down * unit) for one in problem.costs.crossings],
    )
    scaled = PlacementProblem(**{**vars(problem), "costs": large})
    cheapest = min(totals(problem, other).cost for other in allowed(problem))
    assert totals(problem, place(scaled)).cost == cheapest


@given(problems(most_nodes=30, most_free=30))
def test_where_only_casts_cost_there_are_as_few_as_without_costs(problem: PlacementProblem) -> None:
    found = place(with_costs(problem, dict.fromkeys(problem.free, (7, 7))))
    assert totals(problem, found).casts == totals(problem, place(problem)).casts


def greedy(problem: PlacementProblem, start: Sequence[int]) -> set[int]:
    """Change one open node at a time as long as that saves something."""
    low = problem.low | set(start)
    cost, improved = totals(problem, low).cost, True
    while improved:
        improved = False
        for position in sorted(problem.free):
            other = low ^ {position}
            if totals(problem, other).cost < cost:
                low, cost, improved = other, totals(problem, other).cost, True
    return low


@given(costed(most_nodes=60, most_free=60), st.data())
def test_greedy_never_finds_a_cheaper_one(problem: PlacementProblem, data: st.DataObject) -> None:
    problem = PlacementProblem(**{**vars(problem), "groups": ()})
    free = sorted(problem.free)
    start = data.draw(st.lists(st.sampled_from(free), unique=True)) if free else []
    cost = totals(problem, place(problem)).cost
    for other in (greedy(problem, []), greedy(problem, free), greedy(problem, start)):
        assert cost <= totals(problem, other).cost


def test_an_integer_is_cast_nowhere_and_costs_nothing() -> None:
    sketch, nodes = chain("ff")
    problem = sketch.problem(nodes[-1])
    supply = [problem.supply[0], (Supply.EITHER,), *problem.supply[2:]]
    problem = with_costs(PlacementProblem(**{**vars(problem), "supply": supply}), {1: (10, 1), 2: (1, 10)})
    assert place(problem) == {1}
    assert totals(problem, {1}).cost == 1 + 1 + 1  # both nodes, and the cast down of the input


# ---------------------------------------------------------------------- what changes with a few nodes


@given(problem=costed(most_nodes=12, most_free=6) | problems(most_nodes=12, most_free=6), data=st.data())
def test_what_changes_with_a_few_nodes_is_the_difference_of_two_totals(
    problem: PlacementProblem, data: st.DataObject
) -> None:
    parameters = [position for position, node in enumerate(problem.graph.nodes) if node.is_variable]
    copies = {position: data.draw(st.integers(0, 9)) for position in parameters}
    problem = replace(problem, copies=copies)
    open_nodes = sorted(problem.free | problem.low)
    low = data.draw(st.sets(st.sampled_from(open_nodes))) if open_nodes else set()
    raised = data.draw(st.sets(st.sampled_from(sorted(low)))) if low else set()
    before, after = totals(problem, low), totals(problem, low - raised)
    found = change_in_float32(problem, low, raised)
    assert found == Totals(after.cost - before.cost, after.casts - before.casts)
