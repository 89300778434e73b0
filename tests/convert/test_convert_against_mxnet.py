"""A drop-in for ``mx.contrib.amp.convert_model``: MXNet objects in and out, never changed, and they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="symbols and arrays of MXNet go in and come out")

import mxamp
from mxamp.errors import GraphError, ParamsError
from tests.building import BF16, capable

S = mx.sym
SHAPE = (2, 3, 8, 8)


def network() -> Any:
    body = S.Convolution(S.var("data"), num_filter=8, kernel=(3, 3), pad=(1, 1), no_bias=True, name="conv")
    body = S.Activation(S.BatchNorm(body, fix_gamma=False, name="bn"), act_type="relu", name="relu")
    body = body + S.Convolution(body, num_filter=8, kernel=(1, 1), name="side")
    body = S.Pooling(body, global_pool=True, pool_type="avg", kernel=(1, 1), name="pool")
    return S.softmax(S.FullyConnected(body, num_hidden=5, name="fc"), name="prob")


def model_of(symbol: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    shapes, _, aux_shapes = symbol.infer_shape(data=SHAPE)
    rng = np.random.default_rng(1)

    def array(name: str, shape: tuple[int, ...]) -> Any:
        low, high = (0.5, 1.5) if name.endswith(("var", "gamma")) else (-0.4, 0.4)
        return mx.nd.array(rng.uniform(low, high, shape))

    args = {
        name: array(name, shape) for name, shape in zip(symbol.list_arguments(), shapes) if name != "data"
    }
    auxs = {name: array(name, shape) for name, shape in zip(symbol.list_auxiliary_states(), aux_shapes)}
    return symbol, args, auxs


@pytest.fixture
def model() -> tuple[Any, dict[str, Any], dict[str, Any]]:
    return model_of(network())


def run(symbol: Any, args: Any, auxs: Any, data: Any) -> list[Any]:
    executor = symbol.bind(mx.cpu(), {**args, "data": data}, aux_states=auxs)
    return [output.asnumpy() for output in executor.forward()]


DATA = np.random.default_rng(2).uniform(-1, 1, SHAPE).astype(np.float32)


def test_the_result_unpacks_and_runs_and_agrees(model: Any) -> None:
    symbol, args, auxs = mxamp.convert_model(*model, target_dtype="bfloat16")
    assert symbol.list_outputs() == model[0].list_outputs()
    (expected,), (found,) = run(*model, mx.nd.array(DATA)), run(symbol, args, auxs, mx.nd.array(DATA))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_nothing_of_the_callers_is_changed(model: Any) -> None:
    symbol, args, auxs = model
    text = symbol.tojson(remove_amp_cast=False)
    values = {name: value.asnumpy().copy() for name, value in {**args, **auxs}.items()}
    handles = {name: value.handle.value for name, value in {**args, **auxs}.items()}
    converted = mxamp.convert_model(*model, target_dtype="bfloat16")
    _ = converted.sym, converted.args, converted.auxs
    assert symbol.tojson(remove_amp_cast=False) == text
    assert list(values) == [*args, *auxs]
    for name, value in {**args, **auxs}.items():
        assert value.handle.value == handles[name]
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value.asnumpy(), values[name])


def test_folding_changes_the_result_by_rounding_only(model: Any) -> None:
    asked = {"target_dtype": "bfloat16", "low_precision": "required"}
    plain = mxamp.convert_model(*model, **asked, fold_batch_norm=False)
    folded = mxamp.convert_model(*model, **asked)
    assert "bn_gamma" in plain.args
    assert "bn_gamma" not in folded.args
    for converted in (plain, folded):
        np.testing.assert_allclose(
            *(run(*triple, mx.nd.array(DATA))[0] for triple in (tuple(converted), model)), atol=0.01
        )


@pytest.mark.parametrize("offline", [True, False])
def test_offline_casts_give_the_bits_of_run_time_casts(model: Any, offline: bool) -> None:
    options: dict[str, Any] = {"target_dtype": "bfloat16", "fold_batch_norm": False}
    one = mxamp.convert_model(*model, cast_optional_params=offline, **options)
    other = mxamp.convert_model(*model, cast_optional_params=not offline, **options)
    np.testing.assert_array_equal(*(run(*triple, mx.nd.array(DATA)) for triple in (tuple(one), tuple(other))))


def test_a_symbol_alone_runs_with_the_parameters_it_had(model: Any) -> None:
    symbol, args, auxs = model
    low = mxamp.convert_symbol(symbol, "bfloat16")
    assert isinstance(low, S.Symbol)
    assert low.list_arguments() == symbol.list_arguments()
    (expected,), (found,) = run(*model, mx.nd.array(DATA)), run(low, args, auxs, mx.nd.array(DATA))
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_low_outputs_come_out_low(model: Any) -> None:
    converted = mxamp.convert_model(
        *model, target_dtype="bfloat16", io_dtype={"prob_output": "low"}, target=capable(BF16)
    )
    symbol = converted.sym
    assert symbol.list_outputs() == ["prob_output"]
    executor = symbol.bind(mx.cpu(), {**converted.args, "data": mx.nd.array(DATA)}, aux_states=converted.auxs)
    assert "bfloat16" in str(executor.forward()[0].dtype)


def test_a_shared_parameter_does_not_clash() -> None:
    data, weight = S.var("data"), S.var("w", shape=(4, 4))
    layer = S.FullyConnected(data, weight, num_hidden=4, no_bias=True, name="fc")
    symbol = S.broadcast_add(layer, S.sum(S.exp(weight), axis=0, keepdims=True), name="out")
    args = {"w": mx.nd.random.uniform(-0.5, 0.5, shape=(4, 4))}
    converted = mxamp.convert_model(symbol, args, {}, target_dtype="bfloat16")
    data_array = mx.nd.random.uniform(-1, 1, shape=(3, 4))
    (expected,) = run(symbol, args, {}, data_array)
    (found,) = run(converted.sym, converted.args, converted.auxs, data_array)
    np.testing.assert_allclose(found, expected, rtol=0.02, atol=0.02)


def test_inputs_of_the_wrong_kind_are_named(model: Any) -> None:
    symbol, args, auxs = model
    with pytest.raises(GraphError, match=r"not HybridSequential.*convert_block"):
        mxamp.convert_model(mx.gluon.nn.HybridSequential(), args, auxs)
    with pytest.raises(ParamsError, match=r"'fc_bias' must be an mx\.nd\.NDArray or a NumPy array, not list"):
        mxamp.convert_model(symbol, {**args, "fc_bias": [1, 2]}, auxs)


def test_a_sparse_parameter_is_carried_over_and_its_reader_stays_float32(tmp_path: Path) -> None:
    data, weight = S.var("data"), S.var("w", stype="row_sparse")
    symbol = S.FullyConnected(S.dot(data, weight, name="product"), num_hidden=2, name="fc")
    dense = np.zeros((5, 3), np.float32)
    dense[[1, 3]] = 1.5
    args = {
        "w": mx.nd.array(dense).tostype("row_sparse"),
        "fc_weight": mx.nd.ones((2, 3)),
        "fc_bias": mx.nd.ones(2),
    }
    mx.nd.waitall()  # a sparse array that is still being made is saved as it is then
    mx.nd.save(str(tmp_path / "net-0000.params"), {f"arg:{name}": value for name, value in args.items()})
    (tmp_path / "net-symbol.json").write_text(symbol.tojson())
    from_files = mxamp.load(tmp_path / "net")
    for given in (args, dict(from_files.arg_params)):
        model = mxamp.convert_model(symbol, given, {}, target_dtype="bfloat16")
        computes = {node.name: str(node.compute) for node in model.report.nodes}
        assert (computes["product"], computes["fc"]) == ("float32", "bfloat16")
        assert model.args["w"].stype == "row_sparse"
        assert model.args["w"].asnumpy().tolist() == dense.tolist()
        model.save(tmp_path / "low")
        loaded = mx.nd.load(str(tmp_path / "low-0000.params"))
        assert loaded["arg:w"].stype == "row_sparse"
        assert loaded["arg:w"].asnumpy().tolist() == dense.tolist()
    from_files.save(tmp_path / "same")
    same = (tmp_path / "same-0000.params").read_bytes()
    assert same == (tmp_path / "net-0000.params").read_bytes()


@pytest.mark.parametrize("op", ["Cast", "amp_cast"])
@pytest.mark.parametrize("layer", ["Convolution", "FullyConnected", "relu"])
def test_a_users_cast_to_the_other_16_bits_reads_float32(op: str, layer: str) -> None:
    """MXNet raises where Cast makes float16 of what a low layer wrote, and amp_cast makes noise of it."""
    data = mx.sym.var("data")
    first = mx.sym.Convolution(data, num_filter=16, kernel=(3, 3), pad=(1, 1), name="first")
    read = {
        "Convolution": first,
        "FullyConnected": mx.sym.FullyConnected(first, num_hidden=32, name="dense"),
        "relu": mx.sym.Activation(first, act_type="relu"),
    }[layer]
    cast = getattr(mx.sym, op)
    symbol = cast(cast(read, dtype="float16", name="half"), dtype="float32", name="back")
    symbol = mx.sym.FullyConnected(symbol, num_hidden=8, name="last")
    shapes, _, _ = symbol.infer_shape(data=(1, 4, 12, 12))
    draw = np.random.default_rng(0)
    args = {
        name: mx.nd.array(draw.normal(0, 0.2, shape)) for name, shape in zip(symbol.list_arguments(), shapes)
    }
    weights = {name: value for name, value in args.items() if name != "data"}
    model = mxamp.convert_model(symbol, weights, {}, "bfloat16", target="generic-bf16")
    assert model.report.node("first").compute == "bfloat16"
    expected = symbol.bind(mx.cpu(), args, grad_req="null").forward()[0].asnumpy()
    inputs = {**model.args, "data": args["data"]}
    found = model.sym.bind(mx.cpu(), inputs, grad_req="null").forward()[0].asnumpy()
    np.testing.assert_allclose(found, expected, atol=3e-2 * np.abs(expected).max())
