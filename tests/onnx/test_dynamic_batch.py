"""Files whose batch is open take any, and return what MXNet returns; or they are not written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")
pytest.importorskip("mxnet", reason="MXNet is what the results are compared with")

import mxnet as mx
import onnx

from mxamp.compare.inputs import as_model
from mxamp.errors import ExportError, MxampError
from mxamp.onnx import OnnxSession, export_graph
from mxamp.onnx.batch import batch_axes
from mxamp.runtime.executor import BoundModel, run_outputs
from tests.building import Net
from tests.onnx.cases import CASES
from tests.onnx.operators import Case, arrays_of_case, model_of_case

_FIRST = {given.op: given for given in reversed(CASES)}
_SHAPING = frozenset(
    {
        *("Reshape", "_npx_reshape", "reshape_like", "slice_like", "broadcast_like", "dot", "RNN"),
        *("_contrib_arange_like", "_contrib_box_decode", "_contrib_MultiBoxDetection", "repeat", "where"),
    }
)
BATCHED = [given for given in CASES if _FIRST[given.op] is given or given.op in _SHAPING]
"""The first case of each operator, and all of those whose shapes are made from others."""


@pytest.mark.parametrize("given", BATCHED, ids=str)
def test_twice_the_batch_is_as_in_mxnet(given: Case, tmp_path: Path) -> None:
    model, data = model_of_case(given), arrays_of_case(given)
    params = {**model.arg_params, **model.aux_params}
    data = {name: values for name, values in data.items() if name not in params}
    if not data or any(values.ndim == 0 for values in data.values()):
        pytest.skip("it reads nothing that has a batch")
    shapes = {name: values.shape for name, values in data.items()}
    try:
        export_graph(model.graph, params, tmp_path / "n.onnx", input_shapes=shapes, dynamic_batch=True)
    except ExportError as error:
        if "--dynamic-batch" not in str(error) and "is not known" not in str(error):
            raise
        return
    axes = batch_axes(model.graph, shapes)
    for times in (1, 2):
        fed = {
            name: np.concatenate([values] * times, axes[name].number)
            if axes[name].symbol == "batch"
            else values
            for name, values in data.items()
        }
        try:
            expected = BoundModel(model, fusion=False).run(fed)
        except MxampError:
            continue  # what has one sample, as the shape of an image
        found = OnnxSession(tmp_path / "n.onnx").run(fed)
        for ours, theirs in zip(found, expected):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("merge", ["(-3, -2)", "(-3, 0, 0)", "(-3, -1)", "(-1, 4, 5)", "(-3, -3)"])
def test_the_batch_may_be_one_axis_with_another(tmp_path: Path, merge: str) -> None:
    net = Net()
    merged = net.op("Reshape", net.var("data"), name="merged", shape=merge)
    activated = net.op("tanh", merged)
    # Both first axes are open, and of other sizes: nothing is cut, and the batch comes back.
    like = net.op("reshape_like", activated, net.var("data2"))
    shapes = {"data": (2, 3, 4, 5), "data2": (2, 3, 4, 5)}
    export_graph(net.graph(like), {}, tmp_path / "n.onnx", input_shapes=shapes, dynamic_batch=True)
    for samples in (1, 2, 7):
        values = np.random.default_rng(0).standard_normal((samples, 3, 4, 5)).astype(np.float32)
        fed = {"data": values, "data2": values}
        (found,) = OnnxSession(tmp_path / "n.onnx").run(fed)
        np.testing.assert_allclose(found, np.tanh(values), rtol=1e-5, atol=1e-6)


def test_a_part_is_cut_where_two_open_axes_differ(tmp_path: Path) -> None:
    net = Net()
    data = net.var("data")
    twice = net.op("Concat", data, data, dim=0, num_args=2)
    part = net.op("slice_like", twice, data, axes="(0,)")
    shapes = {"data": (2, 3)}
    export_graph(net.graph(part), {}, tmp_path / "n.onnx", input_shapes=shapes, dynamic_batch=True)
    for samples in (1, 4):
        values = np.random.default_rng(0).standard_normal((samples, 3)).astype(np.float32)
        (found,) = OnnxSession(tmp_path / "n.onnx").run({"data": values})
        np.testing.assert_array_equal(found, values)


def test_the_batch_of_a_recurrent_state_is_behind_its_layers(tmp_path: Path) -> None:
    x, state = mx.sym.var("data"), mx.sym.var("state")
    steps = mx.sym.swapaxes(x, dim1=0, dim2=1)
    cells = mx.sym.RNN(
        *(steps, mx.sym.var("packed"), state),
        state_size=5,
        num_layers=1,
        mode="gru",
        state_outputs=True,
        name="gru",
    )
    sym = mx.sym.Group([mx.sym.SequenceLast(cells[0]), cells[1]])
    args = {"packed": mx.nd.random.uniform(-0.3, 0.3, shape=3 * 5 * (3 + 5) + 6 * 5)}
    model = as_model((sym, args, {}), "the source")
    shapes = {"data": (4, 6, 3), "state": (1, 4, 5)}
    model.export_onnx(tmp_path / "n.onnx", input_shapes=shapes, dynamic_batch=True)
    session = OnnxSession(tmp_path / "n.onnx")
    for samples in (1, 6):
        fed = {
            "data": np.random.default_rng(0).standard_normal((samples, 6, 3)).astype(np.float32),
            "state": np.random.default_rng(1).standard_normal((1, samples, 5)).astype(np.float32),
        }
        for ours, theirs in zip(session.run(fed), run_outputs(model, fed, fusion=False)):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_inputs_of_other_sizes_have_batches_of_their_own(tmp_path: Path) -> None:
    net = Net()
    added = net.op("broadcast_add", net.var("data"), net.var("anchors"))
    shapes = {"data": (4, 3, 2), "anchors": (1, 3, 2)}
    export_graph(net.graph(added), {}, tmp_path / "n.onnx", input_shapes=shapes, dynamic_batch=True)
    data = np.random.default_rng(0).standard_normal((5, 3, 2)).astype(np.float32)
    (found,) = OnnxSession(tmp_path / "n.onnx").run({"data": data, "anchors": data[:1]})
    np.testing.assert_array_equal(found, data + data[:1])
    # No other number of anchors fits every batch.
    inputs = onnx.load(str(tmp_path / "n.onnx")).graph.input
    firsts = {value.name: value.type.tensor_type.shape.dim[0] for value in inputs}
    assert (firsts["data"].dim_param, firsts["anchors"].dim_value) == ("batch", 1)


def test_states_follow_the_input_that_is_not_as_long_as_the_first(tmp_path: Path) -> None:
    steps, state = mx.sym.var("steps"), mx.sym.zeros((1, 0, 5))
    cells = mx.sym.RNN(steps, mx.sym.var("packed"), state, state_size=5, num_layers=1, mode="gru", name="gru")
    sym = mx.sym.Group([mx.sym.relu(mx.sym.var("data")), cells])
    args = {"packed": mx.nd.random.uniform(-0.3, 0.3, shape=3 * 5 * (3 + 5) + 6 * 5)}
    model = as_model((sym, args, {}), "the source")
    shapes = {"data": (2, 3), "steps": (4, 8, 3)}
    model.export_onnx(tmp_path / "n.onnx", input_shapes=shapes, dynamic_batch=True)
    fed = {
        "data": np.ones((3, 3), np.float32),
        "steps": np.random.default_rng(0).standard_normal((4, 5, 3)).astype(np.float32),
    }
    for ours, theirs in zip(OnnxSession(tmp_path / "n.onnx").run(fed), run_outputs(model, fed, fusion=False)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sign", [1, -1])
def test_branches_and_loops_may_have_an_open_batch(tmp_path: Path, sign: int) -> None:
    def step(data: mx.sym.Symbol, state: mx.sym.Symbol) -> tuple[mx.sym.Symbol, mx.sym.Symbol]:
        total = data + state
        return total * 2, mx.sym.tanh(total)

    x = mx.sym.var("x")
    # Behind a Reshape of the batch and another axis nothing says that the size is the batch's.
    again = mx.sym.reshape(mx.sym.reshape(x, shape=(-3, 0)), shape=(-4, -1, 3, 0))
    chosen = mx.sym.contrib.cond(mx.sym.sum(x) > 0, lambda: x * 2, lambda: again - 1)
    outputs, state = mx.sym.contrib.foreach(
        step,
        mx.sym.transpose(chosen, axes=(1, 0, 2)),
        mx.sym.slice_axis(x, axis=1, begin=0, end=1).squeeze(1),
    )
    model = as_model((mx.sym.Group([chosen, outputs, state]), {}, {}), "the source")
    model.export_onnx(tmp_path / "n.onnx", input_shapes={"x": (2, 3, 4)}, dynamic_batch=True)
    session = OnnxSession(tmp_path / "n.onnx")
    for samples in (1, 2, 5):
        values = np.random.default_rng(0).uniform(0, 1, (samples, 3, 4)).astype(np.float32) * sign
        fed = {"x": values}
        for ours, theirs in zip(session.run(fed), run_outputs(model, fed, fusion=False)):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["ones_like", "zeros_like"])
def test_what_is_filled_like_a_batch_has_its_other_sizes(op: str, tmp_path: Path) -> None:
    """The mask of attention: ones like the scores, as far as each sequence goes."""
    net = Net()
    filled = net.op(op, net.var("scores"))
    masked = net.op("SequenceMask", filled, net.var("length"), use_sequence_length=True, axis=1, value=-1)
    graph = net.graph(masked)
    shapes = {"scores": (2, 3, 4), "length": (2,)}
    export_graph(graph, {}, tmp_path / "n.onnx", input_shapes=shapes, dynamic_batch=True)
    data = {
        "scores": np.random.default_rng(0).normal(size=(5, 3, 4)).astype(np.float32),
        "length": np.array([1, 2, 3, 1, 2], np.float32),
    }
    (expected,) = run_outputs(as_model((graph, {}, {}), "it"), data, fusion=False)
    (found,) = OnnxSession(tmp_path / "n.onnx").run(data)
    np.testing.assert_array_equal(found, expected)
