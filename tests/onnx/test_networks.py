"""Whole networks: ONNX Runtime against MXNet, FP32 and with explicit casts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")
pytest.importorskip("mxnet", reason="MXNet is what the results are compared with")

import mxamp
from mxamp.export import explicit_casts_of, relative_error
from mxamp.onnx import OnnxSession
from mxamp.runtime.executor import run_outputs

DIGITS = Path(__file__).resolve().parents[2] / "demo" / "cifar_resnet20_v1-digits"
SHAPES = {"data": (8, 3, 32, 32)}


def test_explicit_casts_have_the_error_of_emulation(tmp_path: Path) -> None:
    trained = mxamp.load(DIGITS)
    model = mxamp.convert_model(trained.graph, trained.arg_params, trained.aux_params, "float16")
    data = {"data": np.random.default_rng(0).standard_normal(SHAPES["data"], np.float32)}
    (wide,) = run_outputs(trained, data, fusion=False)
    (emulated,) = run_outputs(explicit_casts_of(model), data, fusion=False)
    mxamp.export_onnx(model, tmp_path / "e.onnx", input_shapes=SHAPES, explicit_casts=True)
    (found,) = OnnxSession(tmp_path / "e.onnx").run(data)
    error, expected = relative_error(found, wide), relative_error(emulated, wide)
    assert expected > 1e-4  # it is FP16 that is seen
    assert abs(error - expected) <= 0.1 * expected


def test_a_block_is_exported_like_its_files(tmp_path: Path) -> None:
    import mxnet as mx

    block = mx.gluon.nn.HybridSequential()
    block.add(mx.gluon.nn.Conv2D(4, 3, in_channels=3), mx.gluon.nn.PReLU(), mx.gluon.nn.Dense(5))
    block.initialize()
    data = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    expected = block(mx.nd.array(data)).asnumpy()
    export = mxamp.export_onnx(block, tmp_path / "b.onnx", input_shapes=data.shape)
    (found,) = OnnxSession(export.path).run({"data": data})
    assert relative_error(found, expected) <= 1e-6
    sym, args, auxs = mxamp.convert_model(*_triple(block, tmp_path), "float16")
    triple = mxamp.export_onnx((sym, args, auxs), tmp_path / "t.onnx", input_shapes={"data": data.shape})
    (low,) = OnnxSession(triple.path).run({"data": data})
    assert 0 < relative_error(low, expected) < 5e-3


def _triple(block: object, folder: Path) -> tuple[object, object, object]:
    import mxnet as mx

    block.hybridize()  # type: ignore[attr-defined]
    block(mx.nd.zeros((2, 3, 8, 8)))  # type: ignore[operator]
    block.export(str(folder / "block"))  # type: ignore[attr-defined]
    found: tuple[object, object, object] = mx.model.load_checkpoint(str(folder / "block"), 0)
    return found


def test_a_converted_block_takes_shapes_in_order(tmp_path: Path) -> None:
    import mxnet as mx

    block = mx.gluon.nn.HybridSequential()
    block.add(mx.gluon.nn.Conv2D(4, 3, in_channels=3), mx.gluon.nn.Dense(5))
    block.initialize()
    low = mxamp.convert_block(block, "float16", input_shapes=(2, 3, 8, 8))
    for number, shapes in enumerate(((2, 3, 8, 8), [(2, 3, 8, 8)], {"data": (2, 3, 8, 8)})):
        export = mxamp.export_onnx(low, tmp_path / f"{number}.onnx", input_shapes=shapes)
        assert OnnxSession(export.path).input_shapes == {"data": (2, 3, 8, 8)}
    with pytest.raises(mxamp.errors.DataError, match="2 shapes, and the block 1 inputs: data"):
        mxamp.export_onnx(low, tmp_path / "no.onnx", input_shapes=[(2, 3, 8, 8), (1,)])
