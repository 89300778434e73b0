"""Files convert as arrays in memory do: the same symbols, the same bits, the same report."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.conversion.postponed import PostponedModel
from mxamp.dtypes import DType
from mxamp.graph.graph import Graph
from mxamp.graph.parameters import auxiliary_names
from mxamp.model import Model, load, model_paths
from mxamp.params import parameter, postponed, read_params, stream
from mxamp.params.on_disk import FileParameter
from mxamp.params.parameter import ArrayParameter
from mxamp.params.positioned import PositionedFile
from mxamp.params.postponed import PostponedCast
from tests.building import Net, parameters

every_low = pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
every_route = pytest.mark.parametrize("native", [True, False], ids=["native", "NumPy"])


@pytest.fixture(autouse=True)
def short_parts(monkeypatch):
    """Make a part so short that small tensors have several."""
    for module in (parameter, postponed, stream):
        monkeypatch.setattr(module, "PART", 50)


@pytest.fixture
def route(native, monkeypatch):
    monkeypatch.setenv("MXAMP_NATIVE", "1" if native else "0")


def network(**changes: Any) -> Model:
    """Two convolutions with BatchNorm, one of them with a bias, and a fully connected layer."""
    net = Net()
    data = net.var("data")
    auxs = {}
    for number, bias in ((1, False), (2, True)):
        weight = net.param(f"conv{number}_weight", 4, 4, 3, 3)
        inputs = [weight, *([net.param(f"conv{number}_bias", 4)] if bias else [])]
        layer = net.op(
            "Convolution",
            data,
            *inputs,
            name=f"conv{number}",
            kernel="(3, 3)",
            pad="(1, 1)",
            num_filter=4,
            no_bias=not bias,
        )
        statistics = [
            net.param(f"bn{number}_{what}", 4, value=value)
            for what, value in (("gamma", 1.5), ("beta", 0.25), ("moving_mean", 0.1), ("moving_var", 0.9))
        ]
        for what in ("moving_mean", "moving_var"):
            name = f"bn{number}_{what}"
            auxs[name] = net.params.pop(name)
        layer = net.op("BatchNorm", layer, *statistics, name=f"bn{number}", fix_gamma=False)
        data = net.op("Activation", layer, name=f"relu{number}", act_type="relu")
    flat = net.op("Flatten", data, name="flat")
    weight, bias = net.param("fc_weight", 10, 64), net.param("fc_bias", 10)
    head = net.op("FullyConnected", flat, weight, bias, name="fc", num_hidden=10)
    args = {**net.params, **changes}
    return Model(net.graph(head), parameters(args), parameters(auxs))


def in_memory(prefix) -> Model:
    """Read a model with all its values."""
    graph = load(prefix).graph
    args, auxs = read_params(model_paths(prefix)[1], aux_names=auxiliary_names(graph))
    return Model(graph, parameters(args), parameters(auxs))


def convert(model: Model, dtype: str, **options: Any) -> Model:
    return mxamp.convert_model(model.graph, model.arg_params, model.aux_params, dtype, **options)


def contents(prefix) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in model_paths(prefix))


def overflowing() -> np.ndarray[Any, Any]:
    weight = network().arg_params["fc_weight"].values().copy()
    weight[5, 60] = 1e6
    return weight


@every_low
@every_route
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fold_batch_norm": False},
        {"io_dtype": "low"},
        {"saturate": True},
        {"exclude": ["conv2"]},
        {"cast_optional_params": False},
    ],
    ids=["default", "no folding", "low outputs", "saturate", "exclude", "casts at run time"],
)
@pytest.mark.parametrize("weights", ["ordinary", "overflowing"])
@pytest.mark.usefixtures("route")
def test_files_and_arrays_give_the_same_files(tmp_path, dtype, options, weights):
    changes = {"fc_weight": overflowing()} if weights == "overflowing" else {}
    network(**changes).save(tmp_path / "net")
    streamed, held = (
        convert(model, dtype, **options) for model in (load(tmp_path / "net"), in_memory(tmp_path / "net"))
    )
    assert not isinstance(held, PostponedModel)
    streamed.save(tmp_path / "streamed")
    held.save(tmp_path / "held")
    assert contents(tmp_path / "streamed") == contents(tmp_path / "held")
    assert streamed.report == held.report


@every_route
@pytest.mark.usefixtures("route")
def test_values_are_read_once_where_nothing_is_lost(tmp_path, monkeypatch, native):
    network().save(tmp_path / "net")
    model = load(tmp_path / "net")
    size = sum(value.values().nbytes for value in model.arg_params.values() if len(value.shape) > 1)
    read = []
    whole = PositionedFile.read_into

    def counted(file, out, offset):
        read.append(out.nbytes)
        whole(file, out, offset)

    monkeypatch.setattr(PositionedFile, "read_into", counted)
    converted = convert(model, "float16")
    assert sum(read) < 500  # the statistics of BatchNorm
    converted.save(tmp_path / "out", provenance=False)  # which takes hashes of the source
    assert sum(read) < size + 1000


def test_a_cast_that_overflows_converts_again_before_anything_is_in_place(tmp_path, monkeypatch):
    network(fc_weight=overflowing()).save(tmp_path / "net")
    converted = convert(load(tmp_path / "net"), "float16")
    assert isinstance(converted, PostponedModel)
    seen = []
    whole = stream.stream_params

    def watching(file, args, *rest, **options):
        seen.append({name: value.dtype for name, value in args.items()})
        assert not list(tmp_path.glob("out*"))
        return whole(file, args, *rest, **options)

    monkeypatch.setattr("mxamp.conversion.postponed.stream_params", watching)
    monkeypatch.setattr("mxamp.model.model.stream_params", watching)
    converted.save(tmp_path / "out")
    assert [dtypes["fc_weight"] for dtypes in seen] == [DType.FLOAT16, DType.FLOAT32]
    assert load(tmp_path / "out").arg_params["fc_weight"].dtype is DType.FLOAT32
    assert "1e+06" in converted.report.node("fc").reason


@pytest.mark.parametrize(
    "look",
    [
        lambda model: model.report.node("fc").compute,
        lambda model: DType.parse(model.arg_params["fc_weight"].dtype).label,
        lambda model: model.symbol_json() and model.report.node("fc").compute,
        lambda model: pickle.loads(pickle.dumps(model)).report.node("fc").compute,
        lambda model: dataclasses.replace(model, report=model.report).report.node("fc").compute,
    ],
    ids=["report", "arg_params", "symbol_json", "pickle", "replace"],
)
@pytest.mark.parametrize("weights", ["ordinary", "overflowing"])
def test_whoever_looks_before_saving_sees_what_will_be_saved(tmp_path, look, weights):
    changes = {"fc_weight": overflowing()} if weights == "overflowing" else {}
    network(**changes).save(tmp_path / "net")
    converted = convert(load(tmp_path / "net"), "float16")
    before = look(converted)
    converted.save(tmp_path / "out")
    assert before == look(converted) == ("float16" if weights == "ordinary" else "float32")


def test_looking_first_changes_no_byte(tmp_path):
    network(fc_weight=overflowing()).save(tmp_path / "net")
    for name in ("looked", "saved"):
        converted = convert(load(tmp_path / "net"), "float16")
        if name == "looked":
            assert isinstance(converted.graph, Graph)
        converted.save(tmp_path / name)
    assert contents(tmp_path / "looked") == contents(tmp_path / "saved")


def test_a_model_can_be_saved_again_also_when_its_source_is_gone(tmp_path):
    network().save(tmp_path / "net")
    converted = convert(load(tmp_path / "net"), "bfloat16")
    converted.save(tmp_path / "first")
    for path in tmp_path.glob("net*"):
        path.unlink()
    converted.save(tmp_path / "second")
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


def test_converting_what_was_not_saved_yet_changes_nothing(tmp_path):
    network().save(tmp_path / "net")
    once = convert(load(tmp_path / "net"), "bfloat16")
    twice = convert(once, "bfloat16")
    once.save(tmp_path / "once")
    twice.save(tmp_path / "twice")
    assert contents(tmp_path / "once") == contents(tmp_path / "twice")


def test_some_parameters_may_be_in_memory(tmp_path):
    network().save(tmp_path / "net")
    model, held = load(tmp_path / "net"), in_memory(tmp_path / "net")
    mixed = dataclasses.replace(
        model, arg_params={**model.arg_params, "fc_weight": held.arg_params["fc_weight"]}
    )
    converted = convert(mixed, "float16")
    assert isinstance(converted.arg_params["fc_weight"], ArrayParameter)
    assert isinstance(converted.arg_params["conv1_weight"], PostponedCast)
    converted.save(tmp_path / "mixed")
    convert(held, "float16").save(tmp_path / "held")
    assert contents(tmp_path / "mixed") == contents(tmp_path / "held")


def test_load_leaves_values_in_the_file(tmp_path):
    network().save(tmp_path / "net")
    model = load(tmp_path / "net")
    assert all(isinstance(value, FileParameter) for value in model.arg_params.values())
    model.save(tmp_path / "again")
    assert contents(tmp_path / "net") == contents(tmp_path / "again")


def test_a_source_that_changes_leaves_nothing_behind(tmp_path):
    network().save(tmp_path / "net")
    converted = convert(load(tmp_path / "net"), "bfloat16")
    path = model_paths(tmp_path / "net")[1]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(mxamp.errors.ParamsError, match="was changed since it was opened"):
        converted.save(tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))
