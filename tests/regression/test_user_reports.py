"""What users of MXNet's converter and of its relatives in other frameworks have reported, as tests.

Docstrings name the report: a bare number is an issue of apache/mxnet. The graphs are the smallest that show
the trouble; they run in bfloat16, which a CPU can, and are checked by their dtypes in float16.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

import mxamp
from mxamp.dtypes import DType
from mxamp.errors import MxampWarning
from mxamp.graph import Graph, parse_symbol
from tests.regression.stock import (
    DATA,
    assert_same_model,
    conv,
    converted,
    dense,
    forward,
    operators,
    stock_symbol,
    weights,
)

IMAGES = {"data": DATA}
ROWS = {"data": DATA[:, :, 0, 0].copy()}
LOW = ["float16", "bfloat16"]
INPUT = mx.sym.var("data")
MXNET_BFLOAT16 = np.dtype([("bfloat16", np.uint16)])


@pytest.fixture(autouse=True)
def _names_start_at_zero() -> Iterator[None]:
    with mx.name.NameManager():
        yield


def compute(model: mxamp.Model) -> dict[str, str | None]:
    """Return what every node computes in."""
    assert model.report is not None
    return {node.name: node.compute for node in model.report.nodes}


def casts(model: mxamp.Model) -> list[tuple[str, str]]:
    """Return the entry and the dtype of every cast that was put in."""
    assert model.report is not None
    return [(cast.entry, cast.to_dtype) for cast in model.report.casts]


def network() -> Any:
    """Return a small classifier."""
    layer = mx.sym.BatchNorm(conv(INPUT, "layer"), name="norm", fix_gamma=False)
    return mx.sym.softmax(dense(mx.sym.Activation(layer, act_type="relu", name="relu"), "scores"), name="p")


# ---------------------------------------------------------------------- what is saved


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_and_pickles_of_a_model_keep_its_casts(duplicate: Any) -> None:
    """18843: casts are lost where a Symbol is copied through its JSON."""
    sym = network()
    args, auxs = weights(sym, IMAGES)
    model = mxamp.convert_model(sym, args, auxs, "bfloat16")
    model.sym  # noqa: B018 - a model that was used holds MXNet's objects
    again = duplicate(model)
    assert again.symbol_json() == model.symbol_json()
    assert_same_model(again, sym, args, auxs, IMAGES)


def test_float16_parameters_load_into_gluon(tmp_path: Path) -> None:
    """11849, 13147, 13805: FP16 parameters are refused, or are FP32 afterwards."""
    sym = network()
    mxamp.convert_model(sym, *weights(sym, IMAGES), "float16", fold_batch_norm=False).save(tmp_path / "net")
    block = mx.gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
    )
    found = {name: np.dtype(value.dtype) for name, value in block.collect_params().items()}
    assert found == {
        "layer_weight": np.float16,
        "scores_weight": np.float16,
        **{f"norm_{part}": np.float32 for part in ("gamma", "beta", "moving_mean", "moving_var")},
    }


@pytest.mark.parametrize("dtype", LOW)
def test_synchronized_batch_norm_exports_with_fp32_statistics(dtype: str, tmp_path: Path) -> None:
    """13976: a block with SyncBatchNorm cannot be exported in FP16."""
    net = mx.gluon.nn.HybridSequential(prefix="sync_")
    with net.name_scope():
        net.add(mx.gluon.nn.Conv2D(4, 1, in_channels=4))
        net.add(mx.gluon.contrib.nn.SyncBatchNorm(in_channels=4, num_devices=1))
        net.add(mx.gluon.nn.Conv2D(4, 1, in_channels=4))
    net.initialize(mx.init.Normal(0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MxampWarning)  # float16 cannot run on this CPU
        mxamp.convert_block(net, dtype).export(str(tmp_path / "net"))
    low = np.float16 if dtype == "float16" else MXNET_BFLOAT16
    stored = mx.nd.load(str(tmp_path / "net-0000.params"))
    assert {name: np.dtype(value.dtype) for name, value in stored.items()} == {
        name: np.dtype(low if "conv" in name else np.float32) for name in stored
    }
    assert mx.gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
    )


@pytest.mark.parametrize("dtype", LOW)
def test_two_conversions_are_equal_to_the_byte(dtype: str, tmp_path: Path) -> None:
    """16030: with ``cast_optional_params`` the result depends on luck."""
    sym = network()
    for name in ("one", "two"):
        mxamp.convert_model(sym, *weights(sym, IMAGES), dtype).save(tmp_path / name)
    for suffix in ("-symbol.json", "-0000.params"):
        one, two = (tmp_path / f"{name}{suffix}" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_the_order_of_hashes_makes_no_difference(tmp_path: Path) -> None:
    """16030, between processes: sets of strings are walked in another order in each."""
    sym = mx.sym.Group([network(), dense(mx.sym.mean(conv(INPUT, "other"), axis=(2, 3)), "more")])
    args, auxs = weights(sym, IMAGES)
    mxamp.Model.of(sym, args, auxs).save(tmp_path / "net")
    script = (
        "import mxamp\n"
        "given = mxamp.load('net')\n"
        "model = mxamp.convert_model(given.graph, given.arg_params, given.aux_params, 'bfloat16')\n"
        "model.save('low')\n"
        "open('report.json', 'w').write(model.report.to_json())\n"
    )
    found = set()
    for seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": str(Path(mxamp.__file__).parents[1]),
        }
        subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, env=environment, timeout=300)
        written = ("low-symbol.json", "low-0000.params", "report.json")
        found.add(tuple((tmp_path / name).read_bytes() for name in written))
    assert len(found) == 1


# ---------------------------------------------------------------------- operators


@pytest.mark.parametrize("dtype", LOW)
def test_dtypes_that_are_known_are_cast_and_not_left_to_amp_multicast(dtype: str) -> None:
    """19631, 18896: "unknown type for MKLDNN: 2" and a CUDA crash, both in ``amp_multicast``."""
    shifted = mx.sym.broadcast_add(conv(INPUT, "c"), mx.sym.var("shift", shape=(1, 4, 1, 1)))
    sym = conv(mx.sym.concat(shifted, mx.sym.exp(INPUT), dim=1), "head")
    model = mxamp.convert_model(sym, *weights(sym, IMAGES), dtype)
    assert "amp_multicast" not in {node.op for node in operators(model.sym)}
    # stock: left to run time.
    assert "amp_multicast" in {node.op for node in operators(stock_symbol(sym, dtype))}


def test_fcos_heads_share_layers_and_scale_their_outputs() -> None:
    """18902: FCOS fails with a dtype mismatch; one head reads every level, each with a scale of its own."""
    weight = mx.sym.var("tower_weight")
    boxes = []
    for level in range(2):
        tower = mx.sym.Activation(conv(INPUT, f"tower{level}", weight=weight), act_type="relu")
        scale = mx.sym.var(f"scale{level}", shape=(1, 1, 1, 1))
        size = mx.sym.exp(mx.sym.broadcast_mul(tower, scale, name=f"scaled{level}")) * 2.0**level
        boxes.append(mx.sym.reshape(mx.sym.transpose(size, axes=(0, 2, 3, 1)), shape=(0, -1, 4)))
    model = converted(mx.sym.concat(*boxes, dim=1, name="boxes"), IMAGES)
    assert model.arg_params["tower_weight"].dtype is DType.BFLOAT16


def test_multibox_operators_read_fp32() -> None:
    """16669: ``MultiBoxPrior`` and ``MultiBoxDetection`` exist in FP32 alone."""
    anchors = mx.sym.contrib.MultiBoxPrior(conv(INPUT, "trunk"), sizes=(0.5,), ratios=(1,), name="prior")
    classes = mx.sym.reshape(conv(INPUT, "classes", filters=2), shape=(0, 2, -1))
    places = mx.sym.flatten(conv(INPUT, "places"))
    sym = mx.sym.contrib.MultiBoxDetection(
        mx.sym.softmax(classes, axis=1), places, anchors, nms_threshold=1.0, name="detected"
    )
    args, auxs = weights(sym, IMAGES)
    model = mxamp.convert_model(sym, args, auxs, "bfloat16")
    assert compute(model)["prior"] == compute(model)["detected"] == "float32"
    (found,), (expected,) = forward(*model, IMAGES), forward(sym, args, auxs, IMAGES)
    assert found.shape == expected.shape  # rows are ordered by scores that were rounded
    # stock: not known to MXNet's bfloat16 lists.
    with pytest.raises(mx.MXNetError, match="prior"):
        stock_symbol(sym, "bfloat16").infer_type(data="float32")


def test_gamma_of_an_ssd_normalization_is_broadcast_in_one_dtype() -> None:
    """17164: casting SSD fails at the scale after its L2 normalization."""
    normed = mx.sym.L2Normalization(conv(INPUT, "c"), mode="channel", name="normed")
    gamma = mx.sym.var("gamma", shape=(1, 4, 1, 1))
    converted(conv(mx.sym.broadcast_mul(normed, gamma, name="scaled"), "head"), IMAGES)


# ---------------------------------------------------------------------- integers


@pytest.mark.parametrize("kind", ["int32", "int64", "float32"])
def test_indices_are_never_cast(kind: str) -> None:
    """20753: the converter assumes that everything works on floats. 2049 is no number of either low dtype."""
    ids = mx.sym.var("ids", dtype=kind)
    rows = mx.sym.Embedding(ids, input_dim=4100, output_dim=4, name="rows")
    picked = mx.sym.take(mx.sym.var("table", shape=(4100, 4)), ids, name="picked")
    sym = dense(mx.sym.concat(rows, picked, dim=1), "layer")
    given = {"ids": np.array([2049, 4097], kind)}
    model = converted(sym, given)
    assert all(entry != "ids" for entry, _ in casts(model))


def test_integer_arithmetic_stays_integer() -> None:
    """20753, in the graph instead of at its inputs."""
    counts = mx.sym.Cast(INPUT * 4096.0, dtype="int32", name="counts")
    total = mx.sym.broadcast_add(mx.sym.sum(counts, axis=1, keepdims=True, name="total"), counts, name="sums")
    sym = mx.sym.Group([total, dense(mx.sym.Cast(total, dtype="float32") / 8192.0, "layer")])
    args, auxs = weights(sym, ROWS)
    model = mxamp.convert_model(sym, args, auxs, "bfloat16", low_precision="required")
    assert_same_model(model, sym, args, auxs, ROWS)
    assert np.array_equal(forward(*model, ROWS)[0], forward(sym, args, auxs, ROWS)[0])
    assert compute(model)["layer"] == "bfloat16"
    # stock: a layer that reads a sum of integers is fed integers.
    sym = dense(mx.sym.sum(counts, axis=1, keepdims=True), "layer")
    with pytest.raises(mx.MXNetError, match="layer"):
        stock_symbol(sym, "float16").infer_type(data="float32")


@pytest.mark.parametrize("dtype", LOW)
def test_counters_past_the_exact_integers_stay_fp32(dtype: str) -> None:
    """tvm#8644: the dtype of ``arange``. Positions up to 4000 are not all numbers of a low dtype."""
    counter = mx.sym.expand_dims(mx.sym.arange(start=0, stop=4000, name="counter"), axis=0)
    sym = mx.sym.broadcast_add(dense(INPUT, "layer", hidden=4000), counter, name="shifted")
    model = mxamp.convert_model(sym, *weights(sym, ROWS), dtype)
    assert compute(model)["shifted"] == "float32"
    assert all(not entry.startswith(("counter", "expand_dims")) for entry, _ in casts(model))


