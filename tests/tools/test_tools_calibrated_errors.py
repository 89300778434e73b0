"""The tables of calibrated errors: a detector's error is measured of the tensors that are priced."""

from __future__ import annotations

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")
pytest.importorskip("cv2", reason="photographs are resized")
pytest.importorskip("sklearn", reason="photographs come with it")

from mxamp.calibration.pricing import price_roundings
from mxamp.calibration.record import EntryName
from mxamp.conversion.emulation import emulate_model
from mxamp.model import Model
from mxamp.passes import Emulation
from mxamp.profile.choices import these
from mxamp.runtime.executor import run_outputs
from mxamp.tuning.curve import explore
from tests.calibration.models import small_model
from tools.benchmark_calibrated_errors import relative_error, without_rankings


def detector() -> Model:
    """Return class, score and box of 16 candidates: boxes in pixels, and scores that are compared."""
    random = np.random.default_rng(0)
    x = mx.sym.Convolution(mx.sym.var("data"), num_filter=16, kernel=(3, 3), pad=(1, 1), name="features")
    x = mx.sym.Activation(x, act_type="relu", name="relu")

    def head(outputs: int, name: str) -> object:
        y = mx.sym.Convolution(x, num_filter=outputs, kernel=(1, 1), name=name)
        return mx.sym.Reshape(mx.sym.transpose(y, axes=(0, 2, 3, 1)), shape=(0, -1, outputs))

    score = mx.sym.exp(3 * head(1, "score"), name="probability")
    kept = mx.sym.where(score > 0.01, mx.sym.zeros_like(score), -mx.sym.ones_like(score), name="class")
    boxes = head(4, "box") * 300
    ranked = mx.sym.contrib.box_nms(mx.sym.concat(kept, score, boxes, dim=-1, name="candidates"), id_index=0)
    sym = mx.sym.identity(ranked, name="detections")
    shapes, _, _ = sym.infer_shape(data=(1, 3, 4, 4))
    args = {
        name: mx.nd.array(random.normal(size=shape) / np.sqrt(np.prod(shape[1:])))
        for name, shape in zip(sym.list_arguments(), shapes)
        if name != "data"
    }
    return Model.of(sym, args, {})


def test_the_error_of_a_detector_is_that_of_what_is_priced() -> None:
    whole = detector()
    model = without_rankings(whole)
    data = {"data": np.random.default_rng(1).normal(size=(8, 3, 4, 4)).astype(np.float32)}
    prices = price_roundings(whole, data, draws=20)
    graph = model.graph
    assert tuple(EntryName.of(graph, head) for head in graph.heads) == prices.heads
    assert {head.node for head in prices.heads} == {"candidates", "probability"}
    curve = explore(model, prices, {"data": (1, 3, 4, 4)}, target="cpu-bf16")
    point = curve.point(these(curve.problem.free)(curve.problem, set()))  # it is too small to pay
    emulated = emulate_model(curve.convert(point), curve.options.target, Emulation())
    expected = run_outputs(model, data, fusion=False)
    error = relative_error(run_outputs(emulated, data), expected)
    assert 1 / 1.5 < curve.error(point) / error < 1.5
    candidates = [head.node for head in prices.heads].index("candidates")
    boxes = relative_error(run_outputs(emulated, data)[candidates:][:1], expected[candidates:][:1])
    assert boxes < error / 1.5  # in pixels, so that scores do not show beside them


def test_what_ranks_nothing_is_measured_at_its_outputs() -> None:
    model = small_model()
    assert without_rankings(model) is model
