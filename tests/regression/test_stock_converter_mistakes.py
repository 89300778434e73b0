"""What MXNet 1.9.1's own converter (``mx.contrib.amp``) gets wrong, and mxamp does not.

Each test converts one small graph with mxamp and checks the result, by running it wherever a CPU can
(bfloat16). Lines below the comment "stock:" assert what MXNet's converter does with the same graph, so that
the difference is on record; should MXNet ever be repaired, they say so by failing.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

import mxamp
from mxamp.dtypes import DType
from mxamp.errors import UnknownNameError
from tests.regression.stock import (
    DATA,
    assert_same_model,
    conv,
    converted,
    dense,
    forward,
    operators,
    stock_model,
    stock_symbol,
    weights,
)

IMAGES = {"data": DATA}
ROWS = {"data": DATA[:, :, 0, 0].copy()}
LOW = ["float16", "bfloat16"]
INPUT = mx.sym.var("data")


# ---------------------------------------------------------------------- what is cast, and where


@pytest.mark.parametrize("first", ["direct", "pooled"])
def test_order_of_visits_does_not_matter_for_an_operator_on_data_that_is_cast_elsewhere(first: str) -> None:
    """``conv(data)`` beside ``conv(pool(data))``: what the pooling hands on depends on no order."""
    direct = conv(INPUT, "direct")
    pooled = conv(mx.sym.Pooling(INPUT, kernel=(1, 1), pool_type="max", name="pool"), "pooled")
    sym = mx.sym.Group([direct, pooled] if first == "direct" else [pooled, direct])
    model = converted(sym, IMAGES)
    assert model.report is not None
    assert model.report.node("direct").compute == model.report.node("pooled").compute == "bfloat16"
    # stock: the pooling's output is taken to be low where the other branch was visited first.
    args, auxs = weights(sym, IMAGES)
    if first == "direct":
        with pytest.raises(mx.MXNetError, match="uniform"):
            forward(*stock_model(sym, args, auxs, "bfloat16", cast_optional_params=False), IMAGES)
    else:
        forward(*stock_model(sym, args, auxs, "bfloat16", cast_optional_params=False), IMAGES)


def test_parameter_read_low_and_in_fp32_is_stored_in_both_dtypes() -> None:
    """A weight that two layers share, one of them excluded."""
    weight = mx.sym.var("weight")
    sym = mx.sym.Group([dense(INPUT, "low", weight=weight), dense(INPUT, "kept", weight=weight)])
    model = converted(sym, ROWS, exclude=["kept"], low_precision="required")
    assert {name: str(value.dtype) for name, value in model.arg_params.items()} == {
        "weight": "float32",
        "weight_bfloat16": "bfloat16",
    }
    # stock: the two readers clash.
    with pytest.raises(mx.MXNetError, match="kept"):
        stock_model(sym, *weights(sym, ROWS), "bfloat16", excluded_sym_names=["kept"])


@pytest.mark.parametrize("dtype", LOW)
def test_product_of_a_low_value_and_a_parameter_stays_low(dtype: str) -> None:
    """``broadcast_mul(low, parameter)``: the parameter is cast when stored; apache/mxnet 20188."""
    scaled = mx.sym.broadcast_mul(
        conv(INPUT, "before"), mx.sym.var("scale", shape=(1, 4, 1, 1)), name="scaled"
    )
    sym = conv(scaled, "after")
    args, auxs = weights(sym, IMAGES)
    # On the CPU the multiplication stays FP32 on purpose: it is slow and biased there.
    target = None if dtype == "float16" else "cpu-bf16"
    model = mxamp.convert_model(sym, args, auxs, dtype, target=target)
    assert model.report is not None
    if dtype == "float16":
        assert model.report.node("scaled").compute == "float16"
        assert model.arg_params["scale"].dtype is DType.FLOAT16
        assert len(model.report.casts) == 2  # data down, the output up
    else:
        assert_same_model(model, sym, args, auxs, IMAGES)
        assert model.arg_params["scale"].dtype is DType.FLOAT32
    # stock: the product is FP32, and is cast again for the layer that reads it.
    (cast,) = [node for node in operators(stock_symbol(sym, dtype)) if node.reads == ("scaled",)]
    assert (cast.op, cast.attrs["dtype"]) == ("amp_cast", dtype)


@pytest.mark.parametrize("dtype", LOW)
def test_no_two_nodes_that_are_put_in_share_a_name(dtype: str) -> None:
    """Two additions whose first operand is the same: their casts must be told apart."""
    trunk = conv(INPUT, "trunk")
    sums = [
        mx.sym.broadcast_add(trunk, mx.sym.var(f"shift{n}", shape=(1, 4, 1, 1)), name=f"sum{n}")
        for n in range(2)
    ]
    sym = mx.sym.Group(sums)
    model = mxamp.convert_model(sym, *weights(sym, IMAGES), dtype)
    names = [node.name for node in operators(model.sym)]
    assert len(names) == len(set(names))
    # stock: two amp_multicasts with one name.
    names = [node.name for node in operators(stock_symbol(sym, dtype))]
    assert names.count("trunk_output_amp_multicast") == 2


def test_weights_beyond_the_range_keep_their_layer_fp32() -> None:
    """Values beyond 65504 are no infinities after conversion to float16."""
    sym = dense(INPUT, "layer")
    args = {"layer_weight": mx.nd.full((4, 4), 1e6)}
    model = mxamp.convert_model(sym, args, {}, "float16")
    assert np.array_equal(model.args["layer_weight"].asnumpy(), np.full((4, 4), 1e6))
    assert model.report is not None
    assert "65504" in model.report.node("layer").reason
    # stock: infinities.
    assert np.isinf(stock_model(sym, args, {}, "float16")[1]["layer_weight"].asnumpy()).all()


def test_bodies_of_loops_are_converted() -> None:
    """The layer inside a ``foreach`` computes low, and what the loop returns keeps its dtype."""

    def body(step: Any, states: Any) -> Any:
        out = dense(step, "inside", weight=mx.sym.var("weight"))
        return out, [states[0] + out]

    outputs, states = mx.sym.contrib.foreach(body, INPUT, [mx.sym.var("start")])
    sym = mx.sym.Group([outputs, states[0]])
    sequence = {"data": DATA[:, :, :, 0].transpose(2, 0, 1).copy(), "start": np.zeros((2, 4), np.float32)}
    args = {"weight": mx.nd.array(np.random.default_rng(0).normal(0, 0.5, (4, 4)))}
    model = mxamp.convert_model(sym, args, {}, "bfloat16")
    assert_same_model(model, sym, args, {}, sequence)
    assert model.arg_params["weight"].dtype is DType.BFLOAT16
    assert "amp_cast" in _bodies(model.sym)
    # stock: the body is left alone.
    assert "amp_cast" not in _bodies(stock_symbol(sym, "bfloat16"))


def _bodies(sym: Any) -> str:
    nodes = json.loads(sym.tojson(remove_amp_cast=False))["nodes"]
    return json.dumps([node.get("subgraphs") for node in nodes])


# ---------------------------------------------------------------------- what the caller sees


@pytest.mark.parametrize("dtype", LOW)
def test_outputs_keep_their_names(dtype: str) -> None:
    """A deployed client asks for outputs by name."""
    sym = mx.sym.Group([dense(INPUT, "scores"), mx.sym.exp(INPUT, name="other")])
    model = mxamp.convert_model(sym, *weights(sym, ROWS), dtype)
    assert model.sym.list_outputs() == sym.list_outputs() == ["scores_output", "other_output"]
    # stock: renamed.
    assert stock_symbol(sym, dtype).list_outputs()[0] == "scores_output_amp_cast_float32_output"


def test_unknown_excluded_names_are_an_error_that_suggests_the_nearest() -> None:
    """A misspelt exclusion must not pass for one that was obeyed."""
    sym = dense(INPUT, "scores")
    with pytest.raises(UnknownNameError, match=r"'score'.*Did you mean 'scores'"):
        mxamp.convert_model(sym, *weights(sym, ROWS), "float16", excluded_sym_names=["score"])
    # stock: ignored.
    stock_symbol(sym, "float16", excluded_sym_names=["score"])


def test_dicts_of_the_caller_stay_as_they_were() -> None:
    """The FP32 model can still be used after it was converted."""
    from mxnet.contrib import amp

    sym = dense(INPUT, "layer")
    args, auxs = weights(sym, ROWS)
    array = args["layer_weight"]
    mxamp.convert_model(sym, args, auxs, "float16")
    assert args == {"layer_weight": array}
    assert array.dtype == np.float32
    # stock: the caller's dict holds FP16 afterwards.
    amp.convert_model(sym, args, auxs, target_dtype="float16", cast_optional_params=True)
    assert args["layer_weight"].dtype == np.float16


def test_weights_are_cast_once_and_not_at_every_forward_pass() -> None:
    """The default leaves no cast of a weight in the graph."""
    sym = mx.sym.softmax(dense(conv(INPUT, "c"), "d"), name="p")
    model = converted(sym, IMAGES)
    cast = {node.reads[0] for node in operators(model.sym) if node.op == "amp_cast"}
    assert not cast & {"c_weight", "d_weight"}
    # stock: at its default setting every weight stays FP32 and is cast at run time.
    low = stock_model(sym, *weights(sym, IMAGES), "bfloat16", cast_optional_params=False)[0]
    assert {"c_weight", "d_weight"} <= {node.reads[0] for node in operators(low) if node.op == "amp_cast"}


# ---------------------------------------------------------------------- operators that must agree on a dtype


def _yolo_head() -> Any:
    """YOLOv3: features that were upsampled beside those of an earlier layer."""
    features = conv(INPUT, "coarse")
    upsampled = mx.sym.repeat(features, axis=2, repeats=1)
    return conv(mx.sym.concat(upsampled, conv(INPUT, "fine"), dim=1, name="joined"), "head")


def _deeplab_head() -> Any:
    """DeepLab, PSPNet, ICNet: a pooled branch, resized, beside a convolution."""
    trunk = conv(INPUT, "trunk")
    pooled = conv(mx.sym.contrib.AdaptiveAvgPooling2D(trunk, output_size=1), "pooled")
    resized = mx.sym.contrib.BilinearResize2D(pooled, height=6, width=6)
    branch = mx.sym.Activation(trunk, act_type="relu")
    return conv(mx.sym.concat(branch, resized, dim=1, name="joined"), "head")


def _shuffle_unit() -> Any:
    """ShuffleNet-v2: half of the channels pass through, half go through a convolution."""
    trunk = mx.sym.Activation(conv(INPUT, "trunk"), act_type="relu")
    left = mx.sym.slice_axis(trunk, axis=1, begin=0, end=2)
    right = mx.sym.slice_axis(trunk, axis=1, begin=2, end=4)
    right = mx.sym.Activation(conv(right, "right", filters=2), act_type="relu")
    joined = mx.sym.reshape(mx.sym.concat(left, right, dim=1, name="joined"), shape=(0, -4, 2, -1, -2))
    return conv(mx.sym.reshape(mx.sym.swapaxes(joined, dim1=1, dim2=2), shape=(0, -3, -2)), "head")


def _skip_connection() -> Any:
    """Monodepth2, FastSCNN: the network's input beside its features."""
    return conv(mx.sym.concat(INPUT, conv(INPUT, "features"), dim=1, name="joined"), "head")


