"""Recurrent layers whose states are outputs of the model go low, and all outputs keep their names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.graph import Entry, Graph
from mxamp.graph.output_names import cast_names, output_names
from tests.building import BF16, F16, Net, assert_sound, capable, casts, convert, dtypes_of

HIDDEN, FEATURES = 3, 4
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1}


def language_model(mode: str, *outputs: int) -> tuple[Graph, dict[str, Any]]:
    """Return an embedding, a recurrent layer and a decoder; some outputs of the layer are outputs, too."""
    net = Net()
    table = net.param("table", 10, FEATURES)
    words = net.op("Embedding", net.var("data"), table, name="words", input_dim=10, output_dim=FEATURES)
    weights = net.param("rnn_parameters", GATES[mode] * HIDDEN * (FEATURES + HIDDEN + 2))
    states = [net.var("state"), *([net.var("cell")] if mode == "lstm" else [])]
    layer = net.op(
        *("RNN", words, weights, *states),
        name="rnn",
        outputs=len(states) + 1,
        **{"state_size": HIDDEN, "num_layers": 1, "mode": mode, "state_outputs": True},
    )
    weight = net.param("decoder_weight", 10, HIDDEN)
    decoded = net.op(
        "FullyConnected", layer, weight, name="decoder", num_hidden=10, no_bias=True, flatten=False
    )
    return net.graph(decoded, *(Entry(layer.node, output) for output in outputs)), net.params


def data(mode: str) -> dict[str, Any]:
    random = np.random.default_rng(0)
    fed = {"data": random.integers(0, 10, (5, 2)).astype(np.float32)}
    for name in ["state", *(["cell"] if mode == "lstm" else [])]:
        fed[name] = random.standard_normal((1, 2, HIDDEN)).astype(np.float32)
    return fed


CASES = [("lstm", (1, 2)), ("lstm", (0, 1, 2)), ("lstm", (2,)), ("gru", (1,)), ("rnn_tanh", (0, 1))]


@pytest.mark.parametrize(("mode", "outputs"), CASES)
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_the_layer_is_low_and_its_outputs_keep_their_names(mode: str, outputs: Any, dtype: Any) -> None:
    graph, params = language_model(mode, *outputs)
    model = convert(graph, params, dtype)
    assert_sound(graph, model)
    assert model.report is not None
    assert model.report.node("rnn").compute == dtype.label
    assert set(model.report.outputs.values()) == {"float32"}
    assert dtypes_of(model)[f"rnn_{dtype}"][0] is dtype
    for output in outputs:
        source = f"rnn_{dtype}" if output == 0 else f"rnn_{dtype}[{output}]"
        assert casts(model.graph).count(f"{source} -> float32") == 1


@pytest.mark.parametrize(("mode", "outputs"), CASES)
def test_the_emulated_model_computes_nearly_the_same(mode: str, outputs: Any) -> None:
    pytest.importorskip("mxnet", reason="it runs the model")
    graph, params = language_model(mode, *outputs)
    model = mxamp.emulate(graph, params, {}, "float16")
    assert model.report is not None
    assert model.report.node("rnn").compute == "float16"
    fidelity = mxamp.compare_models((graph, params, {}), model, data(mode))
    assert [output.name for output in fidelity.outputs] == list(output_names(graph))
    assert all(0 < output.distance.relative_l2 < 2e-3 for output in fidelity.outputs)


def test_the_names_are_those_that_mxnet_gives() -> None:
    pytest.importorskip("mxnet")
    graph, params = language_model("lstm", 0, 1, 2)
    model = mxamp.convert_model(graph, params, {}, "float16", target=capable(F16))
    assert model.sym.list_outputs() == list(output_names(graph))
    # A name that is there once names one thing.
    for name in output_names(graph):
        assert model.sym.get_internals()[name].list_outputs() == [name]


def test_a_block_that_returns_its_states_goes_low() -> None:
    mx = pytest.importorskip("mxnet")
    layer = mx.gluon.rnn.LSTM(HIDDEN, input_size=FEATURES)
    layer.initialize()
    states = layer.begin_state(2)
    with pytest.warns(mxamp.MxampWarning, match="float16"):  # which a CPU cannot run
        block = mxamp.convert_block(layer, "float16", inputs=[mx.nd.zeros((5, 2, FEATURES)), states])
    assert block.report is not None
    (node,) = [node for node in block.report.nodes if node.op == "RNN"]
    assert node.compute == "float16"


def test_bfloat16_on_a_cpu_stays_float32_because_of_mxnet_and_not_of_names() -> None:
    graph, params = language_model("gru", 1)
    model = mxamp.convert_model(graph, params, {}, "bfloat16")
    assert model.report is not None
    assert "MXNet raises" in model.report.node("rnn").reason


def test_a_name_that_is_taken_is_not_given_twice() -> None:
    """``rnn_state`` would be the cast's name, and is that of an input."""
    net = Net()
    weights = net.param("weights", 3 * HIDDEN * (FEATURES + HIDDEN + 2))
    layer = net.op(
        *("RNN", net.var("data"), weights, net.var("rnn_state")),
        name="rnn",
        outputs=2,
        **{"state_size": HIDDEN, "num_layers": 1, "mode": "gru", "state_outputs": True},
    )
    graph = net.graph(layer, Entry(layer.node, 1))
    assert cast_names(graph) == {}
    model = convert(graph, net.params, F16)
    assert model.report is not None
    assert model.report.node("rnn").rule == "output name"
    assert output_names(model.graph) == output_names(graph)
