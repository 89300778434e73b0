"""One model evaluated: small networks of the zoo, with random weights and small inputs."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")
pytest.importorskip("gluoncv")
pytest.importorskip("sklearn")
pytest.importorskip("cv2")

from mxnet.gluon.block import _flatten

from model_zoo_eval.build import BuiltModel, build_model, graph_form, zoo_network
from model_zoo_eval.evaluate import as_deployed, evaluate, notes_of, repeatable_reference
from model_zoo_eval.export import export_model
from model_zoo_eval.job import ON_GPU, Job
from model_zoo_eval.process import Limits, run_in_process
from model_zoo_eval.registry import CONTRIB, PRIMITIVE, Case, find_entry, registry
from model_zoo_eval.rows import without_timings, worst_error
from mxamp import convert_model, load
from mxamp.errors import DataError, ModelFileNotFoundError, OperatorError, ParamsError
from mxamp.measuring.race import Race
from mxamp.model import Model
from mxamp.runtime.device import gpu_count
from mxamp.runtime.executor import BoundModel, is_fusion_on
from tests.building import Net
from tests.machines import needs_bfloat16

pytestmark = pytest.mark.zoo

SMALL = Job("cifar_resnet20_v1", samples=2, rounds=1, pretrained=False)


@pytest.fixture(scope="module")
def evaluated() -> tuple[dict[str, Any], list[str]]:
    stages: list[str] = []
    row = evaluate(SMALL, lambda known: stages.append(known["stage"]))
    return row, stages


def test_fp32_bf16_and_fp16_are_measured_and_published_stage_by_stage(
    evaluated: tuple[dict[str, Any], list[str]],
) -> None:
    row, stages = evaluated
    assert stages == ["build", "float32", "bfloat16", "float16", "done"]
    assert set(row["results"]) >= {"float32", "bfloat16", "float16"}
    assert row["results"]["bfloat16"]["how"] == "executed"
    assert row["results"]["float16"]["how"] == "emulated"
    json.dumps(row, allow_nan=False)


@needs_bfloat16
def test_errors_are_those_of_rounding(evaluated: tuple[dict[str, Any], list[str]]) -> None:
    results = evaluated[0]["results"]
    # One rounding of bfloat16 is 2^-9, of float16 2^-12; a dozen layers add up to some times that.
    assert worst_error(results["float32"]) < 1e-5
    assert 2**-10 < worst_error(results["bfloat16"]) < 2**-9 * 16
    assert 2**-13 < worst_error(results["float16"]) < 2**-12 * 16
    for found in results.values():
        assert found["heads"][0]["name"] == "logits"
        assert found["task"]["samples"] == 2


@needs_bfloat16
def test_the_row_says_what_was_run(evaluated: tuple[dict[str, Any], list[str]]) -> None:
    row, _ = evaluated
    assert (row["weights"], row["weights_from"]) == ("random", "random, seed 0")
    assert row["inputs"] == {"data": [1, 3, 32, 32]}
    assert row["notes"] == []
    bfloat16 = row["results"]["bfloat16"]
    assert bfloat16["casts"] == 2
    assert bfloat16["low_multiply_adds"] > 0.9
    assert bfloat16["parameter_bytes"] < 0.55 * row["parameter_bytes"]
    assert bfloat16["latency"]["rounds"] == 1
    assert "latency" not in row["results"]["float16"]


@needs_bfloat16
def test_a_process_gives_the_same_row(evaluated: tuple[dict[str, Any], list[str]]) -> None:
    threads = int(os.environ.get("OMP_NUM_THREADS", "0")) or os.cpu_count() or 1
    row = run_in_process(SMALL.to_mapping(), Limits(seconds=300, threads=threads))
    assert row["status"] == "ok", row
    found = {**without_timings(row)}
    expected = {**without_timings(evaluated[0]), "status": "ok", "reason": ""}
    expected.pop("stage")
    assert found == expected


# ---------------------------------------------------------------------- float16 on a GPU


def test_without_a_gpu_the_row_says_why_float16_was_not_executed(
    evaluated: tuple[dict[str, Any], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_zoo_eval.evaluate.gpu_count", lambda: 0)
    row = evaluated[0] if not gpu_count() else evaluate(replace(SMALL, samples=1, rounds=0))
    assert ON_GPU not in row["results"]
    assert re.fullmatch(r"this build of MXNet .* has no CUDA|MXNet .* sees no GPU", row["skipped"][ON_GPU])


def test_with_a_gpu_float16_is_run_and_timed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[tuple[Any, set[str]]] = []
    fp32 = build_model(SMALL.case, pretrained=False).model

    def bind(model: Model, *, ctx: Any = None, **more: Any) -> BoundModel:
        dtypes = {str(value.dtype) for value in model.arg_params.values()}
        bound.append((ctx, dtypes))
        # No GPU is here to run float16: the FP32 model's outputs stand for its.
        return BoundModel(fp32 if "float16" in dtypes else model, ctx=None, **more)

    def time_both(*_: Any, ctx: Any, **more: Any) -> Race:
        bound.append((ctx, set()))
        return Race(((0.002,) * more["rounds"], (0.001,) * more["rounds"]))

    monkeypatch.setattr("model_zoo_eval.evaluate.gpu_count", lambda: 1)
    monkeypatch.setattr("model_zoo_eval.evaluate.BoundModel", bind)
    monkeypatch.setattr("model_zoo_eval.evaluate.race", time_both)
    row = evaluate(replace(SMALL, dtypes=("float16",), samples=1))
    found = row["results"][ON_GPU]
    assert row["skipped"] == {}
    assert found["how"] == "executed on a GPU"
    assert found["heads"][0]["relative_l2"] < 1e-5
    assert found["latency"]["ratio"] == 2.0
    on_gpu = [dtypes for ctx, dtypes in bound if ctx == "gpu(0)"]
    assert len(on_gpu) == 3  # the outputs, and two timings
    assert "float16" in on_gpu[0]


@pytest.mark.skipif(gpu_count() > 0, reason="needs a machine without a GPU")
def test_a_gpu_that_fails_is_a_result_and_the_rest_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model_zoo_eval.evaluate.gpu_count", lambda: 1)
    row = evaluate(replace(SMALL, samples=1, rounds=0))
    assert row["results"][ON_GPU]["error"].startswith("DeviceError: There is no gpu(0)")
    for dtype in ("bfloat16", "float16"):
        assert row["results"][dtype]["heads"]


def test_an_error_of_any_kind_in_one_conversion_leaves_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(*arguments: Any, **more: Any) -> Any:
        if arguments[3] == "bfloat16":
            raise KeyError("conv0")
        return convert_model(*arguments, **more)

    monkeypatch.setattr("model_zoo_eval.evaluate.convert_model", convert)
    row = evaluate(replace(SMALL, samples=1, rounds=0))
    assert row["results"]["bfloat16"]["error"] == "KeyError: 'conv0'"
    assert row["results"]["float16"]["heads"]


@pytest.mark.parametrize(("size", "how"), [(160, "smaller"), (320, "larger"), (300, None)])
def test_a_note_says_how_the_input_differs_from_the_models_own(size: int, how: str | None) -> None:
    built = SimpleNamespace(entry=find_entry("ssd_300_mobilenet0.25_voc"), shapes={"data": (3, size, size)})
    said = [note for note in notes_of(built) if "input than" in note]
    assert said == ([] if how is None else [f"{how} input than the model's own, 3x300x300"])


# ---------------------------------------------------------------------- graph forms, families


@pytest.mark.parametrize("form", [CONTRIB, PRIMITIVE])
def test_a_detector_is_evaluated_in_both_graph_forms(form: str) -> None:
    job = Job("ssd_300_mobilenet0.25_voc", form, ("bfloat16",), 1, 160, 0, 0, None, False)
    built = build_model(job.case, size=160, pretrained=False)
    operators = {node.op for node in built.model.graph.nodes}
    assert ("_contrib_box_decode" in operators) == (form == CONTRIB)
    row = evaluate(job)
    found = row["results"]["bfloat16"]
    assert [head["name"] for head in found["heads"]] == ["class ids", "scores", "boxes"]
    assert worst_error(found) == max(head["relative_l2"] for head in found["before_ranking"]) < 0.04
    assert found["task"]["boxes"] > 0
    assert found["task"]["matched"] > 0.5 * found["task"]["boxes"]
    assert row["notes"] == ["smaller input than the model's own, 3x300x300"]


def test_what_memory_held_before_is_no_reference() -> None:
    """On CPUs MXNet leaves regions of no image undefined, as levels of a feature pyramid have them."""
    net = Net()
    net.params["rois"] = np.array([[0, 0, 0, 7, 7], [-1, -1, -1, -1, -1]], np.float32)
    pooled = net.op(
        "_contrib_ROIAlign",
        net.var("data"),
        net.var("rois"),
        name="align",
        pooled_size="(2, 2)",
        spatial_scale=1,
    )
    # Of whatever lay there: an exponential of it may be infinite, and then is so again.
    grown = net.op("_plus_scalar", net.op("sigmoid", pooled, name="bounded"), name="plus", scalar=1)
    entry = find_entry("cifar_resnet20_v1")
    graph = net.graph(net.op("sum", grown, name="sum", axis="(2, 3)"))
    built = BuiltModel(entry, Model.of(graph, net.params, {}), {"data": (3, 8, 8)}, "random", "drawn here")
    notes: list[str] = []
    data = np.random.default_rng(0).random((1, 3, 8, 8)).astype(np.float32)
    defined, reference = repeatable_reference(built, {"data": data}, notes)
    assert defined.model is not built.model
    assert [note.partition(":")[0] for note in notes] == ["regions of no image pool zeros, as on GPUs"]
    assert reference.compare(defined.model)["heads"][0]["relative_l2"] < 1e-6


def test_a_reference_that_fails_for_another_reason_fails() -> None:
    net = Net()
    graph = net.graph(net.op("_linalg_potrf", net.var("data"), name="of_no_positive_matrix"))
    entry = find_entry("cifar_resnet20_v1")
    built = BuiltModel(entry, Model.of(graph, net.params, {}), {"data": (8, 8)}, "random", "drawn here")
    with pytest.raises(OperatorError):
        repeatable_reference(built, {"data": -np.ones((1, 8, 8), np.float32)}, [])


@pytest.mark.parametrize("name", ["vgg16_ucf101", "resnet18_v1b_custom", "i3d_resnet50_v1_custom"])
@pytest.mark.slow
def test_models_that_get_model_cannot_build_offline_are_built(name: str) -> None:
    built = build_model(Case(name), pretrained=False)
    assert built.weights == "random"


@pytest.mark.slow
@pytest.mark.parametrize("family", dict.fromkeys(entry.family for entry in registry().values()))
def test_every_model_of_a_family_builds_and_takes_and_gives_what_the_registry_says(family: str) -> None:
    entries = [entry for entry in registry().values() if entry.family == family and entry.is_runnable]
    for entry in entries:
        for form in entry.forms or ("",):
            with graph_form(form):
                net = zoo_network(entry, entry.shapes())
            outputs, _ = _flatten(net(*map(mx.sym.var, entry.inputs)), "output")
            assert len(outputs) == len(entry.outputs), entry.name
            batched = {name: (1, *shape) for name, shape in entry.inputs.items()}
            _, shapes, _ = mx.sym.Group(outputs).infer_shape(**batched)
            if entry.task in ("classification", "action recognition"):
                assert shapes[0] == (1, entry.classes), entry.name
            elif entry.task in ("segmentation", "pose"):
                assert shapes[0][:2] == (1, entry.classes), entry.name


# ---------------------------------------------------------------------- weights


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the parameters of one model, as GluonCV names them."""
    import gluoncv
    import mxnet as mx

    folder = tmp_path_factory.mktemp("weights")
    net = gluoncv.model_zoo.get_model("cifar_resnet20_v1")
    mx.random.seed(3)
    net.initialize(mx.init.Xavier())
    net(mx.nd.zeros((1, 3, 32, 32)))
    net.save_parameters(str(folder / "cifar_resnet20_v1-0123abcd.params"))
    return folder


