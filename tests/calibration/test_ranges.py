"""Observed ranges decide: what may overflow is scaled where that is exact, and stays float32 elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.errors import PolicyError
from mxamp.model import Model
from tests.building import Net, parameters

mx = pytest.importorskip("mxnet")

from mxamp.runtime.executor import run_outputs


def overflowing(*, ends_in: str = "Convolution") -> tuple[Model, Any]:
    """Return a network whose tensors between its layers reach beyond float16, though no parameter does."""
    net = Net()
    x = net.bn(net.conv(net.var("data"), "conv0"), "bn0")
    net.params["bn0_gamma"] *= 30000.0
    x = net.op("Activation", x, name="relu0", act_type="relu")
    branch = net.conv(x, "conv1")
    x = net.op("elemwise_add", branch, x, name="sum0")
    if ends_in == "softmax":
        x = net.op("log_softmax", x, name="softmax0", axis=1)
    x = net.conv(x, "conv2")
    net.params["conv2_weight"] *= 1e-4
    graph = net.graph(net.op("Activation", x, name="relu1", act_type="relu"))
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    args = {name: value for name, value in net.params.items() if name not in auxs}
    images = np.random.default_rng(0).standard_normal((8, 4, 6, 6)).astype(np.float32)
    return Model(graph, parameters(args), parameters(auxs)), images * 3


def emulated(model: Model, images: Any, **options: Any) -> tuple[Any, Model]:
    converted = mxamp.convert_model(
        model.graph, model.arg_params, model.aux_params, "float16", emulate=True, **options
    )
    return run_outputs(converted, {"data": images}, fusion=False)[0], converted


def test_an_overflow_disappears_and_nothing_stays_float32() -> None:
    model, images = overflowing()
    (expected,) = run_outputs(model, {"data": images}, fusion=False)
    without, plain = emulated(model, images)
    assert not np.isfinite(without).all() or np.abs(without - expected).max() > 1.0
    calibration = mxamp.calibrate(model, images)
    found, converted = emulated(model, images, calibration=calibration)
    assert np.linalg.norm(found - expected) < 3e-3 * np.linalg.norm(expected)
    assert converted.report is not None
    assert plain.report is not None
    assert converted.report.low_nodes == plain.report.low_nodes
    steps = {change.node for change in converted.report.preparations if change.step == "rescale"}
    assert {"bn0", "conv2"} <= steps


def test_what_cannot_be_scaled_stays_float32_with_value_and_sample() -> None:
    model, images = overflowing(ends_in="softmax")
    calibration = mxamp.calibrate(model, images)
    (expected,) = run_outputs(model, {"data": images}, fusion=False)
    found, converted = emulated(model, images, calibration=calibration)
    assert np.linalg.norm(found - expected) < 3e-3 * np.linalg.norm(expected)
    assert converted.report is not None
    seen = next(value for name, value in calibration.entries.items() if name.node == "sum0")
    node = converted.report.node("sum0")
    assert node.compute == "float32"
    assert f"reaches {seen.largest:.6g} in sample {seen.sample} of the calibration" in node.reason
    assert converted.report.node("conv0").compute == "float16"


def test_headroom_is_the_users() -> None:
    model, images = overflowing(ends_in="softmax")
    calibration = mxamp.calibrate(model, images / 3)
    largest = max(value.largest for value in calibration.entries.values())

    def compute(headroom: float) -> str | None:
        options: dict[str, Any] = {"calibration": calibration, "headroom": headroom}
        report = mxamp.convert_model(
            model.graph, model.arg_params, model.aux_params, "float16", **options
        ).report
        assert report is not None
        return report.node("sum0").compute

    fits = max(1.0, 65504.0 / largest)
    assert compute(2.0 * fits) == "float32"
    with pytest.raises(PolicyError, match="headroom must be a number from 1 on"):
        compute(0.5)


def test_bfloat16_has_the_range_of_float32() -> None:
    model, images = overflowing()
    calibration = mxamp.calibrate(model, images)
    converted = mxamp.convert_model(
        model.graph, model.arg_params, model.aux_params, "bfloat16", calibration=calibration
    )
    plain = mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "bfloat16")
    assert converted.graph == plain.graph
    assert converted.report is not None
    assert not [change for change in converted.report.preparations if change.step == "rescale"]


def test_a_mask_that_is_rewritten_is_no_overflow() -> None:
    net = Net()
    scores = net.fc(net.var("data"), "scores")
    ones = net.op("ones_like", scores, name="ones")
    least = net.op("_mul_scalar", ones, name="least", scalar=-1e18)
    masked = net.op("where", net.var("mask"), scores, least, name="masked")
    graph = net.graph(net.op("softmax", masked, name="weights"))
    model = Model(graph, parameters(net.params), parameters({}))
    data = {
        "data": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32),
        "mask": np.array([[1, 1, 0, 1]] * 3, np.float32),
    }
    calibration = mxamp.calibrate(model, data)
    assert calibration.entries[("masked", 0)].largest == pytest.approx(1e18)  # type: ignore[index]
    options: dict[str, Any] = {"calibration": calibration}
    plain = mxamp.convert_model(model.graph, model.arg_params, {}, "float16")
    found = mxamp.convert_model(model.graph, model.arg_params, {}, "float16", **options)
    assert found.graph == plain.graph


def called_twice(*, shared: bool = True) -> Model:
    """Return a network that applies two layers of one name, as Gluon does where a block is called twice."""
    net = Net()
    weight = net.param("fc_weight", 4, 4)
    net.params["fc_weight"] = np.eye(4, dtype=np.float32)
    other = weight if shared else net.param("other_weight", 4, 4)
    layers = [
        net.op("FullyConnected", net.var(data), read, name="fc", num_hidden=4, no_bias=True)
        for data, read in (("left", weight), ("right", other))
    ]
    scaled = net.op("_mul_scalar", layers[0], name="scaled", scalar="1e-4")
    graph = net.graph(net.op("elemwise_add", net.op("tanh", scaled), layers[1], name="last"))
    return Model(graph, parameters(net.params), {})


def two_sides() -> dict[str, Any]:
    """Return what of one layer reaches beyond float16, and of the other does not."""
    values = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    return {"left": 1e5 * values, "right": values}


def test_what_is_known_of_a_name_is_of_all_nodes_that_have_it() -> None:
    from mxamp.calibration.ranges import observed

    model, data = called_twice(), two_sides()
    calibration = mxamp.calibrate(model, data)
    assert calibration.entries[("fc", 0)].largest == np.abs(data["left"]).max()  # type: ignore[index]
    assert calibration.entries[("fc", 0)].count == 2 * data["left"].size  # type: ignore[index]
    named = [model.graph.nodes[entry.node].name for entry in observed(model.graph, calibration)]
    assert named.count("fc") == 2
    converted = mxamp.convert_model(model.graph, model.arg_params, {}, "float16", calibration=calibration)
    assert [node.compute for node in converted.report.nodes if node.name == "fc"] == ["float32"] * 2


def test_moments_are_of_layers_with_one_weight() -> None:
    assert set(mxamp.calibrate(called_twice(), two_sides()).layers) == {"fc"}
    calibration = mxamp.calibrate(called_twice(shared=False), two_sides())
    assert calibration.layers == {}
    assert calibration.unseen == {"fc": "another layer with other weights has its name"}
