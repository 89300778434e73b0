"""Errors beside those of an earlier revision: what its code makes, and what is told of both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")
pytest.importorskip("cv2", reason="photographs are resized")
pytest.importorskip("sklearn", reason="photographs come with it")

from mxamp.model import Model
from tests.tuning.networks import network, with_weights
from tools.benchmark_calibration import Subject
from tools.benchmark_errors_since import BUDGETS, SLOWER, converted_by, measure
from tools.machine import ROOT

SHAPES = {"data": (1, 3, 12, 12)}


@pytest.fixture(scope="module")
def model() -> Model:
    return with_weights(network(), data=SHAPES["data"])


def test_the_code_of_that_revision_is_asked_and_its_failure_told(model: Model, tmp_path: Path) -> None:
    (tmp_path / "mxamp.py").write_text(
        "from types import SimpleNamespace\n"
        "def load(prefix):\n"
        "    return SimpleNamespace(graph=prefix, arg_params={}, aux_params={})\n"
        "def convert_model(*given, **options):\n"
        "    raise SystemExit(f'it is too old for {options}')\n"
    )
    with pytest.raises(RuntimeError, match=r"it is too old for .*'cpu-bf16'.*\(1, 3, 12, 12\)"):
        converted_by(tmp_path, model, SHAPES, tmp_path)


def test_errors_and_times_are_told_of_both(model: Model) -> None:
    random = np.random.default_rng(0)
    calibration, held_out = (random.normal(size=(8, 3, 12, 12)).astype(np.float32) for _ in range(2))
    row = measure(Subject("small", "random", model, calibration, held_out), ROOT, seconds=0.5)
    assert row["earlier"] == row["default"]  # the same code
    assert row["budget"] in BUDGETS
    assert row["calibrated"] <= row["earlier"] or row["speed"]["ratio"] < 1 / SLOWER
    assert (row["samples"], row["held_out"], row["shape"]) == (8, 8, [3, 12, 12])
