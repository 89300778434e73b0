"""Files convert with a calibration where MXNet is not installed: only calibrating runs the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mxamp.calibration import Calibration, DataDescription, EntryName, EntryStatistics, ModelRecord
from mxamp.calibration.layers import layers_of
from mxamp.calibration.moments import MomentsMeter
from mxamp.convert import convert_model
from mxamp.model import Model, load
from tests.calibration.models import deep_model


def made_up(model: Model, largest: float = 1.0) -> Calibration:
    """Return a calibration of a model that was never run: moments of random columns."""
    params = {**model.arg_params, **model.aux_params}
    layers = {}
    for layer in layers_of(model.graph, {name: value.shape for name, value in params.items()}):
        meter = MomentsMeter(layer.groups, (layer.columns,))
        random = np.random.default_rng(len(layers))
        columns = random.standard_normal((layer.groups, 300, layer.columns)) + 1.0
        meter.add(columns.astype(np.float32))
        layers[layer.name] = meter.moments()
    entries = {
        EntryName(node.name): EntryStatistics(9, 0, -largest, largest, 0.0, 1.0, 0.1, 7)
        for node in model.graph.nodes
        if not node.is_variable
    }
    described = DataDescription("made up", 300, "0" * 64, {"data": (1, 4, 12, 12)})
    return Calibration(ModelRecord.of(model.graph, params), (described,), entries, layers)


def test_files_are_compensated(tmp_path: Path) -> None:
    model = deep_model(channels=16)
    model.save(tmp_path / "net")
    made_up(model).save(tmp_path / "calibration")
    calibration = Calibration.load(tmp_path / "calibration")
    loaded = load(tmp_path / "net")
    arrays = (loaded.graph, loaded.arg_params, loaded.aux_params)
    options: dict[str, Any] = {"calibration": calibration, "compensate": "full", "low_precision": "required"}
    found = convert_model(*arrays, "bfloat16", **options)
    found.save(tmp_path / "out")
    assert found.report is not None
    assert found.report.compensation is not None
    assert {layer.nodes[0] for layer in found.report.compensation.layers} >= {
        "conv0",
        "conv1",
        "conv2",
        "fc0",
    }
    assert all(layer.chosen < layer.nearest for layer in found.report.compensation.layers)


def test_ranges_decide() -> None:
    model = deep_model(channels=16)
    arrays = (model.graph, model.arg_params, model.aux_params)
    found = convert_model(*arrays, "float16", calibration=made_up(model, 60000.0))
    assert found.report is not None
    assert "rescale" in {change.step for change in found.report.preparations}
    last = found.report.node("dot0")
    assert last.compute == "float32"
    assert "reaches 60000 in sample 7" in last.reason
