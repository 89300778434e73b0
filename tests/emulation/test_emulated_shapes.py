"""Emulated models bind wherever the models do that they emulate: roundings infer shapes both ways."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="runs models")

import mxamp
from mxamp.compare.metrics import distance
from mxamp.errors import LibraryError
from mxamp.model import Model
from mxamp.ops.rounding import is_rounding
from mxamp.runtime.executor import run_outputs
from mxamp.runtime.library import load_operators

S = mx.sym
STEPS, BATCH, FEATURES = 3, 2, 5


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    try:
        load_operators()
    except LibraryError as error:
        pytest.skip(f"the operator library cannot be built: {error}")


def unrolled(cell: Any) -> Any:
    outputs, states = cell.unroll(STEPS, S.var("data"), layout="NTC", merge_outputs=True)
    flat = [state for part in states for state in (part if isinstance(part, list) else [part])]
    return S.Group([outputs, *(S.identity(state) for state in flat)])


def dense_of(outputs: Any) -> Any:
    return S.FullyConnected(outputs, num_hidden=4, name="dense")


def zoneout_of_gluon() -> Any:
    cell = mx.gluon.rnn.ZoneoutCell(mx.gluon.rnn.LSTMCell(8, prefix="lstm_"), 0.3, 0.2)
    outputs, _ = cell.unroll(STEPS, S.var("data"), layout="NTC", merge_outputs=True)
    return dense_of(outputs)


def begin_states_like_the_data() -> Any:
    """Begin states that are made of the data, as gluonts does."""
    data = S.var("data")
    first = S.zeros_like(S.slice_axis(S.slice_axis(data, axis=1, begin=0, end=1), axis=2, begin=0, end=1))
    state = S.tile(S.Flatten(first), reps=(1, 8))
    outputs, _ = mx.rnn.LSTMCell(8).unroll(STEPS, data, begin_state=[state, state], merge_outputs=True)
    return dense_of(outputs)


def low_begin_states() -> Any:
    """Begin states behind a layer of their own: a rounding whose batch MXNet learns from its reader alone."""
    state = S.FullyConnected(S.zeros(shape=(0, 6)), num_hidden=8, name="bridge")
    outputs, _ = mx.rnn.LSTMCell(8).unroll(
        STEPS, S.var("data"), begin_state=[state, S.zeros(shape=(0, 8))], merge_outputs=True
    )
    return dense_of(outputs)


def chosen_begin_state() -> Any:
    """Choose a state by ``where``, from zeros whose batch is open."""
    data = S.var("data")
    step = S.Reshape(S.slice_axis(data, axis=1, begin=0, end=1), shape=(0, -1))
    hidden = S.FullyConnected(step, num_hidden=8, name="first")
    chosen = S.where(hidden > 0, S.zeros(shape=(0, 8)), S.identity(S.zeros(shape=(0, 8))) + 1)
    return S.FullyConnected(chosen, num_hidden=8, name="second") + hidden


NETWORKS: dict[str, Callable[[], Any]] = {
    "mx.rnn.LSTMCell": lambda: unrolled(mx.rnn.LSTMCell(8)),
    "mx.rnn.GRUCell": lambda: unrolled(mx.rnn.GRUCell(8)),
    "mx.rnn.RNNCell": lambda: unrolled(mx.rnn.RNNCell(8)),
    "mx.rnn.ZoneoutCell": lambda: unrolled(mx.rnn.ZoneoutCell(mx.rnn.LSTMCell(8), 0.3, 0.2)),
    "mx.rnn.BidirectionalCell": lambda: unrolled(
        mx.rnn.BidirectionalCell(mx.rnn.LSTMCell(8, prefix="l_"), mx.rnn.LSTMCell(8, prefix="r_"))
    ),
    "mx.rnn.FusedRNNCell": lambda: dense_of(
        mx.rnn.FusedRNNCell(8, mode="lstm", prefix="lstm_").unroll(
            STEPS, S.var("data"), layout="NTC", merge_outputs=True
        )[0]
    ),
    "gluon ZoneoutCell": zoneout_of_gluon,
    "states like the data": begin_states_like_the_data,
    "states of a layer": low_begin_states,
    "a chosen state": chosen_begin_state,
}


def model_of(sym: Any) -> Model:
    """Return a model with random parameters, the batch known from the data alone."""
    shapes, _, _ = sym.infer_shape(data=(BATCH, STEPS, FEATURES))
    random = np.random.default_rng(0)
    args = {
        name: random.normal(0, 0.4, shape).astype(np.float32)
        for name, shape in zip(sym.list_arguments(), shapes)
        if name != "data"
    }
    return Model.of(sym, args, {})


DATA = {"data": np.random.default_rng(1).normal(0, 1, (BATCH, STEPS, FEATURES)).astype(np.float32)}


@pytest.mark.parametrize("policy", [None, "pure"], ids=["mixed", "pure"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_recurrent_network_with_the_default_begin_state_is_emulated(name: str, policy: str | None) -> None:
    model = model_of(NETWORKS[name]())
    emulated = mxamp.emulate(model.graph, model.arg_params, {}, "float16", policy=policy)
    assert any(is_rounding(node.op) for node in emulated.graph.nodes)
    for exact, found in zip(run_outputs(model, DATA), run_outputs(emulated, DATA)):
        assert distance(exact, found).relative_l2 < 4e-3


@pytest.mark.parametrize("name", ["mx.rnn.LSTMCell", "states of a layer"])
def test_it_infers_what_the_model_infers_and_loads_from_a_file(name: str, tmp_path: Any) -> None:
    sym = NETWORKS[name]()
    model = model_of(sym)
    emulated = mxamp.emulate(model.graph, model.arg_params, {}, "float16")
    emulated.save(tmp_path / "net")
    loaded = mxamp.load(tmp_path / "net")
    for batch in (1, 7):
        shape = (batch, STEPS, FEATURES)
        assert loaded.sym.infer_shape(data=shape)[1] == sym.infer_shape(data=shape)[1]


def test_an_exported_recurrent_block_is_emulated(tmp_path: Any) -> None:
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.rnn.LSTM(8, layout="NTC"), mx.gluon.nn.Dense(4, flatten=False))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    data = mx.nd.array(DATA["data"])
    exact = net(data).asnumpy()
    net.export(str(tmp_path / "net"))
    loaded = mxamp.load(tmp_path / "net")
    emulated = mxamp.emulate(loaded.graph, loaded.arg_params, loaded.aux_params, "float16")
    (found,) = run_outputs(emulated, DATA)
    assert 1e-6 < distance(exact, found).relative_l2 < 4e-3


def test_an_input_whose_shape_nobody_gives_is_learnt_through_its_rounding() -> None:
    hidden = S.FullyConnected(S.var("data"), num_hidden=8, no_bias=True, name="first")
    sym = S.FullyConnected(hidden + S.var("state"), num_hidden=4, no_bias=True, name="second")
    weights = {"first_weight": np.ones((8, 3), np.float32), "second_weight": np.ones((4, 8), np.float32)}
    emulated = mxamp.emulate(sym, weights, {}, "float16")
    assert sum(is_rounding(node.op) for node in emulated.graph.nodes) >= 3
    shapes, outputs, _ = emulated.sym.infer_shape(data=(4, 3))
    assert dict(zip(emulated.sym.list_arguments(), shapes))["state"] == (4, 8)
    assert outputs == [(4, 4)]


def test_what_has_a_shape_only_when_it_runs_is_emulated() -> None:
    random = np.random.default_rng(4)
    kept = S.contrib.boolean_mask(S.var("data"), S.var("mask"))
    sym = S.FullyConnected(kept, S.var("weight"), num_hidden=3, no_bias=True, name="dense")
    args = {"weight": mx.nd.array(random.uniform(-1, 1, (3, 4)))}
    emulated = mxamp.emulate(sym, args, {}, "float16")
    data = random.uniform(-1, 1, (3, 4)).astype(np.float32)
    (found,) = run_outputs(emulated, {"data": data, "mask": np.array([1, 0, 1], np.float32)})
    expected = data[[0, 2]] @ args["weight"].asnumpy().T
    np.testing.assert_allclose(found, expected, rtol=4e-3, atol=1e-3)
    assert (found != expected).any()


def test_what_a_loop_leaves_is_emulated() -> None:
    weight, data = S.var("weight"), S.var("data")

    def turn(count: Any, state: Any) -> Any:
        after = S.tanh(S.FullyConnected(state, weight, num_hidden=4, no_bias=True))
        return [after], [count + 1, after]

    _, states = S.contrib.while_loop(
        cond=lambda count, state: count < 2,
        func=turn,
        loop_vars=[S.zeros((1,)), data],
        max_iterations=2,
    )
    sym = S.FullyConnected(states[1], S.var("last"), num_hidden=3, no_bias=True, name="dense")
    random = np.random.default_rng(4)
    shapes = {"weight": (4, 4), "last": (3, 4)}
    args = {name: mx.nd.array(random.uniform(-1, 1, shape)) for name, shape in shapes.items()}
    values = random.uniform(-1, 1, (2, 4)).astype(np.float32)
    (found,) = run_outputs(mxamp.emulate(sym, args, {}, "float16"), {"data": values})
    expected = values
    for _ in range(2):
        expected = np.tanh(expected @ args["weight"].asnumpy().T)
    np.testing.assert_allclose(found, expected @ args["last"].asnumpy().T, rtol=1e-2, atol=2e-3)