# ---------------------------------------------------------------------- values out of range

FLOAT32_MIN = float(np.finfo(np.float32).min)
MASK = np.array([[1, 1, 0, 0], [0, 0, 0, 0]], np.float32)
"""Keep two of four; and a row where nothing is kept, as in padding."""


def _scaled_mask(scores: Any) -> Any:
    return mx.sym.broadcast_add(scores, (1.0 - mx.sym.var("mask")) * FLOAT32_MIN, name="masked")


def _chosen_mask(scores: Any) -> Any:
    return mx.sym.where(
        mx.sym.var("mask"), scores, mx.sym.full((2, 4), FLOAT32_MIN, name="least"), name="masked"
    )


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("mask", [_scaled_mask, _chosen_mask])
@pytest.mark.parametrize("rewrite", [True, False], ids=["rewritten", "kept"])
def test_a_mask_of_the_least_float_does_not_become_minus_infinity(
    mask: Any, dtype: str, rewrite: bool
) -> None:
    """coremltools#2669: a row of minus infinities makes the softmax NaN, where FP32 gives a uniform row."""
    weighed = mx.sym.softmax(mask(dense(INPUT, "scores")), name="attention")
    sym = dense(weighed, "mixed")
    given = {**ROWS, "mask": MASK}
    args, auxs = weights(sym, given)
    model = mxamp.convert_model(sym, args, auxs, dtype, rewrite_masks=rewrite, low_precision="required")
    found = compute(model)
    assert found["scores"] == found["mixed"] == dtype
    # MXNet's bfloat16 has no fast kernel for it on CPUs.
    assert found["masked"] == ("float16" if rewrite and dtype == "float16" else "float32")
    if dtype == "bfloat16":
        assert_same_model(model, sym, args, auxs, given)