def test_a_folder_of_parameters_is_used_and_named(weights: Path) -> None:
    built = build_model(Case("cifar_resnet20_v1"), params=weights, pretrained=False)
    assert (built.weights, built.origin) == ("file", "from the file cifar_resnet20_v1-0123abcd.params")
    other = build_model(Case("cifar_resnet56_v1"), params=weights, pretrained=False)
    assert other.weights == "random"


def test_random_weights_are_those_of_the_seed() -> None:
    first, same, other = (
        build_model(Case("cifar_resnet20_v1"), pretrained=False, seed=seed) for seed in (1, 1, 2)
    )
    arrays = [
        next(value.numpy() for key, value in built.model.arg_params.items() if key.endswith("conv0_weight"))
        for built in (first, same, other)
    ]
    np.testing.assert_array_equal(arrays[0], arrays[1])
    assert not np.array_equal(arrays[0], arrays[2])


@pytest.mark.parametrize("damage", ["cut off", "text", "of another model"])
def test_damaged_parameters_are_an_error_that_names_the_file(
    weights: Path, tmp_path: Path, damage: str
) -> None:
    good = (weights / "cifar_resnet20_v1-0123abcd.params").read_bytes()
    content = {"cut off": good[: len(good) // 2], "text": b"no parameters", "of another model": good}[damage]
    name = "cifar_resnet56_v1" if damage == "of another model" else "cifar_resnet20_v1"
    (tmp_path / f"{name}.params").write_bytes(content)
    with pytest.raises(ParamsError, match="damaged, or belongs to another model") as raised:
        build_model(Case(name), params=tmp_path, pretrained=False)
    assert f"{name}.params" in str(raised.value)


def test_a_missing_folder_of_parameters_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelFileNotFoundError, match="as GluonCV names them"):
        build_model(Case("cifar_resnet20_v1"), params=tmp_path / "no", pretrained=False)


# ---------------------------------------------------------------------- export


def test_export_writes_a_model_and_how_to_feed_it(weights: Path, tmp_path: Path) -> None:
    files = export_model(
        Case("cifar_resnet20_v1"), "bfloat16", tmp_path / "out", params=weights, pretrained=False
    )
    assert all(file.is_file() for file in files)
    signature = json.loads(files[-1].read_text("utf-8"))
    assert files[-1].name == "cifar_resnet20_v1-bfloat16-signature.json"
    (given,) = signature["inputs"]
    assert (given["name"], given["shape"], given["dtype"]) == ("data", [1, 3, 32, 32], "float32")
    (output,) = signature["outputs"]
    assert (output["shape"], output["dtype"], output["meaning"]) == ([1, 10], "float32", "logits")
    assert signature["weights"].startswith("from the file")
    model = load(tmp_path / "out" / "cifar_resnet20_v1-bfloat16")
    assert any(str(value.dtype) == "bfloat16" for value in model.arg_params.values())


def test_export_refuses_random_weights_unless_they_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no trained weights of 'cifar_resnet20_v1'"):
        export_model(Case("cifar_resnet20_v1"), "float16", tmp_path, pretrained=False)
    assert not list(tmp_path.iterdir())
    files = export_model(Case("cifar_resnet20_v1"), "float16", tmp_path, pretrained=False, allow_random=True)
    assert "random" in json.loads(files[-1].read_text("utf-8"))["weights"]


def test_a_model_that_fusion_breaks_in_fp32_is_evaluated_without(monkeypatch) -> None:
    """MXNet's oneDNN fusion fails on the larger NASNets: an operator without oneDNN code reads blocks."""
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "MKLDNN")
    notes: list[str] = []

    def compare() -> dict[str, float]:
        if is_fusion_on():
            raise OperatorError("We can't generate TBlob for MKLDNN data.")
        return {"relative_l2": 0.0}

    assert as_deployed(compare, notes) == {"how": "executed, fusion off", "relative_l2": 0.0}
    assert notes == [
        "MXNet's fusion fails on the FP32 model, so everything ran without it. "
        "We can't generate TBlob for MKLDNN data."
    ]


def test_a_model_that_fails_without_fusion_too_is_a_failure(monkeypatch) -> None:
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "MKLDNN")

    def compare() -> dict[str, float]:
        raise OperatorError("no")

    with pytest.raises(OperatorError):
        as_deployed(compare, [])
