"""``make bench-peers`` and ``make verify-onnx``: the rounded form, what is counted, and what is told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")

import mxamp
from mxamp.export import relative_error
from mxamp.model import Model
from mxamp.onnx import OnnxSession
from mxamp.params.parameter import ArrayParameter
from tests.building import Net
from tools.peers import environment
from tools.peers.benchmark import OURS, judge, table, worse_rows
from tools.peers.environment import JobError, run_job
from tools.peers.rounded import Inventory, inventory, rounded_form

DATA = {"data": np.random.default_rng(2).standard_normal((2, 4, 8, 8)).astype(np.float32)}
SHAPES = {name: values.shape for name, values in DATA.items()}
FLOAT, FLOAT16, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BOOL
helper = onnx.helper


def network() -> Model:
    net = Net()
    conv = net.conv(net.var("data"), "first")
    graph = net.graph(net.conv(net.op("Activation", conv, act_type="tanh"), "last"))
    return Model(graph, {name: ArrayParameter(values) for name, values in net.params.items()}, {})


def converted() -> Model:
    model = network()
    return mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "float16")


def run(model: Any, folder: Path, data: Any = None) -> Any:
    onnx.save(model, folder / "run.onnx")
    return OnnxSession(folder / "run.onnx").run(DATA if data is None else data)


def test_the_rounded_form_has_the_roundings_of_explicit_casts(tmp_path: Path) -> None:
    converted().export_onnx(tmp_path / "low.onnx", input_shapes=SHAPES)
    mxamp.export_onnx(converted(), tmp_path / "explicit.onnx", input_shapes=SHAPES, explicit_casts=True)
    network().export_onnx(tmp_path / "wide.onnx", input_shapes=SHAPES)
    (wide,) = OnnxSession(tmp_path / "wide.onnx").run(DATA)
    (explicit,) = OnnxSession(tmp_path / "explicit.onnx").run(DATA)
    (rounded,) = run(rounded_form(onnx.load(tmp_path / "low.onnx")), tmp_path)
    error = relative_error(explicit, wide)
    assert error > 1e-5
    assert relative_error(rounded, wide) == pytest.approx(error, rel=0.02)
    assert (np.float16(rounded) == rounded).all()  # on the grid


def test_the_rounded_form_is_float32_but_for_its_casts(tmp_path: Path) -> None:
    converted().export_onnx(tmp_path / "low.onnx", input_shapes=SHAPES)
    before = onnx.load(tmp_path / "low.onnx")
    text = before.SerializeToString()
    rounded = rounded_form(before)
    assert before.SerializeToString() == text
    assert {tensor.data_type for tensor in rounded.graph.initializer if tensor.data_type == FLOAT16} == set()
    assert inventory(before).low > 0
    counted = inventory(rounded)
    assert counted.low == 0
    # Each result of a low node, and the casts down among them, is rounded: down and up.
    low_results = inventory(before).low + sum(
        node.op_type == "Cast" and node.attribute[0].i == FLOAT16 for node in before.graph.node
    )
    assert counted.casts == 2 * low_results


def test_parameters_and_constants_keep_their_float16_values(tmp_path: Path) -> None:
    third = onnx.numpy_helper.from_array(np.array([1 / 3], np.float16), "third")
    nodes = [
        helper.make_node("Cast", ["x"], ["low"], to=FLOAT16),
        helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.float16([0.1]))),
        helper.make_node("Mul", ["low", "third"], ["m"]),
        helper.make_node("Add", ["m", "c"], ["s"]),
        helper.make_node("Cast", ["s"], ["y"], to=FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, (3,))],
        [helper.make_tensor_value_info("y", FLOAT, (3,))],
        [third],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.array([1.0, 2.7182818, 1000.3], np.float32)
    (found,) = run(rounded_form(model), tmp_path, {"x": x})
    expected = (np.float16(x) * np.float16(1 / 3)).astype(np.float16) + np.float16(0.1)
    assert (found == expected.astype(np.float32)).all()
    assert inventory(model) == Inventory(casts=2, low=2, wide=0)


def test_what_a_branch_computes_is_rounded_too(tmp_path: Path) -> None:
    low = [helper.make_tensor_value_info(name, FLOAT16, (2,)) for name in ("then_out", "else_out")]
    branches = {
        "then_branch": helper.make_graph(
            [helper.make_node("Mul", ["low", "low"], ["then_out"])], "then", [], [low[0]]
        ),
        "else_branch": helper.make_graph(
            [helper.make_node("Identity", ["low"], ["else_out"])], "else", [], [low[1]]
        ),
    }
    nodes = [
        helper.make_node("Cast", ["x"], ["low"], to=FLOAT16),
        helper.make_node("If", ["yes"], ["chosen"], **branches),
        helper.make_node("Cast", ["chosen"], ["y"], to=FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", FLOAT, (2,)),
            helper.make_tensor_value_info("yes", BOOL, ()),
        ],
        [helper.make_tensor_value_info("y", FLOAT, (2,))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.array([1 / 3, 0.7], np.float32)
    (found,) = run(rounded_form(model), tmp_path, {"x": x, "yes": np.array(True)})
    assert (found == (np.float16(x) * np.float16(x)).astype(np.float32)).all()


def test_a_file_is_judged_by_its_rounded_form_and_left_alone(tmp_path: Path) -> None:
    converted().export_onnx(tmp_path / "low.onnx", input_shapes=SHAPES)
    network().export_onnx(tmp_path / "wide.onnx", input_shapes=SHAPES)
    expected = OnnxSession(tmp_path / "wide.onnx").run(DATA)
    found = judge(tmp_path / "low.onnx", DATA, expected)
    assert found["problem"] == ""
    assert found["casts"] == 2
    assert found["low"] > 0
    assert 1e-5 < found["error"] < 1e-2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["low.onnx", "wide.onnx"]


def row(name: str, **errors: Any) -> dict[str, Any]:
    tools = {
        tool: {"problem": error}
        if isinstance(error, str)
        else {"problem": "", "error": error, "low": 3, "wide": 1}
        for tool, error in errors.items()
    }
    return {"name": name, "outputs": ["y"], "tools": tools}


def test_only_a_smaller_error_of_a_file_that_runs_is_worse_for_mxamp() -> None:
    rows = [
        row("better", **{OURS: 4e-4, "AutoCast": 5e-4}),
        row("by chance", **{OURS: 4.1e-4, "AutoCast": 4e-4}),
        row("worse", **{OURS: 5e-4, "AutoCast": 4e-4}),
        row("refused", **{OURS: 5e-4, "AutoCast": "ONNX Runtime refuses it"}),
        row("ssd", **{OURS: 0.4, "AutoCast": 0.3}),
        row("ssd:before-ranking", **{OURS: 1e-4, "AutoCast": 4e-4}),
        row("broken", **{OURS: "its rounded form does not run", "AutoCast": 4e-4}),
    ]
    assert [line.partition(":")[0] for line in worse_rows(rows)] == ["worse", "broken"]
    assert "| `worse` | mxamp |  | 3 / 1 | 5.0e-04 |  |" in table(rows)
    assert "refuses it |" in table(rows)


def test_a_job_that_fails_tells_the_last_that_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PEERS_PYTHON", Path(sys.executable))
    with pytest.raises(JobError, match="KeyError: 'nothing'"):
        run_job("nothing")
    assert run_job("versions")["onnx"] == onnx.__version__


def test_without_the_environment_a_job_says_how_to_make_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PEERS_PYTHON", Path("/nowhere/python"))
    with pytest.raises(JobError, match="make bench-peers sets it up"):
        run_job("versions")
