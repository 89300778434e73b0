"""``python -m model_zoo_eval onnx``: what it does with one model, and what is a regression."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_zoo_eval.cli import main
from model_zoo_eval.job import FP32
from model_zoo_eval.journal import Journal, Results, read_results
from model_zoo_eval.onnx.command import JOURNAL
from model_zoo_eval.onnx.job import AMPLIFIES, ONNX, PASSES, OnnxJob
from model_zoo_eval.registry import Case
from model_zoo_eval.regressions import compare_results
from model_zoo_eval.rows import OK
from mxamp.model import Model
from mxamp.params.parameter import ArrayParameter
from tests.building import Net


def row(**changes: Any) -> dict[str, Any]:
    result = {
        "errors": [2e-7, 4e-7],
        "outputs": ["boxes_output", "ids_output"],
        "opset": 17,
        "verdict": PASSES,
        **changes,
    }
    return {
        "kind": ONNX,
        "status": OK,
        "reason": "",
        "weights": "random",
        "inputs": {"data": [1, 3, 8, 8]},
        "samples": 1,
        "results": {FP32: result},
    }


def results(**changes: Any) -> Results:
    run = {"environment": {"cpu": "a CPU", "cpu_flags": [], "threads": 1}, "options": {}}
    return Results((run,), {"net": row(**changes)}, {"net": run})


def regressions(before: Results, after: Results) -> list[str]:
    return [str(found) for found in compare_results(before, after).regressions]


def test_a_run_is_no_regression_of_itself() -> None:
    assert regressions(results(), copy.deepcopy(results())) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"outputs": ["ids_output", "boxes_output"]}, "outputs were"),
        ({"opset": 19}, "opset 17 was enough"),
        ({"errors": [2e-7, 3e-3], "verdict": AMPLIFIES, "amplified": [1e-6, 1e-2]}, "beyond 1e-05"),
    ],
)
def test_what_got_worse_is_told(changes: dict[str, Any], said: str) -> None:
    (found,) = regressions(results(), results(**changes))
    assert found.startswith("net: onnx: ")
    assert said in found


def test_what_a_network_moves_by_itself_is_seen_at_inputs_and_parameters() -> None:
    pytest.importorskip("mxnet", reason="the networks run in MXNet")
    from model_zoo_eval.onnx.evaluate import other_last_bits, own_movement
    from mxamp.runtime.executor import run_outputs

    net = Net()
    hidden = net.conv(net.var("data"), "conv")
    model = Model(net.graph(hidden), {name: ArrayParameter(v) for name, v in net.params.items()}, {})
    before = {name: value.numpy().copy() for name, value in model.arg_params.items()}
    changed = other_last_bits(model)
    for name, values in before.items():
        np.testing.assert_array_equal(model.arg_params[name].numpy(), values)
        apart = np.abs(changed.arg_params[name].numpy() - values)
        assert (apart > 0).all()
        assert (apart <= 2 * np.spacing(np.abs(values))).all()
    data = {"data": np.random.default_rng(0).standard_normal((1, 4, 5, 5)).astype(np.float32)}
    expected = run_outputs(model, data, fusion=False)
    (moved,) = own_movement(model, data, expected)
    assert 1e-8 < moved < 1e-6


def test_a_network_that_ranks_is_compared_piece_by_piece() -> None:
    mx = pytest.importorskip("mxnet", reason="the networks run in MXNet")
    pytest.importorskip("onnxruntime", reason="the files run in ONNX Runtime")
    from model_zoo_eval.onnx.stages import staged_errors

    x = mx.sym.Convolution(mx.sym.var("data"), num_filter=6, kernel=(3, 3), pad=(1, 1), name="features")
    rows = mx.sym.Reshape(mx.sym.transpose(x, axes=(0, 2, 3, 1)), shape=(0, -1, 6), name="rows")
    ranked = mx.sym.contrib.box_nms(rows, overlap_thresh=0.5, coord_start=2, score_index=1, id_index=0)
    best = mx.sym.slice_axis(ranked, axis=1, begin=0, end=8, name="best")
    second = mx.sym.FullyConnected(best, num_hidden=4, flatten=False, name="second")
    order = mx.sym.topk(mx.sym.max(second, axis=2), k=3, ret_typ="indices", name="order")
    ties = mx.sym.argsort(mx.sym.Reshape(rows > 0, shape=(1, -1)), axis=1, is_ascend=False, name="ties")
    sym = mx.sym.Group([second, mx.sym.identity(order, name="found"), mx.sym.identity(ties, name="tied")])
    random = np.random.default_rng(0)
    shapes, _, _ = sym.infer_shape(data=(1, 3, 6, 6))
    args = {
        name: mx.nd.array(random.standard_normal(shape))
        for name, shape in zip(sym.list_arguments(), shapes)
        if name != "data"
    }
    data = {"data": random.standard_normal((1, 3, 6, 6)).astype(np.float32)}
    found = staged_errors(Model.of(sym, args, {}), data)
    assert found["rankings"] == 0
    assert 0 < found["layers"] < 1e-6


def test_where_a_network_amplifies_ten_times_the_error_is_a_regression() -> None:
    amplifies = {"verdict": AMPLIFIES, "amplified": [1e-2, 1e-2]}
    before = results(errors=[1e-6, 1e-4], **amplifies)
    assert regressions(before, results(errors=[1e-6, 9e-4], **amplifies)) == []
    (found,) = regressions(before, results(errors=[1e-6, 2e-3], **amplifies))
    assert "1.0e-04, and is 2.0e-03" in found


def test_speeds_are_no_matter() -> None:
    elsewhere = results()
    other = {"environment": {"cpu": "another CPU", "cpu_flags": [], "threads": 2}, "options": {}}
    found = compare_results(results(), Results((other,), elsewhere.rows, {"net": other}))
    assert (found.notes, found.compared) == ((), 1)


def test_a_model_that_fails_now_is_a_regression() -> None:
    after = results()
    changed = {**after.rows["net"], "status": "failed", "reason": "float32: the output 'y' is off"}
    (found,) = regressions(results(), Results(after.runs, {"net": changed}, after.run_of))
    assert found == "net: failure: failed: float32: the output 'y' is off"


def test_a_job_survives_the_way_to_another_process() -> None:
    job = OnnxJob("ssd_300_vgg16_atrous_voc", "primitive", seed=3)
    assert OnnxJob.from_mapping(job.to_mapping()) == job
    assert job.case == Case("ssd_300_vgg16_atrous_voc", "primitive")


def test_what_cannot_be_run_is_told_with_its_reason_and_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["onnx", "--models", "resnet50_v1_int8", "-o", str(tmp_path)]) == 0
    assert "1 unavailable" in capsys.readouterr().out
    assert "quantized weights" in read_results(tmp_path / JOURNAL).rows["resnet50_v1_int8"]["reason"]


def test_retry_needs_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["onnx", "--retry", "-o", str(tmp_path)]) == 2
    assert "--resume" in capsys.readouterr().err


def test_resuming_leaves_out_what_is_done_and_retries_failures_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from model_zoo_eval.onnx import command

    ran: list[str] = []

    class Scheduler:
        def __init__(self, *_: Any) -> None:
            pass

        def run(self, jobs: Any, limits: Any) -> Any:
            for case, _ in jobs:
                ran.append(case.key)
                yield case, {**row(), "seconds": 1.0}

    monkeypatch.setattr(command, "LocalScheduler", Scheduler)
    journal = Journal(tmp_path / JOURNAL)
    journal.add("alexnet", row())
    journal.add("googlenet", {"status": "timeout", "reason": "not done after 1 s", "seconds": 1.0})
    arguments = ["onnx", "--models", "alexnet", "googlenet", "-o", str(tmp_path), "--resume"]
    assert main(arguments) == 1  # googlenet's time-out stands
    assert ran == []
    assert main([*arguments, "--retry"]) == 0
    assert ran == ["googlenet"]
    assert "2 passes" in capsys.readouterr().out
    assert main(arguments[:-1]) == 0  # anew
    assert sorted(ran) == ["alexnet", "googlenet", "googlenet"]
    assert (tmp_path / "onnx-1.jsonl").is_file()


@pytest.mark.zoo
def test_a_network_is_exported_and_equals_mxnet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for package in ("onnx", "onnxruntime", "mxnet", "gluoncv"):
        pytest.importorskip(package)
    assert main(["onnx", "--models", "cifar_resnet20_v1", "-o", str(tmp_path)]) == 0
    assert "1 passes" in capsys.readouterr().out
    found = read_results(tmp_path / JOURNAL)
    assert found.rows["cifar_resnet20_v1"]["inputs"] == {"data": [1, 3, 32, 32]}
    assert 0 < found.rows["cifar_resnet20_v1"]["results"][FP32]["errors"][0] < 1e-5
    assert found.runs[-1]["environment"]["packages"]["onnxruntime"]
    path = str(tmp_path / JOURNAL)
    assert main(["diff", path, path]) == 0
