"""What the pages of the tests are about: a small model, and how far it is from float32."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import mxamp
from mxamp.compare.fidelity import Fidelity, LayerFidelity, OutputFidelity
from mxamp.compare.latency import Latency
from mxamp.compare.metrics import distance
from mxamp.evaluation import Evaluation, MetricComparison
from mxamp.model import Model
from mxamp.report.curve import CurvePointReport, CurveReport
from mxamp.report.model import Report
from tests.building import Net, parameters


def model(name: str = "conv0") -> Model:
    net = Net()
    x = net.conv(net.var("data"), name)
    graph = net.graph(net.op("softmax", x, name="softmax0"))
    own = Model(graph, parameters(net.params), {})
    return mxamp.convert_model(own.graph, own.arg_params, own.aux_params, "bfloat16")


def fidelity() -> Fidelity:
    near = distance(np.ones(8), np.full(8, 1.01))
    far = distance(np.ones(8), np.full(8, 1.25))
    return Fidelity(
        outputs=(OutputFidelity("softmax0_output", (8, 10), near, 0.875, None, 0.009, 0.011, 0.53, 0.98),),
        layers=(
            LayerFidelity("conv0", "Convolution", "conv0", "bfloat16", (8, 4), near, 1.0),
            LayerFidelity("softmax0", "softmax", "softmax0", "float32", (8, 4), far, 25.0),
        ),
        unmatched=(),
        samples=8,
        batch_size=8,
        layer_samples=8,
        ctx="cpu(0)",
        low_dtype="bfloat16",
        threshold=0.0625,
        fusion=True,
        latency=Latency(10.0, 5.0, 2.0, 1.8, 2.2, 1.95, 2.05, 40, 8, "a processor, 1 thread"),
    )


def evaluation(low: float = -0.03, high: float = 0.01) -> Evaluation:
    top_1 = MetricComparison("top-1", 500, 0.75, (0.71, 0.79), 0.74, -0.01, (low, high), 9, 4, 0.27)
    latency = Latency(10.0, 4.0, 2.5, 2.2, 2.8, 2.4, 2.6, 40, 16, "another processor, 1 thread")
    return Evaluation((top_1,), 500, latency, ("a note",))


def tuned(report: Report, error: float = 0.0) -> Report:
    points = (
        CurvePointReport(0, 2.0, 0.02, (0.018, 0.022), -0.01, (-0.02, 0.0), is_this=True),
        CurvePointReport(1, 1.5, 0.01, (0.009, 0.011), 0.0, (-0.01, 0.01), is_today=True),
        CurvePointReport(2, 1.0, error, None, 0.0, (0.0, 0.0)),
    )
    goal = "the fastest with an error of at most 0.03"
    return replace(report, curve=CurveReport(points, goal, True, 50, "executed", False, "top-1"))
