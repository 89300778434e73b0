"""Layers behind a BatchNorm take over what rounding its scale leaves, so that its shift is nearly exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

import mxamp
from mxamp.dtypes import DType
from mxamp.graph import Entry
from mxamp.model import Model
from mxamp.params.cast import cast_array
from mxamp.params.parameter import ArrayParameter
from mxamp.params.scaled import ColumnScaledParameter, ScaledParameter
from mxamp.passes.exact_scales import exact_scales
from tests.building import AUXILIARY, LOW
from tests.passes.pre_activation import CHANNELS, PreActivation, convolve


def rounded(values: Any, dtype: DType) -> Any:
    return cast_array(np.asarray(values, np.float32), dtype).astype(np.float64)


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_scales_are_numbers_of_the_dtype_and_shifts_nearly(dtype: DType) -> None:
    random = np.random.default_rng(0)
    scale, shift = random.normal(size=2000), random.normal(size=2000)
    scale[:3], shift[3:6] = 0.0, 0.0
    found = exact_scales(scale, shift, dtype)
    np.testing.assert_array_equal(rounded(found.scale, dtype), found.scale)
    np.testing.assert_allclose(found.scale * found.ratio, scale, rtol=1e-15)
    np.testing.assert_allclose(found.shift * found.ratio, shift, rtol=1e-15)
    assert np.all(np.abs(found.ratio - 1) < 0.07)
    exact, plain = (np.abs(rounded(own, dtype) - own)[3:] for own in (found.shift, shift))
    assert np.sqrt(np.mean(exact**2)) < np.sqrt(np.mean(plain**2)) / 3.5
    np.testing.assert_array_equal(found.ratio[:3], 1.0)  # of a scale of zero there is nothing to take over
    np.testing.assert_array_equal(found.scale[3:6], rounded(scale[3:6], dtype))  # the nearest one serves


def truth(net: PreActivation) -> tuple[Any, Any]:
    gamma, beta, mean, variance = (
        net.params[f"bn_{part}"].astype(np.float64) for part in ("gamma", "beta", "moving_mean", "moving_var")
    )
    scale = gamma / np.sqrt(variance + 1e-3)
    return scale, beta - mean * scale


def entry_of(net: PreActivation, name: str) -> Entry:
    return Entry(next(position for position, node in enumerate(net.nodes) if node.name == name))


def test_behind_pooling_and_flatten_a_dense_layer_takes_it() -> None:
    net = PreActivation()
    pool = {"kernel": "(2, 2)", "pool_type": "avg"}
    flat = net.op("Flatten", net.op("Pooling", entry_of(net, "relu"), name="pool", **pool), name="flat")
    weight = net.param("dense_weight", 5, 4 * CHANNELS)
    net.params["dense_weight"] = np.random.default_rng(1).normal(size=(5, 4 * CHANNELS)).astype(np.float32)
    dense = net.op("FullyConnected", flat, weight, name="dense", num_hidden=5, no_bias=True)
    net.last = net.op(
        "Concat", net.op("Flatten", net.last, name="flatter"), dense, name="both", dim=1, num_args=2
    )
    _, done = convolve(net.graph(net.last), net.params)
    ratio = truth(net)[0] / done.arg_params["bn_weight"].numpy().reshape(-1)
    assert np.abs(ratio - 1).max() > 1e-3
    np.testing.assert_allclose(
        done.arg_params["dense_weight"].numpy(), net.params["dense_weight"] * np.repeat(ratio, 4), rtol=1e-6
    )


@pytest.mark.parametrize("case", ["a layer of columns", "pooling of channels last"])
def test_what_reads_another_axis_takes_none(case: str) -> None:
    net = PreActivation()
    relu = entry_of(net, "relu")
    if case == "a layer of columns":
        weight = net.param("dense_weight", 5, CHANNELS)  # images may be as wide as they have channels
        read = net.op("FullyConnected", relu, weight, name="dense", num_hidden=5, no_bias=True, flatten=False)
    else:
        pool = net.op("Pooling", relu, name="pool", kernel="(1, 1)", pool_type="avg", layout="NHWC")
        weight = net.param("dense_weight", 3, CHANNELS, 1, 1)
        read = net.op("Convolution", pool, weight, name="dense", num_filter=3, kernel="(1, 1)", no_bias=True)
    parts = [net.op("Flatten", one) for one in (net.last, read)]
    _, done = convolve(net.graph(net.op("Concat", *parts, dim=1, num_args=2)), net.params)
    np.testing.assert_array_equal(done.arg_params["dense_weight"].numpy(), net.params["dense_weight"])


def test_a_deconvolution_takes_it_in_the_rows_of_its_weight() -> None:
    net = PreActivation()
    weight = net.param("up_weight", CHANNELS, 3, 2, 2)
    net.params["up_weight"] = np.random.default_rng(1).normal(size=(CHANNELS, 3, 2, 2)).astype(np.float32)
    attrs = {"kernel": "(2, 2)", "stride": "(2, 2)", "num_filter": "3", "no_bias": "True"}
    net.last = net.op("Deconvolution", entry_of(net, "relu"), weight, name="up", **attrs)
    _, done = convolve(net.graph(net.last), net.params)
    ratio = truth(net)[0] / done.arg_params["bn_weight"].numpy().reshape(-1)
    assert np.abs(ratio - 1).max() > 1e-3
    np.testing.assert_allclose(
        done.arg_params["up_weight"].numpy(),
        net.params["up_weight"] * ratio.reshape(-1, 1, 1, 1),
        rtol=1e-6,
    )


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_weights_behind_take_the_ratio(dtype: DType) -> None:
    net = PreActivation()
    _, done = convolve(net.graph(net.last), net.params, dtype)
    weight = done.arg_params["bn_weight"].numpy().reshape(-1)
    np.testing.assert_array_equal(rounded(weight, dtype), weight)
    scale, shift = truth(net)
    ratio = scale / weight
    np.testing.assert_allclose(done.arg_params["bn_bias"].numpy() * ratio, shift, rtol=1e-6)
    np.testing.assert_allclose(
        done.arg_params["second_weight"].numpy(),
        net.params["second_weight"] * ratio.reshape(1, -1, 1, 1),
        rtol=1e-6,
    )
    np.testing.assert_array_equal(done.arg_params["first_weight"].numpy(), net.params["first_weight"])


def sigmoid(net: PreActivation) -> None:
    net.set("relu", act_type="sigmoid")


def shared(net: PreActivation) -> None:
    """Another layer reads the weight, and what it reads is not scaled."""
    reading = next(node for node in net.nodes if node.name == "second")
    other = net.op("Convolution", net.joined, reading.inputs[1], name="other", **reading.attrs)
    net.last = net.op("elemwise_add", net.last, other, name="sum")


def grouped(net: PreActivation) -> None:
    net.set("second", num_group="2")
    net.params["second_weight"] = net.params["second_weight"][:, : CHANNELS // 2]


def returned(net: PreActivation) -> None:
    net.last = net.op("Concat", net.last, entry_of(net, "relu"), name="both", dim=1, num_args=2)


@pytest.mark.parametrize("change", [sigmoid, shared, grouped, returned], ids=lambda own: own.__name__)
def test_what_cannot_take_it_keeps_its_weights(change: Callable[[PreActivation], None]) -> None:
    net = PreActivation()
    change(net)
    _, done = convolve(net.graph(net.last), net.params)
    scale, _ = truth(net)
    np.testing.assert_allclose(done.arg_params["bn_weight"].numpy().reshape(-1), scale, rtol=2e-7)
    np.testing.assert_array_equal(done.arg_params["second_weight"].numpy(), net.params["second_weight"])


def test_a_parameter_multiplied_by_columns_is_the_same_in_parts() -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=(6, 4, 3)).astype(np.float32)
    rows = ScaledParameter(ArrayParameter(values), random.uniform(0.5, 2, (6, 1, 1)))
    factors = np.repeat(random.uniform(0.9, 1.1, 4), 3)
    found = ColumnScaledParameter(rows, factors)
    expected = rows.values() * factors.reshape(1, 4, 3)
    np.testing.assert_allclose(found.values(), expected, rtol=1e-7)
    parts = [found.part(start, min(start + 7, 72)) for start in range(0, 72, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), found.values().reshape(-1))
    cast = found.cast(DType.BFLOAT16)
    np.testing.assert_array_equal(cast.numpy(), cast_array(found.values(), DType.BFLOAT16))


def as_model(net: PreActivation) -> Model:
    args = {name: value for name, value in net.params.items() if not name.endswith(AUXILIARY)}
    auxs = {name: value for name, value in net.params.items() if name.endswith(AUXILIARY)}
    return Model.of(net.graph(net.last), args, auxs)


def test_a_file_holds_the_same(tmp_path: Path) -> None:
    pytest.importorskip("mxnet", reason="converts a prefix")
    model = as_model(PreActivation())
    model.save(tmp_path / "net")
    options: dict[str, Any] = {"target": "cpu-bf16", "low_precision": "required"}
    whole = mxamp.convert_model(*model, "bfloat16", **options)
    loaded = mxamp.load(tmp_path / "net")
    found = mxamp.convert_model(loaded.graph, loaded.arg_params, loaded.aux_params, "bfloat16", **options)
    found.save(tmp_path / "low")
    stored = mxamp.load(tmp_path / "low")
    assert "bn_weight" in whole.arg_params
    for name, value in whole.arg_params.items():
        np.testing.assert_array_equal(stored.arg_params[name].numpy(), value.numpy(), err_msg=name)
