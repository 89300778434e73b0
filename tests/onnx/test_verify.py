"""``--verify`` where there is no MXNet: the file against the float32 export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")

import mxamp
from mxamp import export
from mxamp.cli.main import main
from mxamp.dtypes import DType
from mxamp.model import Model
from mxamp.params.parameter import ArrayParameter
from tests.building import Net

DATA = {"data": np.random.default_rng(1).standard_normal((2, 4, 8, 8)).astype(np.float32)}
SHAPES = {name: values.shape for name, values in DATA.items()}


@pytest.fixture(autouse=True)
def _no_mxnet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "why_no_mxnet", lambda: "this test does without")


def network() -> Model:
    net = Net()
    conv = net.conv(net.var("data"), "conv")
    rectified = net.op("Activation", net.bn(conv, "bn"), act_type="relu")
    graph = net.graph(net.op("softmax", net.conv(rectified, "last"), name="prob", axis=1))
    params = {name: ArrayParameter(values) for name, values in net.params.items()}
    auxiliary = {name for name in params if "moving" in name}
    return Model(
        graph,
        {name: value for name, value in params.items() if name not in auxiliary},
        {name: value for name, value in params.items() if name in auxiliary},
    )


def low(model: Model) -> Model:
    return mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "float16")


def difference(path: Path, model: Model) -> float:
    (found,) = export.verify_onnx(path, model, DATA)
    assert found.name == "prob_output"
    return found.error


def test_a_float32_file_is_held_against_itself_unoptimized(tmp_path: Path) -> None:
    model = network()
    model.export_onnx(tmp_path / "m.onnx", input_shapes=SHAPES)
    assert difference(tmp_path / "m.onnx", model) <= 1e-6
    assert "optimizations" in export.verification_reference(model)


def test_a_converted_file_differs_from_float32_by_its_roundings(tmp_path: Path) -> None:
    model = low(network())
    mxamp.export_onnx(model, tmp_path / "m.onnx", input_shapes=SHAPES, explicit_casts=True)
    assert 1e-6 < difference(tmp_path / "m.onnx", model) < 5e-3
    assert "float32" in export.verification_reference(model)


def test_a_file_of_other_weights_is_found(tmp_path: Path) -> None:
    model = network()
    changed = dict(model.arg_params)
    changed["last_weight"] = ArrayParameter(1.5 * model.arg_params["last_weight"].numpy())
    other = Model(model.graph, changed, model.aux_params)
    for given, written in ((model, other), (low(model), low(other))):
        written.export_onnx(tmp_path / "m.onnx", input_shapes=SHAPES)
        assert difference(tmp_path / "m.onnx", given) > 2e-2


def test_low_precision_with_float32_parameters_has_the_tolerance_of_low_precision(
    tmp_path: Path, capsys: Any
) -> None:
    model = network()
    converted = mxamp.convert_model(
        model.graph, model.arg_params, model.aux_params, "float16", cast_optional_params=False
    )
    assert all(value.dtype is DType.FLOAT32 for value in converted.arg_params.values())
    converted.save(tmp_path / "net")
    arguments = ["export", str(tmp_path / "net"), "-o", str(tmp_path / "m.onnx"), "--verify"]
    assert main([*arguments, "--input-shape", "data=2,4,8,8", "--explicit-casts"]) == 0
    assert "beyond the tolerance" not in "".join(capsys.readouterr())


def test_the_command_says_what_it_compared_with(tmp_path: Path, capsys: Any) -> None:
    low(network()).save(tmp_path / "net")
    shape = "data=2,4,8,8"
    path = str(tmp_path / "m.onnx")
    assert main(["export", str(tmp_path / "net"), "-o", path, "--input-shape", shape, "--verify"]) == 0
    assert "the same parameters in float32" in " ".join("".join(capsys.readouterr()).split())
