"""Where MXNet would write a converted symbol without its casts, that is said; all else is as it was."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="the symbols are MXNet's")

import mxamp
from mxamp.errors import MxampWarning
from tests.building import Net


def converted() -> Any:
    net = Net()
    graph = net.graph(net.op("tanh", net.conv(net.var("data"), "conv"), name="tanh"))
    return mxamp.convert_model(graph, net.params, {}, "bfloat16", low_precision="required")


def casts(text: str) -> int:
    return text.count('"amp_cast"')


@pytest.mark.parametrize("call", ["tojson", "save"])
def test_writing_it_without_casts_warns(call: str, tmp_path: Path) -> None:
    symbol = converted().sym
    path = str(tmp_path / "net-symbol.json")
    with pytest.warns(MxampWarning, match=rf"{call}\(\) leaves out the casts.*Model\.save") as caught:
        symbol.tojson() if call == "tojson" else symbol.save(path)
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]


def test_writing_it_with_casts_does_not(tmp_path: Path) -> None:
    symbol = converted().sym
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert casts(symbol.tojson(remove_amp_cast=False))
        symbol.save(str(tmp_path / "net-symbol.json"), remove_amp_cast=False)


def test_a_module_that_saves_a_checkpoint_warns(tmp_path: Path) -> None:
    model = converted()
    module = mx.mod.Module(model.sym, data_names=["data"], label_names=None)
    module.bind([("data", (1, 4, 5, 5))], for_training=False)
    module.set_params(model.args, model.auxs)
    with pytest.warns(MxampWarning, match="leaves out the casts"):
        module.save_checkpoint(str(tmp_path / "net"), 0)


def test_a_pickle_keeps_the_casts_and_needs_no_mxamp(tmp_path: Path) -> None:
    symbol = converted().sym
    pickled = pickle.dumps(symbol)
    assert b"mxamp" not in pickled
    assert casts(pickle.loads(pickled).tojson(remove_amp_cast=False))
    assert casts(copy.deepcopy(symbol).tojson(remove_amp_cast=False))


@pytest.mark.parametrize(
    "make",
    [
        copy.copy,
        copy.deepcopy,
        lambda symbol: symbol[0],
        lambda symbol: next(iter(symbol)),
        lambda symbol: symbol.get_internals(),
        lambda symbol: symbol.get_internals()["tanh_output"],
        lambda symbol: symbol.get_children(),
        lambda symbol: symbol(data=mx.sym.var("other")),
        lambda symbol: symbol + 1,
        lambda symbol: 2 * symbol,
        lambda symbol: symbol - symbol,
        lambda symbol: -symbol,
        lambda symbol: abs(symbol**2) / 3 > 1,
        lambda symbol: symbol.relu(),
        lambda symbol: symbol.reshape((-1,)).sum(),
    ],
)
def test_what_is_made_of_it_warns_as_well(make: Any) -> None:
    made = make(converted().sym)
    with pytest.warns(MxampWarning, match=r"tojson\(\) leaves out the casts") as caught:
        made.tojson()
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]


def test_functions_of_mxnets_make_a_symbol_of_mxnets_own() -> None:
    symbol = converted().sym
    for made in (mx.sym.Group([symbol]), mx.sym.relu(symbol)):  # what docs/using.md says of them
        assert type(made) is mx.sym.Symbol


def test_what_holds_no_cast_any_more_does_not(tmp_path: Path) -> None:
    data = converted().sym.get_internals()["data"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data.tojson()
        data.save(str(tmp_path / "data-symbol.json"))


def test_a_float32_symbol_is_mxnets_own() -> None:
    net = Net()
    model = mxamp.Model.of(net.graph(net.op("tanh", net.var("data"), name="tanh")), {}, {})
    assert type(model.sym) is mx.sym.Symbol


def test_it_composes_and_runs_as_any_symbol() -> None:
    model = converted()
    both = mx.sym.Group([model.sym, 2 * model.sym])
    data = mx.nd.array(np.random.default_rng(1).normal(size=(1, 4, 5, 5)))
    one, other = both.bind(mx.cpu(), {**model.args, "data": data}).forward()
    np.testing.assert_array_equal(2 * one.asnumpy(), other.asnumpy())
