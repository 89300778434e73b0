"""Inputs are real photographs, prepared as each model expects."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("cv2")

from model_zoo_eval.photographs import FIRST_SAMPLES, SAMPLES, photographs
from model_zoo_eval.registry import find_entry
from mxamp.errors import DataError


@pytest.mark.parametrize(
    "name",
    [
        "cifar_resnet20_v1",
        "simple_pose_resnet18_v1b",
        "c3d_kinetics400",
        "siamrpn_alexnet_v2_otb15",
        "monodepth2_resnet18_posenet_kitti_mono_640x192",
    ],
)
def test_inputs_have_the_models_shapes_and_are_the_same_every_time(name: str) -> None:
    entry = find_entry(name)
    inputs = photographs(entry, entry.shapes(), 2)
    assert {key: values.shape[1:] for key, values in inputs.items()} == entry.shapes()
    again = photographs(entry, entry.shapes(), 2)
    for key, values in inputs.items():
        assert values.dtype == np.float32
        assert np.isfinite(values).all()
        assert values.std() > 0.1
        np.testing.assert_array_equal(values, again[key])


@pytest.mark.parametrize("samples", [FIRST_SAMPLES, SAMPLES], ids=["scikit-learn's", "scikit-image's too"])
def test_samples_differ_and_more_begin_with_the_same(samples: int) -> None:
    if samples > FIRST_SAMPLES:
        pytest.importorskip("skimage", reason="needs scikit-image")
    entry = find_entry("resnet18_v1")
    images = photographs(entry, {"data": (3, 32, 32)}, samples)["data"]
    assert len({image.tobytes() for image in images}) == samples
    few = photographs(entry, {"data": (3, 32, 32)}, 3)["data"]
    np.testing.assert_array_equal(few, images[:3])


def test_more_samples_without_scikit_image_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage", None)
    entry = find_entry("resnet18_v1")
    photographs(entry, {"data": (3, 32, 32)}, FIRST_SAMPLES)
    with pytest.raises(DataError, match="More than 16 samples need the photographs of scikit-image"):
        photographs(entry, {"data": (3, 32, 32)}, FIRST_SAMPLES + 1)


def test_frames_of_a_clip_move() -> None:
    entry = find_entry("c3d_kinetics400")
    clip = photographs(entry, {"data": (3, 4, 56, 56)}, 1)["data"][0]
    assert all(not np.array_equal(clip[:, 0], clip[:, frame]) for frame in range(1, 4))


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("resnet18_v1", -2.2, 2.7),
        ("monodepth2_resnet18_kitti_mono_640x192", 0.0, 1.0),
        ("siamrpn_alexnet_v2_otb15", 0.0, 255.0),
    ],
    ids=["imagenet", "unit", "raw"],
)
def test_values_are_in_the_range_the_model_reads(name: str, low: float, high: float) -> None:
    entry = find_entry(name)
    for values in photographs(entry, entry.shapes(64), 1).values():
        assert low - 1e-4 <= values.min() < values.max() <= high + 1e-3
        assert values.max() - values.min() > 0.5 * (high - low)


@pytest.mark.parametrize("samples", [0, SAMPLES + 1])
def test_more_samples_than_there_are_is_an_error(samples: int) -> None:
    entry = find_entry("resnet18_v1")
    with pytest.raises(DataError, match=f"give 1 to {SAMPLES} samples"):
        photographs(entry, entry.shapes(), samples)
