"""A small model with few choices is placed by racing every placement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mxamp.model import Model
from mxamp.placement import PlacementProblem
from mxamp.profile.every import every_placement
from mxamp.profile.run import place_by_measuring
from mxamp.profile.settings import Profiling
from mxamp.report.model import PlanReport
from mxamp.targets import Target
from tests.building import BF16, Net
from tests.profile.profiling import FakeProcesses, candidates_of, is_low, measuring_with

CPU = Target.builtin("cpu-bf16")


def raced(
    folder: Path, layers: int, fastest: frozenset[str] = frozenset(), target: Target | None = CPU
) -> tuple[FakeProcesses, tuple[PlanReport, ...]]:
    """Place layers with what FP32 alone computes between them; one placement is the fastest."""
    net = Net()
    x = net.var("data")
    for number in range(layers):
        x = net.op("exp", net.conv(x, f"conv{number}"), name=f"exp{number}")

    def seconds(model: Model) -> float:
        low = {
            node.name for node in model.graph.nodes if node.op == "Convolution" and is_low(model, node.name)
        }
        return 1.0 if low == names else 2.0

    graph = net.graph(x)
    # Candidates call operators by their positions.
    names = {f"n{position}" for position, node in enumerate(graph.nodes) if node.name in fastest}
    processes = FakeProcesses(lambda op, low: 1.0, seconds=seconds)
    candidates = candidates_of(folder, graph, net.params, target)
    placing = place_by_measuring(
        candidates, measuring_with(folder, processes), dtype=BF16, settings=Profiling(), required=False
    )
    return processes, placing.race


def test_one_process_races_all_placements(tmp_path: Path) -> None:
    processes, race = raced(tmp_path, 3)
    assert processes.runs == ["race_process"]
    assert len(race) == 8
    assert {plan.low_nodes for plan in race} == {0, 1, 2, 3}
    assert "bfloat16 in conv0, conv2" in {plan.name for plan in race}


def test_with_more_choices_nodes_are_timed(tmp_path: Path) -> None:
    assert "node_times" in raced(tmp_path, 5)[0].runs


def test_where_nothing_is_known_of_costs_nodes_are_timed(tmp_path: Path) -> None:
    assert "node_times" in raced(tmp_path, 2, target=None)[0].runs


@pytest.mark.parametrize(
    ("groups", "milliseconds", "count"),
    [((), 0.1, 6), (((0, 1),), 0.1, 2), ((), 10.0, 0), ((), None, 0)],
    ids=["three nodes", "two units", "a slow model", "not known"],
)
def test_units_are_placed_whole(groups: Any, milliseconds: float | None, count: int) -> None:
    problem = replace(_problem(), groups=groups)
    found = every_placement(problem, {0, 1, 2}, milliseconds)
    assert len(found) == count
    assert all({0, 1} <= nodes or not nodes & {0, 1} for nodes in found if groups)
    assert frozenset() not in found
    assert frozenset({0, 1, 2}) not in found


def _problem() -> PlacementProblem:
    net = Net()
    x = net.var("data")
    graph = net.graph(net.op("exp", net.op("exp", net.op("exp", x))))
    return PlacementProblem(
        graph=graph, free={0, 1, 2}, low=set(), supply=(), demand=(), head_demand=(), groups=(), widest=set()
    )
