"""A parameter of another dtype beside float32 is read as float32, as Module reads it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.dtypes import DType
from mxamp.params.one_dtype import in_one_dtype
from tests.building import Net, parameters

NOTE = "read as float32, as Module reads parameters"
DATA = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)


def network(dtype: str = "float64") -> tuple[Any, dict[str, Any]]:
    """Return two layers, the first with a bias of another dtype."""
    net = Net()
    x = net.var("data")
    for name, own in (("first", dtype), ("second", "float32")):
        weight, bias = net.param(f"{name}_weight", 4, 4), net.param(f"{name}_bias", 4)
        net.params[f"{name}_bias"] = np.array([1.5, -2.0, 0.25, 3.0]).astype(own)
        x = net.op("FullyConnected", x, weight, bias, name=name, num_hidden=4)
    return net.graph(x), dict(net.params)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_it_becomes_float32_and_the_callers_arrays_stay(dtype: str) -> None:
    graph, params = network(dtype)
    given = parameters(params)
    found, notes = in_one_dtype(graph, given)
    assert {name: value.dtype for name, value in found.items()} == dict.fromkeys(params, DType.FLOAT32)
    np.testing.assert_array_equal(found["first_bias"].numpy(), params["first_bias"].astype(np.float32))
    assert given["first_bias"].dtype is DType.parse(dtype)
    assert len(notes) == 1
    assert f"first_bias ({dtype})" in notes[0]
    assert "(first)" in notes[0]


def test_what_meets_no_float32_stays() -> None:
    net = Net()
    weight, table = net.param("weight", 4, 4), net.param("table", 8, 4)
    x = net.op("FullyConnected", net.var("data"), weight, num_hidden=4, no_bias=True)
    places = net.param("places", 2)
    graph = net.graph(x, net.op("take", table, places))
    params = {**net.params, "weight": np.ones((4, 4)), "places": np.array([1, 2])}
    given = parameters(params)
    found, notes = in_one_dtype(graph, given)
    assert found is given
    assert not notes


def test_one_that_follows_from_another_is_found_as_well() -> None:
    net = Net()
    first, second, third = (net.param(name, 4) for name in ("first", "second", "third"))
    total = net.op("elemwise_add", first, second)
    graph = net.graph(net.op("elemwise_add", net.op("elemwise_add", total, third), net.op("tanh", first)))
    params = {"first": np.ones(4), "second": np.ones(4), "third": np.ones(4, np.float32)}
    found, _ = in_one_dtype(graph, parameters(params))
    assert [found[name].dtype for name in ("third",)] == [DType.FLOAT32]
    net = Net()
    first, second, third = (net.param(name, 4) for name in ("first", "second", "third"))
    chain = net.op("elemwise_add", net.op("elemwise_add", third, second), first)
    found, _ = in_one_dtype(net.graph(chain), parameters(params))
    assert {value.dtype for value in found.values()} == {DType.FLOAT32}


@pytest.mark.parametrize("kind", ["arrays", "files"])
def test_such_a_model_converts_and_says_so(kind: str, tmp_path: Path) -> None:
    graph, params = network()
    source: Any = (graph, params, {})
    if kind == "files":
        pytest.importorskip("mxnet", reason="writes the file")
        import mxnet as mx

        mxamp.Model.of(graph, {name: mx.nd.array(value) for name, value in params.items()}, {}).save(
            tmp_path / "net"
        )
        mx.nd.save(
            str(tmp_path / "net-0000.params"),
            {f"arg:{name}": mx.nd.array(value, dtype=value.dtype) for name, value in params.items()},
        )
        loaded = mxamp.load(tmp_path / "net")
        assert loaded.arg_params["first_bias"].dtype is DType.FLOAT64
        source = loaded
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = mxamp.convert_model(*source, "bfloat16", low_precision="required")
    assert sum(NOTE in str(warning.message) for warning in caught) == 1
    assert {value.dtype for value in model.arg_params.values()} == {DType.BFLOAT16}
    assert params["first_bias"].dtype == np.float64


def test_it_runs_is_compared_calibrated_and_exported_as_module_runs_it(tmp_path: Path) -> None:
    mx = pytest.importorskip("mxnet", reason="graphs are executed")
    pytest.importorskip("onnx", reason="writes ONNX")
    graph, params = network()
    source = (graph, params, {})
    sym = mxamp.Model.of(graph, params, {}).sym
    module = mx.mod.Module(sym, label_names=None)
    module.bind([("data", (2, 4))], for_training=False)
    module.set_params({name: mx.nd.array(value, dtype=value.dtype) for name, value in params.items()}, {})
    module.forward(mx.io.DataBatch([mx.nd.array(DATA)]), is_train=False)
    expected = module.get_outputs()[0].asnumpy()

    prepared = mxamp.convert_model(*source, "bfloat16", low_precision="none")
    compared = mxamp.compare_models(source, prepared, DATA)
    assert compared.outputs[0].distance.relative_l2 < 1e-6
    assert mxamp.calibrate(source, DATA) is not None
    mxamp.export_onnx(source, tmp_path / "net.onnx", input_shapes={"data": (2, 4)})
    runtime = pytest.importorskip("onnxruntime", reason="runs the file")
    (found,) = runtime.InferenceSession(str(tmp_path / "net.onnx")).run(None, {"data": DATA})
    np.testing.assert_allclose(found, expected, rtol=1e-6)