@pytest.mark.parametrize("dtype", LOW)
def test_a_stored_mask_of_the_least_float_does_not_become_minus_infinity(dtype: str) -> None:
    """coremltools#2669, where the mask is a parameter."""
    masked = mx.sym.broadcast_add(dense(INPUT, "scores"), mx.sym.var("mask", shape=(1, 4)), name="masked")
    sym = dense(mx.sym.relu(mx.sym.concat(masked, INPUT, dim=1)), "after")
    args, auxs = weights(sym, ROWS)
    args["mask"] = mx.nd.array([[0.0, 0.0, FLOAT32_MIN, FLOAT32_MIN]])
    model = mxamp.convert_model(sym, args, auxs, dtype, rewrite_masks=False)
    assert model.args["mask"].asnumpy().tolist() == args["mask"].asnumpy().tolist()
    assert compute(model)["masked"] == "float32"
    assert "masked" not in {entry for entry, _ in casts(model)}


def test_bounds_of_a_clip_that_no_value_reaches_make_no_difference_downstream() -> None:
    """A clip at the ends of FP32 hands on what it read; only a bound that becomes infinite keeps it FP32."""
    wide = mx.sym.clip(dense(INPUT, "before"), a_min=FLOAT32_MIN, a_max=-FLOAT32_MIN, name="wide")
    sym = dense(wide, "after")
    model = mxamp.convert_model(sym, *weights(sym, ROWS), "float16")
    assert compute(model)["after"] == "float16"


