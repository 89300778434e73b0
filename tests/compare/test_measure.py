from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np
import pytest

from mxamp import compare_models, convert_model
from mxamp.errors import DataError, DeviceError, MxnetMissingError
from mxamp.params.parameter import ArrayParameter

IMAGES = np.random.default_rng(0).normal(size=(10, 3, 12, 12)).astype("float32")


def deep_net():
    """Return a Symbol with 3 blocks of Convolution, BatchNorm and activation, and parameters for it."""
    mx = pytest.importorskip("mxnet", reason="runs models")
    net = mx.sym.var("data")
    for number in range(3):
        net = mx.sym.Convolution(net, kernel=(3, 3), num_filter=8, pad=(1, 1), name=f"conv{number}")
        net = mx.sym.BatchNorm(net, fix_gamma=False, name=f"bn{number}")
        net = mx.sym.Activation(net, act_type="relu", name=f"relu{number}")
    net = mx.sym.Pooling(net, global_pool=True, pool_type="avg", kernel=(1, 1), name="pool")
    sym = mx.sym.FullyConnected(net, num_hidden=10, name="fc0")
    generator = np.random.default_rng(5)
    shapes, _, aux_shapes = sym.infer_shape(data=(1, 3, 12, 12))
    args = {
        name: generator.normal(0, 0.4, shape).astype("float32")
        for name, shape in zip(sym.list_arguments(), shapes)
        if name != "data"
    }
    auxs = {
        name: generator.uniform(0.5, 2, shape).astype("float32")
        for name, shape in zip(sym.list_auxiliary_states(), aux_shapes)
    }
    return sym, args, auxs


@pytest.fixture(scope="module")
def pair():
    triple = deep_net()
    # The last layer would otherwise stay float32, for the output's sake.
    options = {"fold_batch_norm": False, "low_precision": "required"}
    return triple, convert_model(*triple, target_dtype="bfloat16", **options)


def perturbed(model, name):
    values = model.arg_params[name].numpy().astype(np.float32)
    noise = np.random.default_rng(9).normal(0, np.abs(values).mean(), values.shape)
    changed = ArrayParameter((values + noise).astype(model.arg_params[name].dtype.numpy))
    return dataclasses.replace(model, arg_params={**model.arg_params, name: changed}, _mxnet={})


def test_a_model_is_equal_to_itself(pair):
    found = compare_models(pair[0], pair[0], IMAGES, layers=True)
    assert found.low_dtype is None
    assert found.first_difference is None
    assert found.outputs[0].unfused_relative_l2 == 0.0
    assert found.outputs[0].distance.relative_l2 < 1e-5  # fused and unfused FP32 differ in rounding
    assert found.outputs[0].top1_agreement == 1.0


def test_bfloat16_differs_by_rounding_from_the_first_low_layer_on(pair):
    found = compare_models(*pair, IMAGES, batch_size=4)
    assert (found.samples, found.batch_size, found.layer_samples) == (10, 4, 4)
    assert (found.low_dtype, found.threshold, found.ctx) == ("bfloat16", 0.0625, "cpu(0)")
    (output,) = found.outputs
    assert (output.name, output.shape) == ("fc0_output", (10, 10))
    assert 0 < output.unfused_relative_l2 < 0.02
    assert output.distance.is_finite
    assert found.first_difference.name == "conv0"
    assert found.first_difference.dtype == "bfloat16"
    assert found.first_above_threshold is None
    assert found.unmatched == ()


def test_layers_are_in_topological_order_and_hold_the_output(pair):
    found = compare_models(*pair, IMAGES[:2])
    names = [layer.name for layer in found.layers]
    expected = [f"{kind}{number}" for number in range(3) for kind in ("conv", "bn", "relu")]
    assert names == [*expected, "pool", "fc0"]
    assert found.layers[-1].converted_name == "fc0"  # the cast back to float32
    assert found.layers[-1].dtype == "bfloat16"
    assert found.layers[-1].distance.relative_l2 == found.outputs[0].unfused_relative_l2


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_corrupted_weight_is_found_in_its_layer(pair, number):
    found = compare_models(pair[0], perturbed(pair[1], f"conv{number}_weight"), IMAGES[:4])
    assert found.first_above_threshold.name == f"conv{number}"
    assert found.largest_jumps(1)[0].name == f"conv{number}"
    for layer in found.layers:
        if layer.name in [f"conv{before}" for before in range(number)]:
            assert layer.distance.relative_l2 < 0.02


