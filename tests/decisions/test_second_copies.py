"""A parameter whose readers disagree: bytes are a cost, and a model never grows unless told to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mxamp
from mxamp.decisions import LowPrecision
from mxamp.dtypes import DType
from mxamp.graph import Entry, Graph
from mxamp.model import Model
from mxamp.placement import PlacementProblem, Supply, place, stored_twice, totals
from tests.building import BF16, F16, Net, convert
from tests.placement.sketches import Sketch, allowed, problems

WORDS, UNITS = 1000, 64


def nbytes(model: Model) -> int:
    return sum(value.nbytes for value in (*model.arg_params.values(), *model.aux_params.values()))


def language_model(*, recurrent: bool) -> tuple[Graph, dict[str, np.ndarray]]:
    """Return a word language model, its decoder tied to its embedding."""
    net = Net()
    words = net.param("words", WORDS, UNITS)
    data = net.op("Embedding", net.var("data"), words, name="embedding", input_dim=WORDS, output_dim=UNITS)
    if recurrent:
        weights = net.param("lstm_parameters", 4 * UNITS * (2 * UNITS + 2))
        states = [net.op("_zeros", name=name, shape=f"(1, 2, {UNITS})") for name in ("h", "c")]
        data = net.op("RNN", data, weights, *states, name="lstm", mode="lstm", state_size=UNITS, num_layers=1)
    else:
        data = attention(net, data)
    decoder = net.op(
        "FullyConnected", data, words, name="decoder", num_hidden=WORDS, no_bias=True, flatten=False
    )
    return net.graph(decoder), net.params


def attention(net: Net, data: Entry) -> Entry:
    """Add an encoder's layer as in BERT: positions, LayerNorm, attention, and a layer with gelu."""
    positions = net.param("positions", 1, 8, UNITS)
    data = net.op("broadcast_add", data, positions, name="add")

    def norm(entry: Entry, name: str) -> Entry:
        return net.op(
            "LayerNorm", entry, net.param(f"{name}_gamma", UNITS), net.param(f"{name}_beta", UNITS), name=name
        )

    def dense(entry: Entry, name: str) -> Entry:
        weight = net.param(f"{name}_weight", UNITS, UNITS)
        return net.op(
            "FullyConnected", entry, weight, name=name, num_hidden=UNITS, no_bias=True, flatten=False
        )

    data = norm(data, "norm0")
    scores = net.op("batch_dot", dense(data, "query"), dense(data, "key"), name="scores", transpose_b=True)
    mixed = net.op("batch_dot", net.op("softmax", scores, name="softmax"), dense(data, "value"), name="mixed")
    data = norm(net.op("elemwise_add", data, dense(mixed, "out"), name="add1"), "norm1")
    return net.op("LeakyReLU", dense(data, "inner"), name="gelu", act_type="gelu")


@pytest.mark.parametrize("target", ["cpu-bf16", "cpu-bf16-amx", "cuda-fp16"])
@pytest.mark.parametrize("policy", [None, "pure"], ids=["mixed", "pure"])
@pytest.mark.parametrize("recurrent", [True, False], ids=["LSTM", "attention"])
def test_a_tied_embedding_is_stored_once(recurrent: bool, policy: str | None, target: str) -> None:
    graph, params = language_model(recurrent=recurrent)
    dtype = "float16" if target == "cuda-fp16" else "bfloat16"
    required = None if policy == "pure" else "required"  # it is small, and would gain nothing on a CPU
    model = mxamp.convert_model(
        graph, params, {}, dtype, policy=policy, target=target, low_precision=required
    )
    assert model.report is not None
    (words,) = [parameter for parameter in model.report.parameters if parameter.name == "words"]
    assert words.stored == {"words": dtype}
    assert model.report.node("embedding").compute == model.report.node("decoder").compute == dtype
    assert nbytes(model) <= 0.7 * sum(value.nbytes for value in params.values())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_so_it_is_where_times_are_known(dtype: str) -> None:
    graph, params = language_model(recurrent=False)
    model = mxamp.convert_model(graph, params, {}, dtype, input_shapes={"data": (4, 8)})
    # Whether so small a model is low at all is the target's to say.
    assert [name for name in model.arg_params if name.startswith("words")] == ["words"]


