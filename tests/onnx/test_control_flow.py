"""Loops and branches: Scan, Loop and If, against MXNet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")
mx = pytest.importorskip("mxnet", reason="MXNet is what the results are compared with")

import mxamp
from mxamp.export import explicit_casts_of, relative_error
from mxamp.model import Model
from mxamp.onnx import OnnxSession
from mxamp.runtime.executor import run_outputs

S = mx.sym
W = np.random.default_rng(3).uniform(-0.5, 0.5, (4, 4)).astype(np.float32)
X = np.random.default_rng(4).uniform(-1, 1, (5, 2, 4)).astype(np.float32)
STATE = np.random.default_rng(5).uniform(-1, 1, (2, 4)).astype(np.float32)


def layer(data: Any, name: str = "fc") -> Any:
    return S.FullyConnected(data, S.var("w", shape=(4, 4)), num_hidden=4, no_bias=True, name=name)


def loop_over(steps: int = 5) -> Any:
    def body(data: Any, state: Any) -> Any:
        out = layer(data) + state
        return [out, out * 2], S.tanh(out)

    outs, state = S.contrib.foreach(body, S.var("x", shape=(steps, 2, 4)), S.var("s", shape=(2, 4)))
    return S.Group([*outs, state])


def loop_that_counts(most: int) -> Any:
    def step(count: Any, state: Any) -> Any:
        new = layer(state)
        return [new * 2], [count + 1, new]

    outs, states = S.contrib.while_loop(
        lambda count, state: count < 3,
        step,
        [S.var("i", shape=(1,)), S.var("s", shape=(2, 4))],
        max_iterations=most,
    )
    return S.Group([S.slice_axis(outs[0], axis=0, begin=0, end=3), *states])


def branch() -> Any:
    state = S.var("s", shape=(2, 4))
    return S.contrib.cond(S.var("p", shape=(1,)) < 1, lambda: layer(state), lambda: S.exp(state))


def loop_in_a_branch() -> Any:
    data, state = S.var("x", shape=(5, 2, 4)), S.var("s", shape=(2, 4))

    def looped() -> Any:
        return S.contrib.foreach(lambda row, kept: (layer(row) + kept, kept + row), data, state)[1]

    return S.contrib.cond(S.var("p", shape=(1,)) < 1, looped, lambda: S.exp(state))


CASES = {
    "foreach": (loop_over(), {"x": X, "s": STATE}),
    "one step": (loop_over(1), {"x": X[:1], "s": STATE}),
    "while": (loop_that_counts(3), {"i": np.zeros(1), "s": STATE}),
    "while ends early": (loop_that_counts(7), {"i": np.zeros(1), "s": STATE}),
    "branch taken": (branch(), {"p": np.zeros(1), "s": STATE}),
    "branch not taken": (branch(), {"p": np.ones(1), "s": STATE}),
    "loop in a branch": (loop_in_a_branch(), {"p": np.zeros(1), "x": X, "s": STATE}),
}


def subject(name: str) -> tuple[Model, dict[str, Any]]:
    symbol, data = CASES[name]
    model = Model.of(symbol, {"w": mx.nd.array(W)}, {})
    return model, {key: np.asarray(values, np.float32) for key, values in data.items()}


@pytest.mark.parametrize("name", CASES)
def test_control_flow_returns_what_mxnet_returns(name: str, tmp_path: Path) -> None:
    model, data = subject(name)
    expected = run_outputs(model, data, fusion=False)
    export = model.export_onnx(tmp_path / "m.onnx")
    assert list(export.outputs) == model.sym.list_outputs()
    found = OnnxSession(export.path).run(data)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        assert relative_error(ours, theirs) <= 1e-6


@pytest.mark.parametrize("name", ["foreach", "while", "branch taken"])
def test_roundings_inside_a_body_are_written(name: str, tmp_path: Path) -> None:
    model, data = subject(name)
    low = mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "float16")
    expected = run_outputs(explicit_casts_of(low), data, fusion=False)
    mxamp.export_onnx(low, tmp_path / "e.onnx", explicit_casts=True)
    found = OnnxSession(tmp_path / "e.onnx").run(data)
    wide = run_outputs(model, data, fusion=False)
    rounded = max(relative_error(ours, theirs) for ours, theirs in zip(expected, wide))
    assert rounded > 1e-5  # it is FP16 that is seen
    for ours, theirs in zip(found, expected):
        assert relative_error(ours, theirs) <= 0.1 * rounded
    low.export_onnx(tmp_path / "l.onnx")
    for ours, theirs in zip(OnnxSession(tmp_path / "l.onnx").run(data), wide):
        assert relative_error(ours, theirs) < 5e-3


def test_what_only_a_body_reads_is_in_the_file(tmp_path: Path) -> None:
    import onnx

    model, _ = subject("loop in a branch")
    model.export_onnx(tmp_path / "m.onnx")
    stored = onnx.load(tmp_path / "m.onnx")
    assert "w" in {tensor.name for tensor in stored.graph.initializer}
    assert [value.name for value in stored.graph.input] == [
        name for name in model.sym.list_arguments() if name != "w"
    ]


def test_an_operator_without_a_mapping_is_named_in_a_body(tmp_path: Path) -> None:
    out, _ = S.contrib.foreach(
        lambda row, kept: (S.shuffle(row, name="inside"), kept),
        S.var("x", shape=(5, 2, 4)),
        S.var("s", shape=(2, 4)),
    )
    with pytest.raises(mxamp.errors.ExportError, match=r"_shuffle \('inside'\)"):
        Model.of(out, {}, {}).export_onnx(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