def test_a_folded_batch_norm_is_read_from_its_layer(pair):
    folded = convert_model(*pair[0], target_dtype="bfloat16", low_precision="required")
    found = compare_models(pair[0], folded, IMAGES[:4])
    expected = [f"{kind}{number}" for number in range(3) for kind in ("bn", "relu")]
    assert [layer.name for layer in found.layers] == [*expected, "pool", "fc0"]
    assert found.layers[0].converted_name == "conv0"
    assert found.unmatched == ()
    assert found.first_above_threshold is None
    assert found.notes[0].startswith("3 BatchNorms were folded into the layers before them")
    broken = compare_models(pair[0], perturbed(folded, "conv1_weight"), IMAGES[:4])
    assert broken.first_above_threshold.name == "bn1"
    assert broken.first_above_threshold.converted_name == "conv1"


def test_a_corrupted_last_layer_is_found_behind_its_cast(pair):
    found = compare_models(pair[0], perturbed(pair[1], "fc0_weight"), IMAGES[:4])
    assert found.first_above_threshold.name == "fc0"
    assert [layer.name for layer in found.largest_jumps()] == ["fc0"]


def test_an_overflow_is_found_where_it_happens(pair):
    values = pair[1].arg_params["conv1_bias"].numpy().copy()
    values[0] = np.inf
    args = {**pair[1].arg_params, "conv1_bias": ArrayParameter(values)}
    found = compare_models(pair[0], dataclasses.replace(pair[1], arg_params=args, _mxnet={}), IMAGES[:2])
    assert found.first_above_threshold.name == "conv1"
    assert found.largest_jumps(1)[0].name == "conv1"
    assert found.first_above_threshold.distance.converted_inf > 0
    json.loads(found.to_json())


def test_batches_give_the_fidelity_of_everything_at_once(pair):
    cut = compare_models(*pair, IMAGES, batch_size=3, layers=False)
    whole = compare_models(*pair, IMAGES, batch_size=10, layers=False)
    assert cut.outputs[0].shape == whole.outputs[0].shape
    assert cut.outputs[0].distance.elements == whole.outputs[0].distance.elements == 100
    assert cut.outputs[0].distance.relative_l2 == pytest.approx(
        whole.outputs[0].distance.relative_l2, rel=0.05
    )


def test_without_layers_only_outputs_are_measured(pair):
    found = compare_models(*pair, IMAGES[:2], layers=False)
    assert found.layers is None
    assert found.layer_samples == 0
    assert found.outputs[0].unfused_relative_l2 is None


def test_progress_covers_outputs_and_layers(pair):
    seen = []
    compare_models(*pair, IMAGES[:4], batch_size=2, progress=lambda *step: seen.append(step))
    assert seen[:2] == [("outputs", 2, 4), ("outputs", 4, 4)]
    assert seen[-1] == ("layers", 11, 11)


def test_the_same_call_gives_the_same_result(pair):
    assert compare_models(*pair, IMAGES[:2]).to_json() == compare_models(*pair, IMAGES[:2]).to_json()


def test_the_setting_that_turns_fusion_off_is_reported(pair, monkeypatch):
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
    found = compare_models(*pair, IMAGES[:2])
    assert not found.fusion
    # The sentence may wrap anywhere: how wide the terminal is depends on where the tests run.
    assert "with fusion off, as the environment has it" in " ".join(str(found).split())
    assert found.outputs[0].distance.relative_l2 == found.outputs[0].unfused_relative_l2