@pytest.mark.parametrize("dtype", LOW)
def test_an_epsilon_that_would_become_zero_is_added_in_fp32(dtype: str) -> None:
    """openvino#8676: 1e-12 is zero in float16, and a row of zeros divided by its length is NaN."""
    rows = dense(INPUT, "rows")
    length = mx.sym.sqrt(mx.sym.sum(mx.sym.square(rows), axis=1, keepdims=True)) + 1e-12
    sym = dense(mx.sym.broadcast_div(rows, length, name="unit"), "after")
    zeros = {"data": np.zeros((2, 4), np.float32)}
    args, auxs = weights(sym, zeros)
    model = mxamp.convert_model(sym, args, auxs, dtype)
    assert compute(model)["_plusscalar0"] == compute(model)["unit"] == "float32"
    if dtype == "bfloat16":
        assert_same_model(model, sym, args, auxs, zeros)


# ---------------------------------------------------------------------- casts: existing, many, colliding


def test_casts_of_the_original_are_kept_and_agree_with_those_put_in() -> None:
    """onnxconverter-common#320, #326, #328: casts that were there contradict those that were added."""
    there_and_back = mx.sym.Cast(mx.sym.Cast(dense(INPUT, "a"), dtype="float16"), dtype="float32")
    pinned = mx.sym.amp_cast(dense(there_and_back, "b"), dtype="float32", name="pinned")
    sym = mx.sym.Group([dense(pinned, "c"), mx.sym.exp(pinned, name="d")])
    model = converted(sym, ROWS, low_precision="required")
    kept = [node for node in operators(model.sym) if node.op == "Cast"]
    assert [node.attrs["dtype"] for node in kept] == ["float16", "float32"]
    assert compute(model)["c"] == "bfloat16"


