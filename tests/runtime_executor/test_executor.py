from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="runs models")

from mxamp.convert import convert_model
from mxamp.errors import DataError, DeviceError, OperatorError
from mxamp.graph.graph import Entry
from mxamp.model import Model
from mxamp.params.parameter import ArrayParameter
from mxamp.runtime.entries import run_entries
from mxamp.runtime.executor import BoundModel, batches, run_outputs
from mxamp.runtime.parameter import NDArrayParameter
from mxamp.runtime.symbol import graph_from_symbol
from tests.building import Net


def build(symbol, **data_shapes):
    """Return a model with normal parameters for a Symbol."""
    generator = np.random.default_rng(1)
    shapes, _, aux_shapes = symbol.infer_shape(**data_shapes)

    def draw(names, sizes):
        return {
            name: ArrayParameter(generator.normal(0, 0.5, size).astype("float32"))
            for name, size in zip(names, sizes)
            if name not in data_shapes
        }

    args = draw(symbol.list_arguments(), shapes)
    auxs = {
        name: ArrayParameter(np.abs(value.numpy()) + 0.5)
        for name, value in draw(symbol.list_auxiliary_states(), aux_shapes).items()
    }
    return Model(graph_from_symbol(symbol), args, auxs)


def conv_relu():
    data = mx.sym.var("data")
    conv = mx.sym.Convolution(data, kernel=(3, 3), num_filter=4, name="conv")
    relu = mx.sym.Activation(conv, act_type="relu", name="relu")
    return mx.sym.FullyConnected(relu, num_hidden=5, name="fc")


@pytest.fixture
def images():
    return {"data": np.random.default_rng(0).normal(size=(5, 3, 8, 8)).astype("float32")}


@pytest.fixture
def model():
    return build(conv_relu(), data=(1, 3, 8, 8))


def positions(model):
    return {node.name: number for number, node in enumerate(model.graph.nodes)}


def test_outputs_are_those_of_mxnet(model, images):
    sym, args, auxs = model
    executor = sym.bind(
        mx.cpu(), {**args, "data": mx.nd.array(images["data"])}, grad_req="null", aux_states=auxs
    )
    (expected,) = executor.forward()
    (found,) = run_outputs(model, images)
    np.testing.assert_array_equal(found, expected.asnumpy())


def test_batches_give_the_outputs_of_one_pass_with_the_remainder(model, images):
    seen = []
    (whole,) = run_outputs(model, images, fusion=False)
    (cut,) = run_outputs(
        model, images, fusion=False, batch_size=2, progress=lambda done, total: seen.append((done, total))
    )
    np.testing.assert_allclose(cut, whole, rtol=1e-6, atol=1e-6)
    assert seen == [(2, 5), (4, 5), (5, 5)]


def test_batches_cut_every_input_alike():
    data = {"a": np.arange(3), "b": np.arange(6).reshape(3, 2)}
    sizes = [(len(batch["a"]), len(batch["b"])) for batch in batches(data, 2)]
    assert sizes == [(2, 2), (1, 1)]


def test_bfloat16_outputs_come_as_float32(model, images):
    low = convert_model(*model, target_dtype="bfloat16", io_dtype="low")
    (found,) = run_outputs(low, images)
    (expected,) = run_outputs(model, images, fusion=False)
    assert found.dtype == np.float32
    assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)
    bits = found.view(np.uint32)
    assert not (bits & 0xFFFF).any(), "not bfloat16 values"


def test_entries_that_are_read_together_keep_their_activation(model, images):
    # With oneDNN fusion on, grouping conv beside relu(conv) loses the activation (MXNet 1.9.1).
    where = positions(model)
    wanted = [Entry(where["conv"]), Entry(where["relu"])]
    found = dict(run_entries(model, images, wanted))
    np.testing.assert_array_equal(found[wanted[1]], np.maximum(found[wanted[0]], 0))


def test_entries_do_not_depend_on_how_many_are_held_at_once(model, images):
    where = positions(model)
    wanted = [Entry(where[name]) for name in ("conv", "relu", "fc")]
    together = list(run_entries(model, images, wanted))
    apart = list(run_entries(model, images, wanted, max_bytes=1))
    assert [entry for entry, _ in together] == wanted == [entry for entry, _ in apart]
    for (_, left), (_, right) in zip(together, apart):
        np.testing.assert_array_equal(left, right)


def test_no_entries_is_no_forward_pass(model, images):
    assert list(run_entries(model, images, [])) == []


def test_second_outputs_are_read():
    data = mx.sym.var("data")
    model = build(mx.sym.SliceChannel(data, num_outputs=2, axis=1, name="sp"), data=(1, 4))
    values = {"data": np.arange(8, dtype=np.float32).reshape(2, 4)}
    found = [value for _, value in run_entries(model, values, [Entry(1, 1), Entry(1, 0)])]
    np.testing.assert_array_equal(found[0], values["data"][:, 2:])
    np.testing.assert_array_equal(found[1], values["data"][:, :2])


def test_fusion_off_is_bit_for_bit_what_the_documented_setting_gives(model, images, monkeypatch):
    # The executor names the backend "default", because "NONE" prints a line at every bind.
    (found,) = run_outputs(model, images, fusion=False)
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
    (documented,) = run_outputs(model, images, fusion=True)
    np.testing.assert_array_equal(found, documented)


