"""A model is placed by what was measured in it, and the plan that runs fastest wins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mxamp.conversion import convert_graph
from mxamp.decisions import LowPrecision
from mxamp.decisions.placing import Placing
from mxamp.model import Model
from mxamp.profile.candidate import Candidates
from mxamp.profile.run import FLOAT32, MEASURED, place_by_measuring
from mxamp.profile.settings import Profiling
from tests.building import BF16, Net
from tests.decisions.priced import target
from tests.profile.profiling import FakeProcesses, Time, candidates_of, is_low, measuring_with, three_layers


def steady(low: float, float32: float, *, cast: float = 1.0) -> Time:
    """Return times of layers; all other operators take one microsecond."""

    def time(op: str, is_low: bool) -> float:
        if op == "amp_cast":
            return cast
        return (low if is_low else float32) if op == "Convolution" else 1.0

    return time


def placed(
    folder: Path, processes: FakeProcesses, *, required: bool = False, settings: Profiling | None = None
) -> tuple[Placing, Model]:
    """Return how the three layers are placed, and the conversion."""
    graph, params = three_layers()
    options = {"low_precision": LowPrecision.REQUIRED} if required else {}
    candidates = candidates_of(folder, graph, params, **options)
    settings = settings or Profiling()
    measuring = measuring_with(folder, processes, settings=settings)
    placing = place_by_measuring(candidates, measuring, dtype=BF16, settings=settings, required=required)
    return placing, converted(candidates, placing)


def converted(candidates: Candidates, placing: Placing) -> Model:
    """Convert the model of the candidates, placed as was found."""
    options = replace(candidates.options, placing=placing)
    return convert_graph(candidates.source, options, warn=False)


def low_layers(model: Model) -> set[str]:
    """Return the layers that compute low."""
    assert model.report is not None
    return {node.name for node in model.report.nodes if node.compute == "bfloat16"}


def test_layers_that_are_measured_to_be_faster_are_low(tmp_path: Path) -> None:
    placing, model = placed(tmp_path, FakeProcesses(steady(10, 100)))
    assert low_layers(model) == {"conv0", "conv1"}  # relu takes no longer in float32
    (chosen,) = [plan for plan in placing.race if plan.is_chosen]
    assert MEASURED in chosen.name
    # conv0, conv1, exp, relu, and the casts: of data, up before exp, down after it, and up at the end.
    assert chosen.median_ms == pytest.approx((10 + 10 + 1 + 1 + chosen.casts) / 1000)
    assert chosen.estimated_ms == pytest.approx(chosen.median_ms)


def test_layers_that_are_measured_to_be_slower_stay_float32(tmp_path: Path) -> None:
    placing, model = placed(tmp_path, FakeProcesses(steady(100, 10)))
    assert low_layers(model) == set()
    (chosen,) = [plan for plan in placing.race if plan.is_chosen]
    assert FLOAT32 in chosen.name
    assert chosen.ratio == 1.0
    assert model.report is not None
    assert "in the plan that ran fastest here" in model.report.node("conv0").reason


def test_casts_that_cost_more_than_layers_save_are_not_made(tmp_path: Path) -> None:
    _, model = placed(tmp_path, FakeProcesses(steady(10, 20, cast=30)))
    assert low_layers(model) == set()


def test_the_plan_that_ran_fastest_wins_over_the_one_that_should_have(tmp_path: Path) -> None:
    def seconds(model: Model) -> float:
        low = sum(is_low(model, node.name) for node in model.graph.nodes if node.op == "Convolution")
        return 1.0 + low  # as a whole, low precision is slow here, whatever the nodes say

    placing, model = placed(tmp_path, FakeProcesses(steady(10, 100), seconds=seconds))
    assert low_layers(model) == set()
    by_name = {plan.name: plan for plan in placing.race}
    assert by_name[FLOAT32].is_chosen
    (other,) = [plan for name, plan in by_name.items() if MEASURED in name]
    assert other.ratio == pytest.approx(1 / 3)
    assert other.estimated_ms is not None
    assert by_name[FLOAT32].estimated_ms is not None
    assert other.estimated_ms < by_name[FLOAT32].estimated_ms


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [
        pytest.param(1.0, 8.0, id="a fast model has the seconds of the settings"),
        pytest.param(1_000.0, 50.0, id="a slow one has more, for enough rounds"),
        pytest.param(1_000_000.0, 150.0, id="a very slow one no more than half the time limit"),
    ],
)
def test_a_race_takes_as_long_as_the_model_is_slow(
    tmp_path: Path, milliseconds: float, seconds: float
) -> None:
    microseconds = 1e3 * milliseconds
    processes = FakeProcesses(steady(low=0.4 * microseconds, float32=microseconds))
    placed(tmp_path, processes, settings=Profiling(timeout=300.0))
    (race,) = [job for job in processes.jobs if "labels" in job]
    assert race["seconds"] == pytest.approx(seconds, rel=0.5)
    assert race["seconds"] <= 150.0


def test_float32_cannot_win_where_low_precision_is_required(tmp_path: Path) -> None:
    placing, model = placed(tmp_path, FakeProcesses(steady(100, 10)), required=True)
    assert low_layers(model) >= {"conv0", "conv1"}
    assert not next(plan for plan in placing.race if plan.name == FLOAT32).is_chosen
    assert any(plan.is_chosen for plan in placing.race)


def test_every_node_says_that_it_was_measured_here(tmp_path: Path) -> None:
    _, model = placed(tmp_path, FakeProcesses(steady(10, 100)))
    report = model.report
    assert report is not None
    assert report.time is not None
    assert report.time.measured_nodes == len(report.nodes)
    node = report.node("conv1")
    assert (node.float32_us, node.mixed_us, node.is_time_measured) == (100.0, 10.0, True)
    assert report.race == tuple(report.race)
    assert type(report).from_json(report.to_json()) == report


def test_a_low_run_that_crashes_leaves_the_times_of_the_runs_that_did_not(tmp_path: Path) -> None:
    def fails(program: str, models: list[Model]) -> bool:
        everything = [
            all(is_low(model, node.name) for node in model.graph.nodes if node.op == "Convolution")
            for model in models
        ]
        return any(everything)

    placing, model = placed(tmp_path, FakeProcesses(steady(10, 100), fails=fails))
    assert any(
        "could not be timed with all bfloat16" in note and "signal 11" in note for note in placing.notes
    )
    assert len(low_layers(model) & {"conv0", "conv1"}) < 2  # no plan with both could run
    unrun = [plan for plan in placing.race if plan.problem]
    assert unrun
    assert all(plan.median_ms is None and "signal 11" in plan.problem for plan in unrun)
    assert model.report is not None
    assert any("signal 11" in warning for warning in model.report.warnings)


def test_a_layer_that_crashes_is_found_and_the_others_are_low(tmp_path: Path) -> None:
    net = Net()
    entry = net.var("data")
    for number in range(8):
        entry = net.conv(entry, f"conv{number}")
    candidates = candidates_of(tmp_path, net.graph(entry), net.params)

    def fails(program: str, models: list[Model]) -> bool:
        return any(model.arg_params["conv5_weight"].dtype is BF16 for model in models)

    measuring = measuring_with(tmp_path, FakeProcesses(steady(10, 100), fails=fails))
    placing = place_by_measuring(candidates, measuring, dtype=BF16, settings=Profiling(), required=False)
    assert any(note.endswith("stay float32 where it was measured: conv5") for note in placing.notes)
    model = converted(candidates, placing)
    assert low_layers(model) == {f"conv{number}" for number in range(8) if number != 5}


def test_where_nothing_can_be_measured_the_model_is_converted_all_the_same(tmp_path: Path) -> None:
    placing, model = placed(tmp_path, FakeProcesses(steady(1, 1), fails=lambda program, models: True))
    assert placing.times is None
    assert {"conv0", "conv1"} <= low_layers(model)  # as without profile, on a target without costs
    assert any("no plan could be timed" in note for note in placing.notes)
    assert any("in float32" in note for note in placing.notes)


def test_progress_says_what_is_being_measured(tmp_path: Path) -> None:
    said: list[str] = []
    placed(tmp_path, FakeProcesses(steady(10, 100)), settings=Profiling(progress=said.append))
    assert said[0] == "nodes, in float32 and with all bfloat16 that may be"
    assert "plans against each other" in said[-1]


@pytest.mark.parametrize(
    ("gains", "races", "is_low_taken"),
    [((0.04, 0.04), 2, True), ((0.04, 0.0), 2, False), ((0.04, -0.04), 2, False), ((0.2,), 1, True)],
    ids=["twice", "once", "once and then slower", "by far"],
)
def test_what_replaces_the_plan_by_the_table_wins_in_another_process_too(
    tmp_path: Path, gains: tuple[float, ...], races: int, is_low_taken: bool
) -> None:
    """By the table everything is float32, for casts are dear there."""
    dear = target({"cast": {"bytes_per_us": 1, "overhead_us": 1e6}})

    def seconds(model: Model) -> float:
        gain = gains[processes.runs.count("race_process") - 1]
        return 1 - gain * any(node.op == "amp_cast" for node in model.graph.nodes)

    processes = FakeProcesses(steady(10, 100), seconds=seconds)
    graph, params = three_layers()
    candidates = candidates_of(tmp_path, graph, params, dear)
    measuring = measuring_with(tmp_path, processes)
    placing = place_by_measuring(candidates, measuring, dtype=BF16, settings=Profiling(), required=False)
    assert processes.runs.count("race_process") == races
    assert bool(low_layers(converted(candidates, placing))) is is_low_taken
    assert any("in one process and not in another" in note for note in placing.notes) is not is_low_taken
    (chosen,) = [plan for plan in placing.race if plan.is_chosen]
    assert (chosen.low_nodes > 0) is is_low_taken


def test_plans_that_are_the_same_run_once(tmp_path: Path) -> None:
    processes = FakeProcesses(steady(10, 100))
    placing, _ = placed(tmp_path, processes)
    assert processes.runs.count("race_process") == 1
    names: list[Any] = [plan.name.split(" = ") for plan in placing.race]
    assert sum(map(len, names)) > len(names)


def test_what_was_measured_before_is_not_measured_again(tmp_path: Path) -> None:
    graph, params = three_layers()
    cache = tmp_path / "cache"
    results = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        processes = FakeProcesses(steady(10, 100))
        measuring = measuring_with(folder, processes, cache=cache)
        # Other values take the same time.
        values = {name: value + number for name, value in params.items()}
        placing = place_by_measuring(
            candidates_of(folder, graph, values), measuring, dtype=BF16, settings=Profiling(), required=False
        )
        results.append((len(processes.runs), placing.race))
    assert results[0][0] > 0
    assert results[1][0] == 0
    assert results[0][1] == results[1][1]
