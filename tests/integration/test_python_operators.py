"""An operator written in Python, in a graph that MXNet runs: before and after it is registered with mxamp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="it runs mx.operator.CustomOp")

import mxamp

BFLOAT16 = np.dtype([("bfloat16", np.uint16)])
SEEN: list[Any] = []
"""The dtypes in which the operator was called."""


class Swish(mx.operator.CustomOp):
    """x * sigmoid(x), computed in FP32 and handed on in the dtype of x."""

    def forward(self, is_train, req, in_data, out_data, aux):
        data = in_data[0]
        SEEN.append(data.dtype)
        wide = mx.nd.amp_cast(data, dtype="float32")
        self.assign(out_data[0], req[0], mx.nd.amp_cast(wide * mx.nd.sigmoid(wide), dtype=data.dtype))


@mx.operator.register("mxamp_test_swish")
class SwishProp(mx.operator.CustomOpProp):
    def __init__(self):
        super().__init__(need_top_grad=False)

    def infer_shape(self, in_shape):
        return in_shape, in_shape, []

    def create_operator(self, ctx, shapes, dtypes):
        return Swish()


@pytest.fixture
def model():
    """Two dense layers with a swish between them."""
    data = mx.sym.var("data")
    hidden = mx.sym.FullyConnected(data, num_hidden=8, name="before")
    active = mx.sym.Custom(hidden, op_type="mxamp_test_swish", name="swish")
    sym = mx.sym.FullyConnected(active, num_hidden=4, name="after")
    shapes, _, _ = sym.infer_shape(data=(2, 6))
    rng = np.random.default_rng(0)
    args = {
        name: mx.nd.array(rng.uniform(-0.5, 0.5, shape))
        for name, shape in zip(sym.list_arguments(), shapes)
        if name != "data"
    }
    return sym, args


def run(sym, args):
    values = np.linspace(-1, 1, 12).reshape(2, 6)
    SEEN.clear()
    return sym.bind(mx.cpu(), {**args, "data": mx.nd.array(values)}).forward()[0].asnumpy()


def test_unregistered_operator_computes_in_float32_and_what_it_returns_is_cast(model) -> None:
    sym, args = model
    with pytest.warns(mxamp.MxampWarning, match="mxamp_test_swish"):
        converted = mxamp.convert_model(sym, args, {}, "bfloat16")
    node = converted.report.node("swish")
    assert (node.color, node.compute, node.outputs) == ("red", "float32", (None,))
    assert converted.report.node("after").compute == "bfloat16"
    assert {(cast.entry, cast.to_dtype) for cast in converted.report.casts} >= {
        ("before", "float32"),
        ("swish", "bfloat16"),
    }
    result = run(converted.sym, converted.args)
    assert set(SEEN) == {np.float32}
    np.testing.assert_allclose(result, run(sym, args), atol=2e-2)


def test_registered_operator_computes_low_and_the_report_gives_its_reason(model) -> None:
    sym, args = model
    reason = "no steeper than 1.1 times its input; computes in float32, rounds once"
    with mxamp.register_operator(
        "Custom",
        op_type="mxamp_test_swish",
        inputs=["data"],
        colors={"bfloat16": ("gray", reason)},
        support={"cpu-bf16": "works"},
        accumulation="float32",
    ):
        converted = mxamp.convert_model(sym, args, {}, "bfloat16")
    node = converted.report.node("swish")
    assert (node.compute, node.accumulation, node.outputs) == ("bfloat16", "float32", ("bfloat16",))
    assert node.reason.startswith(reason)
    assert not {cast.entry for cast in converted.report.casts} & {"before", "swish"}
    low = run(converted.sym, converted.args)  # MXNet needs no registration with mxamp
    assert set(SEEN) == {BFLOAT16}
    np.testing.assert_allclose(low, run(sym, args), atol=2e-2)
