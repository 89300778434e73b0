from __future__ import annotations

import json
import os
import re

import numpy as np
import pytest

from mxamp.errors import DeviceError
from mxamp.measuring.machine import AMX_SETTING
from tools.machine import ROOT, describe_machine, machine_lines, use_amx

DIGITS = ROOT / "demo" / "cifar_resnet20_v1-digits"


@pytest.fixture(scope="module")
def digits():
    pytest.importorskip("cv2")
    pytest.importorskip("sklearn")
    from tools import digits

    return digits


@pytest.fixture(scope="module")
def split(digits):
    return digits.load_digits_split()


def test_training_and_held_out_digits_are_disjoint_and_complete(digits):
    labels = np.repeat(np.arange(10), 57)
    train, held_out = digits.split_indices(labels)
    assert sorted([*train, *held_out]) == list(range(len(labels)))


def test_the_same_share_of_every_class_is_held_out(digits):
    labels = np.repeat(np.arange(10), 50)
    _, held_out = digits.split_indices(labels, heldout_fraction=0.3)
    assert (np.bincount(labels[held_out]) == 15).all()


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_a_share_that_leaves_nothing_on_one_side_is_refused(digits, share):
    with pytest.raises(ValueError, match=re.escape(f"heldout_fraction is {share}")):
        digits.split_indices(np.zeros(4, np.int64), heldout_fraction=share)


def test_digits_have_the_shape_and_scale_that_the_network_reads(digits, split):
    stated = json.loads(DIGITS.with_name(f"{DIGITS.name}.json").read_text())
    assert split.train_images.shape == (stated["split"]["training_images"], *digits.IMAGE_SHAPE)
    assert split.heldout_images.shape == (stated["heldout"]["images"], *digits.IMAGE_SHAPE)
    assert split.heldout_images.dtype == np.float32
    assert split.heldout_images.min() == pytest.approx(digits.BACKGROUND)
    assert split.heldout_images.max() <= (1 - digits.PIXEL_MEAN) / digits.PIXEL_STD + 1e-6
    assert set(split.heldout_labels) == set(range(digits.CLASSES))


def test_no_held_out_digit_was_trained_on(split):
    # 8x8 scans are coarse, but no two of the data set are equal.
    trained = {image.tobytes() for image in split.train_images}
    assert not [image for image in split.heldout_images if image.tobytes() in trained]


def test_the_committed_network_is_as_accurate_as_it_says(split):
    pytest.importorskip("mxnet")
    from tools import stock

    stated = json.loads(DIGITS.with_name(f"{DIGITS.name}.json").read_text())["heldout"]
    scores = stock.predict(DIGITS, split.heldout_images)
    assert int((scores.argmax(axis=1) == split.heldout_labels).sum()) == stated["correct"]
    assert stated["accuracy"] == round(stated["correct"] / stated["images"], 6)


def test_photographs_have_the_shape_that_imagenet_networks_read():
    pytest.importorskip("cv2")
    pytest.importorskip("sklearn")
    from tools import photographs

    pictures = photographs.load_photographs()
    assert pictures.images.shape == (2, 3, 224, 224)
    assert pictures.images.dtype == np.float32
    assert pictures.names == ("china.jpg", "flower.jpg")
    small = photographs.load_photographs(short_side=40, crop=32)
    assert small.images.shape == (2, 3, 32, 32)
    with pytest.raises(ValueError, match="crop is 50"):
        photographs.load_photographs(short_side=40, crop=50)


def test_a_measurement_says_what_it_was_made_with():
    machine = describe_machine(seed=7)
    assert set(machine["versions"]) >= {"mxamp", "mxnet", "numpy"}
    text = "\n".join(machine_lines(machine))
    for part in (str(machine["cpu"]), str(machine["commit"]), "seed 7", str(machine["cores"])):
        assert part in text


def test_amx_is_used_where_the_system_permits_it_and_nobody_said_otherwise(monkeypatch):
    variable, value = AMX_SETTING
    monkeypatch.setenv(variable, "AVX2")
    use_amx()
    assert os.environ[variable] == "AVX2"

    monkeypatch.delenv(variable)
    monkeypatch.setattr("tools.machine.permit_amx", refuse_amx)
    use_amx()
    assert variable not in os.environ

    monkeypatch.setattr("tools.machine.permit_amx", lambda: None)
    use_amx()
    assert os.environ[variable] == value


def refuse_amx():
    raise DeviceError("the system does not permit it")


def test_a_cpu_without_bfloat16_is_named():
    lines = machine_lines({**describe_machine(), "native_bfloat16": False})
    assert any("say nothing about a CPU that has it" in " ".join(line.split()) for line in lines)
