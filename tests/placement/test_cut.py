"""Minimum cuts of small capacity graphs, checked by hand and by enumeration."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxamp.placement.cut import SINK, SOURCE, CutProblem


def problem(vertices: int, edges: list[tuple[int, int, int | None]]) -> CutProblem:
    cut = CutProblem()
    for _ in range(vertices):
        cut.add_vertex()
    for tail, head, capacity in edges:
        if capacity is None:
            cut.forbid(tail, head)
        else:
            cut.add_edge(tail, head, capacity)
    return cut


def cost(edges: list[tuple[int, int, int | None]], source_side: set[int]) -> float:
    """Return what a cut costs, infinite where it cuts a forbidden edge."""
    crossing = [c for tail, head, c in edges if tail in source_side and head not in source_side]
    return float("inf") if None in crossing else sum(c for c in crossing if c is not None)


def test_without_edges_everything_is_on_the_sink_side_unless_preferred() -> None:
    assert problem(3, []).solve() == {SOURCE}
    assert problem(3, []).solve(prefer_source=[3]) == {SOURCE, 3}


def test_a_preference_never_costs_anything() -> None:
    edges: list[tuple[int, int, int | None]] = [(2, SINK, 1)]
    assert problem(1, edges).solve(prefer_source=[2]) == {SOURCE}


def test_a_preferred_vertex_takes_along_what_it_must() -> None:
    edges: list[tuple[int, int, int | None]] = [(2, 3, None)]
    assert problem(2, edges).solve(prefer_source=[2]) == {SOURCE, 2, 3}


def test_a_preferred_vertex_that_forbids_the_sink_stays() -> None:
    edges: list[tuple[int, int, int | None]] = [(2, 3, None), (3, SINK, None)]
    assert problem(2, edges).solve(prefer_source=[2]) == {SOURCE}


def test_parallel_edges_add_up() -> None:
    edges: list[tuple[int, int, int | None]] = [(SOURCE, 2, 3), (2, SINK, 2), (2, SINK, 2)]
    assert problem(1, edges).solve() == {SOURCE}


def test_edges_that_cannot_be_cut_are_left_out() -> None:
    edges: list[tuple[int, int, int | None]] = [(SINK, 2, 5), (2, SOURCE, 5), (2, 2, 5), (SINK, 2, None)]
    assert problem(1, edges).solve() == {SOURCE}


def test_costs_beyond_32_bits_are_refused() -> None:
    edges: list[tuple[int, int, int | None]] = [(SOURCE, 2, 2**30), (2, SINK, 2**30)]
    with pytest.raises(ValueError, match="more than 32 bits hold; scale them down"):
        problem(1, edges).solve()
    with pytest.raises(ValueError, match="32 bits"):
        problem(1, [(SOURCE, 2, 2**31 - 1)]).solve()


def test_the_largest_costs_that_fit_do_not_overflow() -> None:
    edges: list[tuple[int, int, int | None]] = [(SOURCE, 2, 2**30), (2, SINK, 2**30 - 3), (2, 3, None)]
    assert problem(2, edges).solve() == {SOURCE, 2, 3}


@pytest.mark.parametrize("parallel", [2, 3, 4, 50])
def test_parallel_forbidden_edges_do_not_overflow(parallel: int) -> None:
    edges: list[tuple[int, int, int | None]] = [(SOURCE, 2, 2**30), (3, SINK, 1)]
    edges += [(2, 3, None)] * parallel
    assert problem(2, edges).solve() == {SOURCE, 2, 3}


@st.composite
def capacity_graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int | None]]]:
    vertices = draw(st.integers(1, 6))
    ends = st.integers(0, vertices + 1)
    capacities = st.one_of(st.integers(0, 5), st.none())
    edges = draw(st.lists(st.tuples(ends, ends, capacities), max_size=14))
    # A forbidden edge from source to sink leaves no cut at all.
    return vertices, [e for e in edges if (e[0], e[1], e[2]) != (SOURCE, SINK, None)]


@given(capacity_graphs(), st.sets(st.integers(2, 7)))
def test_no_cut_is_cheaper_than_the_answer(
    graph: tuple[int, list[tuple[int, int, int | None]]], preferred: set[int]
) -> None:
    vertices, edges = graph
    inner = range(2, vertices + 2)
    cheapest = min(
        cost(edges, {SOURCE, *chosen})
        for size in range(vertices + 1)
        for chosen in itertools.combinations(inner, size)
    )
    if cheapest == float("inf"):
        return  # source and sink are tied together
    answer = problem(vertices, edges).solve(prefer_source=preferred & set(inner))
    assert SOURCE in answer
    assert SINK not in answer
    assert cost(edges, answer) == cheapest
