"""The table of compensated weights: that of the weights alone, and every way of rounding measured alike."""

from __future__ import annotations

import numpy as np
import pytest

import mxamp

mx = pytest.importorskip("mxnet")
pytest.importorskip("cv2", reason="photographs are resized")
pytest.importorskip("sklearn", reason="photographs come with it")

from mxamp.runtime.executor import run_outputs
from tests.calibration.models import deep_model, small_model
from tools.benchmark_calibration import Subject, cuts, measure, only_weights_rounded, trained_names


def test_the_model_of_weights_alone_rounds_nothing_else() -> None:
    model = small_model()
    converted = mxamp.convert_model(
        model.graph, model.arg_params, model.aux_params, "bfloat16", low_precision="required"
    )
    alone = only_weights_rounded(converted)
    assert not [node for node in alone.graph.nodes if "cast" in node.op]
    for name, value in converted.arg_params.items():
        np.testing.assert_array_equal(
            alone.arg_params[name].numpy(), value.numpy().astype(np.float32), err_msg=name
        )
    images = {"data": np.random.default_rng(0).standard_normal((2, 4, 8, 8)).astype(np.float32)}
    (exact,), (found,) = (run_outputs(each, images, fusion=False) for each in (model, alone))
    assert 0.0 < np.abs(found - exact).max() < 0.02 * np.abs(exact).max()


def test_each_way_of_rounding_is_measured() -> None:
    random = np.random.default_rng(0)
    samples = random.standard_normal((12, 4, 8, 8)).astype(np.float32)
    labels = np.zeros(4, np.int64)
    found = measure(
        Subject("deep", "random", deep_model(), samples[:8], samples[8:], labels), low_precision="required"
    )
    assert [each.rounding for each in found] == ["nearest", "mean", "full"]
    assert len({each.weights_error for each in found}) == 3
    assert all(0.0 < each.weights_error < 0.05 and 0.0 < each.error < 0.05 for each in found)
    assert all(0.0 <= (each.accuracy or 0.0) <= 1.0 for each in found)


def test_cuts_are_those_of_one_photograph_and_repeatable() -> None:
    found = cuts("china.jpg", 3, (32, 48), seed=1)
    assert found.shape == (3, 3, 32, 48)
    np.testing.assert_array_equal(found, cuts("china.jpg", 3, (32, 48), seed=1))
    assert not np.array_equal(found, cuts("flower.jpg", 3, (32, 48), seed=1))


def test_networks_whose_outputs_are_rankings_are_left_out() -> None:
    names = trained_names()
    assert "vgg11-digits" in names
    assert "ssd-mobilenet0.25-scenes" not in names
