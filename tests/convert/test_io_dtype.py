"""``io_dtype`` on models with several outputs, outputs that are inputs, and indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.errors import PolicyError
from mxamp.graph import Entry, Graph, write_symbol
from mxamp.graph.output_names import output_names
from tests.building import BF16, LOW, Net, assert_sound, capable, casts, convert, dtypes_of, reconvert

pytestmark = pytest.mark.filterwarnings("ignore:io_dtype")


def norm_with_statistics(net: Net) -> tuple[Entry, ...]:
    gamma, beta = net.param("gamma", 4), net.param("beta", 4)
    norm = net.op(
        "LayerNorm", net.fc(net.var("data")), gamma, beta, name="norm", outputs=3, output_mean_var=True
    )
    return norm, Entry(norm.node, 1), Entry(norm.node, 2)


def recurrent(net: Net) -> tuple[Entry, ...]:
    """Return an LSTM with its states, and the fully connected layer that reads its result."""
    # 4 gates of 3 units read 4 inputs and 3 states, with 2 biases each.
    weights = net.param("rnn_parameters", 4 * 3 * (4 + 3 + 2))
    lstm = net.op(
        *("RNN", net.var("data"), weights, net.var("state"), net.var("cell")),
        name="rnn",
        outputs=3,
        **{"state_size": 3, "num_layers": 1, "mode": "lstm", "state_outputs": True},
    )
    return lstm, Entry(lstm.node, 1), Entry(lstm.node, 2)


def batch_norm_with_statistics(net: Net) -> tuple[Entry, ...]:
    norm = net.bn(net.conv(net.var("data")), "norm")
    return norm, Entry(norm.node, 1), Entry(norm.node, 2)


def input_is_an_output(net: Net) -> tuple[Entry, ...]:
    data = net.var("data")
    return data, net.fc(data), data


def parts(net: Net) -> tuple[Entry, ...]:
    split = net.op("SliceChannel", net.fc(net.var("data")), name="split", outputs=2, num_outputs=2)
    return split, Entry(split.node, 1)


MODELS = [norm_with_statistics, recurrent, batch_norm_with_statistics, input_is_an_output, parts]


@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("heads", ["all", "first", "last"])
def test_whatever_is_asked_for_is_done_or_refused_by_name(dtype: Any, make: Any, heads: str) -> None:
    net = Net()
    made = make(net)
    graph = net.graph(*{"all": made, "first": made[:1], "last": made[-1:]}[heads])
    outputs, inputs = output_names(graph), [name for name in graph.variables if name not in net.params]
    requests: list[Any] = ["low", dict.fromkeys(inputs, "low"), dict.fromkeys(outputs, "low")]
    requests += [{name: "low"} for name in outputs]
    done, refused = 0, []
    for request in requests:
        try:
            model = convert(graph, net.params, dtype, io_dtype=request)
        except PolicyError as error:
            refused.append((request, str(error)))
            continue
        done += 1
        assert_sound(graph, model)
        assert model.report is not None
        if isinstance(request, dict):
            found = {**model.report.inputs, **model.report.outputs}
            assert {name: found[name] for name in request} == dict.fromkeys(request, dtype.label)
        for again in (reconvert(model, dtype), reconvert(model, dtype, io_dtype=request)):
            assert write_symbol(again.graph) == write_symbol(model.graph)
    assert done >= 2
    # What is asked for as a whole is done as far as it can be.
    assert all(isinstance(request, dict) and "Leave it float32" in why for request, why in refused)


def test_the_states_of_a_recurrent_layer_can_be_low_all_together() -> None:
    """No cast stands behind a layer whose outputs are all wanted as it computes them."""
    net = Net()
    graph = net.graph(*recurrent(net))
    model = convert(graph, net.params, BF16, io_dtype="low")
    assert model.report is not None
    assert set(model.report.outputs.values()) == {"bfloat16"}
    assert casts(model.graph) == []
    with pytest.raises(PolicyError, match="ask for all of them"):
        convert(graph, net.params, BF16, io_dtype={"rnn_state_output": "low"})


def test_an_input_that_is_also_an_output_is_low_in_both_places() -> None:
    net = Net()
    model = convert(net.graph(*input_is_an_output(net)), net.params, BF16, io_dtype={"data": "low"})
    assert model.report is not None
    assert model.report.inputs["data"] == model.report.outputs["data"] == "bfloat16"


# ---------------------------------------------------------------------- indices


def embedded(**attrs: str) -> tuple[Graph, dict[str, Any]]:
    """Return an embedding of numbers that come beside features; 777 is 776 in bfloat16."""
    net = Net()
    table = net.param("table", 1000, 4)
    indices = net.var("ids", **attrs)
    if not attrs:  # of an integer that an operator hands on the dtype would change behind it
        indices = net.op("Reshape", indices, shape="(-1,)")
    rows = net.op("Embedding", indices, table, name="rows", input_dim=1000, output_dim=4)
    return net.graph(net.fc(net.op("elemwise_add", rows, net.var("features")), "fc")), net.params


@pytest.mark.parametrize(
    "attrs", [{}, {"__dtype__": "4"}, {"__dtype__": "6"}], ids=["float32", "int32", "int64"]
)
def test_indices_are_never_low_unless_they_are_named(attrs: dict[str, str]) -> None:
    graph, params = embedded(**attrs)
    with pytest.warns(mxamp.MxampWarning, match=r"the input 'ids' stays (float32|int\d\d): indices"):
        model = mxamp.convert_model(graph, params, {}, "bfloat16", io_dtype="low", target=capable(BF16))
    assert model.report is not None
    before = {"4": "int32", "6": "int64"}.get(attrs.get("__dtype__", ""), "float32")
    assert model.report.inputs == {"ids": before, "features": "bfloat16"}
    named = mxamp.convert_model(graph, params, {}, "bfloat16", io_dtype={"ids": "low"}, target=capable(BF16))
    assert named.report is not None
    assert named.report.inputs == {"ids": "bfloat16", "features": "float32"}


def test_777_stays_777() -> None:
    pytest.importorskip("mxnet", reason="it runs the model")
    from mxamp.runtime.executor import run_outputs

    graph, params = embedded()
    model = mxamp.convert_model(graph, params, {}, "bfloat16", io_dtype="low", low_precision="required")
    data = {"ids": np.array([777.0], np.float32), "features": np.zeros((1, 4), np.float32)}
    (got,) = run_outputs(model, data)
    expected = params["table"][777] @ params["fc_weight"].T
    assert np.abs(got[0] - expected).max() < 0.01


def test_an_integer_that_is_computed_with_cannot_be_low() -> None:
    net = Net()
    total = net.op("elemwise_add", net.var("a", __dtype__="4"), net.var("b", __dtype__="4"), name="total")
    graph = net.graph(total)
    model = convert(graph, {}, BF16, io_dtype="low")
    assert model.report is not None
    assert set(model.report.inputs.values()) == {"int32"}
    with pytest.raises(PolicyError, match=r"'a' cannot be bfloat16: it is int32, and node 'total'"):
        convert(graph, {}, BF16, io_dtype={"a": "low"})


@pytest.mark.parametrize(
    "dtype", ["-1", "3", "4", "6", "1"], ids=["undeclared", "uint8", "int32", "int64", "float64"]
)
def test_what_is_cast_to_float32_is_never_low_unless_it_is_named(dtype: str) -> None:
    """It says no dtype, and would not be cast if it were float32; or it says one that is wider."""
    net = Net()
    images = net.var("images", **({} if dtype == "-1" else {"__dtype__": dtype}))
    wide = net.op("Cast", images, name="wide", dtype="float32")
    graph = net.graph(net.fc(net.op("elemwise_add", wide, net.var("features")), "fc"))
    with pytest.warns(mxamp.MxampWarning, match="the input 'images' stays .* would round"):
        model = mxamp.convert_model(graph, net.params, {}, "bfloat16", io_dtype="low", target=capable(BF16))
    assert model.report is not None
    assert model.report.inputs["images"] != "bfloat16"
    assert model.report.inputs["features"] == "bfloat16"
    named = convert(graph, net.params, BF16, io_dtype={"images": "low"})
    assert named.report is not None
    assert named.report.inputs["images"] == "bfloat16"


def test_what_is_cast_to_the_target_dtype_may_arrive_in_it() -> None:
    net = Net()
    narrow = net.op("Cast", net.var("data"), name="narrow", dtype="bfloat16")
    model = convert(net.graph(net.op("exp", narrow)), {}, BF16, io_dtype="low")
    assert model.report is not None
    assert model.report.inputs == {"data": "bfloat16"}


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
@pytest.mark.parametrize("layer", ["FullyConnected", "Deconvolution"])
def test_images_can_be_fed_to_an_emulation_that_was_asked_to_be_low(dtype: str, layer: str) -> None:
    """Their cast was dropped: MXNet says that the layer requires uniform types."""
    mx = pytest.importorskip("mxnet", reason="it runs the model")
    images = np.random.default_rng(0).integers(0, 200, (2, 3, 4, 4))
    cast = mx.sym.Cast(mx.sym.var("images"), dtype="float32") / 255
    if layer == "FullyConnected":
        sym, shape = mx.sym.FullyConnected(cast, num_hidden=4, no_bias=True, name="layer"), (4, 48)
    else:
        sym, shape = mx.sym.Deconvolution(cast, num_filter=4, kernel=(2, 2), name="layer"), (3, 4, 2, 2)
    args = {"layer_weight": mx.nd.array(np.random.default_rng(1).standard_normal(shape))}
    emulated = mxamp.emulate(sym, args, {}, "float16", io_dtype="low", policy="pure")
    got, expected = (
        model.bind(
            mx.cpu(), {**values, "images": mx.nd.array(images, dtype=dtype)}, grad_req="null"
        ).forward()[0]
        for model, values in ((emulated.sym, emulated.args), (sym, args))
    )
    assert np.abs((got - expected).asnumpy()).max() < 0.01


def test_indices_that_leave_a_model_are_low_by_name_only() -> None:
    net = Net()
    ranks = net.op("topk", net.fc(net.var("data")), name="ranks", k=2)
    graph = net.graph(ranks)
    assert dtypes_of(convert(graph, net.params, BF16, io_dtype="low"))["ranks"] != (BF16,)
    model = convert(graph, net.params, BF16, io_dtype={"ranks_output": "low"})
    assert model.report is not None
    assert model.report.outputs == {"ranks_output": "bfloat16"}


def test_an_output_of_an_operator_that_nobody_knows_is_cast_and_keeps_its_name() -> None:
    net = Net()
    graph = net.graph(net.op("_mystery", net.var("data"), name="mystery"))
    with pytest.warns(mxamp.MxampWarning, match="_mystery"):
        model = convert(graph, {}, BF16, io_dtype="low")
    assert output_names(model.graph) == ("mystery_output",)
    assert dtypes_of(model)["mystery"] == (BF16,)


def test_a_cast_to_what_an_input_arrives_in_does_nothing() -> None:
    """Else the next conversion, which knows that the input is low, would drop it."""
    net = Net()
    narrow = net.op("amp_cast", net.var("data"), name="narrow", dtype="bfloat16")
    wide = net.op("amp_cast", narrow, name="wide", dtype="float32")
    graph = net.graph(net.op("exp", wide))
    model = mxamp.convert_model(graph, {}, {}, "bfloat16", io_dtype={"data": "low"})
    again = mxamp.convert_model(model.graph, {}, {}, "bfloat16")
    assert casts(model.graph) == ["data -> float32"]
    assert write_symbol(again.graph) == write_symbol(model.graph)
