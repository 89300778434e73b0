"""Data sets are read as GluonCV lays them out, judged by its metrics, and never called what they are not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

pytest.importorskip("mxnet", reason="data sets are read through GluonCV, which needs MXNet")
pytest.importorskip("gluoncv", reason="data sets are read through GluonCV")

from model_zoo_eval.accuracy.datasets import MAKERS, dataset_subject
from model_zoo_eval.accuracy.evaluate import VARIANTS, measure
from model_zoo_eval.accuracy.job import AccuracyJob
from model_zoo_eval.accuracy.layouts import LAYOUTS, check_folder, dataset_for
from model_zoo_eval.build import BuiltModel, zoo_network
from model_zoo_eval.registry import find_entry, registry
from mxamp.errors import DataError, ModelFileNotFoundError, ParamsError, UnknownNameError
from tests.machines import needs_bfloat16
from tests.model_zoo_eval.dataset_folders import (
    write_ade20k,
    write_cityscapes,
    write_coco,
    write_imagenet_folders,
    write_imagenet_records,
    write_voc,
    write_voc_segmentation,
)

Write = Callable[[Path], Path]

_NEEDS_PYCOCOTOOLS = pytest.mark.skipif(
    importlib.util.find_spec("pycocotools") is None, reason="COCO's metrics need pycocotools"
)


def made(name: str, folder: Path, *, size: int = 64, data: str = "") -> tuple[int, Any, Any]:
    """Return count, samples and meter of a data set for a model that is not built."""
    entry = find_entry(name)
    shapes = {"data": (3, size, size)}
    built = BuiltModel(entry, None, shapes, "file", "")  # type: ignore[arg-type]
    total, samples, meter, _ = MAKERS[data or dataset_for(entry), entry.task](built, folder)
    return total, samples, meter


# ---------------------------------------------------------------------- which data set, and where


@pytest.mark.parametrize(
    ("model", "data"),
    [
        ("resnet50_v1", "imagenet"),
        ("ssd_512_resnet50_v1_voc", "voc"),
        ("yolo3_darknet53_coco", "coco"),
        ("deeplab_resnet101_voc", "voc"),
        ("fastscnn_citys", "cityscapes"),
        ("fcn_resnet50_ade", "ade20k"),
        ("simple_pose_resnet50_v1b", "coco"),
    ],
)
def test_a_model_is_measured_on_the_data_it_is_for(model: str, data: str) -> None:
    assert dataset_for(find_entry(model)) == data


def test_every_published_figure_of_these_metrics_has_a_data_set() -> None:
    wanted = ("ImageNet", "VOC07 mAP", "VOC12", "COCO box", "COCO keypoint", "Cityscapes", "ADE20K")
    for entry in registry().values():
        if entry.published and entry.published.metric.startswith(wanted) and entry.is_runnable:
            assert (dataset_for(entry), entry.task) in LAYOUTS, entry.name


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        ("resnet50_v1", "imagnet", "Did you mean 'imagenet'"),
        ("resnet50_v1", "voc", "its classes are not those of voc"),
        ("cifar_resnet20_v1", None, "is not measured here"),
        ("resnet50_v1_int8", None, "cannot be evaluated"),
    ],
)
def test_an_unfit_data_set_is_refused(model: str, given: str | None, said: str) -> None:
    with pytest.raises((DataError, UnknownNameError), match=said):
        dataset_for(find_entry(model), given)


@pytest.mark.parametrize(("data", "task"), list(LAYOUTS), ids=" ".join)
def test_a_folder_of_another_layout_is_refused_with_what_is_expected(
    data: str, task: str, tmp_path: Path
) -> None:
    layout = LAYOUTS[data, task]
    with pytest.raises(ModelFileNotFoundError, match="There is no folder") as missing:
        check_folder(data, task, tmp_path / "nowhere")
    with pytest.raises(ModelFileNotFoundError, match=layout.needs[0].split("/")[0]) as empty:
        check_folder(data, task, tmp_path)
    for error in (missing, empty):
        assert layout.looks in str(error.value)
        assert layout.script in str(error.value)


# ---------------------------------------------------------------------- reading


@pytest.mark.parametrize("write", [write_imagenet_folders, write_imagenet_records])
def test_imagenet_is_read_from_folders_and_from_records(write: Write, tmp_path: Path) -> None:
    total, samples, meter = made("mobilenet0.25", write(tmp_path))
    assert total == 3
    read = [samples(number) for number in range(total)]
    assert [int(truth["label"]) for _, truth in read] == [0, 3, 7]
    assert read[0][0]["data"].shape == (1, 3, 64, 64)
    judge = meter()
    for number, (_, truth) in enumerate(read):
        scores = np.zeros((1, 1000), np.float32)
        scores[0, [0, 3, 8][number]] = 1.0
        judge.add([scores], truth)
    assert judge.metrics()["top-1"] == pytest.approx(2 / 3)
    assert judge.right().tolist() == [True, True, False]


def test_imagenet_with_a_missing_class_is_refused_since_all_labels_would_shift(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has 2 folders of classes, and 'mobilenet0\.25' tells 1000 apart"):
        made("mobilenet0.25", write_imagenet_folders(tmp_path, classes=2))


def test_records_of_another_data_set_are_refused(tmp_path: Path) -> None:
    _, samples, _ = made("mobilenet0.25", write_imagenet_records(tmp_path, labels=(5000,)))
    with pytest.raises(DataError, match="Sample 0 is of class 5000"):
        samples(0)


@pytest.mark.parametrize(
    "model",
    ["ssd_300_mobilenet0.25_voc", "yolo3_mobilenet0.25_voc", "center_net_resnet18_v1b_voc"],
)
def test_perfect_boxes_have_a_perfect_map_in_every_preparation(model: str, tmp_path: Path) -> None:
    total, samples, meter = made(model, write_voc(tmp_path))
    judge = meter()
    for number in range(total):
        inputs, truth = samples(number)
        assert inputs["data"].shape == (1, 3, 64, 64)
        found = truth["labels"].reshape(1, -1, 1).astype(np.float32)
        if model.startswith("center_net"):
            found = found[:, :, 0]  # its ids and scores have one axis less
        judge.add([found, np.ones_like(found), truth["boxes"][np.newaxis]], truth)
    assert judge.metrics()["VOC07 mAP"] == pytest.approx(1.0)
    assert judge.right().tolist() == [True, True]  # the third is difficult, and does not count
    assert judge.resampled(np.array([0, 0, 1])) == pytest.approx(1.0)


def test_r_cnn_boxes_are_compared_in_the_pixels_of_the_image(tmp_path: Path) -> None:
    _, samples, meter = made("faster_rcnn_resnet50_v1b_voc", write_voc(tmp_path), size=120)
    inputs, truth = samples(0)
    assert inputs["data"].shape == (1, 3, 120, 160)
    assert float(truth["scale"]) == pytest.approx(0.5)
    judge = meter()
    judge.add([np.full((1, 1, 1), 11.0), np.ones((1, 1, 1)), truth["boxes"][np.newaxis]], truth)
    assert judge.right().tolist() == [True]


@pytest.mark.parametrize(
    ("model", "write", "left", "right"),
    [
        ("fcn_resnet50_voc", write_voc_segmentation, 12, 0),
        ("fastscnn_citys", write_cityscapes, 0, 2),
        ("fcn_resnet50_ade", write_ade20k, 0, 4),
    ],
)
def test_masks_are_read_with_the_classes_that_the_model_tells_apart(
    model: str, write: Write, left: int, right: int, tmp_path: Path
) -> None:
    total, samples, meter = made(model, write(tmp_path))
    assert total == 3
    judge = meter()
    for number in range(total):
        inputs, truth = samples(number)
        assert inputs["data"].shape == (1, 3, 64, 64)
        assert set(np.unique(truth["mask"])) == {left, right}
        scores = np.eye(find_entry(model).classes, dtype=np.float32)[truth["mask"].astype(int)]
        judge.add([scores.transpose(2, 0, 1)[np.newaxis]], truth)
    assert judge.metrics()["pixel accuracy"] == pytest.approx(1.0)
    assert judge.resampled(np.arange(3)) == pytest.approx(judge.metrics()["mIoU"])


@_NEEDS_PYCOCOTOOLS
@pytest.mark.parametrize("model", ["ssd_300_mobilenet0.25_coco", "center_net_resnet18_v1b_coco"])
def test_perfect_boxes_have_a_perfect_coco_ap_also_on_some_images(model: str, tmp_path: Path) -> None:
    _, samples, meter = made(model, write_coco(tmp_path))
    judge = meter()
    for number in range(2):
        _, truth = samples(number)
        found = truth["labels"].reshape(1, -1, 1).astype(np.float32)
        judge.add([found, np.ones_like(found), truth["boxes"][np.newaxis]], truth)
    assert judge.metrics()["AP at 0.5"] == pytest.approx(1.0)
    assert judge.right().tolist() == [True, True]


@_NEEDS_PYCOCOTOOLS
def test_keypoints_of_the_heat_map_are_judged_by_coco(tmp_path: Path) -> None:
    entry = find_entry("simple_pose_resnet18_v1b")
    shapes = {"data": (3, 256, 192)}
    built = BuiltModel(entry, None, shapes, "file", "")  # type: ignore[arg-type]
    total, samples, meter, _ = MAKERS["coco", "pose"](built, write_coco(tmp_path))
    assert total == 3
    judge = meter()
    for number in range(total):
        inputs, truth = samples(number)
        assert inputs["data"].shape == (1, 3, 256, 192)
        judge.add([np.random.RandomState(number).rand(1, 17, 64, 48).astype(np.float32)], truth)
    assert 0.0 <= judge.metrics()["COCO keypoint AP"] < 0.5


def test_without_pycocotools_coco_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pip install 'pycocotools<2\.0\.8'"):
        made("ssd_300_mobilenet0.25_coco", tmp_path)


def test_a_list_that_names_missing_files_is_an_error(tmp_path: Path) -> None:
    folder = write_voc_segmentation(tmp_path)
    next((folder / "VOC2012" / "JPEGImages").glob("*.jpg")).unlink()
    with pytest.raises(DataError, match="GluonCV cannot read the data set"):
        made("fcn_resnet50_voc", folder)


# ---------------------------------------------------------------------- the whole way


def save_random_parameters(name: str, folder: Path) -> Path:
    """Write parameters as GluonCV names them, where there are none to download."""
    import mxnet as mx

    class Start(mx.init.Xavier):  # type: ignore[misc]
        def _init_weight(self, desc: Any, array: Any) -> None:
            if len(array.shape) >= 2:
                super()._init_weight(desc, array)
            else:
                array[:] = 1.0 if str(desc).endswith(("gamma", "var")) else 0.0

    mx.random.seed(0)
    entry = find_entry(name)
    net = zoo_network(entry, entry.shapes())
    net.initialize(Start(), force_reinit=True)
    height, width = entry.shapes()["data"][-2:]
    net(mx.nd.zeros((1, 3, height, width)))
    folder.mkdir(exist_ok=True)
    net.save_parameters(str(folder / f"{name}.params"))
    return folder


@needs_bfloat16
def test_a_part_of_a_data_set_is_not_called_by_its_name(tmp_path: Path) -> None:
    job = AccuracyJob(
        "mobilenet0.25",
        data="imagenet",
        folder=str(write_imagenet_folders(tmp_path / "images")),
        params=str(save_random_parameters("mobilenet0.25", tmp_path / "weights")),
    )
    subject, described = dataset_subject(job)
    assert described["data"] == "3 of 3 samples in 'images', not ImageNet's validation set"
    assert "published" not in described
    results, samples = measure(subject, variants=VARIANTS[:1])
    assert samples == 3
    assert results["bfloat16"]["flips"]["count"] == 3
    assert "interval" in results["bfloat16"]


def test_random_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model_zoo_eval.build.weights_obstacle", lambda name: "there is no network")
    job = AccuracyJob("mobilenet0.25", data="imagenet", folder=str(write_imagenet_records(tmp_path)))
    with pytest.raises(ParamsError, match=r"random ones have no accuracy\. Put mobilenet0\.25\.params"):
        dataset_subject(job)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "data", "write"),
    [
        ("mobilenet0.25", "imagenet", write_imagenet_records),
        ("ssd_300_mobilenet0.25_voc", "voc", write_voc),
        ("yolo3_mobilenet0.25_voc", "voc", write_voc),
        ("center_net_resnet18_v1b_voc", "voc", write_voc),
        ("faster_rcnn_resnet50_v1b_voc", "voc", write_voc),
        ("fcn_resnet50_voc", "voc", write_voc_segmentation),
        ("fastscnn_citys", "cityscapes", write_cityscapes),
        ("fcn_resnet50_ade", "ade20k", write_ade20k),
        pytest.param("ssd_300_mobilenet0.25_coco", "coco", write_coco, marks=_NEEDS_PYCOCOTOOLS),
        pytest.param("simple_pose_resnet18_v1b", "coco", write_coco, marks=_NEEDS_PYCOCOTOOLS),
    ],
)
def test_every_kind_of_model_is_measured_on_its_data(
    model: str, data: str, write: Write, tmp_path: Path
) -> None:
    folder = write(tmp_path / "data")
    params = save_random_parameters(model, tmp_path / "weights")
    job = AccuracyJob(model, data=data, folder=str(folder), params=str(params), samples=2)
    subject, described = dataset_subject(job)
    results, samples = measure(subject)
    assert samples == 2
    assert "not " in described["data"]
    for variant in VARIANTS:
        assert "error" not in results[variant.key]
        assert results[variant.key]["metrics"].keys() == results["float32"]["metrics"].keys()