def test_a_float16_model_on_a_cpu_is_refused_with_the_way_out(pair):
    low = convert_model(*pair[0], target_dtype="float16")
    with pytest.raises(
        DeviceError, match=r"converted model computes in float16 .*--ctx 'gpu\(0\)'.*bfloat16.*emulated"
    ):
        compare_models(pair[0], low, IMAGES[:1])


@pytest.mark.gpu
def test_float16_on_a_gpu_stays_close(pair):
    low = convert_model(*pair[0], target_dtype="float16")
    found = compare_models(pair[0], low, IMAGES, ctx="gpu(0)")
    assert found.outputs[0].distance.relative_l2 < 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch size must be at least 1, not 0"),
        ({"max_samples": 0}, "number of samples must be at least 1, not 0"),
        ({"threshold": -1.0}, "threshold must be a number from 0 on"),
    ],
)
def test_options_out_of_range_are_refused(pair, options, message):
    with pytest.raises(DataError, match=message):
        compare_models(*pair, IMAGES, **options)


def test_inputs_that_cannot_be_cut_run_at_once_and_refuse_a_batch_size():
    mx = pytest.importorskip("mxnet", reason="runs models")
    sym = mx.sym.broadcast_add(mx.sym.var("left"), mx.sym.var("right"), name="sum")
    data = {"left": np.ones((4, 2), np.float32), "right": np.ones((1, 2), np.float32)}
    found = compare_models((sym, {}, {}), (sym, {}, {}), data)
    assert found.outputs[0].shape == (4, 2)
    with pytest.raises(DataError, match=r"cannot be cut into batches.*left \(4, 2\), right \(1, 2\)"):
        compare_models((sym, {}, {}), (sym, {}, {}), data, batch_size=2)


def test_without_mxnet_it_says_what_to_install(conv_net, monkeypatch):
    monkeypatch.setitem(sys.modules, "mxnet", None)
    model = conv_net()
    with pytest.raises(MxnetMissingError, match="MXNet, which cannot be imported"):
        compare_models(model, model, IMAGES)


def test_rows_that_change_places_are_explained():
    mx = pytest.importorskip("mxnet", reason="runs models")
    hidden = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=64, no_bias=True, name="fc")
    sym = mx.sym.argsort(hidden, name="order")
    weight = np.random.default_rng(2).normal(size=(64, 8)).astype("float32")
    triple = (sym, {"fc_weight": weight}, {})
    found = compare_models(
        triple, convert_model(*triple, target_dtype="bfloat16"), weight[:4], threshold=0.01
    )
    assert any(note.startswith("'order' (argsort) ranks its input") for note in found.notes)


def test_a_loop_is_compared_at_its_outputs():
    mx = pytest.importorskip("mxnet", reason="runs models")
    weight = mx.sym.var("weight")

    def body(item, state):
        state = mx.sym.FullyConnected(item, weight, num_hidden=3, no_bias=True, name="inner") + state
        return state, state

    outputs, _ = mx.sym.contrib.foreach(body, mx.sym.var("data"), mx.sym.var("start"), name="loop")
    generator = np.random.default_rng(4)
    triple = (outputs, {"weight": generator.normal(size=(3, 3)).astype("float32")}, {})
    data = {
        "data": generator.normal(size=(5, 2, 3)).astype("float32"),
        "start": np.zeros((2, 3), np.float32),
    }
    found = compare_models(triple, convert_model(*triple, target_dtype="bfloat16"), data)
    assert found.layers[-1].op == "_foreach"
    assert found.outputs[0].distance.relative_l2 < 0.05


def test_an_emulated_model_is_not_timed_and_a_note_says_why(conv_net):
    pytest.importorskip("mxnet", reason="runs models")
    fp32 = conv_net()
    emulated = convert_model(fp32.graph, fp32.arg_params, fp32.aux_params, "float16", emulate=True)
    found = compare_models(fp32, emulated, IMAGES[:2, :, :8, :8], layers=False, latency_seconds=1)
    assert found.latency is None
    assert any(note.startswith("Not timed: an emulated model") for note in found.notes)
