"""Running a model leaves the caller's arrays usable, down to their memory layout."""

from __future__ import annotations

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="binds and runs a model")

from mxamp.model import Model
from mxamp.runtime.executor import BoundModel
from mxamp.runtime.parameter import MXNET_BFLOAT16


def test_stock_cast_of_a_grouped_weight_works_after_a_run() -> None:
    """OneDNN keeps a bound weight in an order of its own, which MXNet's amp_cast cannot read."""
    data = mx.sym.var("data")
    sym = mx.sym.Convolution(data, num_filter=32, kernel=(3, 3), num_group=32, no_bias=True, name="conv")
    weight = mx.nd.array(np.random.default_rng(0).normal(0.0, 1.0, (32, 1, 3, 3)))
    expected = weight.asnumpy().copy()
    model = Model.of(sym, {"conv_weight": weight}, {})
    bound = BoundModel(model, fusion=False)
    bound.run({"data": np.ones((1, 32, 28, 28), np.float32)})
    for _ in range(3):  # the first pass does not reorder yet
        bound.forward()
    low = mx.nd.amp_cast(weight, dtype=MXNET_BFLOAT16)
    mx.nd.waitall()
    assert low.shape == weight.shape
    np.testing.assert_array_equal(weight.asnumpy(), expected)
