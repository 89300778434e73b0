"""A network of the zoo whose values reach the end of float16's range is scaled into it, all but its end."""

from __future__ import annotations

import pytest

mx = pytest.importorskip("mxnet", reason="converts and runs models of the zoo")
pytest.importorskip("gluoncv", reason="builds models of the zoo")
pytest.importorskip("sklearn", reason="photographs come with it")

import mxamp
from mxamp.runtime.zoo import load_zoo
from tools.benchmark_calibration import cuts

pytestmark = [pytest.mark.zoo, pytest.mark.slow]


def test_residual_attention_is_scaled_into_float16() -> None:
    zoo = load_zoo("residualattentionnet452", pretrained=False)
    model = zoo.model
    # Ranges are all that is asked for: one column of a sample will do for the moments, and prices of so many
    # layers take more than 20 GB for a sample.
    calibration = mxamp.calibrate(
        model, cuts("china.jpg", 2, (224, 224), seed=0), positions=1, memory=1 << 20, prices=False
    )
    largest = max(found.largest for found in calibration.entries.values())
    assert largest * 2.0 > 65504.0  # random weights; with the headroom that is beyond
    arrays = (model.graph, model.arg_params, model.aux_params)
    plain = mxamp.convert_model(*arrays, "float16")
    scaled = mxamp.convert_model(*arrays, "float16", calibration=calibration)
    assert plain.report is not None
    assert scaled.report is not None
    assert {change.step for change in scaled.report.preparations} >= {"rescale"}
    low = {node.name for node in plain.report.nodes if node.compute == "float16"}
    kept = [node for node in scaled.report.nodes if node.name in low and node.compute != "float16"]
    assert len(kept) <= 8  # of 3831: behind the last layer there is none to take up a factor