@pytest.mark.parametrize("dtype", LOW)
def test_a_long_alternating_network_has_two_casts_a_block_and_none_for_its_weights(dtype: str) -> None:
    """onnxruntime#15490: thousands of casts and nothing gained. One down to a layer, one up from it."""
    blocks = 300
    value, names = INPUT, []
    for block in range(blocks):
        value = mx.sym.relu(dense(value, f"layer{block}"), name=f"relu{block}")
        value = mx.sym.exp(value, name=f"exp{block}")
        names.append(f"exp{block}")
    # So small layers would not be low for so many casts, where nobody orders it.
    model = mxamp.convert_model(value, *weights(value, ROWS), dtype, exclude=names, low_precision="required")
    assert compute(model)["layer7"] == dtype
    assert (
        len(casts(model)) == 2 * blocks
    )  # data and 299 exps down, 300 before an exp up, and none at the end


def _renamed(sym: Any, name: Any) -> Any:
    graph = json.loads(sym.tojson(remove_amp_cast=False))
    for node in graph["nodes"]:
        if node["op"] != "null":
            node["name"] = name(node["name"])
    return mx.sym.load_json(json.dumps(graph, ensure_ascii=False))


@pytest.mark.parametrize(
    "name",
    [
        lambda _: "",
        lambda _: "same",
        lambda _: "data",
        lambda _: "a_weight",
        lambda _: "data_amp_cast_bfloat16",
        lambda name: f"{name}_bfloat16" if name == "a" else "a",
        lambda name: name * 3000,
        lambda name: f"слой 1/{name} [0] * 'q' \"q\" \\ 層 😀",
        lambda name: f"/model.{name}/conv/Conv",
    ],
    ids=["empty", "same", "input", "parameter", "cast", "renamed output", "long", "unicode", "onnx"],
)
def test_node_names_may_be_anything(name: Any, tmp_path: Path) -> None:
    """onnxruntime#14827: casts of unnamed nodes collide."""
    layer = dense(INPUT, "a")
    sym = mx.sym.Group([layer, dense(mx.sym.exp(layer, name="b"), "c"), dense(layer, "d")])
    sym = _renamed(sym, name)
    model = converted(sym, ROWS)
    assert str(model.report)
    model.save(tmp_path / "net")
    assert_same_model(mxamp.load(tmp_path / "net"), sym, *weights(sym, ROWS), ROWS)


def test_parameter_names_may_be_anything(tmp_path: Path) -> None:
    """Names with blanks and of other alphabets, from the file to MXNet and back."""
    name = "вес 1/層 [0] * 'q' 😀" + "x" * 3000
    sym = dense(INPUT, "layer", weight=mx.sym.var(name))
    converted(sym, ROWS).save(tmp_path / "net")
    _, args, _ = mx.model.load_checkpoint(str(tmp_path / "net"), 0)
    assert list(args) == [name]
    assert args[name].dtype == MXNET_BFLOAT16


