"""Module checkpoints, which end in training heads: their labels are no inputs of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")

import mxamp
from mxamp.cli.main import main
from mxamp.model import Model
from mxamp.onnx import OnnxSession
from tests.building import Net, parameters

HEADS = (
    *("SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput"),
    *("MAERegressionOutput", "SVMOutput"),
)


def labelled(op: str) -> Model:
    net = Net()
    layer = net.fc(net.var("data"), "fc")
    graph = net.graph(net.op(op, layer, net.var("head_label"), name="head"))
    return Model(graph, parameters(net.params), {})


@pytest.mark.parametrize("op", HEADS)
@pytest.mark.parametrize("is_low", [False, True], ids=["float32", "float16"])
def test_a_file_is_verified(tmp_path: Path, op: str, is_low: bool, capsys: Any) -> None:
    model = labelled(op)
    if is_low:
        model = mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "float16")
    model.save(tmp_path / "net")
    shape = ("--input-shape", "data=2,4")
    assert main(["export", str(tmp_path / "net"), "-o", str(tmp_path / "m.onnx"), *shape, "--verify"]) == 0
    assert "in the worst of 1 output" in " ".join(capsys.readouterr().out.split())
    assert OnnxSession(tmp_path / "m.onnx").run({"data": np.ones((2, 4), np.float32)})[0].shape[0] == 2


def test_a_label_that_is_rounded_is_left_out(tmp_path: Path) -> None:
    model = labelled("SoftmaxOutput")
    pure = mxamp.convert_model(
        model.graph, model.arg_params, model.aux_params, "float16", policy="pure", low_precision="required"
    )
    file = mxamp.export_onnx(pure, tmp_path / "m.onnx", input_shapes={"data": (2, 4)}, explicit_casts=True)
    assert file.inputs == ("data",)
    (found,) = OnnxSession(file.path).run({"data": np.ones((2, 4), np.float32)})
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-2)