@pytest.mark.parametrize("head", [_yolo_head, _deeplab_head, _shuffle_unit, _skip_connection])
def test_concat_gets_one_dtype(head: Any) -> None:
    """apache/mxnet users: "Non-uniform data type in Concat"."""
    sym = head()
    model = converted(sym, IMAGES, low_precision="required")  # nothing is gained by it on so small an image
    assert model.report is not None
    assert model.report.node("head").compute == "bfloat16"
    # stock: the concatenation reads FP32 and low precision.
    with pytest.raises(mx.MXNetError, match="Non-uniform data type in Concat"):
        forward(*stock_model(sym, *weights(sym, IMAGES), "bfloat16"), IMAGES)


def test_modulated_deformable_convolution_gets_one_dtype() -> None:
    """DCNv2 reads features, offsets and a mask, which must agree, and offsets are coordinates."""
    offsets = conv(INPUT, "offsets", filters=27, kernel=(3, 3), pad=(1, 1))
    sym = mx.sym.contrib.ModulatedDeformableConvolution(
        conv(INPUT, "features"),
        mx.sym.slice_axis(offsets, axis=1, begin=0, end=18),
        mx.sym.sigmoid(mx.sym.slice_axis(offsets, axis=1, begin=18, end=27)),
        kernel=(3, 3),
        pad=(1, 1),
        num_filter=4,
        no_bias=True,
        name="dcn",
    )
    model = converted(sym, IMAGES)
    assert model.report is not None
    assert model.report.node("dcn").compute == "float32"
    # stock: a clash.
    with pytest.raises(mx.MXNetError, match="dcn"):
        forward(*stock_model(sym, *weights(sym, IMAGES), "bfloat16"), IMAGES)