def test_an_excluded_name_may_hold_the_signs_of_a_pattern() -> None:
    """``conv[0]`` is the name of a node before it is a pattern that does not fit it."""
    sym = dense(dense(INPUT, "layer[0]"), "layer[1]")
    model = converted(sym, ROWS, exclude=["layer[0]"])
    assert compute(model) == {"layer[0]": "float32", "layer[1]": "bfloat16"}


# ---------------------------------------------------------------------- graphs of unusual shape


def _with_orphan(sym: Any) -> Graph:
    graph = json.loads(sym.tojson(remove_amp_cast=False))
    nodes = graph["nodes"]
    weight = len(nodes)
    nodes.append({"op": "null", "name": "orphan_weight", "inputs": []})
    attrs = {"num_hidden": "3", "no_bias": "True"}
    nodes.append(
        {"op": "FullyConnected", "name": "orphan", "attrs": attrs, "inputs": [[0, 0, 0], [weight, 0, 0]]}
    )
    graph["arg_nodes"].append(weight)
    graph["node_row_ptr"] = list(range(len(nodes) + 1))
    return parse_symbol(json.dumps(graph))


@pytest.mark.parametrize("stored", [True, False])
def test_nodes_that_no_output_needs_are_no_obstacle(stored: bool, tmp_path: Path) -> None:
    """onnxconverter-common#276. MXNet drops them when it loads the file, and needs no parameter of theirs."""
    sym = dense(INPUT, "layer")
    args, auxs = weights(sym, ROWS)
    extra = {"orphan_weight": mx.nd.ones((3, 4))} if stored else {}
    model = mxamp.convert_model(_with_orphan(sym), {**args, **extra}, auxs, "bfloat16")
    assert_same_model(model, sym, args, auxs, ROWS)
    model.save(tmp_path / "net")
    assert mx.model.load_checkpoint(str(tmp_path / "net"), 0)[0].list_arguments() == ["data", "layer_weight"]


@pytest.mark.parametrize("dtype", LOW)
def test_an_input_may_be_an_output(dtype: str) -> None:
    """ModelOpt#302, #1943, #2451: outputs are lost, or come in another dtype."""
    sym = mx.sym.Group([INPUT, dense(INPUT, "layer"), INPUT])
    model = mxamp.convert_model(sym, *weights(sym, ROWS), dtype)
    assert model.sym.list_outputs() == ["data", "layer_output", "data"]
    assert model.report is not None
    assert set(model.report.outputs.values()) == {"float32"}
    converted(sym, ROWS)


def test_a_parameter_may_be_an_output_beside_the_layer_that_reads_it() -> None:
    """ModelOpt#2451."""
    weight = mx.sym.var("weight", shape=(4, 4))
    sym = mx.sym.Group([weight, dense(INPUT, "layer", weight=weight)])
    args, auxs = weights(sym, ROWS)
    model = mxamp.convert_model(sym, args, auxs, "bfloat16")
    assert np.array_equal(forward(*model, ROWS)[0], args["weight"].asnumpy())
    assert_same_model(model, sym, args, auxs, ROWS)


@pytest.mark.parametrize("sym", [INPUT, mx.sym.Group([INPUT, mx.sym.var("more")])], ids=["one", "two"])
def test_a_graph_of_variables_alone_is_returned_as_it_is(sym: Any, tmp_path: Path) -> None:
    """ModelOpt#1626: empty inputs and outputs."""
    model = mxamp.convert_model(sym, {}, {}, "float16")
    assert model.sym.list_outputs() == sym.list_outputs()
    assert casts(model) == []
    model.save(tmp_path / "net")
    assert mxamp.load(tmp_path / "net").graph == model.graph


