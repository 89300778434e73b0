"""Pooling of channels last, for which MXNet 1.9.1 has a kernel in float32 alone on CPUs.

In bfloat16 it raises "Unknown type enum 12".
"""

from __future__ import annotations

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

import mxamp
from mxamp.model import Model
from mxamp.runtime.executor import run_outputs


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(
    ("layout", "compute"), [("NHWC", "float32"), ("NCHW", "bfloat16"), (None, "bfloat16")]
)
def test_it_stays_float32_beside_low_layers(kind: str, layout: str | None, compute: str) -> None:
    rows = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, flatten=False, name="first")
    image = mx.sym.Reshape(rows, shape=(0, 6, 5, -1))
    more = {} if layout is None else {"layout": layout}
    pooled = mx.sym.Pooling(image, kernel=(2, 2), stride=(2, 2), pool_type=kind, name="pool", **more)
    sym = mx.sym.FullyConnected(pooled, num_hidden=3, name="last")
    shapes, _, _ = sym.infer_shape(data=(2, 30, 16))
    random = np.random.default_rng(0)
    args = {
        name: random.normal(0, 0.3, size).astype(np.float32)
        for name, size in zip(sym.list_arguments(), shapes)
        if name != "data"
    }
    low = mxamp.convert_model(sym, args, {}, "bfloat16", target="cpu-bf16", low_precision="required")
    assert str(low.report.node("pool").compute) == compute
    data = {"data": random.normal(0, 1, (2, 30, 16)).astype(np.float32)}
    (expected,), (found,) = run_outputs(Model.of(sym, args, {}), data), run_outputs(low, data)
    assert np.linalg.norm(found - expected) < 2e-2 * np.linalg.norm(expected)
