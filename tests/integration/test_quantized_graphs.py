"""Graphs that were quantized or fused before mxamp sees them: what is done is left alone, and they run."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="it quantizes with mx.contrib.quantization")

from mxnet.contrib import quantization

import mxamp
from mxamp.graph import parse_symbol, write_symbol

IMAGES = np.random.default_rng(0).random((8, 4, 6, 6), dtype=np.float32)


@pytest.fixture(scope="module")
def network():
    """Convolutions, a pooling and a sum; the layer called `free` is never quantized."""
    if not mx.runtime.Features().is_enabled("MKLDNN"):
        pytest.skip("this MXNet has no oneDNN, which quantizes")
    data = mx.sym.var("data")
    first = mx.sym.Convolution(data, kernel=(1, 1), num_filter=4, name="first")
    pooled = mx.sym.Pooling(mx.sym.Activation(first, act_type="relu"), kernel=(2, 2), name="pool")
    free = mx.sym.Convolution(pooled, kernel=(1, 1), num_filter=4, name="free")
    joined = mx.sym.Concat(mx.sym.elemwise_add(free, pooled, name="sum"), free, name="joined")
    sym = mx.sym.FullyConnected(joined, num_hidden=3, name="dense")
    shapes, _, _ = sym.infer_shape(data=(4, 4, 6, 6))
    rng = np.random.default_rng(1)
    args = {
        name: mx.nd.array(rng.uniform(-0.5, 0.5, shape))
        for name, shape in zip(sym.list_arguments(), shapes)
        if name != "data"
    }
    return sym, args


def quantized(network, quantize, **options):
    sym, args = network
    level = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        return quantize(
            sym,
            args,
            {},
            ctx=mx.cpu(),
            calib_mode="naive",
            calib_data=mx.io.NDArrayIter(IMAGES, None, batch_size=4),
            num_calib_examples=8,
            quantized_dtype="auto",
            data_names=["data"],
            label_names=None,
            **options,
        )
    finally:
        logging.disable(level)


def run(sym, args):
    return sym.bind(mx.cpu(), {**args, "data": mx.nd.array(IMAGES[:4])}).forward()[0].asnumpy()


def test_float_layers_between_quantized_ones_become_low_and_nothing_else_changes(network) -> None:
    sym, args, _ = quantized(network, quantization.quantize_model, excluded_sym_names=["free"])
    model = mxamp.convert_model(sym, args, {}, "bfloat16")
    assert not model.report.warnings
    low = [node.name for node in model.report.nodes if node.compute == "bfloat16"]
    assert low == ["free"]
    assert {cast.entry for cast in model.report.casts} == {"pool_dequantize", "free"}
    for node in model.report.nodes:
        if node.op.startswith("_contrib_quantized"):
            assert node.color == "red"
    kept = [name for name in args if not name.startswith("free")]
    assert all(model.args[name].dtype == args[name].dtype for name in kept)
    np.testing.assert_allclose(run(model.sym, model.args), run(sym, args), atol=5e-2)


def test_wholly_quantized_graph_converts_to_itself(network) -> None:
    sym, args, _ = quantized(network, quantization.quantize_model_mkldnn)
    model = mxamp.convert_model(sym, args, {}, "bfloat16")
    assert not model.report.casts
    assert write_symbol(model.graph) == write_symbol(parse_symbol(sym.tojson()))
    np.testing.assert_array_equal(run(model.sym, model.args), run(sym, args))


def test_a_fused_graph_is_taken_apart_and_converted_as_it_was_before(network) -> None:
    sym, args = network
    fused = sym.get_backend_symbol("MKLDNN")
    assert any(node["op"].startswith("_sg_mkldnn") for node in json.loads(fused.tojson())["nodes"])
    with pytest.warns(mxamp.MxampWarning, match="had been fused for oneDNN"):
        model = mxamp.convert_model(fused, args, {}, "bfloat16")
    plain = mxamp.convert_model(sym, args, {}, "bfloat16")
    assert [node.op for node in model.graph.nodes] == [node.op for node in plain.graph.nodes]
    assert len(model.report.casts) == len(plain.report.casts) > 0
    expected = run(fused, args)
    np.testing.assert_allclose(run(model.sym, model.args), expected, rtol=2e-2, atol=2e-2)
