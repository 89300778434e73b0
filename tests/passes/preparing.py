"""Running one of the passes that prepare a graph, for their tests."""

from __future__ import annotations

from typing import Any, Collection, Mapping

from mxamp.graph import Graph
from mxamp.graph.printer import print_graph
from mxamp.passes import PreparationPass
from mxamp.policy import Policy
from tests.building import BF16, parameters
from tests.passes.harness import run_pass


def prepared(
    step: type[PreparationPass],
    graph: Graph,
    params: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
    inserted: Collection[str] = (),
) -> tuple[Graph, PreparationPass]:
    """Run a pass under the harness; each node but the inserted must be what it claims to be."""
    made: list[PreparationPass] = []

    def make(current: Graph) -> PreparationPass:
        made.append(step(parameters(params or {}), policy or Policy.default(BF16)))
        return made[-1]

    after = run_pass(graph, make)
    assert len(made[0].positions) == len(after.nodes)
    assert (after is graph) == (not made[0].changes)
    names = {node.name for node in after.nodes}
    for origin, node in zip(made[0].positions, after.nodes):
        assert (graph.nodes[origin].name == node.name) != (node.name in inserted)
    for change in made[0].changes:
        assert change.step == step.step
        assert change.into in names
        assert change.reason
    gone = [node.name for node in graph.nodes if node.name not in names]
    assert set(gone) <= {change.node for change in made[0].changes}
    return after, made[0]


def operators(graph: Graph) -> list[str]:
    """Return the printed operators with their attributes."""
    return [line for line in print_graph(graph, attrs=True).splitlines() if " = " in line]