@pytest.mark.parametrize("before", [None, "NONE"])
def test_the_environment_is_as_before(model, images, monkeypatch, before):
    monkeypatch.delenv("MXNET_SUBGRAPH_BACKEND", raising=False)
    if before:
        monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", before)
    snapshot = dict(os.environ)
    run_outputs(model, images, fusion=False)
    with pytest.raises(DataError):
        run_outputs(model, {"data": np.zeros((1, 7, 8, 8), np.float32)}, fusion=False)
    assert dict(os.environ) == snapshot


def test_nothing_is_printed_on_stderr(tmp_path):
    script = (
        "import mxnet as mx, numpy as np, mxamp\n"
        "from mxamp.runtime.executor import run_outputs\n"
        "sym = mx.sym.FullyConnected(mx.sym.var('data'), num_hidden=2, name='fc')\n"
        "args = {'fc_weight': np.ones((2, 3), 'f'), 'fc_bias': np.ones(2, 'f')}\n"
        "model = mxamp.convert_model(sym, args, {}, 'bfloat16')\n"
        "for fusion in (True, False):\n"
        "    run_outputs(model, {'data': np.ones((1, 3), 'f')}, fusion=fusion)\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MXNET_SUBGRAPH")}
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    completed = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "ubgraph" not in completed.stderr
    assert completed.stdout == ""


def test_the_callers_parameters_do_not_change(images):
    model = build(conv_relu(), data=(1, 3, 8, 8))
    arrays = {name: mx.nd.array(value.numpy()) for name, value in model.arg_params.items()}
    before = {name: array.asnumpy() for name, array in arrays.items()}
    wrapped = Model(model.graph, {name: NDArrayParameter(array) for name, array in arrays.items()}, {})
    run_outputs(wrapped, images)
    run_outputs(wrapped, images, fusion=False)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array.asnumpy(), before[name])


def test_integer_data_are_cast_and_not_scaled(model, images):
    images = {"data": np.round(images["data"] * 10)}
    (expected,) = run_outputs(model, images, fusion=False)
    (found,) = run_outputs(model, {"data": images["data"].astype(np.int32)}, fusion=False)
    np.testing.assert_array_equal(found, expected)


def test_float16_on_a_cpu_is_refused_with_the_way_out(model, images):
    low = convert_model(*model, target_dtype="float16")
    with pytest.raises(DeviceError) as caught:
        run_outputs(low, images)
    assert str(caught.value) == (
        "The model computes in float16 (node 'conv' (Convolution) is the first to), and MXNet 1.9.1 has no "
        "FP16 convolution or matrix product for cpu(0). Run it on a GPU: --ctx 'gpu(0)', or ctx='gpu(0)' in "
        "Python. Or convert to bfloat16, which CPUs run: --dtype bfloat16. On a CPU float16 can only be "
        "emulated."
    )


def test_bfloat16_is_not_run_where_it_would_end_the_process(model, images, a_cpu):
    a_cpu("avx2")
    low = convert_model(*model, target_dtype="bfloat16", target="generic-bf16")
    with pytest.raises(DeviceError, match=r"A bfloat16 model cannot run on cpu\(0\): .* CPUs with AVX-512"):
        run_outputs(low, images)


def test_a_float16_conversion_that_stayed_in_float32_runs_on_a_cpu(model, images):
    kept = convert_model(*model, target_dtype="float16", exclude=["*"])
    (found,) = run_outputs(kept, images)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", ["cuda:0", "gpu(x)", ""])
def test_what_is_no_device_is_refused(model, name):
    with pytest.raises(DeviceError, match="is not a device"):
        BoundModel(model, ctx=name)


def test_a_gpu_that_is_not_there_is_refused(model):
    with pytest.raises(DeviceError, match=r"There is no gpu\(99\)"):
        BoundModel(model, ctx="gpu(99)")


def test_a_missing_input_is_named(model):
    with pytest.raises(DataError, match="The input 'data' of the model is missing"):
        run_outputs(model, {"other": np.zeros((1, 3, 8, 8), np.float32)})


def test_a_shape_that_does_not_fit_names_the_node(model):
    with pytest.raises(DataError, match=r"The data does not fit the model\. .*node 'fc' \(FullyConnected\)"):
        run_outputs(model, {"data": np.zeros((1, 3, 9, 9), np.float32)})


def test_a_clash_of_dtypes_is_mxnets_reason_without_its_stack():
    net = Net()
    wide = net.op("Cast", net.var("data"), dtype="float64")
    graph = net.graph(net.fc(wide, "fc"))
    with pytest.raises(OperatorError) as caught:
        run_outputs(Model.of(graph, net.params, {}), {"data": np.ones((2, 4), np.float32)})
    message = str(caught.value)
    assert message.startswith("MXNet cannot bind the model on cpu(0) (fusion on): Error in operator fc:")
    assert "\n" not in message
    assert ".h:" not in message


@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_model_without_inputs_runs_once(batch_size: int | None) -> None:
    model = Model(graph_from_symbol(mx.sym.arange(4)), {}, {})
    (found,) = run_outputs(model, {}, fusion=False, batch_size=batch_size)
    assert found.tolist() == [0, 1, 2, 3]