def shared_with_float32(size: int, others: int) -> tuple[Graph, dict[str, np.ndarray]]:
    """Return layers, the weight of the last of which an FP32 operator reads as well."""
    net = Net()
    data = net.var("data")
    for number in range(others):
        weight = net.param(f"other{number}_weight", size, size)
        data = net.op("FullyConnected", data, weight, name=f"other{number}", num_hidden=size, no_bias=True)
    weight = net.param("shared", size, size)
    layer = net.op("FullyConnected", data, weight, name="layer", num_hidden=size, no_bias=True)
    return net.graph(layer, net.op("exp", weight, name="exp")), net.params


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
class TestWhatCannotAgree:
    def test_a_second_copy_that_would_make_the_model_grow_is_not_stored(self, dtype: DType) -> None:
        graph, params = shared_with_float32(4, others=0)
        with pytest.warns(mxamp.MxampWarning, match="a second copy would make the model larger than it was"):
            model = convert(graph, params, dtype)
        assert nbytes(model) == params["shared"].nbytes
        assert model.report is not None
        assert "it shares 'shared' with a float32 node" in model.report.node("layer").reason

    def test_one_is_where_the_model_shrinks_nevertheless(self, dtype: DType) -> None:
        graph, params = shared_with_float32(4, others=2)
        model = convert(graph, params, dtype)
        assert {name for name in model.arg_params if name.startswith("shared")} == {
            "shared",
            f"shared_{dtype}",
        }
        assert nbytes(model) < sum(value.nbytes for value in params.values())

    def test_low_precision_that_is_required_may_make_it_grow(self, dtype: DType) -> None:
        graph, params = shared_with_float32(4, others=0)
        model = convert(graph, params, dtype, low_precision=LowPrecision.REQUIRED)
        assert nbytes(model) == 1.5 * params["shared"].nbytes

    def test_a_parameter_that_is_an_output_counts_as_read_in_float32(self, dtype: DType) -> None:
        net = Net()
        weight = net.param("weight", 4, 4)
        layer = net.op("FullyConnected", net.var("data"), weight, name="layer", num_hidden=4, no_bias=True)
        with pytest.warns(mxamp.MxampWarning):
            model = convert(net.graph(layer, weight), net.params, dtype)
        assert nbytes(model) == net.params["weight"].nbytes


class TestTheCut:
    """A parameter that a GREEN node and a free one read; the free one's result is needed in FP32."""

    @staticmethod
    def sketch(copy: int) -> PlacementProblem:
        sketch = Sketch()
        data, weight = sketch.add("x"), sketch.add("p")
        free = sketch.add("f", data, weight)
        last = sketch.add("g", sketch.add("r", free), weight)
        return replace(sketch.problem(last), copies={weight: copy})

    def test_a_copy_is_taken_where_it_costs_less_than_casts(self) -> None:
        problem = self.sketch(1)
        low = place(problem)
        assert stored_twice(problem, low) == {1}
        assert totals(problem, low).cost == 1 + 2

    def test_and_not_where_it_costs_more(self) -> None:
        problem = self.sketch(3)
        low = place(problem)
        assert not stored_twice(problem, low)
        assert totals(problem, low).cost == 4

    @given(problem=problems(most_nodes=9, most_free=7), data=st.data())
    def test_no_assignment_costs_less(self, problem: PlacementProblem, data: st.DataObject) -> None:
        parameters = [p for p, offers in enumerate(problem.supply) if offers == (Supply.EITHER,)]
        problem = replace(problem, copies={p: data.draw(st.integers(0, 3)) for p in parameters})
        least = min(totals(problem, low).cost for low in allowed(problem))
        assert totals(problem, place(problem)).cost == least
