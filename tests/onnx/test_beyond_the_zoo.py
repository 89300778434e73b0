"""Networks outside the zoo, whole: BERT, language models, faces, speech, detectors of symbols, NumPy mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")
mx = pytest.importorskip("mxnet", reason="MXNet is what the results are compared with")
pytest.importorskip("sklearn", reason="has the photographs that networks read")

import mxamp
from mxamp.compare.inputs import as_model
from mxamp.export import explicit_casts_of, relative_error
from mxamp.onnx import OnnxSession
from mxamp.runtime.executor import run_outputs
from tools.networks.build import build_network, draw_inputs
from tools.networks.catalogue import find_network
from tools.networks.names import NETWORK_NAMES

SMALL = (
    *("lenet", "perceptron", "capsules", "text_cnn", "lstm_language_model", "gru_language_model"),
    *("captcha_lstm", "mtcnn_proposal", "mtcnn_output", "mobile_face_net", "matrix_factorisation"),
)

LIMIT = {"style_transfer": 2e-5}
"""Beyond 1e-5 where a network amplifies: eleven InstanceNorms divide by what is nearly 0."""


def subject(name: str) -> tuple[Any, dict[str, Any]]:
    network = find_network(name)
    (data,) = draw_inputs(network.inputs, 1, samples=1)
    return build_network(network), data


def check_network(name: str, folder: Path) -> None:
    model, data = subject(name)
    shapes = {key: values.shape for key, values in data.items()}
    export = model.export_onnx(folder / "m.onnx", input_shapes=shapes)
    expected = run_outputs(model, data, fusion=False)
    found = OnnxSession(export.path).run(data)
    assert [values.shape for values in found] == [values.shape for values in expected]
    for ours, theirs in zip(found, expected):
        assert relative_error(ours, theirs) <= LIMIT.get(name, 1e-5)


@pytest.mark.parametrize("name", SMALL)
def test_a_network_is_the_same_in_onnx_runtime(name: str, tmp_path: Path) -> None:
    check_network(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NETWORK_NAMES if name not in SMALL])
def test_a_large_network_is_the_same_in_onnx_runtime(name: str, tmp_path: Path) -> None:
    check_network(name, tmp_path)


@pytest.mark.parametrize("name", ["lstm_language_model", "mobile_face_net"])
def test_in_float16_its_explicit_casts_have_the_error_of_emulation(name: str, tmp_path: Path) -> None:
    model, data = subject(name)
    shapes = {key: values.shape for key, values in data.items()}
    low = mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "float16", input_shapes=shapes)
    low.export_onnx(tmp_path / "low.onnx", input_shapes=shapes)
    OnnxSession(tmp_path / "low.onnx").run(data)  # it loads and runs
    mxamp.export_onnx(low, tmp_path / "e.onnx", input_shapes=shapes, explicit_casts=True)
    wide = run_outputs(model, data, fusion=False)[0]
    emulated = relative_error(run_outputs(explicit_casts_of(low), data, fusion=False)[0], wide)
    found = relative_error(OnnxSession(tmp_path / "e.onnx").run(data)[0], wide)
    assert emulated > 1e-5
    # Where sums come in another order, another value lies between two of float16: 0.15 was seen with AVX2.
    assert abs(found - emulated) <= 0.2 * emulated


def test_zeros_whose_batch_is_open_take_that_of_what_reads_them(tmp_path: Path) -> None:
    model, data = subject("captcha_lstm")
    assert any("(0, " in node.attrs.get("shape", "") for node in model.graph.nodes if node.op == "_zeros")
    shapes = {key: (3, *values.shape[1:]) for key, values in data.items()}
    model.export_onnx(tmp_path / "m.onnx", input_shapes=shapes)
    three = {key: np.concatenate([values] * 3) for key, values in data.items()}
    (found,) = OnnxSession(tmp_path / "m.onnx").run(three)
    (expected,) = run_outputs(model, three, fusion=False)
    assert relative_error(found, expected) <= 1e-6
    model.export_onnx(tmp_path / "d.onnx", input_shapes=shapes, dynamic_batch=True)
    for samples in (1, 3, 5):
        some = {key: np.resize(values, (samples, *values.shape[1:])) for key, values in data.items()}
        (found,) = OnnxSession(tmp_path / "d.onnx").run(some)
        (expected,) = run_outputs(model, some, fusion=False)
        assert found.shape == expected.shape
        assert relative_error(found, expected) <= 1e-6


@pytest.mark.parametrize("keepdims", [False, True])
def test_a_sum_that_conversion_made_a_product_leaves_the_batch_open(tmp_path: Path, keepdims: bool) -> None:
    rows = mx.sym.Embedding(mx.sym.var("words"), mx.sym.var("rows"), input_dim=50, output_dim=64)
    rows = mx.sym.FullyConnected(rows, mx.sym.var("w"), num_hidden=64, no_bias=True, flatten=False, name="fc")
    sym = mx.sym.sum(rows, axis=1, keepdims=keepdims, name="y")
    args = {"rows": mx.nd.random.normal(shape=(50, 64)), "w": mx.nd.random.normal(shape=(64, 64))}
    shapes = {"words": (1, 40)}
    model = mxamp.convert_model(
        sym, args, {}, "bfloat16", input_shapes=shapes, target="cpu-bf16", low_precision="required"
    )
    assert "second_axis_sum" in {change.step for change in model.report.preparations}
    written = explicit_casts_of(model)  # ONNX Runtime's CPU provider has few kernels of bfloat16
    written.export_onnx(tmp_path / "y.onnx", input_shapes=shapes, dynamic_batch=True)
    session = OnnxSession(tmp_path / "y.onnx")
    for samples in (1, 3):
        data = {"words": np.random.default_rng(2).integers(0, 50, (samples, 40)).astype(np.float32)}
        (found,) = session.run(data)
        (expected,) = run_outputs(as_model((sym, args, {}), "the source"), data, fusion=False)
        assert found.shape == expected.shape
        assert relative_error(found, expected) < 1e-2


def test_a_block_in_numpy_mode_is_the_same_in_onnx_runtime(tmp_path: Path) -> None:
    with mx.util.np_shape(True), mx.util.np_array(True):

        class Block(mx.gluon.HybridBlock):
            def __init__(self) -> None:
                super().__init__()
                self.body = mx.gluon.nn.HybridSequential()
                self.body.add(
                    mx.gluon.nn.Conv2D(8, 3, padding=1, in_channels=3),
                    mx.gluon.nn.BatchNorm(in_channels=8),
                    mx.gluon.nn.Activation("relu"),
                )
                self.last = mx.gluon.nn.Dense(5, in_units=8)

            def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803 - Gluon's name
                features = self.body(x)
                pooled = F.np.mean(features, axis=(2, 3))
                return F.npx.softmax(self.last(pooled) / F.np.sqrt(8.0 + 0 * F.np.sum(pooled)))

        block = Block()
        block.initialize()
        data = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
        expected = block(mx.np.array(data)).asnumpy()
        export = mxamp.export_onnx(block, tmp_path / "b.onnx", input_shapes=data.shape)
    (found,) = OnnxSession(export.path).run({export.inputs[0]: data})
    assert found.shape == expected.shape
    assert relative_error(found, expected) <= 1e-6


def test_bert_of_gluonnlp_is_the_same_in_onnx_runtime(tmp_path: Path) -> None:
    pytest.importorskip("gluonnlp", reason="gluonnlp is not installed: pip install gluonnlp==0.10.0")
    from gluonnlp.model.bert import BERTEncoder, BERTModel

    encoder = BERTEncoder(num_layers=2, units=32, hidden_size=64, max_length=16, num_heads=4, dropout=0.0)
    block = BERTModel(encoder, 100, 2, 32, embed_size=32, use_pooler=True, use_decoder=False)
    block.initialize(mx.init.Normal(0.1))
    block.hybridize(static_alloc=True)
    generator = np.random.default_rng(0)
    words, types = (generator.integers(0, high, (2, 12)).astype(np.float32) for high in (100, 2))
    lengths = np.array([12, 7], np.float32)
    expected = block(*map(mx.nd.array, (words, types, lengths)))
    shapes = [words.shape, types.shape, lengths.shape]
    export = mxamp.export_onnx(block, tmp_path / "b.onnx", input_shapes=shapes)
    found = OnnxSession(export.path).run(dict(zip(export.inputs, (words, types, lengths))))
    for ours, theirs in zip(found, expected):
        assert relative_error(ours, theirs.asnumpy()) <= 1e-5
    low = mxamp.convert_block(block, "float16", input_shapes=shapes)
    low_export = mxamp.export_onnx(low, tmp_path / "l.onnx", input_shapes=shapes)
    rounded = OnnxSession(low_export.path).run(dict(zip(low_export.inputs, (words, types, lengths))))
    for ours, theirs in zip(rounded, expected):
        assert relative_error(ours, theirs.asnumpy()) <= 1e-2


def test_the_shapes_of_a_converted_blocks_inputs_come_in_its_own_order(tmp_path: Path) -> None:
    """Its graph may read the second first."""

    class Net(mx.gluon.HybridBlock):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.first, self.second = mx.gluon.nn.Dense(8), mx.gluon.nn.Dense(8)

        def hybrid_forward(self, api: Any, x: Any, y: Any) -> Any:
            return self.second(y) + self.first(x)

    net = Net()
    net.initialize()
    shapes = [(2, 3), (2, 5)]
    given = [mx.nd.ones(shape) for shape in shapes]
    expected = net(*given).asnumpy()
    low = mxamp.convert_block(net, "float16", target="onnx-cuda-fp16", input_shapes=shapes)
    export = mxamp.export_onnx(low, tmp_path / "net.onnx", input_shapes=shapes)
    found = OnnxSession(export.path).run({f"data{n}": array.asnumpy() for n, array in enumerate(given)})
    np.testing.assert_allclose(found[0], expected, rtol=1e-2, atol=1e-3)
