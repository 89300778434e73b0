"""Placement problems, drawn by hand and at random."""

from __future__ import annotations

import itertools
from typing import Sequence

from hypothesis import strategies as st

from mxamp.graph import VARIABLE, Entry, Graph, Node, verify_graph
from mxamp.placement import (
    Crossing,
    Demand,
    PlacementCosts,
    PlacementProblem,
    Price,
    Supply,
)

C, F, L = Supply.CHOSEN, Supply.FP32, Supply.LOW


class Sketch:
    """Draws a placement problem: ``g`` is GREEN, ``f`` free, ``r`` RED, ``p`` a parameter, ``x`` an input."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.kinds: list[str] = []

    def add(self, kind: str, *inputs: int, outputs: int = 1) -> int:
        op = VARIABLE if kind in "xp" else "op"
        position = len(self.nodes)
        self.nodes.append(Node(op, f"n{position}", {}, tuple(Entry(i) for i in inputs), outputs))
        self.kinds.append(kind)
        return position

    def problem(
        self,
        *heads: int,
        low_heads: Sequence[int] = (),
        groups: Sequence[tuple[int, ...]] = (),
        widest: Sequence[int] = (),
    ) -> PlacementProblem:
        graph = Graph(tuple(self.nodes), tuple(Entry(head) for head in heads))
        verify_graph(graph)
        offers = {"p": Supply.EITHER, "x": F, "r": F, "g": C, "f": C}
        wants = {"r": Demand.FP32, "g": Demand.CHOSEN, "f": Demand.CHOSEN}
        return PlacementProblem(
            graph=graph,
            free={n for n, kind in enumerate(self.kinds) if kind == "f"},
            low={n for n, kind in enumerate(self.kinds) if kind == "g"},
            supply=[(offers[k],) * node.num_outputs for k, node in zip(self.kinds, self.nodes)],
            demand=[tuple(wants[kind] for _ in node.inputs) for kind, node in zip(self.kinds, self.nodes)],
            head_demand=[Demand.LOW if head in low_heads else Demand.FP32 for head in heads],
            groups=groups,
            widest=set(widest),
        )


def chain(kinds: str) -> tuple[Sketch, list[int]]:
    sketch = Sketch()
    positions = [sketch.add("x")]
    for kind in kinds:
        positions.append(sketch.add(kind, positions[-1]))
    return sketch, positions


@st.composite
def problems(draw: st.DrawFn, most_nodes: int, most_free: int) -> PlacementProblem:
    sketch = Sketch()
    for _ in range(draw(st.integers(1, 2))):
        sketch.add("x")
    sketch.add("p")
    for _ in range(draw(st.integers(1, most_nodes))):
        kinds = "gfr" if sketch.kinds.count("f") < most_free else "gr"
        inputs = draw(st.lists(st.integers(0, len(sketch.nodes) - 1), min_size=1, max_size=3))
        kind = draw(st.sampled_from(kinds))
        position = sketch.add(kind, *inputs)
        if draw(st.booleans()):
            outputs = [Entry(i, draw(st.integers(0, sketch.nodes[i].num_outputs - 1))) for i in inputs]
            sketch.nodes[position] = sketch.nodes[position]._replace(
                inputs=tuple(outputs), num_outputs=draw(st.integers(1, 2))
            )
    count = len(sketch.nodes)
    heads = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=3))
    operators = [n for n, kind in enumerate(sketch.kinds) if kind in "gf"]
    group = tuple(sorted(draw(st.sets(st.sampled_from(operators), max_size=3)))) if operators else ()
    low_heads = draw(st.lists(st.sampled_from(heads), max_size=1))
    return sketch.problem(*heads, low_heads=low_heads, groups=[group] if len(group) > 1 else [])


@st.composite
def crossed(draw: st.DrawFn) -> PlacementProblem:
    """Draw layers whose entries have several free readers, so that sharing a cast decides."""
    sketch = Sketch()
    x = sketch.add("x")
    producers = [sketch.add(draw(st.sampled_from("ggr")), x) for _ in range(draw(st.integers(2, 4)))]
    two = st.lists(st.sampled_from(producers), min_size=2, max_size=3, unique=True)
    free = [sketch.add("f", *draw(two)) for _ in range(draw(st.integers(2, 4)))]
    two = st.lists(st.sampled_from(free), min_size=1, max_size=3, unique=True)
    readers = [sketch.add(draw(st.sampled_from("grf")), *draw(two)) for _ in range(draw(st.integers(2, 4)))]
    return sketch.problem(*readers, low_heads=draw(st.lists(st.sampled_from(readers), unique=True)))


def allowed(problem: PlacementProblem) -> list[set[int]]:
    """Return every placement that respects what is fixed and the groups."""
    free = sorted(problem.free)
    found = []
    for choice in itertools.product((False, True), repeat=len(free)):
        low = problem.low | {position for position, is_low in zip(free, choice) if is_low}
        if all(len({position in low for position in group}) == 1 for group in problem.groups):
            found.append(low)
    return found


def with_costs(
    problem: PlacementProblem,
    nodes: dict[int, tuple[int, int]],
    cast: tuple[int, int] = (1, 1),
) -> PlacementProblem:
    """Return the problem with these costs of nodes, and every cast at the same two costs."""
    casts = [(cast,) * node.num_outputs for node in problem.graph.nodes]
    return PlacementProblem(**{**vars(problem), "costs": PlacementCosts(nodes, casts)})


@st.composite
def costed(draw: st.DrawFn, most_nodes: int, most_free: int) -> PlacementProblem:
    problem = draw(problems(most_nodes=most_nodes, most_free=most_free) | crossed())
    cost = st.integers(0, 12)
    nodes = {n: draw(st.tuples(cost, cost)) for n in sorted(problem.free | problem.low)}
    casts = [
        tuple(draw(st.tuples(cost, cost)) for _ in range(node.num_outputs)) for node in problem.graph.nodes
    ]
    sets = st.frozensets(st.sampled_from(range(len(problem.graph.nodes))), min_size=1, max_size=4)
    prices = [Price(*drawn) for drawn in draw(st.lists(st.tuples(sets, cost), max_size=4))]
    place = st.integers(0, len(problem.graph.nodes) - 1)
    pairs = draw(st.lists(st.tuples(place, place, cost, cost), max_size=4))
    crossings = [Crossing(*drawn) for drawn in pairs]
    return PlacementProblem(**{**vars(problem), "costs": PlacementCosts(nodes, casts, prices, crossings)})
