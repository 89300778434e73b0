"""ONNX files on either side of a comparison."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")

from mxamp.cli.main import main
from mxamp.compare.onnx_files import compare_onnx
from mxamp.dtypes import DType
from mxamp.errors import DataError
from mxamp.model import Model
from mxamp.onnx import OnnxSession
from tests.building import Net, convert, parameters

DATA = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32)


def net() -> Net:
    net = Net()
    net.heads = [net.op("relu", net.conv(net.var("data"), "conv0"), name="out")]  # type: ignore[attr-defined]
    return net


def model() -> Model:
    built = net()
    return Model(built.graph(*built.heads), parameters(built.params), {})  # type: ignore[attr-defined]


def low() -> Model:
    built = net()
    return convert(built.graph(*built.heads), built.params, DType.FLOAT16)  # type: ignore[attr-defined]


def session(made: Model, path: Path, *, samples: int = 4, dynamic: bool = False) -> OnnxSession:
    made.export_onnx(path, input_shapes={"data": (samples, 4, 3, 3)}, dynamic_batch=dynamic)
    return OnnxSession(path)


def test_two_files_are_compared_without_mxnet(tmp_path: Path) -> None:
    one, two = session(model(), tmp_path / "a.onnx"), session(low(), tmp_path / "b.onnx")
    same = compare_onnx(one, one, DATA)
    assert same.outputs[0].distance.relative_l2 == 0
    fidelity = compare_onnx(one, two, {"data": DATA})
    assert 0 < fidelity.outputs[0].distance.relative_l2 < 2e-3
    assert fidelity.outputs[0].name == "out_output"
    assert fidelity.samples == 4


def test_a_file_of_fixed_batch_is_fed_so_many_samples_at_a_time(tmp_path: Path) -> None:
    by_two = session(model(), tmp_path / "two.onnx", samples=2)
    any_number = session(model(), tmp_path / "any.onnx", dynamic=True)
    fidelity = compare_onnx(any_number, by_two, DATA)
    assert (fidelity.batch_size, fidelity.samples) == (2, 4)
    assert fidelity.outputs[0].distance.relative_l2 < 1e-6
    with pytest.raises(DataError, match="2 samples at a time"):
        compare_onnx(any_number, by_two, DATA[:3])


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    one = session(model(), tmp_path / "a.onnx")
    with pytest.raises(DataError, match="'data'"):
        compare_onnx(one, one, {"image": DATA})
    other = Net()
    x = other.var("data")
    both = Model(other.graph(other.op("relu", x, name="r0"), other.op("tanh", x, name="t0")), {}, {})
    with pytest.raises(DataError, match="1 and 2 outputs"):
        compare_onnx(one, session(both, tmp_path / "b.onnx"), DATA)


def test_a_model_is_compared_with_its_file(tmp_path: Path) -> None:
    pytest.importorskip("mxnet", reason="MXNet runs the model")
    fidelity = compare_onnx(model(), session(model(), tmp_path / "a.onnx"), DATA)
    assert fidelity.outputs[0].distance.relative_l2 < 1e-6


def test_the_command_line_takes_onnx_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session(model(), tmp_path / "a.onnx")
    session(low(), tmp_path / "b.onnx")
    pair = [str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx")]
    assert main(["compare", *pair, "--random", "--json", "--tolerance", "2e-3"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["outputs"][0]["name"] == "out_output"
    assert main(["compare", *pair, "--random", "--tolerance", "1e-9"]) == 1
    assert main(["compare", *pair]) == 2
    np.savez(tmp_path / "data.npz", data=DATA)
    assert main(["compare", *pair, "--data", str(tmp_path / "data.npz")]) == 0
