"""``mxamp calibrate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mxnet", reason="calibrating runs the model")


@pytest.fixture
def data(folder: Path) -> Path:
    images = np.random.default_rng(0).standard_normal((6, 4, 5, 5)).astype(np.float32)
    np.savez(folder / "images.npz", data=images)
    np.savez(folder / "more.npz", data=images + 1)
    return folder


def test_a_calibration_is_written_and_shown(data: Path, mxamp: Any) -> None:
    result = mxamp("calibrate", "net", "--data", "images.npz", "-o", "net.calibration")
    assert (result.status, result.err) == (0, "")
    assert "6 samples of images.npz" in result.out
    shown = mxamp("calibrate", "--show", "net.calibration")
    assert shown.status == 0
    assert "Calibrated with 6 samples of images.npz (data 4x5x5)." in shown.out
    document = json.loads(mxamp("calibrate", "--show", "net.calibration", "--json").out)
    assert {entry["node"] for entry in document["entries"]} >= {"data", "conv0", "exp0"}
    assert "exp0" in mxamp("calibrate", "--show", "net.calibration", "--all").out


def test_calibrations_are_merged(data: Path, mxamp: Any) -> None:
    assert mxamp("calibrate", "net", "--data", "images.npz", "-o", "one").status == 0
    result = mxamp("calibrate", "net", "--data", "more.npz", "--merge", "one", "-o", "both")
    assert "12 samples" in result.out
    again = mxamp("calibrate", "net", "--data", "images.npz", "--merge", "both", "-o", "all")
    assert (again.status, again.out.count("calibrating:")) == (2, 0)
    assert "count twice" in again.err
    assert not (data / "all").exists()


def test_mistakes_are_told_before_anything_runs(data: Path, mxamp: Any) -> None:
    assert "PREFIX and --data and -o are missing" in mxamp("calibrate").err
    assert "--data is missing" in mxamp("calibrate", "net", "-o", "x").err
    assert "does not exist" in mxamp("calibrate", "net", "--data", "images.npz", "-o", "no/x").err
    refused = mxamp("calibrate", "net", "--data", "images.npz", "-o", "more.npz")
    assert "already exists, and is no calibration" in refused.err
    refused = mxamp("calibrate", "net", "--data", "images.npz", "-o", "x", "--prices-memory", "0")
    assert "prices_memory must be at least 1" in refused.err
    assert "leave PREFIX" in mxamp("calibrate", "net", "--show", "x").err
    assert "is no calibration" in mxamp("calibrate", "--show", "images.npz").err


def test_a_model_is_converted_with_compensated_weights(data: Path, mxamp: Any) -> None:
    assert mxamp("calibrate", "net", "--data", "images.npz", "-o", "found").status == 0
    plain = ("convert", "net", "--dtype", "bfloat16", "--no-guard")
    assert mxamp(*plain, "-o", "plain").status == 0
    result = mxamp(*plain, "-o", "full", "--calibration", "found", "--compensate")
    assert result.status == 0
    assert "for what 2 layers compute, by a calibration with 6 samples" in " ".join(result.out.split())
    assert (data / "full-symbol.json").read_bytes() == (data / "plain-symbol.json").read_bytes()
    assert (data / "full-0000.params").read_bytes() != (data / "plain-0000.params").read_bytes()
    report = json.loads((data / "full-mxamp.json").read_text())["decisions"]
    assert [layer["weight"] for layer in report["compensation"]["layers"]] == ["conv0_weight", "conv1_weight"]
    assert mxamp("verify", "full").status == 0


def test_options_of_calibration_that_are_wrong_are_told_together(data: Path, mxamp: Any) -> None:
    plain = ("convert", "net", "--dtype", "bfloat16", "-o", "out")
    assert "--compensate needs --calibration FILE" in mxamp(*plain, "--compensate").err
    assert "is no calibration" in mxamp(*plain, "--calibration", "images.npz").err
    assert mxamp(*plain, "--calibration", "found", "--compensate", "best").status == 2