@pytest.mark.parametrize("dtype", LOW)
def test_boxes_decode_in_fp32(dtype: str) -> None:
    """``_contrib_box_decode``, in no list of MXNet's: SSD and R-CNN as their files hold them."""
    places = mx.sym.transpose(conv(INPUT, "places"), axes=(0, 2, 3, 1))
    boxes = mx.sym.reshape(places, shape=(0, -1, 4))
    anchors = mx.sym.var("anchors", shape=(1, 36, 4))
    sym = mx.sym.contrib.box_decode(boxes, anchors, format="corner", name="decode")
    args, auxs = weights(sym, IMAGES)
    model = mxamp.convert_model(sym, args, auxs, dtype)
    assert model.report is not None
    assert model.report.node("decode").compute == "float32"
    low = "float16" if dtype == "float16" else np.dtype([("bfloat16", np.uint16)])
    _, (decoded,), _ = model.sym.infer_type(data="float32", places_weight=low, anchors="float32")
    assert decoded == np.float32
    if dtype == "bfloat16":
        assert_same_model(model, sym, args, auxs, IMAGES)
    else:
        # stock: the boxes are low, the anchors FP32.
        with pytest.raises(mx.MXNetError, match="decode"):
            stock_symbol(sym, dtype).infer_type(data="float32")
