"""Parameters that cannot be right are refused, and such as are not finite are named once, by every route."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.conversion import Options, Source, convert_graph
from mxamp.errors import MxampWarning, ParamsError
from mxamp.graph import Graph
from mxamp.model import Model
from mxamp.params.not_finite import not_finite
from mxamp.params.positioned import PositionedFile
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters


def network(channels: int = 4) -> tuple[Graph, dict[str, np.ndarray], dict[str, np.ndarray]]:
    net = Net()
    layer = net.bn(net.conv(net.var("data"), "conv0"), "bn")
    graph = net.graph(net.op("Activation", layer, name="relu", act_type="relu"))
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    return graph, {name: value for name, value in net.params.items() if name not in auxs}, auxs


def saved(folder: Any, args: Any, auxs: Any, graph: Graph) -> Model:
    Model(graph, parameters(args), parameters(auxs)).save(folder / "net")
    return mxamp.load(folder / "net")


def convert_and_save(given: Any, dtype: str, folder: Any) -> Model:
    model = mxamp.convert_model(*given, dtype)
    model.save(folder / "low")
    return model


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["conv0_weight", "bn_gamma", "bn_moving_mean"])
@pytest.mark.parametrize("kind", ["arrays", "file"])
def test_a_parameter_that_is_not_finite_is_named_once(
    kind: str, name: str, dtype: str, bad: float, tmp_path: Any
) -> None:
    graph, args, auxs = network()
    for group in (args, auxs):
        if name in group:
            group[name] = group[name].copy()
            group[name].reshape(-1)[1] = bad
    given: Any = (graph, args, auxs)
    if kind == "file":
        loaded = saved(tmp_path, args, auxs, graph)
        given = (loaded.graph, loaded.arg_params, loaded.aux_params)
    with pytest.warns(MxampWarning, match=rf"parameter '{name}' holds NaN or infinity") as warned:
        model = convert_and_save(given, dtype, tmp_path)
    assert sum("NaN or infinity" in str(each.message) for each in warned) == 1
    assert model.report is not None
    assert sum("NaN or infinity" in each for each in model.report.warnings) == 1


def test_a_large_parameter_on_disk_is_found_when_it_is_cast(tmp_path: Any) -> None:
    net = Net()
    weight = net.param("weight", 300, 300)
    layer = net.op("FullyConnected", net.var("data"), weight, name="fc", num_hidden=300, no_bias=True)
    net.params["weight"][7, 7] = np.nan
    loaded = saved(tmp_path, net.params, {}, net.graph(layer))
    model = mxamp.convert_model(loaded.graph, loaded.arg_params, {}, "bfloat16")
    with pytest.warns(MxampWarning, match="parameter 'weight' holds NaN or infinity"):
        model.save(tmp_path / "low")
    assert model.report is not None
    assert any("NaN or infinity" in each for each in model.report.warnings)


def large_float32(folder: Any, *bad: str) -> Model:
    """Return a model on disk: two large layers of one kind, and NaN in the weights named."""
    net = Net()
    data = net.var("data")
    for name in ("first", "second"):
        weight = net.param(f"{name}_weight", 300, 300)
        data = net.op("FullyConnected", data, weight, name=name, num_hidden=300, no_bias=True)
    for name in bad:
        net.params[name][7, 7] = np.nan
    return saved(folder, net.params, {}, net.graph(data))


def kept_in_float32(loaded: Model, *names: str) -> Model:
    return mxamp.convert_model(
        loaded.graph, loaded.arg_params, loaded.aux_params, "bfloat16", exclude=list(names)
    )


@pytest.mark.parametrize("kept", [("first",), ("first", "second")], ids=["beside a cast", "nothing is cast"])
@pytest.mark.parametrize("looked_at", ["saved", "report"])
def test_a_large_parameter_on_disk_that_stays_float32_is_found_when_it_is_read(
    kept: Any, looked_at: str, tmp_path: Any, recwarn: Any
) -> None:
    model = kept_in_float32(large_float32(tmp_path, "first_weight"), *kept)
    assert not [each for each in recwarn if "NaN" in str(each.message)]
    if looked_at == "saved":
        model.save(tmp_path / "low")
    assert model.report is not None
    model.save(tmp_path / "low")
    found = [str(each.message) for each in recwarn if "NaN" in str(each.message)]
    assert len(found) == 1
    assert "parameter 'first_weight' holds NaN or infinity" in found[0]
    assert sum(note == found[0] for note in model.report.warnings) == 1


def test_large_parameters_that_are_cast_and_such_that_stay_are_named_in_one_warning(
    tmp_path: Any, recwarn: Any
) -> None:
    model = kept_in_float32(large_float32(tmp_path, "first_weight", "second_weight"), "first")
    model.save(tmp_path / "low")
    found = [str(each.message) for each in recwarn if "NaN" in str(each.message)]
    assert len(found) == 1
    assert "2 parameters hold NaN or infinity: 'first_weight', 'second_weight'" in found[0]


def test_what_stays_float32_is_read_once_to_be_written_and_once_for_its_hash(
    tmp_path: Any, monkeypatch: Any
) -> None:
    loaded = large_float32(tmp_path, "first_weight")
    read = []
    real = PositionedFile.read_into

    def counting(self: Any, out: Any, offset: int) -> None:
        read.append(out.nbytes)
        real(self, out, offset)

    monkeypatch.setattr(PositionedFile, "read_into", counting)
    model = kept_in_float32(loaded, "first", "second")
    with pytest.warns(MxampWarning, match="NaN or infinity"):
        model.save(tmp_path / "low")
    size = (tmp_path / "net-0000.params").stat().st_size
    assert sum(read) < 2.1 * size


def test_parameters_are_looked_at_once_however_often_a_model_is_converted(monkeypatch: Any) -> None:
    """The guard and a profile convert a model again for everything that they measure."""
    looked = []
    monkeypatch.setattr(
        "mxamp.conversion.run.not_finite", lambda params, **_: looked.append(len(params)) or []
    )
    graph, args, auxs = network()
    source = Source(graph, parameters(args), parameters(auxs))
    options = Options(policy=Policy.default(BF16), target=Target.for_dtype(BF16))
    for _ in range(3):
        convert_graph(source, options, warn=False)
    assert looked == [len(args) + len(auxs)]


def test_squares_that_overflow_are_no_infinities() -> None:
    assert not_finite(parameters({"large": np.full(100, 1e30, np.float32)})) == []


def test_compare_names_data_and_parameters(tmp_path: Any) -> None:
    pytest.importorskip("mxnet", reason="runs models")
    graph, args, auxs = network()
    low = mxamp.convert_model(graph, args, auxs, "bfloat16")
    args["conv0_weight"] = args["conv0_weight"].copy()
    args["conv0_weight"].reshape(-1)[0] = np.nan
    data = np.zeros((2, 4, 6, 6), np.float32)
    data[0, 0, 0, 0] = np.inf
    with pytest.warns(MxampWarning) as warned:
        text = str(mxamp.compare_models((graph, args, auxs), low, data, layers=False))
    assert [str(each.message).partition(" holds")[0] for each in warned] == [
        "The input 'data'",
        "The parameter 'conv0_weight'",
    ]
    words = " ".join(text.split())
    assert "The input 'data' holds NaN or infinity" in words
    assert "The parameter 'conv0_weight' holds NaN or infinity" in words


@pytest.mark.parametrize("shape", [(0,), (4, 3, 3), (5,), (1,), (4, 1)], ids=str)
@pytest.mark.parametrize("name", ["bn_gamma", "bn_beta", "bn_moving_mean", "bn_moving_var"])
def test_a_batch_norm_with_a_parameter_of_another_shape_is_refused(name: str, shape: Any) -> None:
    graph, args, auxs = network()
    group = args if name in args else auxs
    group[name] = np.ones(shape, np.float32)
    with pytest.raises(ParamsError, match=rf"{name}.*BatchNorm|BatchNorm.*{name}"):
        mxamp.convert_model(graph, args, auxs, "bfloat16")


@pytest.mark.parametrize("op", ["BatchNorm", "LayerNorm", "InstanceNorm"])
def test_parameters_of_a_normalization_must_agree(op: str) -> None:
    net = Net()
    inputs = [net.param(name, 4) for name in ("gamma", "beta")]
    if op == "BatchNorm":
        inputs += [net.param(name, 4) for name in ("mean_moving_mean", "var_moving_var")]
    graph = net.graph(net.op(op, net.var("data"), *inputs, name="norm"))
    net.params["beta"] = np.ones(5, np.float32)
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    args = {name: value for name, value in net.params.items() if name not in auxs}
    with pytest.raises(
        ParamsError, match=r"must have one shape, and have several: 'gamma' \(4,\), 'beta' \(5,\)"
    ):
        mxamp.convert_model(graph, args, auxs, "bfloat16")


def test_parameters_that_agree_with_each_other_must_fit_the_input() -> None:
    from mxamp.errors import DataError

    net = Net()
    graph = net.graph(net.bn(net.var("data"), "bn"))
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    args = {name: value for name, value in net.params.items() if name not in auxs}
    channels = len(args["bn_gamma"])
    with pytest.raises(DataError, match=r"has the shape|do not fit"):
        mxamp.convert_model(graph, args, auxs, "bfloat16", input_shapes={"data": (1, channels + 1, 4, 4)})
