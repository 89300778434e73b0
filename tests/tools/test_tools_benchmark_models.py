"""``make bench``: what it makes of measurements, given here; one model is measured for true, marked slow."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from model_zoo_eval.journal import read_results
from model_zoo_eval.process import Limits
from model_zoo_eval.registry import find_entry
from model_zoo_eval.rows import CRASHED, OK, TIMEOUT
from mxamp.errors import DataError, UnknownNameError
from mxamp.model import Model
from tests.building import AUXILIARY, F32, Net
from tests.machines import needs_bfloat16
from tools.benchmark_models import cli
from tools.benchmark_models.bounds import judge, judged_variant
from tools.benchmark_models.group_bounds import judge_groups, ratios_in
from tools.benchmark_models.job import Job
from tools.benchmark_models.names import (
    FP32,
    MODELS,
    MXAMP,
    MXAMP_NO_SHAPES,
    MXAMP_PROFILED,
    NOT_AVAILABLE,
    PLAIN_RESNETS,
    PREPARED,
    STOCK,
    STOCK_CAST_ONCE,
    VARIANTS,
)
from tools.benchmark_models.plot import plot
from tools.benchmark_models.results import read_rows
from tools.benchmark_models.run import Task, case_key, run_tasks
from tools.benchmark_models.tables import BEGIN, END, document, insert_between_markers
from tools.benchmark_models.variants import first_equals, prepared_model
from tools.networks.names import NETWORK_NAMES

MACHINE = {"commit": "0123456789ab", "cpu": "a CPU", "versions": {}}
LIMITS = Limits()


def figures(milliseconds, error=0.004, **others):
    return {
        "milliseconds": milliseconds,
        "relative_l2": error,
        "finite": True,
        "casts": 3,
        "parameter_bytes": 1_500_000,
        **others,
    }


def variants(**changes):
    """Return results in which the machine was twice as slow in the second of three rounds."""
    found = {
        FP32: figures([10.0, 20.0, 10.0], 1e-6),
        PREPARED: figures([9.0, 18.0, 9.0], 1e-6),
        STOCK: figures([40.0, 80.0, 40.0], 0.05),
        STOCK_CAST_ONCE: figures([8.0, 16.0, 8.0], 0.04),
        MXAMP_NO_SHAPES: figures([6.0, 12.0, 6.0]),
        MXAMP: figures([5.0, 10.0, 5.0]),
        MXAMP_PROFILED: figures([4.0, 8.0, 4.0]),
    }
    return {**found, **changes}


def model_row(name="resnet18_v1", batch=1, **changes):
    return {
        "name": name,
        "batch": batch,
        "status": OK,
        "reason": "",
        "weights_from": "random, seed 0",
        "results": variants(**changes),
    }


def conversion_row(name="resnet18_v1", stock=(20.0, 30.0, 20.0), own=(10.0, 15.0, 10.0)):
    results = {STOCK_CAST_ONCE: {"milliseconds": list(stock)}, MXAMP: {"milliseconds": list(own)}}
    return {"name": name, "batch": 0, "status": OK, "reason": "", "results": results}


def benchmark(*rows):
    return read_rows({str(number): row for number, row in enumerate(rows)})


FAILS = {"failure": "MXNetError: Non-uniform data type in Concat"}

# ---------------------------------------------------------------------- names


@pytest.mark.parametrize("name", MODELS)
def test_every_model_of_the_benchmark_can_be_evaluated(name):
    assert find_entry(name).is_runnable


def test_the_benchmark_has_the_models_that_were_asked_for():
    assert len(set(MODELS)) == 23
    assert set(PLAIN_RESNETS) < set(MODELS)


def test_a_pattern_chooses_among_the_models_of_the_benchmark_first():
    assert [case.name for case in cli.selected_models(["resnet50_*"])] == [
        "resnet50_v1",
        "resnet50_v2",
        "resnet50_v1d",
    ]


def test_a_name_outside_the_benchmark_is_looked_for_in_the_zoo():
    assert [case.name for case in cli.selected_models(["vgg11"])] == ["vgg11"]


def test_without_patterns_all_models_are_measured_in_their_order():
    assert tuple(case.name for case in cli.selected_models([])) == (*MODELS, *NETWORK_NAMES)


@pytest.mark.parametrize(("group", "names"), [("zoo", MODELS), ("networks", NETWORK_NAMES)])
def test_the_models_of_the_zoo_and_the_other_networks_can_be_asked_for_apart(group, names):
    assert tuple(case.name for case in cli.selected_models([group])) == names


def test_a_pattern_chooses_among_the_networks_outside_the_zoo_too():
    assert [case.name for case in cli.selected_models(["mtcnn*"])] == ["mtcnn_proposal", "mtcnn_output"]


def test_an_unknown_model_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="resnet50_v1"):
        cli.selected_models(["resnet50_v9"])


# ---------------------------------------------------------------------- variants


def test_the_prepared_model_is_float32_with_its_batch_norm_folded():
    net = Net()
    norm = net.bn(net.conv(net.var("data"), "layer"), "norm")
    graph = net.graph(net.op("Activation", norm, name="relu", act_type="relu"))
    args = {name: value for name, value in net.params.items() if not name.endswith(AUXILIARY)}
    model = Model.of(graph, args, {name: net.params[name] for name in net.params if name not in args})
    prepared = prepared_model(model)
    assert [node.op for node in prepared.graph.nodes if not node.is_variable] == ["Convolution", "Activation"]
    assert {parameter.dtype for parameter in prepared.arg_params.values()} == {F32}


def small_model(weight, dtype=np.float32, slope=0.25):
    net = Net()
    graph = net.graph(net.op("LeakyReLU", net.var("data"), name="relu", act_type="leaky", slope=slope))
    return Model.of(graph, {"weight": np.array(weight, dtype)}, {})


def test_a_variant_that_is_the_same_model_as_an_earlier_one_is_known_by_it():
    models = {
        FP32: small_model([1.0]),
        PREPARED: small_model([1.0]),
        STOCK: small_model([1.0], np.float16),
        STOCK_CAST_ONCE: small_model([1.0], slope=0.5),
        MXAMP: small_model([1.0], np.float16),
        MXAMP_PROFILED: small_model([-0.0]),
        "other zero": small_model([0.0]),
    }
    assert {variant: first for variant, first in first_equals(models).items() if first != variant} == {
        PREPARED: FP32,
        MXAMP: STOCK,
    }


# ---------------------------------------------------------------------- figures


def test_ratios_are_taken_round_by_round():
    measured = benchmark(model_row()).models[0]
    ratio = measured.ratio(MXAMP)
    assert (ratio.low, ratio.median, ratio.high) == (2.0, 2.0, 2.0)
    assert measured.ratio(MXAMP_PROFILED, to=STOCK_CAST_ONCE).median == 2.0


def test_the_better_stock_setting_is_the_faster_one():
    assert benchmark(model_row()).models[0].better_stock == STOCK_CAST_ONCE
    slow_once = model_row(stock_cast_once=figures([90.0, 180.0, 90.0]))
    assert benchmark(slow_once).models[0].better_stock == STOCK


def test_stocks_error_is_that_of_its_more_precise_setting():
    assert benchmark(model_row()).models[0].stock_errors == (0.04,)


def test_stocks_error_is_chosen_for_each_draw_of_weights():
    row = model_row(
        stock=figures([40.0, 80.0, 40.0], 0.05, errors=[0.05, 0.02]),
        stock_cast_once=figures([8.0, 16.0, 8.0], 0.04, errors=[0.04, "inf"]),
    )
    assert benchmark(row).models[0].stock_errors == (0.04, 0.02)


def test_where_stock_fails_nothing_is_compared_with_it():
    measured = benchmark(model_row(stock=FAILS, stock_cast_once=FAILS)).models[0]
    assert measured.better_stock is None
    assert measured.stock_errors == ()
    assert measured.why_not(STOCK) == FAILS["failure"]
    assert measured.ratio(MXAMP).median == 2.0


def test_outputs_that_are_not_finite_are_an_infinite_error():
    row = model_row(mxamp=figures([5.0, 5.0, 5.0], finite=False))
    found = benchmark(row).models[0].figures[MXAMP]
    assert found.relative_l2 == math.inf
    assert found.errors == (math.inf,)


# ---------------------------------------------------------------------- bounds


def by_text(bounds):
    return {bound.text.replace("mxamp, profiled", "mxamp"): bound for bound in bounds}


@pytest.fixture
def bounds():
    rows = [model_row("resnet18_v1"), model_row("vgg16", 8), conversion_row()]
    return by_text(judge(benchmark(*rows)))


def test_good_figures_meet_every_bound(bounds):
    assert [str(bound)[:3] for bound in bounds.values()] == ["met"] * 6


def test_bounds_show_the_figure_and_where_it_was_measured(bounds):
    found = bounds["slowest mxamp against FP32"]
    assert found.figure == 2.5
    assert found.where == "resnet18_v1, batch 1, of 2"
    assert bounds["slowest conversion without profile over stock's"].figure == 0.5
    assert bounds["error of stock over that of mxamp on plain ResNets"].figure == pytest.approx(10)


def test_the_mean_is_geometric_over_the_models_where_stock_runs():
    rows = [
        model_row("resnet18_v1"),
        model_row("vgg16", mxamp_profiled=figures([1.0, 2.0, 1.0])),
        model_row("yolo3_mobilenet1.0_voc", stock=FAILS, stock_cast_once=FAILS),
    ]
    found = by_text(judge(benchmark(*rows)))["geometric mean of mxamp against the better stock setting"]
    assert found.figure == pytest.approx(4.0)  # of 2 and 8
    assert "over 2 models at batch 1" in found.where


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"mxamp_profiled": figures([10.3, 20.6, 10.3])}, "slowest mxamp against FP32"),
        ({"stock_cast_once": figures([3.8, 7.6, 3.8])}, "slowest mxamp against the better stock setting"),
        (
            {"stock_cast_once": figures([4.4, 8.8, 4.4])},
            "geometric mean of mxamp against the better stock setting",
        ),
        ({"mxamp_profiled": figures([4.0, 8.0, 4.0], 0.041)}, "largest error of mxamp over that of stock"),
        (
            {"mxamp_profiled": figures([4.0, 8.0, 4.0], 0.009)},
            "error of stock over that of mxamp on plain ResNets",
        ),
    ],
    ids=["slower than FP32", "slower than stock", "hardly faster", "less precise", "not 5 times as precise"],
)
def test_a_figure_beyond_its_bound_is_not_met(change, text):
    assert not by_text(judge(benchmark(model_row(**change))))[text].is_met


LARGEST_ERROR = "largest error of mxamp over that of stock"


def with_errors(*own):
    """Return the row of a model whose stock error is 0.04 for each draw of weights."""
    return model_row(
        stock=figures([40.0, 80.0, 40.0], 0.04, errors=[0.04] * len(own)),
        stock_cast_once=figures([8.0, 16.0, 8.0], 0.04, errors=[0.04] * len(own)),
        mxamp_profiled=figures([4.0, 8.0, 4.0], own[0], errors=list(own)),
    )


def of_groups(*rows):
    return {bound.text: bound for bound in judge_groups(benchmark(*rows))}


def test_each_group_has_bounds_of_its_own():
    found = of_groups(model_row(), model_row("lenet", prepared=figures([10.4, 20.8, 10.4])))
    zoo, networks = (found[f"geometric mean of mxamp against FP32, {group}"] for group in ("zoo", "networks"))
    assert (zoo.figure, zoo.limit, zoo.is_met) == (2.0, 2.0, True)
    assert (networks.figure, networks.limit, networks.where) == (2.0, 1.8, "2.000 over 1 models at batch 1")
    prepared = found["slowest prepared FP32 against FP32, networks"]
    assert prepared.is_broken
    assert prepared.where == "lenet, batch 1, of 1"
    assert found["slowest prepared FP32 against FP32, zoo"].is_met


def test_where_stock_fails_fp32_stands_in_for_it():
    without = model_row("resnet50_v1", stock=FAILS, stock_cast_once=FAILS)
    ratios = ratios_in(benchmark(model_row(), without), "zoo", MXAMP, STOCK)
    assert ratios == {"resnet18_v1, batch 1": 1.6, "resnet50_v1, batch 1": 2.0}


def test_forms_of_mxamp_are_held_against_each_other():
    found = of_groups(model_row(mxamp_no_shapes=figures([4.8, 9.6, 4.8]), mxamp_profiled=figures([5.2] * 3)))
    assert found["slowest mxamp against mxamp, no shapes, zoo"].is_broken  # 0.96
    assert found["geometric mean of mxamp, no shapes against mxamp, zoo"].is_met
    assert found["slowest mxamp, profiled against mxamp, zoo"].is_broken


def test_a_variant_that_fails_breaks_its_bounds_of_the_group():
    found = of_groups(model_row(), model_row("vgg16", mxamp=FAILS))
    assert found["geometric mean of mxamp against FP32, zoo"].is_broken
    assert found["slowest prepared FP32 against FP32, zoo"].is_met


def test_a_group_of_which_nothing_was_measured_has_no_figures():
    found = of_groups(model_row())["geometric mean of mxamp against FP32, networks"]
    assert found.figure is None
    assert not found.is_broken


def test_stock_that_leaves_the_model_as_it_is_has_no_error_to_compare():
    same = figures([10.0, 20.0, 10.0], 0.0, timed_as=FP32)
    row = model_row(stock=same, stock_cast_once=same)
    assert by_text(judge(benchmark(row)))[LARGEST_ERROR].figure is None


@pytest.mark.parametrize(
    ("errors", "mean", "is_met"),
    [
        pytest.param((0.044, 0.037, 0.043, 0.037), 1.003, True, id="as good as stock, but for luck"),
        pytest.param((0.044, 0.045, 0.043, 0.044), 1.1, False, id="worse each time"),
        pytest.param((0.02, 0.02, math.inf), math.inf, False, id="not finite once"),
        pytest.param((0.02, 0.02, math.nan), math.nan, False, id="not a number once"),
    ],
)
def test_errors_are_judged_over_draws_of_weights(errors, mean, is_met):
    found = by_text(judge(benchmark(with_errors(*errors))))[LARGEST_ERROR]
    assert found.figure == pytest.approx(mean, rel=1e-2, nan_ok=True)
    assert found.is_met is is_met
    assert f"mean of {len(errors)} draws" in found.where


def test_one_model_that_is_worse_is_not_hidden_by_another_with_a_wide_margin():
    wide = with_errors(0.01, 0.4, 0.01, 0.4)
    worse = {**with_errors(0.044, 0.045, 0.043, 0.044), "name": "vgg16"}
    assert not by_text(judge(benchmark(wide, worse)))[LARGEST_ERROR].is_met


def test_a_slow_conversion_is_not_met():
    found = judge(benchmark(model_row(), conversion_row(own=(101.0, 152.0, 101.0))))[-1]
    assert not found.is_met
    assert found.figure == pytest.approx(5.05)


def test_a_model_that_mxamp_cannot_run_fails_the_first_bound():
    found = judge(benchmark(model_row(), model_row("vgg16", mxamp_profiled=FAILS)))[0]
    assert not found.is_met
    assert "vgg16, batch 1: MXNetError" in str(found)


def test_what_was_not_measured_is_neither_met_nor_broken():
    for bound in judge(benchmark()):
        assert "not measured" in str(bound)
        assert not bound.is_met
        assert not bound.is_broken


def test_a_model_that_fails_where_nothing_else_was_measured_breaks_the_first_bound():
    assert judge(benchmark(model_row(mxamp_profiled=FAILS)), MXAMP_PROFILED)[0].is_broken


def test_without_profile_in_this_version_the_bounds_are_for_mxamp_without_it():
    row = model_row(mxamp_profiled={"failure": NOT_AVAILABLE})
    assert judged_variant(benchmark(row)) == MXAMP
    assert judge(benchmark(row))[0].figure == 2.0


# ---------------------------------------------------------------------- table and plot


ROWS = (
    model_row(),
    model_row(batch=8, mxamp_profiled={"failure": NOT_AVAILABLE}),
    model_row("yolo3_mobilenet1.0_voc", stock=FAILS, stock_cast_once=FAILS),
    {"name": "vgg16", "batch": 8, "status": TIMEOUT, "reason": "not done after 900 s", "results": {}},
    conversion_row(),
)


@pytest.fixture
def text():
    found = benchmark(*ROWS)
    return document(found, judge(found), ["CPU  a CPU"])


def test_the_summary_has_one_line_a_model_and_batch_size(text):
    line = "| resnet18_v1 | 1 | 10.00 | 1.11 | 0.25 | 1.25 | 1.67 | 2.00 | 2.50 | 4.0e-02 | 4.0e-03 |"
    assert line in text.splitlines()


def test_the_table_of_everything_has_spread_error_casts_size_and_time(text):
    assert (
        "| resnet18_v1 | 1 | mxamp | 5.00 | 2.00 (2.00 to 2.00) | 4.0e-03 | 3 | 1.5 | - |"
        in text.splitlines()
    )


def test_the_table_says_which_variant_is_the_same_model():
    same = {MXAMP_PROFILED: figures([5.0, 10.0, 5.0], timed_as=MXAMP)}
    found = benchmark(model_row(**same))
    text = document(found, judge(found), [])
    assert "| resnet18_v1 | 1 | mxamp, profiled (the same model as mxamp) | 5.00 | 2.00" in text
    assert "| resnet18_v1 | 1 | mxamp | 5.00 | 2.00" in text


def test_a_failure_is_told_with_its_reason(text):
    assert "- stock, yolo3_mobilenet1.0_voc (batch 1): MXNetError: Non-uniform data type in Concat" in text
    assert "- the model, vgg16 (batch 8): timeout: not done after 900 s" in text


def test_a_variant_that_this_version_lacks_is_said_to_be_missing(text):
    assert f"mxamp, profiled ({NOT_AVAILABLE})" in text


def test_the_table_says_which_weights_and_never_speaks_of_accuracy(text):
    assert "Weights: random, seed 0." in text
    assert "accuracy" not in text.lower()


def test_the_document_is_put_between_the_markers_and_nothing_else_changes(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", "utf-8")
    insert_between_markers(page, "new\n")
    insert_between_markers(page, "newer\n")
    assert page.read_text("utf-8") == f"before\n{BEGIN}\n\nnewer\n\n{END}\nafter\n"


def test_a_page_without_markers_is_refused_and_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("mine\n", "utf-8")
    with pytest.raises(DataError, match="lacks a marker"):
        insert_between_markers(page, "new")
    assert page.read_text("utf-8") == "mine\n"


def test_the_plot_is_a_png():
    pytest.importorskip("matplotlib")
    assert plot(benchmark(*ROWS)).startswith(b"\x89PNG")


def test_a_plot_of_nothing_is_refused():
    pytest.importorskip("matplotlib")
    with pytest.raises(DataError, match="nothing to plot"):
        plot(benchmark(ROWS[3]))


# ---------------------------------------------------------------------- running


class Recorder:
    """Stands in for the processes; hands out rows and remembers the jobs."""

    def __init__(self, *rows):
        self.rows, self.jobs = list(rows), []

    def __call__(self, job, limits, command):
        self.jobs.append(dict(job))
        return dict(self.rows.pop(0)) if self.rows else {**ROWS[0], "seconds": 1.0}


def run(path, recorder, *, job=None, **options):
    tasks = [Task("resnet18_v1", "", 1), Task("ssd_512_mobilenet1.0_voc", "primitive", 8)]
    lines: list[str] = []
    results = run_tasks(
        tasks,
        job or Job(name=""),
        journal=path,
        limits=LIMITS,
        machine=MACHINE,
        run=recorder,
        say=lines.append,
        **options,
    )
    return results, lines


def test_every_result_is_in_the_journal_as_it_comes(tmp_path):
    path = tmp_path / "journal.jsonl"

    def interrupted(job, limits, command):
        if job["batch"] == 8:
            raise KeyboardInterrupt
        return ROWS[0]

    with pytest.raises(KeyboardInterrupt):
        run(path, interrupted)
    assert list(read_results(path).rows) == ["resnet18_v1, batch 1"]


def test_resuming_measures_only_what_is_missing(tmp_path):
    path = tmp_path / "journal.jsonl"
    run(path, Recorder())
    recorder = Recorder()
    results, lines = run(path, recorder, resume=True)
    assert recorder.jobs == []
    assert list(results.rows) == ["resnet18_v1, batch 1", "ssd_512_mobilenet1.0_voc+primitive, batch 8"]
    assert "2 of 2 are in" in lines[0]


def test_an_earlier_journal_is_not_overwritten(tmp_path):
    run(tmp_path / "journal.jsonl", Recorder())
    with pytest.raises(DataError, match=r"holds an earlier run.*--resume"):
        run(tmp_path / "journal.jsonl", Recorder())


def test_a_run_with_other_options_is_not_resumed(tmp_path):
    run(tmp_path / "journal.jsonl", Recorder())
    with pytest.raises(DataError, match="made with seed = 0, and now it is 1"):
        run(tmp_path / "journal.jsonl", Recorder(), job=Job(name="", seed=1), resume=True)


def test_progress_says_what_came_out_and_how_long_the_rest_takes(tmp_path):
    _, lines = run(tmp_path / "journal.jsonl", Recorder())
    assert lines[0].startswith("[1/2] resnet18_v1, batch 1")
    assert "prepared FP32 1.11, stock 0.25" in lines[0]
    assert "left" in lines[0]
    assert "left" not in lines[1]


def test_a_variant_that_takes_the_process_down_is_left_out_the_next_time(tmp_path):
    crash = {"status": CRASHED, "reason": "SIGSEGV at the stage stock", "variant": STOCK, "results": {}}
    recorder = Recorder(crash)
    run(tmp_path / "journal.jsonl", recorder)
    assert [job["without"] for job in recorder.jobs[:2]] == [(), ((STOCK, "SIGSEGV at the stage stock"),)]


def test_a_model_that_crashes_in_fp32_is_a_row_with_its_reason(tmp_path):
    crash = {"status": CRASHED, "reason": "SIGSEGV at the stage fp32", "results": {}}
    recorder = Recorder(crash)
    results, lines = run(tmp_path / "journal.jsonl", recorder)
    assert len(recorder.jobs) == 2
    assert results.rows["resnet18_v1, batch 1"]["status"] == CRASHED
    assert "CRASHED: SIGSEGV" in lines[0]


def test_a_job_survives_the_way_through_json():
    job = Job(name="vgg16", batch=8, without=((STOCK, "crashes"),))
    assert Job.from_mapping(json.loads(json.dumps(job.to_mapping()))) == job


def test_the_time_of_conversion_is_a_task_of_its_own():
    assert case_key(Task("vgg16", "", 0)) == "vgg16, conversion"


def test_bad_numbers_are_refused(capsys):
    for arguments in (["--batch", "0"], ["--seconds", "-1"], ["--rounds", "0"]):
        with pytest.raises(SystemExit):
            cli.main(arguments)
    assert "must be 1 or more, not 0" in capsys.readouterr().err


def test_an_unknown_model_is_an_error_of_the_users(capsys, tmp_path):
    assert cli.main(["--models", "resnet5O", "-o", str(tmp_path)]) == 2
    assert "has no model" in capsys.readouterr().err


@pytest.mark.slow
@needs_bfloat16
def test_a_model_is_measured_end_to_end(tmp_path, capsys):
    pytest.importorskip("mxnet", reason="runs the model")
    pytest.importorskip("gluoncv", reason="builds the model")
    output = tmp_path / "out"
    arguments = ["--models", "mobilenet0.25", "--batch", "1", "--rounds", "2", "-o", str(output)]
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n", "utf-8")
    assert cli.main([*arguments, "--write-docs", str(page)]) == 0
    printed = capsys.readouterr().out
    assert "slowest mxamp" in printed
    assert "| mobilenet0.25 | 1 | stock, cast once |" in page.read_text("utf-8")
    document = json.loads((output / "benchmark.json").read_text("utf-8"))
    found = document["rows"]["mobilenet0.25, batch 1"]["results"]
    assert set(found) == set(VARIANTS)
    assert all(len(found[variant]["milliseconds"]) == 2 for variant in VARIANTS[:6])
    assert found[FP32]["relative_l2"] < 1e-5
    assert found[MXAMP]["relative_l2"] < found[STOCK]["relative_l2"]
    assert cli.main([*arguments, "--resume", "--check"]) in (0, 1)  # as the two rounds came out