def test_a_network_without_parameters_converts(tmp_path: Path) -> None:
    """Its parameter file holds nothing, and MXNet reads it."""
    sym = mx.sym.dot(INPUT, INPUT, transpose_b=True, name="product")
    model = converted(sym, ROWS)
    model.save(tmp_path / "net")
    assert mx.model.load_checkpoint(str(tmp_path / "net"), 0)[1:] == ({}, {})


def test_parameters_of_size_zero_and_one_are_kept(tmp_path: Path) -> None:
    """An array without elements has no largest magnitude."""
    sym = mx.sym.broadcast_mul(dense(INPUT, "layer"), mx.sym.var("scale", shape=(1,)), name="scaled")
    args, auxs = weights(sym, ROWS)
    args["unused"] = mx.nd.array(np.zeros((0, 3), np.float32))
    model = mxamp.convert_model(sym, args, auxs, "bfloat16")
    assert_same_model(model, sym, args, auxs, ROWS)
    model.save(tmp_path / "net")
    assert mxamp.load(tmp_path / "net").arg_params["unused"].shape == (0, 3)


def test_one_array_under_several_names_is_read_and_not_changed() -> None:
    """Scale, offset, mean and variance of a BatchNorm may be one array of ones, and two layers one weight."""
    sym = mx.sym.BatchNorm(conv(conv(INPUT, "a"), "b"), name="norm", fix_gamma=False)
    ones, weight = mx.nd.ones(4), mx.nd.array(np.random.default_rng(1).normal(0, 0.5, (4, 4, 1, 1)))
    args = {"a_weight": weight, "b_weight": weight, "norm_gamma": ones, "norm_beta": ones}
    auxs = {"norm_moving_mean": ones, "norm_moving_var": ones}
    before = weight.asnumpy()
    assert_same_model(mxamp.convert_model(sym, args, auxs, "bfloat16"), sym, args, auxs, IMAGES)
    assert np.array_equal(ones.asnumpy(), np.ones(4))
    assert np.array_equal(weight.asnumpy(), before)


# ---------------------------------------------------------------------- what is not FP32 to begin with


def test_float64_pieces_stay_float64() -> None:
    """A part that somebody wanted in double precision keeps it; the rest converts."""
    double = dense(mx.sym.Cast(INPUT, dtype="float64"), "double")
    sym = dense(mx.sym.Cast(double, dtype="float32"), "single")
    args, auxs = weights(sym, ROWS)
    args["double_weight"] = args["double_weight"].astype("float64")
    model = mxamp.convert_model(sym, args, auxs, "bfloat16")
    assert_same_model(model, sym, args, auxs, ROWS)
    assert model.arg_params["double_weight"].dtype is DType.FLOAT64
    assert compute(model)["single"] == "bfloat16"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of SciPy, by MXNet
def test_an_int8_network_passes_through_and_the_fp32_rest_converts() -> None:
    """Quantized operators are known and left alone: nothing to warn of, and no cast between them."""
    quantized = mx.sym.contrib.quantize_v2(
        INPUT, out_type="int8", min_calib_range=-1.0, max_calib_range=1.0, name="quantized"
    )
    flat = mx.sym.contrib.quantized_flatten(*quantized, name="flat")
    sym = dense(mx.sym.contrib.dequantize(*flat, name="dequantized"), "layer")
    with warnings.catch_warnings():
        warnings.simplefilter("error", MxampWarning)
        model = converted(sym, ROWS)
    assert compute(model)["layer"] == "bfloat16"
    assert [cast.entry for cast in model.report.casts] == ["dequantized", "layer"]


def _half_block() -> Any:
    net = mx.gluon.nn.HybridSequential(prefix="half_")
    with net.name_scope():
        net.add(mx.gluon.nn.Conv2D(4, 1, in_channels=4), mx.gluon.nn.BatchNorm(in_channels=4))
        net.add(mx.gluon.nn.Dense(3, in_units=144))
    net.initialize()
    net.cast("float16")
    return net


