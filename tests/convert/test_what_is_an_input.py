"""What is an input: what has no value and looks like no parameter, and whatever the user says is one.

A network's initial state may have an initialiser, and a layer may read an input where its weight stands.
MXNet binds such a network like any other; the routes into mxamp agree about it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import mxamp
from mxamp.cli.main import main
from mxamp.errors import ParamsError, PolicyError, UnknownNameError
from mxamp.graph import Graph
from mxamp.graph.parameters import parameter_names
from mxamp.guard import Guard
from mxamp.profile import Profiling
from tests.building import Net


class Case(NamedTuple):
    """A network with an input that looks like a parameter, and what is fed to it."""

    graph: Graph
    params: dict[str, Any]
    declared: list[str]
    data: dict[str, Any]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: values.shape for name, values in self.data.items()}


def random(*shape: int) -> Any:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def initialised_state() -> Case:
    """Return ``Variable('init_h', init=Zero())``, as a recurrent network has it."""
    net = Net()
    state = net.fc(net.var("init_h", __init__='["zero", {}]'), "h2h")
    graph = net.graph(net.op("elemwise_add", net.fc(net.var("data"), "i2h"), state, name="sum"))
    return Case(graph, net.params, ["init_h"], {"data": random(3, 4), "init_h": random(3, 4)})


def weight_is_fed() -> Case:
    """Return a correlation: the features of one image are the filters over another's."""
    net = Net()
    features = net.conv(net.var("data"), "conv")
    graph = net.graph(
        net.op(
            *("Convolution", features, net.var("template")),
            **{"name": "correlation", "num_filter": 2, "kernel": "(3, 3)", "no_bias": True},
        )
    )
    return Case(graph, net.params, ["template"], {"data": random(2, 4, 8, 8), "template": random(2, 4, 3, 3)})


def read_as_data_and_as_weight() -> Case:
    """Return ``FullyConnected(data, data)``: nothing but data."""
    net = Net()
    data = net.var("data")
    graph = net.graph(net.op("FullyConnected", data, data, name="gram", num_hidden=5, no_bias=True))
    return Case(graph, {}, [], {"data": random(5, 4)})


CASES = [initialised_state, weight_is_fed, read_as_data_and_as_weight]
LOW = {"low_precision": "required"}


def check_inputs(case: Case, model: mxamp.Model) -> None:
    assert model.report is not None
    assert dict(model.report.inputs) == dict.fromkeys(case.data, "float32")


def check(case: Case, model: mxamp.Model) -> None:
    check_inputs(case, model)
    assert model.report is not None
    assert model.report.low_nodes >= 1


# ---------------------------------------------------------------------- the routes agree


@pytest.mark.parametrize("make", CASES)
def test_a_graph_with_arrays(make: Any) -> None:
    case = make()
    check(case, mxamp.convert_model(case.graph, case.params, {}, "bfloat16", inputs=case.declared, **LOW))


@pytest.mark.parametrize("make", CASES)
@pytest.mark.parametrize("how", ["inputs", "input_shapes"])
def test_a_symbol_with_ndarrays_computes_the_same(make: Any, how: str) -> None:
    mx = pytest.importorskip("mxnet")
    from mxamp.runtime.symbol import symbol_from_graph

    case = make()
    args = {name: mx.nd.array(values) for name, values in case.params.items()}
    sym = symbol_from_graph(case.graph)
    said = {"inputs": case.declared, "input_shapes": case.shapes}[how]
    model = mxamp.convert_model(sym, args, {}, "bfloat16", **{how: said}, **LOW)
    check(case, model)
    for converted in (model, tuple(model)):
        fidelity = mxamp.compare_models((sym, args, {}), converted, case.data)
        assert all(output.distance.relative_l2 < 0.02 for output in fidelity.outputs)


@pytest.mark.parametrize("make", CASES)
@pytest.mark.parametrize("how", ["inputs", "input_shapes"])
def test_an_emulated_model_computes_the_same(make: Any, how: str) -> None:
    pytest.importorskip("mxnet", reason="it runs the model")
    case = make()
    said = {"inputs": case.declared, "input_shapes": case.shapes}[how]
    model = mxamp.emulate(case.graph, case.params, {}, "float16", policy="pure", **{how: said})
    check_inputs(case, model)
    fidelity = mxamp.compare_models((case.graph, case.params, {}), model, case.data)
    assert all(0 < output.distance.relative_l2 < 0.003 for output in fidelity.outputs)
    compared = mxamp.compare_candidates((case.graph, case.params, {}), {"pure": model}, case.data)
    assert compared["pure"].outputs == fidelity.outputs
    assert sum(loss.elements for loss in mxamp.rounding_losses(model, case.data)) > 0


