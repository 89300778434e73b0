"""The placement has the fewest casts: by enumeration on small graphs, against a greedy one on larger ones."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mxamp.graph import Entry, Node
from mxamp.placement import PlacementCosts, PlacementProblem, Supply, place, totals
from tests.placement.sketches import C, F, L, Sketch, allowed, chain, crossed, problems


def solved(problem: PlacementProblem) -> tuple[set[int], int]:
    low = place(problem)
    return low, totals(problem, low).casts


# ---------------------------------------------------------------------- claims


def test_gray_between_green_is_low() -> None:
    sketch, nodes = chain("gffg")
    # One cast down of the input, one up of the output.
    assert solved(sketch.problem(nodes[-1])) == ({1, 2, 3, 4}, 2)


def test_gray_between_red_is_fp32() -> None:
    sketch, nodes = chain("rffr")
    assert solved(sketch.problem(nodes[-1])) == (set(), 0)


def test_gray_downstream_of_green_is_low_and_upstream_of_it_is_fp32() -> None:
    sketch, nodes = chain("ffgff")
    assert solved(sketch.problem(nodes[-1])) == ({3, 4, 5}, 2)


def test_gray_without_green_is_fp32() -> None:
    sketch, nodes = chain("fff")
    assert solved(sketch.problem(nodes[-1])) == (set(), 0)


def test_one_cast_serves_all_readers() -> None:
    sketch = Sketch()
    x = sketch.add("x")
    greens = [sketch.add("g", x) for _ in range(5)]
    assert solved(sketch.problem(*greens)) == (set(greens), 1 + 5)


def test_one_cast_up_serves_readers_and_heads() -> None:
    sketch = Sketch()
    green = sketch.add("g", sketch.add("x"))
    reds = [sketch.add("r", green) for _ in range(3)]
    # The input down, the GREEN node's output up, once for three readers and the head.
    assert solved(sketch.problem(*reds, green, green))[1] == 2


def test_a_free_node_that_spares_its_readers_a_cast_moves() -> None:
    sketch = Sketch()
    green = sketch.add("g", sketch.add("x"))
    free = sketch.add("f", green)
    # Three RED readers share one cast wherever it is, and the free node is low for less memory traffic.
    problem = sketch.problem(*(sketch.add("r", free) for _ in range(3)))
    assert solved(problem) == ({green, free}, 2)


def test_a_join_of_two_low_branches_is_low() -> None:
    sketch = Sketch()
    x = sketch.add("x")
    join = sketch.add("f", sketch.add("g", x), sketch.add("g", x))
    assert solved(sketch.problem(join)) == ({1, 2, 3}, 2)


def test_a_join_of_a_low_branch_and_two_fp32_ones_is_fp32() -> None:
    sketch = Sketch()
    x = sketch.add("x")
    join = sketch.add("f", sketch.add("g", x), sketch.add("r", x), sketch.add("r", x))
    # Low, it would need two casts down and one up.
    assert solved(sketch.problem(join)) == ({1}, 2)


def test_two_shared_casts_up_outweigh_one() -> None:
    sketch = Sketch()
    x = sketch.add("x")
    left, right = sketch.add("g", x), sketch.add("g", x)
    joins = [sketch.add("f", left, right) for _ in range(2)]
    heads = [sketch.add("r", joins[0]), sketch.add("g", joins[1])]
    # FP32, the first join would need both layers cast up; low, it is cast up itself.
    assert solved(sketch.problem(*heads, low_heads=heads[1:])) == ({left, right, *joins, heads[1]}, 2)


def test_a_parameter_costs_nothing() -> None:
    sketch = Sketch()
    weight = sketch.add("p")
    green = sketch.add("g", sketch.add("x"), weight)
    red = sketch.add("r", green, weight)
    assert solved(sketch.problem(red))[1] == 2


def test_a_low_head_needs_no_cast_up() -> None:
    sketch, nodes = chain("g")
    assert solved(sketch.problem(nodes[-1], low_heads=nodes[-1:]))[1] == 1
    assert solved(sketch.problem(nodes[-1]))[1] == 2


def test_a_low_head_draws_gray_nodes_low() -> None:
    sketch, nodes = chain("gf")
    assert place(sketch.problem(nodes[-1], low_heads=nodes[-1:])) == {1, 2}


def test_the_same_head_twice_is_cast_once() -> None:
    sketch, nodes = chain("g")
    assert solved(sketch.problem(nodes[-1], nodes[-1]))[1] == 2


def test_a_group_moves_together() -> None:
    sketch, nodes = chain("rffg")
    assert place(sketch.problem(nodes[-1], groups=[(2, 3)])) == {4}
    sketch, nodes = chain("gffr")
    assert place(sketch.problem(nodes[-1], groups=[(2, 3)])) == {1, 2, 3}


def test_a_group_with_a_green_member_is_low() -> None:
    sketch, nodes = chain("rffg")
    assert place(sketch.problem(nodes[-1], groups=[(2, 3, 4)])) == {2, 3, 4}


def test_a_group_with_an_fp32_member_is_fp32() -> None:
    sketch, nodes = chain("gfr")
    assert place(sketch.problem(nodes[-1], groups=[(2, 3)])) == {1}


def test_widest_is_low_only_where_every_producer_is() -> None:
    def join(other: str) -> tuple[PlacementProblem, int]:
        sketch = Sketch()
        x = sketch.add("x")
        node = sketch.add("f", sketch.add("g", x), sketch.add(other, x))
        readers = [sketch.add("g", node) for _ in range(2)]
        return sketch.problem(*readers, low_heads=readers, widest=[node]), node

    problem, node = join("g")
    assert node in place(problem)
    problem, node = join("r")
    assert node not in place(problem)


def test_widest_on_a_graph_input_is_fp32() -> None:
    sketch = Sketch()
    x = sketch.add("x")
    node = sketch.add("f", x)
    green = sketch.add("g", node)
    assert node not in place(sketch.problem(green, low_heads=[green], widest=[node]))


def test_a_fixed_low_producer_costs_a_cast_up_only() -> None:
    sketch, nodes = chain("rr")
    problem = sketch.problem(nodes[-1])
    supply = [(F,), (L,), (F,)]
    assert totals(PlacementProblem(**{**vars(problem), "supply": supply}), set()).casts == 1


def test_each_output_of_a_node_is_cast_for_itself() -> None:
    sketch = Sketch()
    split = sketch.add("g", sketch.add("x"), outputs=2)
    first = sketch.add("r", split)
    sketch.nodes.append(Node("op", "second", {}, (Entry(split, 1), Entry(split, 1))))
    sketch.kinds.append("r")
    assert solved(sketch.problem(first, 3))[1] == 1 + 2


def test_ten_thousand_nodes_are_placed() -> None:
    sketch = Sketch()
    last = sketch.add("x")
    for number in range(10_000):
        last = sketch.add("gfrff"[number % 5], last)
    low, casts = solved(sketch.problem(last))
    # Every RED node splits the chain: down before each GREEN node, up before each RED one, up at the head.
    assert len(low) == 10_000 // 5 * 2
    assert casts == 10_000 // 5 * 2


# ---------------------------------------------------------------------- properties


@given(problems(most_nodes=9, most_free=7) | crossed())
def test_no_placement_has_fewer_casts(problem: PlacementProblem) -> None:
    low, casts = solved(problem)
    assert low in allowed(problem)
    assert casts == min(totals(problem, other).casts for other in allowed(problem))


@given(problems(most_nodes=9, most_free=6), st.data())
def test_no_placement_with_widest_nodes_has_fewer_casts(
    problem: PlacementProblem, data: st.DataObject
) -> None:
    free = sorted(problem.free)
    widest = data.draw(st.sets(st.sampled_from(free))) if free else set()
    problem = PlacementProblem(**{**vars(problem), "widest": widest})

    def fits(low: set[int]) -> bool:
        return all(
            problem.supply[entry.node][entry.output] is Supply.EITHER
            or (problem.supply[entry.node][entry.output] is C and entry.node in low)
            for position in widest & low
            for entry in problem.graph.nodes[position].inputs
        )

    grouped = {position for group in problem.groups for position in group}
    if grouped & (problem.low | widest):
        return  # a fused group is low with its GREEN member, whatever else was asked
    low, casts = solved(problem)
    assert fits(low)
    assert casts == min(totals(problem, other).casts for other in allowed(problem) if fits(other))


def greedy(problem: PlacementProblem) -> set[int]:
    """Make each free node low, in order, where most of what it reads is low; groups are left out."""
    low = set(problem.low)
    for position, node in enumerate(problem.graph.nodes):
        if position in problem.free:
            votes = sum(
                1 if entry.node in low else -1
                for entry in node.inputs
                if problem.supply[entry.node][0] is not Supply.EITHER
            )
            if votes >= 0:
                low.add(position)
    return low


@given(problems(most_nodes=60, most_free=60))
def test_greedy_never_has_fewer_casts(problem: PlacementProblem) -> None:
    problem = PlacementProblem(**{**vars(problem), "groups": ()})
    casts = solved(problem)[1]
    assert casts <= totals(problem, greedy(problem)).casts
    assert casts <= totals(problem, problem.low).casts
    assert casts <= totals(problem, problem.low | problem.free).casts


@given(problems(most_nodes=30, most_free=30) | crossed())
def test_costs_of_one_a_cast_give_the_placement_of_counted_casts(problem: PlacementProblem) -> None:
    one_a_cast = PlacementCosts({}, [((1, 1),) * len(offers) for offers in problem.supply])
    assert place(problem) == place(replace(problem, costs=one_a_cast))


@given(problems(most_nodes=20, most_free=20))
def test_a_free_node_upstream_of_every_low_one_is_fp32_unless_that_costs_a_cast(
    problem: PlacementProblem,
) -> None:
    low, casts = solved(problem)
    downstream = set(problem.low)
    for position, node in enumerate(problem.graph.nodes):
        if any(entry.node in downstream for entry in node.inputs):
            downstream.add(position)
    grouped = {position for group in problem.groups for position in group}
    for position in low - downstream - grouped:
        assert totals(problem, low - {position}).casts > casts
