"""What conversion does to accuracy is measured, judged and compared; and what cannot be is said."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mxnet", reason="accuracy is measured by running models")
pytest.importorskip("gluoncv", reason="metrics are GluonCV's")
pytest.importorskip("sklearn", reason="the digits come with scikit-learn")

from model_zoo_eval.accuracy.evaluate import FP32, VARIANTS, Subject, measure
from model_zoo_eval.accuracy.job import AccuracyJob
from model_zoo_eval.accuracy.meters import PixelMeter, VocMeter, found_boxes
from model_zoo_eval.accuracy.offline import offline_subject
from model_zoo_eval.accuracy.regressions import accuracy_regressions
from model_zoo_eval.accuracy.tables import accuracy_parts, is_within_chance, verdict
from model_zoo_eval.cli import main
from model_zoo_eval.journal import Results, read_results
from model_zoo_eval.regressions import compare_results
from model_zoo_eval.report import report_parts
from model_zoo_eval.tables import to_markdown
from model_zoo_eval.trained.networks import NETWORKS, Network, find_network, read
from mxamp.errors import DataError, ParamsError
from tests.machines import needs_bfloat16
from tests.model_zoo_eval.rows import ok_row

_FOLDER = Path(__file__).resolve().parents[2] / "model_zoo_eval"
_LIMIT = 8_000_000


# ---------------------------------------------------------------------- the networks


def test_all_trained_networks_together_are_under_8_mb_and_whole_in_float32() -> None:
    files = [file for network in NETWORKS.values() for file in network.prefix.parent.glob(f"{network.name}*")]
    assert sum(file.stat().st_size for file in files) < _LIMIT
    for network in NETWORKS.values():
        model = read(network)
        weights = [value.numpy() for value in model.arg_params.values() if len(value.shape) == 4]
        assert {str(value.dtype) for value in weights} == {"float32"}
        # Weights that were rounded to a coarser grid would lose nothing when they are rounded again.
        values = np.concatenate([value.ravel() for value in weights])
        assert (values.astype(np.float16).astype(np.float32) != values).mean() > 0.9


def test_the_networks_are_a_resnet_a_mobilenet_a_vgg_a_detector_and_a_segmenter() -> None:
    tasks = [network.task for network in NETWORKS.values()]
    assert tasks.count("classification") >= 3
    assert {"detection", "segmentation"} <= set(tasks)


@pytest.mark.parametrize(
    "damage", [b"", b"\xfd7zXZ\x00", b"no file of xz"], ids=["empty", "cut off", "other"]
)
def test_a_damaged_file_of_weights_is_an_error(damage: bytes, tmp_path: Path) -> None:
    network = find_network("vgg11-digits")
    for ending in ("-symbol.json.xz", "-0000.params.xz"):
        (tmp_path / f"{network.name}{ending}").write_bytes(Path(f"{network.prefix}{ending}").read_bytes())
    (tmp_path / f"{network.name}-0000.params.xz").write_bytes(damage)
    moved = Network(**{**vars(network), "prefix": tmp_path / network.name, "packed": True})
    with pytest.raises(ParamsError, match="is damaged"):
        read(moved)


@needs_bfloat16
def test_one_classifier_keeps_its_accuracy_in_bfloat16() -> None:
    results, samples = measure(
        offline_subject(find_network("cifar_resnet20_v1-digits")), variants=VARIANTS[:1]
    )
    assert samples == 539
    assert results[FP32]["metrics"]["top-1"] > 0.97
    low, high = results["bfloat16"]["interval"]
    assert low <= results["bfloat16"]["difference"] <= high
    assert results["bfloat16"]["inside"]
    assert results["bfloat16"]["flips"]["count"] == 539
    assert results["bfloat16"]["casts"] >= 1


def test_the_detector_and_the_segmenter_are_judged_by_gluoncvs_metrics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mxamp.evaluation.statistics.RESAMPLES", 20)
    for name, metric in (("ssd-mobilenet0.25-scenes", "VOC07 mAP"), ("fastscnn-scenes", "mIoU")):
        results, samples = measure(offline_subject(find_network(name), 4), variants=VARIANTS[1:2])
        assert samples == 4
        assert 0.0 < results["float16"]["metrics"][metric] <= 1.0
        assert results["float16"]["flips"]["count"] >= 4
        assert len(results["float16"]["interval"]) == 2


def test_a_conversion_that_fails_is_a_result_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise DataError("no")

    monkeypatch.setattr("model_zoo_eval.accuracy.evaluate.convert_model", refuse)
    results, _ = measure(offline_subject(find_network("vgg11-digits"), 3), variants=VARIANTS[:2])
    assert results["bfloat16"] == {"how": "executed", "error": "DataError: no"}
    assert "metrics" in results["float16"]


# ---------------------------------------------------------------------- meters


def _truth() -> dict[str, Any]:
    return {"boxes": np.array([[0, 0, 10, 10], [20, 20, 40, 40]], np.float32), "labels": np.array([1, 0])}


def test_a_box_is_found_by_class_score_and_overlap() -> None:
    ids = np.array([1, 0, 0, -1])
    scores = np.array([0.9, 0.4, 0.9, 1.0])
    boxes = np.array([[0, 0, 10, 9], [20, 20, 40, 40], [60, 60, 80, 80], [20, 20, 40, 40]], np.float32)
    assert found_boxes(ids, scores, boxes, _truth()) == [True, False]


def test_map_of_resampled_scenes_is_that_of_gluoncv_on_them() -> None:
    random = np.random.RandomState(0)
    whole, drawn = VocMeter(["a", "b"]), VocMeter(["a", "b"])
    order = np.array([3, 0, 0, 2, 1])
    cases = []
    for _ in range(5):
        shift = random.uniform(-6, 6, size=(1, 2, 4)).astype(np.float32)
        outputs = [np.array([[[1.0], [0.0]]]), random.rand(1, 2, 1), _truth()["boxes"][np.newaxis] + shift]
        cases.append(outputs)
        whole.add(outputs, _truth())
    for number in order:
        drawn.add(cases[number], _truth())
    assert whole.resampled(order) == pytest.approx(drawn.metrics()["VOC07 mAP"])
    assert whole.resampled(np.arange(5)) == pytest.approx(whole.metrics()["VOC07 mAP"])


def test_a_digit_is_right_where_most_of_its_pixels_are() -> None:
    mask = np.zeros((4, 4), np.int32)
    mask[:2, :2], mask[2:, 2:] = 1, 2
    objects = mask - 1
    predicted = mask.copy()
    predicted[0, 0] = 0
    predicted[2:, 2:] = 1
    meter = PixelMeter(3, items="digits")
    meter.add(
        [np.eye(3, dtype=np.float32)[predicted].transpose(2, 0, 1)[np.newaxis]],
        {"mask": mask, "objects": objects},
    )
    assert meter.right().tolist() == [True, False]
    # class 0: 8 of 9, class 1: 3 of 8, class 2: 0 of 4
    assert meter.metrics()["mIoU"] == pytest.approx((8 / 9 + 3 / 8 + 0) / 3)
    assert meter.resampled(np.array([0])) == pytest.approx(meter.metrics()["mIoU"])


# ---------------------------------------------------------------------- what is said of it


def accuracy_row(difference: float = -0.001, *, half: float = 0.004, **more: Any) -> dict[str, Any]:
    """Return a result made by hand."""
    interval = [difference - half, difference + half]
    variant = {
        "how": "executed",
        "casts": 2,
        "metrics": {"top-1": 0.98 + difference},
        "difference": difference,
        "interval": interval,
        "inside": interval[0] <= 0 <= interval[1],
        "flips": {"items": "images", "count": 1000, "lost": 2, "gained": 1},
        "p": 1.0,
    }
    return {
        "kind": "accuracy",
        "data": "digits of scikit-learn, held out",
        "weights": "trained here",
        "inputs": {"data": [1, 3, 32, 32]},
        "samples": 1000,
        "notes": [],
        "results": {FP32: {"metrics": {"top-1": 0.98}}, "bfloat16": variant},
        "status": "ok",
        "reason": "",
        **more,
    }


def test_the_table_has_metric_difference_interval_flips_and_samples() -> None:
    rows = {
        "a": accuracy_row(notes=["smaller"]),
        "b": accuracy_row(status="crashed", reason="SIGSEGV", results={}),
    }
    said = to_markdown(accuracy_parts(rows))
    assert (
        "| a | digits of scikit-learn, held out | 1000 | top-1 | 98.00 | BF16, executed | 97.90 | -0.10 | "
        in said
    )
    assert "-0.50 to +0.30 | 2 | 1 | 1000 images | 1 |" in said
    assert "| b | crashed | SIGSEGV |" in said
    assert "a: smaller." in said
    assert "ImageNet" not in said


def test_a_difference_beyond_chance_is_named() -> None:
    fine, worse = accuracy_row(), accuracy_row(-0.02)
    assert is_within_chance(fine)
    assert not is_within_chance(worse)
    assert "inside its 95 % confidence interval" in verdict({"a": fine})
    assert "1 of 2 differences to FP32 are more than chance" in verdict({"a": fine, "b": worse})
    assert "b in bfloat16" in verdict({"a": fine, "b": worse})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: None, []),
        (lambda row: row["results"]["bfloat16"].update(casts=5), ["bfloat16 had 2, and has 5"]),
        (lambda row: row["results"].pop("bfloat16"), ["bfloat16 is missing"]),
        (lambda row: row["results"][FP32]["metrics"].update({"top-1": 0.9}), ["FP32's top-1 was 0.9800"]),
        (lambda row: row["results"].update(accuracy_row(-0.02)["results"]), ["which is more than chance"]),
        (
            lambda row: row["results"].update(accuracy_row(-0.02, half=0.05)["results"]),
            ["bfloat16 differed from FP32 by -0.0010, and differs by -0.0200"],
        ),
    ],
    ids=["none", "casts", "missing", "FP32", "beyond chance", "larger loss"],
)
def test_diff_names_what_got_worse(change: Any, said: list[str]) -> None:
    before = accuracy_row()
    now = copy.deepcopy(before)
    change(now)
    found = accuracy_regressions(before, now)
    assert len(found) == len(said)
    for (_, what), expected in zip(found, said):
        assert expected in what
    compared = compare_results(Results(rows={"a": before}), Results(rows={"a": now}))
    assert len(compared.regressions) == len(said)


def test_the_report_has_accuracy_beside_fidelity() -> None:
    rows = {"resnet18_v1": ok_row(), "vgg11-digits": accuracy_row()}
    said = to_markdown(report_parts(Results(rows=rows)))
    assert "Accuracy: 1 networks" in said
    assert "1 of the zoo's" in said


# ---------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--models", "vgg11-digit"], "Did you mean 'vgg11-digits'"),
        (["--dataset", "voc"], "--dataset goes with --data"),
        (["--params", "weights"], "--params goes with --data"),
        (["--data", "nowhere"], "--data needs --models"),
        (["--data", "nowhere", "--models", "resnet51_v1"], "Did you mean 'resnet50_v1'"),
        (
            ["--data", "nowhere", "--models", "resnet50_v1"],
            "There is no folder 'nowhere'. As GluonCV lays out",
        ),
        (["--data", "nowhere", "--models", "resnet50_v1", "--dataset", "vocs"], "Did you mean 'voc'"),
        (
            ["--data", "nowhere", "--models", "resnet50_v1", "--params", "no"],
            "--params: there is no folder 'no'",
        ),
        (["--models", "vgg11-digits", "--samples", "9999"], "can be 1 to 539, not 9999"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_gets_an_answer(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["accuracy", *arguments, "-o", str(tmp_path)]) in (1, 2)
    shown = capsys.readouterr()
    assert said in shown.err + shown.out


def test_the_command_writes_journal_and_report_and_the_baseline_fits_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["accuracy", "--models", "vgg11-digits", "--samples", "40", "-o", str(tmp_path)]) == 0
    assert "Every one of 3 differences to FP32 is inside" in capsys.readouterr().out
    assert (
        main(["accuracy", "--models", "vgg11-digits", "--samples", "40", "--resume", "-o", str(tmp_path)])
        == 0
    )
    assert main(["accuracy", "--models", "vgg11-digits", "--resume", "-o", str(tmp_path)]) == 2
    assert "was made with samples = 40, and now it is None" in capsys.readouterr().err
    results = read_results(tmp_path / "accuracy.jsonl")
    row = results.rows["vgg11-digits"]
    assert row["samples"] == 40
    assert row["results"].keys() == {FP32, *(variant.key for variant in VARIANTS)}
    assert results.runs[0]["environment"]["seed"] == 0
    assert {file.name for file in tmp_path.iterdir()} == {"accuracy.jsonl", "accuracy.md", "accuracy.html"}
    baseline = read_results(_FOLDER / "accuracy-baseline.jsonl")
    assert baseline.rows.keys() == NETWORKS.keys()
    assert all(is_within_chance(row) for row in baseline.rows.values())
    assert row["weights"] == baseline.rows["vgg11-digits"]["weights"]


def test_a_job_survives_the_way_to_another_process() -> None:
    job = AccuracyJob("vgg11-digits", samples=3, seed=2)
    assert AccuracyJob.from_mapping(json.loads(json.dumps(job.to_mapping()))) == job


def test_a_subject_gives_the_same_samples_to_every_variant() -> None:
    subject: Subject = offline_subject(find_network("vgg11-digits"), 3)
    first, second = list(subject.samples()), list(subject.samples())
    for (one, _), (other, _) in zip(first, second):
        np.testing.assert_array_equal(one["data"], other["data"])