@pytest.mark.parametrize("make", [weight_is_fed])
def test_a_model_that_is_measured_while_it_is_converted(
    make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("mxnet", reason="it runs the model")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    case = make()
    quick = Profiling(node_seconds=0.02, race_seconds=0.02)
    model = mxamp.convert_model(
        case.graph,
        case.params,
        {},
        "bfloat16",
        input_shapes=case.shapes,
        profile=quick,
        guard=Guard(seconds=1),
    )
    check_inputs(case, model)
    assert model.report is not None
    assert model.report.race
    assert model.report.guard is not None


@pytest.mark.parametrize("make", CASES)
def test_files_and_the_command_line(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = make()
    monkeypatch.chdir(tmp_path)
    mxamp.Model.of(case.graph, case.params, {}).save("net")
    said = [f"--input={name}" for name in case.declared]
    assert main(["convert", "net", "--dtype", "float16", "-o", "out", *said]) == 0
    loaded = mxamp.load("net")
    params = loaded.arg_params, loaded.aux_params
    model = mxamp.convert_model(loaded.graph, *params, "float16", inputs=case.declared)
    check(case, model)
    assert mxamp.load("out").symbol_json() == model.symbol_json()
    # The original has nothing but its graph to tell; the result, what was recorded beside it.
    assert main(["inspect", "net", *said]) == 0
    assert main(["inspect", "out"]) == 0
    assert (main(["inspect", "net"]) == 0) == (not case.declared)
    if case.declared:
        assert f"--input {case.declared[0]}" in capsys.readouterr().err


@pytest.mark.parametrize("make", CASES)
def test_the_command_line_with_shapes_and_data(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mxnet", reason="it runs the model")
    case = make()
    monkeypatch.chdir(tmp_path)
    mxamp.Model.of(case.graph, case.params, {}).save("net")
    np.savez("data.npz", **case.data)
    shapes = [f"--input-shape={name}={','.join(map(str, shape))}" for name, shape in case.shapes.items()]
    convert = ["convert", "net", "--dtype", "bfloat16", "--low-precision", "required", "--no-guard"]
    assert main([*convert, "-o", "out", *shapes]) == 0
    assert main([*convert, "-o", "out2", "--data", "data.npz"]) == 0
    for data in (["--data", "data.npz"], ["--random", *shapes]):
        assert main(["compare", "net", "out", "--tolerance", "0.02", *data]) == 0
        assert main(["compare", "net", "out2", "--emulate", "float16", "--tolerance", "1", *data]) == 0


def test_a_block_and_its_export(tmp_path: Path) -> None:
    """What Gluon exports marks its parameters, so its inputs are known without a word."""
    mx = pytest.importorskip("mxnet")

    class Correlation(mx.gluon.HybridBlock):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.conv = mx.gluon.nn.Conv2D(4, 1, in_channels=4)

        def hybrid_forward(self, F: Any, image: Any, template: Any) -> Any:  # noqa: N803
            return F.Convolution(self.conv(image), template, num_filter=2, kernel=(3, 3), no_bias=True)

    block = Correlation()
    block.initialize(mx.init.Normal(0.5))
    block.hybridize()
    arrays = [mx.nd.array(random(2, 4, 8, 8)), mx.nd.array(random(2, 4, 3, 3))]
    expected = block(*arrays).asnumpy()
    converted = mxamp.convert_block(block, "bfloat16", inputs=arrays, low_precision="required")
    assert np.abs(converted(*arrays).asnumpy() - expected).max() < 0.02 * np.abs(expected).max()
    block.export(str(tmp_path / "net"))
    loaded = mxamp.load(tmp_path / "net")
    model = mxamp.convert_model(loaded.graph, loaded.arg_params, loaded.aux_params, "bfloat16", **LOW)
    assert model.symbol_json() == converted.model.symbol_json()
    assert model.report is not None
    assert set(model.report.inputs) == {"data0", "data1"}
    # A parameter that is missing is still one.
    kept = {name: value for name, value in loaded.arg_params.items() if not name.endswith("conv0_weight")}
    with pytest.raises(ParamsError, match="conv0_weight' is missing"):
        mxamp.convert_model(loaded.graph, kept, {}, "bfloat16")


# ---------------------------------------------------------------------- what is no input


@pytest.mark.parametrize("make", [initialised_state, weight_is_fed])
def test_the_error_says_how_to_declare_an_input(make: Any) -> None:
    case = make()
    (name,) = case.declared
    with pytest.raises(ParamsError, match=rf"{name}' is fed to the model, say so: inputs=\['{name}'\]"):
        mxamp.convert_model(case.graph, case.params, {}, "float16")


def test_made_up_data_are_no_word_about_what_is_an_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A weight whose shape the graph tells, and whose value is missing, is not filled with random numbers."""
    pytest.importorskip("mxnet", reason="compare runs the model")
    net = Net()
    weight = net.var("fc_weight", __shape__="(3, 4)")
    data = net.var("data", __shape__="(2, 4)")
    graph = net.graph(net.op("FullyConnected", data, weight, name="fc", num_hidden=3, no_bias=True))
    monkeypatch.chdir(tmp_path)
    mxamp.Model.of(graph, {}, {}).save("net")
    assert main(["compare", "net", "net", "--random"]) == 2
    assert "'fc_weight' is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        (["conv_weight"], UnknownNameError, "'conv_weight', but that has a value among the parameters"),
        (["templat"], UnknownNameError, "no variable of the model. Did you mean 'template'"),
        ("template", PolicyError, "inputs must be a list of names of inputs, not 'template'"),
        ([3], PolicyError, "inputs must be a list of names"),
        (3, PolicyError, "inputs must be a list of names"),
    ],
)
def test_a_name_that_is_no_input_is_an_error(inputs: Any, error: type[Exception], message: str) -> None:
    case = weight_is_fed()
    with pytest.raises(error, match=message):
        mxamp.convert_model(case.graph, case.params, {}, "float16", inputs=inputs)


def test_an_auxiliary_state_is_no_input() -> None:
    net = Net()
    graph = net.graph(net.bn(net.var("data"), "bn"))
    with pytest.raises(UnknownNameError, match="'bn_moving_mean', which is an auxiliary state"):
        mxamp.convert_model(graph, {}, {}, "float16", inputs=["bn_moving_mean"])


def test_a_shared_weight_without_a_value_is_still_missing() -> None:
    """Only a layer's own data speaks against a parameter."""
    net = Net()
    data, weight = net.var("data"), net.var("weight")
    first = net.op("FullyConnected", data, weight, name="first", num_hidden=4, no_bias=True)
    total = net.op("elemwise_add", first, net.op("exp", weight), name="total")
    assert set(parameter_names(net.graph(total))) == {"weight"}