@pytest.mark.parametrize("dtype", LOW)
def test_a_float16_block_is_left_as_it_is_and_the_report_says_so(dtype: str) -> None:
    """What ``net.cast('float16')`` made computes low already, and is not mixed with bfloat16."""
    net = _half_block()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MxampWarning)  # float16 cannot run on this CPU
        block = mxamp.convert_block(net, dtype)
    assert block.report is not None
    assert block.report.casts == ()
    assert {node.reason for node in block.report.nodes} == {"computes in float16 already"}
    before, after = (
        {name: np.dtype(value.dtype) for name, value in one.collect_params().items()} for one in (net, block)
    )
    assert after == before


def test_a_bfloat16_model_stays_one_when_float16_is_asked_for() -> None:
    """It is not mixed, and nothing is cast from one low dtype to the other."""
    sym = network()
    args, auxs = weights(sym, IMAGES)
    first = mxamp.convert_model(sym, args, auxs, "bfloat16")
    second = mxamp.convert_model(*first, "float16")
    assert second.report is not None
    assert second.report.low_nodes == 0
    assert second.report.node("layer").reason == "computes in bfloat16 already"
    assert_same_model(second, sym, args, auxs, IMAGES)


# ---------------------------------------------------------------------- NumPy shape semantics


def test_a_numpy_graph_with_a_scalar_and_an_empty_parameter_is_saved_so_that_mxnet_reads_it(
    tmp_path: Path,
) -> None:
    """MXNet refuses parameters saved without NumPy shapes where they are in force, and scalars elsewhere."""
    with mx.util.np_shape(True), mx.util.np_array(True):
        rows = mx.sym.npx.fully_connected(
            INPUT.as_np_ndarray(), mx.sym.var("weight").as_np_ndarray(), no_bias=True, num_hidden=3
        )
        scaled = rows * mx.sym.var("scale").as_np_ndarray()
        sym = mx.sym.np.concatenate([scaled, mx.sym.var("nothing").as_np_ndarray()], axis=0)
        args = {"weight": mx.np.ones((3, 4)), "scale": mx.np.array(2.0), "nothing": mx.np.zeros((0, 3))}
        model = mxamp.convert_model(sym, args, {}, "bfloat16")
    assert model.arg_params["weight"].dtype is DType.BFLOAT16
    model.save(tmp_path / "net")
    shapes = {name: value.shape for name, value in mxamp.load(tmp_path / "net").arg_params.items()}
    assert shapes == {"weight": (3, 4), "scale": (), "nothing": (0, 3)}
    # MXNet 1.9.1 has no bfloat16 arrays of its NumPy kind, so only the shapes are NumPy's here.
    with mx.util.np_shape(True):
        block = mx.gluon.SymbolBlock.imports(
            str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
        )
        assert block(mx.nd.ones((2, 4))).asnumpy().tolist() == [[8.0] * 3] * 2


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # np.matrix
@pytest.mark.parametrize("order", ["big-endian", "matrix", "fortran", "strided"])
def test_numpy_arrays_of_any_kind_are_read_by_their_values(order: str, tmp_path: Path) -> None:
    """Byte order, memory layout and subclasses are not the user's business."""
    values = np.random.default_rng(2).normal(0, 0.5, (4, 4)).astype(np.float32)
    given = {
        "big-endian": values.astype(">f4"),
        "matrix": np.asmatrix(values),
        "fortran": np.asfortranarray(values),
        "strided": np.repeat(values, 2, axis=1)[:, ::2],
    }[order]
    model = mxamp.convert_model(dense(INPUT, "layer"), {"layer_weight": given}, {}, "bfloat16")
    model.save(tmp_path / "net")
    found = mxamp.load(tmp_path / "net").arg_params["layer_weight"].numpy()
    assert np.array_equal(found, values.astype(DType.BFLOAT16.numpy))
