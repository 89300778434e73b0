"""Networks that were trained: compensated weights lose less of them, on samples that nobody has seen."""

from __future__ import annotations

import pytest

pytest.importorskip("mxnet", reason="runs networks")
pytest.importorskip("sklearn", reason="digits come with it")
pytest.importorskip("cv2", reason="digits are resized")

from tools.benchmark_calibration import measure, trained_subject


@pytest.mark.parametrize("name", ["cifar_resnet20_v1-digits", "vgg11-digits"])
def test_held_out_digits(name: str) -> None:
    nearest, mean, full = measure(trained_subject(name, samples=48, held_out=96), low_precision="required")
    assert full.weights_error < 0.5 * nearest.weights_error
    assert full.error < 1.02 * nearest.error
    assert mean.error < 1.5 * nearest.error
    assert full.accuracy is not None
    assert nearest.accuracy is not None
    assert full.accuracy >= nearest.accuracy
