"""A network of the zoo whose values reach the end of float16's range fits it, scaled, and pays nothing."""

from __future__ import annotations

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="converts and runs models of the zoo")
pytest.importorskip("gluoncv", reason="builds models of the zoo")
pytest.importorskip("sklearn", reason="photographs come with it")

import mxamp
from mxamp.runtime.executor import run_outputs
from mxamp.runtime.zoo import load_zoo
from tools.benchmark_calibration import cuts

pytestmark = [pytest.mark.zoo, pytest.mark.slow]


def test_residual_attention_overflows_float16_no_more() -> None:
    zoo = load_zoo("residualattentionnet452", pretrained=False)
    model, name = zoo.model, next(iter(zoo.input_shapes))
    # Ranges are all that is asked for: one column of a sample will do for the moments.
    calibration = mxamp.calibrate(
        model, cuts("china.jpg", 2, (224, 224), seed=0), positions=1, memory=1 << 20
    )
    largest = max(found.largest for found in calibration.entries.values())
    assert largest * 2.0 > 65504.0  # random weights; with the headroom that is beyond
    options = {"target_dtype": "float16", "emulate": True}
    arrays = (model.graph, model.arg_params, model.aux_params)
    plain = mxamp.convert_model(*arrays, **options)
    scaled = mxamp.convert_model(*arrays, **options, calibration=calibration)
    assert plain.report is not None
    assert scaled.report is not None
    assert {change.step for change in scaled.report.preparations} >= {"rescale"}
    assert scaled.report.low_nodes == plain.report.low_nodes
    held_out = {name: cuts("flower.jpg", 1, (224, 224), seed=0)}
    (expected,) = run_outputs(model, held_out, fusion=False)
    (found,) = run_outputs(scaled, held_out, fusion=False)
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - expected) < 2e-2 * np.linalg.norm(expected)
