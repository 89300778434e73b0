"""A model that runs only once, or differently the second time, is no model whose outputs are compared."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="the models are executed")

import mxamp
from mxamp.errors import OperatorError
from mxamp.model import Model
from mxamp.runtime.executor import BoundModel
from mxamp.runtime.repeats import check_repeats

S = mx.sym
DATA = np.arange(1, 9, dtype=np.float32).reshape(2, 4)


class Scripted:
    """Gives what it was told to, pass after pass."""

    label = "the converted model"

    def __init__(self, *results: Any) -> None:
        self.results = list(results)
        self.seen: list[np.ndarray] = []

    def once(self, data: Any) -> list[np.ndarray]:
        self.seen.append(data["data"])
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return [np.asarray(result, np.float32)]


def plain() -> Any:
    return Model.of(S.tanh(S.var("data"), name="tanh"), {}, {}).graph


def test_the_second_pass_has_other_data_and_the_third_the_same() -> None:
    bound = Scripted([2.0], [1.0])
    check_repeats(bound, plain(), {"data": DATA}, [np.ones(1, np.float32)])
    np.testing.assert_array_equal(bound.seen[0], DATA / 2)
    np.testing.assert_array_equal(bound.seen[1], DATA)


def test_integers_stay_within_bounds() -> None:
    bound = Scripted([2.0], [1.0])
    check_repeats(bound, plain(), {"data": np.array([0, 3, 7])}, [np.ones(1, np.float32)])
    assert bound.seen[0].tolist() == [0, 1, 3]


@pytest.mark.parametrize("again", [[1.5], [1.0, 1.0], [float("nan")], [float("inf")]], ids=str)
def test_other_outputs_for_the_same_data_are_an_error(again: list[float]) -> None:
    with pytest.raises(OperatorError, match=r"output 0 of the converted model differently.*SUBGRAPH_BACKEND"):
        check_repeats(Scripted([2.0], again), plain(), {"data": DATA}, [np.ones(1, np.float32)])


def test_the_same_infinities_and_nans_are_none() -> None:
    values = np.array([np.nan, np.inf, 1.0], np.float32)
    check_repeats(Scripted([2.0], values), plain(), {"data": DATA}, [values])


def test_a_pass_that_fails_is_said_to_be_the_second() -> None:
    with pytest.raises(OperatorError, match=r"It broke\. That was not the first forward pass.*only once"):
        check_repeats(Scripted(OperatorError("It broke.")), plain(), {"data": DATA}, [])


def test_what_draws_random_numbers_may_differ() -> None:
    symbol = S.broadcast_add(S.var("data"), S.random.normal(shape=(2, 4)))
    BoundModel(Model.of(symbol, {}, {})).run({"data": DATA})


@pytest.mark.parametrize("function", ["run", "compare"])
def test_a_float32_model_that_mxnet_runs_once_is_told(function: str) -> None:
    """The fault that ``dense_input`` avoids; it needs AVX-512, so elsewhere both passes work."""
    symbol = S.Convolution(S.var("data"), num_filter=32, kernel=(5, 5), no_bias=True, name="conv")
    symbol = S.FullyConnected(symbol, num_hidden=10, no_bias=True, name="fc")
    rng = np.random.default_rng(1)
    shapes, _, _ = symbol.infer_shape(data=(1, 32, 5, 5))
    named = zip(symbol.list_arguments(), shapes)
    args = {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in named if name != "data"}
    data = rng.normal(size=(1, 32, 5, 5)).astype(np.float32)
    model = Model.of(symbol, args, {})
    calls: dict[str, Callable[[], Any]] = {
        "run": lambda: BoundModel(model).run({"data": data}),
        "compare": lambda: mxamp.compare_models(model, model, data),
    }
    bound = BoundModel(model)
    bound.once({"data": data})
    try:
        bound.once({"data": data})
    except OperatorError:
        with pytest.raises(OperatorError, match="MXNet runs this model only once"):
            calls[function]()
    else:
        calls[function]()
