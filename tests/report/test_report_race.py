"""The report tells measured times from estimated ones, and shows each plan that was run."""

from __future__ import annotations

import dataclasses

import pytest

from mxamp.report.model import PlanReport, Report, TimeReport
from mxamp.report.text import summary
from tests.building import Net, convert

PLANS = (
    PlanReport("float32", 10.0, 1.0, 1.0, 1.0, rounds=20, estimated_ms=9.0),
    PlanReport(
        "least time, as measured", 5.0, 2.0, 1.9, 2.1, rounds=20, estimated_ms=4.5, casts=2, is_chosen=True
    ),
)


@pytest.fixture
def report() -> Report:
    net = Net()
    graph = net.graph(net.op("exp", net.fc(net.var("data"), "fc"), name="exp"))
    found = convert(graph, net.params).report
    assert found is not None
    times = {"fc": (100.0, 40.0, 8.0, True), "exp": (20.0, 20.0, 0.0, False)}
    nodes = [
        dataclasses.replace(
            node,
            float32_us=times[node.name][0],
            mixed_us=times[node.name][1],
            cast_us=times[node.name][2],
            is_time_measured=times[node.name][3],
        )
        for node in found.nodes
    ]
    time = TimeReport(120.0, 68.0, 8.0, is_measured=True, measured_nodes=1)
    return dataclasses.replace(found, nodes=tuple(nodes), time=time, race=PLANS)


def test_plans_are_listed_with_the_one_that_won(report: Report) -> None:
    lines = summary(report, 100).splitlines()
    assert "Plans run against each other here, as whole models:" in lines
    (chosen,) = [line for line in lines if "(won)" in line]
    assert " ".join(chosen.split()) == "least time, as measured (won) 5.00 4.50 2.00 (1.90 to 2.10) 2"


def test_a_plan_that_could_not_run_says_why(report: Report) -> None:
    crashed = PlanReport("fewest casts", problem="the process was ended by signal 11")
    text = summary(dataclasses.replace(report, race=(*PLANS, crashed)), 120)
    (line,) = [line for line in text.splitlines() if "not run" in line]
    assert "signal 11" in line


def test_without_a_race_nothing_is_said_of_it(report: Report) -> None:
    assert "run against each other" not in summary(dataclasses.replace(report, race=()), 100)


def test_measured_times_are_told_from_estimated_ones(report: Report) -> None:
    assert "as the sum of what was measured in this model: float32 120 us" in " ".join(
        summary(report, 100).split()
    )


def test_a_race_survives_json(report: Report) -> None:
    assert Report.from_json(report.to_json()) == report
    document = report.to_mapping()
    del document["race"], document["time"]["measured_nodes"]
    for node in document["nodes"]:
        del node["is_time_measured"]
    assert Report.from_mapping(document).race == ()  # as written before there was profiling
