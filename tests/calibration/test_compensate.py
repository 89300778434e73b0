"""Conversions with compensated weights: what changes, what does not, and what is said."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mxamp
from mxamp.calibration import Calibration, Compensation
from mxamp.dtypes import DType
from mxamp.errors import MxampWarning, PolicyError
from mxamp.model import Model
from mxamp.targets import Target
from tests.building import Net, parameters
from tests.calibration.models import deep_model, small_model
from tests.tuning.networks import with_weights

mx = pytest.importorskip("mxnet")

from mxamp.runtime.executor import run_outputs

Images = NDArray[np.float32]


def correlated(samples: int, seed: int) -> Images:
    """Images whose channels and neighbours go together, as in photographs."""
    random = np.random.default_rng(seed)
    coarse = random.standard_normal((samples, 4, 4, 4)).repeat(3, axis=2).repeat(3, axis=3)
    found: Images = (coarse + coarse[:, :1] + 0.3 * random.standard_normal((samples, 4, 12, 12))).astype(
        np.float32
    )
    return found


def convert(model: Model, dtype: str = "bfloat16", **options: Any) -> Model:
    # Required, so that the last layer is low as well: before an FP32 output it may stay FP32.
    options.setdefault("low_precision", "required")
    return mxamp.convert_model(model.graph, model.arg_params, model.aux_params, dtype, **options)


def error_of_weights(model: Model, converted: Model, images: Images) -> float:
    """Return the relative error of the outputs where nothing but the parameters is rounded."""
    widened = {name: value.cast(DType.FLOAT32) for name, value in converted.arg_params.items()}
    # The same graph, in float32: casts to float32 do nothing there, and those to the low dtype are left out.
    nodes = [
        node._replace(attrs={**node.attrs, "dtype": "float32"}) if node.op == "amp_cast" else node
        for node in converted.graph.nodes
    ]
    graph = dataclasses.replace(converted.graph, nodes=tuple(nodes))
    (expected,) = run_outputs(model, {"data": images}, fusion=False)
    (found,) = run_outputs(Model(graph, widened, dict(converted.aux_params)), {"data": images}, fusion=False)
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_cost_less_error_on_held_out_samples(dtype: str) -> None:
    model = deep_model()
    calibration = mxamp.calibrate(model, correlated(48, 1))
    held_out = correlated(64, 2)
    plain = convert(model, dtype)
    full = convert(model, dtype, calibration=calibration, compensate="full")
    assert error_of_weights(model, full, held_out) < 0.5 * error_of_weights(model, plain, held_out)


def test_only_values_of_parameters_change() -> None:
    model = deep_model()
    calibration = mxamp.calibrate(model, correlated(16, 1))
    plain = convert(model)
    for mode in ("full", "mean"):
        compensated = convert(model, calibration=calibration, compensate=mode)
        assert compensated.graph == plain.graph
        assert list(compensated.arg_params) == list(plain.arg_params)
        for name, value in plain.arg_params.items():
            found = compensated.arg_params[name]
            assert (found.shape, found.dtype) == (value.shape, value.dtype)
    mean = convert(model, calibration=calibration, compensate="mean")
    for name, value in plain.arg_params.items():
        if name.endswith("weight"):
            np.testing.assert_array_equal(value.numpy(), mean.arg_params[name].numpy())


def test_without_compensation_a_calibration_changes_no_parameter() -> None:
    model = deep_model()
    plain, calibrated = convert(model), convert(model, calibration=mxamp.calibrate(model, correlated(16, 1)))
    assert plain.graph == calibrated.graph
    for name, value in plain.arg_params.items():
        np.testing.assert_array_equal(value.numpy(), calibrated.arg_params[name].numpy())
    assert calibrated.report is not None
    assert calibrated.report.compensation is None


@pytest.mark.parametrize("channels", [16, 20], ids=["as they are", "padded"])
def test_files_and_memory_give_the_same_model(channels: int, tmp_path: Path) -> None:
    model = deep_model(channels=channels)
    calibration = mxamp.calibrate(model, correlated(16, 1))
    model.save(tmp_path / "net")
    calibration.save(tmp_path / "calibration")
    again = Calibration.load(tmp_path / "calibration")
    in_memory = convert(model, calibration=calibration, compensate="full")
    loaded = mxamp.load(tmp_path / "net")
    assert all(value.is_on_disk for value in loaded.arg_params.values())
    from_file = convert(loaded, calibration=again, compensate="full")
    for name, (one, two) in {"a": (tmp_path / "a", in_memory), "b": (tmp_path / "b", from_file)}.items():
        two.save(one)
        assert (tmp_path / f"{name}-0000.params").exists()
    assert (tmp_path / "a-0000.params").read_bytes() == (tmp_path / "b-0000.params").read_bytes()
    assert (tmp_path / "a-symbol.json").read_bytes() == (tmp_path / "b-symbol.json").read_bytes()
    assert in_memory.report is not None
    assert from_file.report is not None
    assert in_memory.report.compensation == from_file.report.compensation
    assert len(in_memory.report.compensation.layers) == 5


def test_an_output_that_gets_more_channels_is_compensated() -> None:
    x = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), pad=(1, 1), num_filter=16, name="conv0")
    x = mx.sym.Convolution(
        mx.sym.Activation(x, act_type="relu"), kernel=(9, 9), pad=(4, 4), num_filter=3, name="conv1"
    )
    model = with_weights(x, data=(1, 4, 12, 12))
    calibration = mxamp.calibrate(model, correlated(16, 1))
    converted = convert(
        model,
        calibration=calibration,
        compensate="full",
        target="cpu-bf16",
        input_shapes={"data": (1, 4, 64, 64)},
        low_precision="required",
    )
    assert converted.report is not None
    assert converted.report.compensation is not None
    done = {layer.nodes[0]: layer for layer in converted.report.compensation.layers}
    assert set(done) == {"conv0", "conv1_padded"}
    assert done["conv1_padded"].chosen < done["conv1_padded"].nearest
    assert not converted.report.compensation.left


def test_blocks_are_compensated(tmp_path: Path) -> None:
    model, images = deep_model(), correlated(16, 1)
    model.save(tmp_path / "net")
    block = mx.gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
    )
    calibration = mxamp.calibrate(block, images)
    options: Any = {"compensate": "full", "low_precision": "required"}
    converted = mxamp.convert_block(block, "bfloat16", calibration=calibration, **options).model
    expected = convert(model, calibration=mxamp.calibrate(model, images), compensate="full")
    for name, value in expected.arg_params.items():
        np.testing.assert_array_equal(value.numpy(), converted.arg_params[name].numpy(), err_msg=name)


def test_the_report_tells_each_layer() -> None:
    model = deep_model()
    calibration = mxamp.calibrate(model, correlated(16, 1))
    told: list[tuple[str, int, int]] = []
    compensation = Compensation(progress=lambda *given: told.append(given))
    report = convert(model, calibration=calibration, compensate=compensation).report
    assert report is not None
    assert report.compensation is not None
    layers = [layer.nodes[0] for layer in report.compensation.layers]
    assert layers == [layer for layer, _, _ in told]
    assert set(layers) >= {"conv0", "conv1", "conv2", "up0", "fc0"}
    assert all(layer.chosen <= layer.nearest for layer in report.compensation.layers)
    assert {layer.nodes[0]: layer.bias for layer in report.compensation.layers}["fc0"] == "fc0_bias"
    assert "change" in str(report)
    again = mxamp.Report.from_json(report.to_json())
    assert again.compensation == report.compensation


def shared_model(weight_of_second: str = "weight") -> Model:
    net = Net()
    weight, other = net.param("weight", 4, 4, 1, 1), net.param("other", 4, 4, 1, 1)
    entries = {"weight": weight, "other": other}

    def layer(x: Any, name: str, entry: Any) -> Any:
        attrs = {"num_filter": 4, "kernel": "(1, 1)", "no_bias": True}
        return net.op("Convolution", x, entry, name=name, **attrs)

    x = net.op("relu", layer(net.var("data"), "first", weight), name="relu")
    graph = net.graph(layer(x, "second", entries[weight_of_second]))
    return Model(graph, parameters(net.params), parameters({}))


def test_a_shared_weight_is_rounded_for_all_its_layers(images: Images) -> None:
    model = shared_model()
    calibration = mxamp.calibrate(model, images)
    converted = convert(model, calibration=calibration, compensate="full")
    assert converted.report is not None
    assert converted.report.compensation is not None
    (layer,) = converted.report.compensation.layers
    assert layer.nodes == ("first", "second")
    merged = calibration.layers["first"].merged(calibration.layers["second"])
    alone = dataclasses.replace(calibration, layers={"first": merged, "second": merged})
    expected = convert(model, calibration=alone, compensate="full")
    np.testing.assert_array_equal(
        converted.arg_params["weight"].numpy(), expected.arg_params["weight"].numpy()
    )


def test_layers_that_the_calibration_does_not_know_are_rounded_to_nearest(images: Images) -> None:
    model = small_model()
    calibration = mxamp.calibrate(model, images)
    known = {name: moments for name, moments in calibration.layers.items() if name != "conv0"}
    plain = convert(model)
    converted = convert(model, calibration=dataclasses.replace(calibration, layers=known), compensate="full")
    np.testing.assert_array_equal(
        plain.arg_params["conv0_weight"].numpy(), converted.arg_params["conv0_weight"].numpy()
    )
    assert converted.report is not None
    assert converted.report.compensation is not None
    assert converted.report.compensation.left == {"conv0": "the calibration does not know it"}


def test_values_beyond_the_range_keep_their_layer_in_float32(images: Images) -> None:
    model = shared_model("other")
    args = {name: value.numpy().copy() for name, value in model.arg_params.items()}
    args["other"][0, 0] = 1e5
    large = Model(model.graph, parameters(args), parameters({}))
    calibration = mxamp.calibrate(large, images * 0.01)  # so that the results are in range
    options: dict[str, Any] = {"calibration": calibration, "compensate": "full"}
    converted = convert(large, "float16", **options)
    assert converted.arg_params["other"].dtype is DType.FLOAT32
    assert converted.arg_params["weight"].dtype is DType.FLOAT16
    clamped = convert(large, "float16", saturate=True, **options)
    values = clamped.arg_params["other"].numpy().astype(np.float32)
    assert np.isfinite(values).all()
    assert values.max() == 65504.0


@pytest.mark.parametrize("factor", [1e4, 1e6])
@pytest.mark.parametrize("mode", ["mean", "full"])
def test_layers_whose_inputs_were_scaled_are_compensated_for_what_they_read_then(
    mode: str, factor: float
) -> None:
    """Powers of two move from a layer into the next, so that float16 holds what lies between them."""
    net, random = Net(), np.random.default_rng(0)
    x = net.var("data")
    for name, scale in (("first", 1.0), ("second", factor), ("third", 1 / factor)):
        weight, bias = (
            net.param(f"{name}_weight", 16, 4 if name == "first" else 16),
            net.param(f"{name}_bias", 16),
        )
        net.params[f"{name}_weight"] = random.normal(0, scale / 4, net.params[f"{name}_weight"].shape)
        net.params[f"{name}_bias"] = random.normal(0, 0.2 * (scale if name == "second" else 1), 16)
        x = net.op("FullyConnected", x, weight, bias, name=name, num_hidden=16)
        x = net.op("Activation", x, act_type="relu") if name != "third" else x
    params = {name: value.astype(np.float32) for name, value in net.params.items()}
    model = Model.of(net.graph(x), params, {})
    data = random.standard_normal((256, 4)).astype(np.float32)
    calibration = mxamp.calibrate(model, data)
    (expected,) = run_outputs(model, {"data": data}, fusion=False)
    errors = {}
    for compensate in (None, mode):
        converted = convert(model, "float16", calibration=calibration, compensate=compensate, emulate=True)
        assert any(change.step == "rescale" for change in converted.report.preparations) is (factor > 1e5)
        (found,) = run_outputs(converted, {"data": data}, fusion=False)
        errors[compensate] = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert errors[mode] < 1.1 * errors[None]


def test_a_calibration_of_another_model_is_warned_of(images: Images) -> None:
    model = small_model()
    other = {**model.args, "conv0_weight": model.args["conv0_weight"] * 2}
    calibration = mxamp.calibrate((model.sym, other, model.auxs), images)
    with pytest.warns(MxampWarning, match="with other parameters"):
        convert(model, calibration=calibration, compensate="full")
    with pytest.warns(MxampWarning, match="of another graph"):
        convert(deep_model(), calibration=calibration)
    net = Net()
    stranger = Model(net.graph(net.fc(net.var("x"), "layer")), parameters(net.params), parameters({}))
    with pytest.warns(MxampWarning, match="of another model"):
        found = convert(stranger, calibration=calibration, low_precision=None)
    alone = convert(stranger, low_precision=None)
    assert [(node.compute, node.reason) for node in found.report.nodes] == [
        (node.compute, node.reason) for node in alone.report.nodes
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compensate": "full"}, "give calibration"),
        ({"compensate": "best"}, "compensate must be 'full', 'mean' or None"),
        ({"calibration": {"conv0": 1}}, "what mxamp.calibrate returned"),
    ],
    ids=str,
)
def test_wrong_options_are_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        convert(small_model(), **options)


def test_options_that_contradict_each_other_are_told(images: Images) -> None:
    calibration = mxamp.calibrate(small_model(), images)
    with pytest.raises(PolicyError, match="cast_optional_params=False"):
        convert(small_model(), calibration=calibration, compensate="full", cast_optional_params=False)
    with pytest.raises(PolicyError, match="damping"):
        Compensation(damping=0.0)


@pytest.mark.parametrize("cut", [False, True], ids=["one block", "blocks"])
def test_a_channel_that_is_read_twice_makes_up_for_the_others(cut: bool) -> None:
    """The first layer of the networks of images, on targets that run it with an even number of channels."""
    net = Net()
    weight = net.param("weight", 16, 3, 3, 3)
    layer = net.op(
        "Convolution", net.var("data"), weight, name="layer", num_filter=16, kernel="(3, 3)", no_bias=True
    )
    model = Model(net.graph(layer), parameters(net.params), {})
    images = correlated(32, 1)[:, :3]
    calibration = mxamp.calibrate(model, images, **({"memory": 1500} if cut else {}))
    assert (len(calibration.layers["layer"].blocks) > 1) is cut
    errors = []
    for rewrites in ((), ("even_channels",)):
        target = dataclasses.replace(Target.builtin("cpu-bf16"), rewrites=rewrites)
        for compensate in (None, "mean", "full"):
            options: dict[str, Any] = {"calibration": calibration} if compensate else {}
            converted = convert(model, target=target, compensate=compensate, **options)
            assert converted.arg_params["weight"].shape[1] == 3 + len(rewrites)
            if compensate:
                assert converted.report.compensation is not None
                assert [layer.weight for layer in converted.report.compensation.layers] == ["weight"]
            errors.append(error_of_weights(model, converted, correlated(64, 2)[:, :3]))
    plain, _, full, even, _, even_full = errors
    assert full < 0.8 * plain
    assert even < plain
    assert even_full < (0.9 if cut else 0.8) * full
