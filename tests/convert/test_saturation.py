"""``saturate=True``: what is beyond the range is clamped, its layers compute low, and the report says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.decisions import LowPrecision
from mxamp.errors import PolicyError
from mxamp.graph import Entry, Graph, Node
from mxamp.report.model import Report
from tests.building import BF16, F16, F32, Net, assert_sound, capable, convert


def layer(*, large: float = 1e6) -> Net:
    net = Net()
    net.fc(net.var("data"), "fc0")
    net.params["fc0_weight"][0, :2] = [large, -7e4]
    return net


def convert_layer(net: Net, **options: Any) -> mxamp.Model:
    graph = net.graph(net.op("Activation", Entry(len(net.nodes) - 1), name="relu0", act_type="relu"))
    model = convert(graph, net.params, F16, **options)
    assert_sound(graph, model)
    return model


def report_of(model: mxamp.Model) -> Report:
    assert model.report is not None
    return model.report


def test_by_default_such_a_layer_stays_float32() -> None:
    model = convert_layer(layer())
    node = report_of(model).node("fc0")
    assert (node.compute, node.rule) == ("float32", "parameter range")
    assert model.arg_params["fc0_weight"].dtype is F32
    assert report_of(model).saturated_values == 0


def test_clamped_parameters_let_their_layer_compute_low() -> None:
    net = layer()
    model = convert_layer(net, saturate=True)
    assert report_of(model).node("fc0").compute == "float16"
    stored = model.arg_params["fc0_weight"].numpy()
    expected = net.params["fc0_weight"].astype(np.float16)
    expected[0, :2] = [65504, -65504]
    np.testing.assert_array_equal(stored, expected)
    assert net.params["fc0_weight"][0, 0] == 1e6


def test_the_report_counts_what_was_clamped() -> None:
    report = report_of(convert_layer(layer(), saturate=True))
    (parameter,) = report.parameters
    saturation = parameter.saturation
    assert saturation is not None
    assert (saturation.count, saturation.largest, saturation.limit) == (2, 1e6, 65504.0)
    assert report.saturated_values == 2
    assert (
        "Clamped to float16's largest value 65504: 2 values of 1 parameter (fc0_weight); "
        "the largest was 1e+06, in fc0_weight." in str(report).replace("\n  ", " ")
    )
    assert Report.from_json(report.to_json()) == report


def test_infinities_of_the_original_stay_and_are_mentioned() -> None:
    model = convert_layer(layer(large=np.inf), saturate=True)
    assert np.isposinf(model.arg_params["fc0_weight"].numpy()[0, 0])
    text = str(report_of(model)).replace("\n  ", " ")
    assert "Values that were infinite in the original, and still are: in fc0_weight." in text
    assert report_of(model).saturated_values == 1


def test_where_nothing_overflows_saturating_changes_nothing() -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("data"), "fc0"))
    plain, saturated = (convert(graph, net.params, F16, saturate=flag) for flag in (False, True))
    assert saturated.graph == plain.graph
    assert saturated.report == plain.report
    for name, value in plain.arg_params.items():
        np.testing.assert_array_equal(saturated.arg_params[name].numpy(), value.numpy())


def test_a_parameter_stored_twice_is_clamped_where_it_is_low() -> None:
    net = Net()
    first = net.fc(net.var("data"), "fc0")
    net.params["fc0_weight"][0, 0] = 1e6
    weight = net.nodes[first.node].inputs[1]
    graph = net.graph(first, net.op("L2Normalization", weight, name="norm"))
    model = convert(graph, net.params, F16, saturate=True, low_precision=LowPrecision.REQUIRED)
    assert model.arg_params["fc0_weight"].numpy()[0, 0] == 1e6
    assert model.arg_params["fc0_weight_float16"].numpy()[0, 0] == 65504


def test_a_parameter_that_would_mostly_vanish_still_stays_float32() -> None:
    net = layer()
    net.params["fc0_weight"][:] = 1e-9
    net.params["fc0_weight"][0, 0] = 1e6
    assert report_of(convert_layer(net, saturate=True)).node("fc0").compute == "float32"


def test_a_scalar_is_not_clamped() -> None:
    net = Net()
    graph = net.graph(net.op("_plus_scalar", net.fc(net.var("data"), "fc0"), name="far", scalar=1e6))
    model = convert(graph, net.params, F16, saturate=True)
    assert report_of(model).node("far").rule == "scalar range"


def test_a_batch_norm_that_scales_into_the_range_is_folded_and_nothing_is_clamped() -> None:
    net = Net()
    norm = net.bn(net.conv(net.var("data"), "conv0"), "bn0")
    net.params["conv0_weight"][0] = 1e6
    net.params["bn0_gamma"][:] = 1e-3
    graph = net.graph(net.op("Activation", norm, name="relu0", act_type="relu"))
    model = convert(graph, net.params, F16, saturate=True, fold_batch_norm=True)
    assert report_of(model).node("bn0").rule == "fold batch norm"
    assert report_of(model).saturated_values == 0
    assert np.abs(model.arg_params["conv0_weight"].numpy()).max() < 1100


def test_a_batch_norm_that_scales_out_of_the_range_is_not_folded() -> None:
    net = Net()
    norm = net.bn(net.conv(net.var("data"), "conv0"), "bn0")
    net.params["bn0_gamma"][:] = 1e6
    graph = net.graph(net.op("Activation", norm, name="relu0", act_type="relu"))
    model = convert(graph, net.params, F16, saturate=True, fold_batch_norm=True)
    assert report_of(model).node("bn0").rule != "fold batch norm"
    assert report_of(model).saturated_values == 0


def test_a_parameter_of_a_loop_is_not_clamped() -> None:
    """It may be cast inside, at run time, where MXNet's casts overflow: its readers stay float32."""
    body = Net()
    state = body.op("FullyConnected", body.var("s"), body.var("w"), name="fc", num_hidden=4, no_bias=True)
    inner = body.graph(state, state)
    net = Net()
    data, weight, start = net.var("data"), net.param("weight", 4, 4, value=1e6), net.var("start")
    attrs = {
        "num_args": "4",
        "num_outputs": "2",
        "num_out_data": "1",
        "in_data_locs": "[]",
        "in_state_locs": "[0]",
        "remain_locs": "[1]",
    }
    net.nodes.append(Node("_foreach", "loop", attrs, (start, weight), 2, (inner,)))
    outer = Graph((*net.nodes,), (Entry(len(net.nodes) - 1, 0),))
    assert data.node == 0
    model = convert(outer, net.params, F16, saturate=True)
    assert report_of(model).node("loop/fc").rule == "parameter range"
    assert report_of(model).saturated_values == 0


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_the_front_door_takes_the_option(dtype: Any) -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("data"), "fc0"))
    net.params["fc0_weight"][0, 0] = np.finfo(np.float32).max
    model = mxamp.convert_model(graph, net.params, {}, str(dtype), target=capable(dtype), saturate=True)
    assert model.arg_params["fc0_weight"].numpy()[0, 0].astype(np.float64) == dtype.max_finite


def test_casting_at_every_forward_pass_cannot_saturate() -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("data"), "fc0"))
    with pytest.raises(PolicyError, match="saturate=True clamps parameters when they are cast now"):
        convert(graph, net.params, F16, saturate=True, cast_offline=False)


def test_a_symbol_without_values_has_nothing_to_clamp() -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("data"), "fc0"))
    with pytest.raises(PolicyError, match="no parameter values to clamp"):
        mxamp.convert_symbol(graph, "float16", saturate=True)


@pytest.mark.parametrize("name", ["saturate", "rewrite_masks"])
def test_what_is_no_flag_is_refused(name: str) -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("data"), "fc0"))
    with pytest.raises(PolicyError, match=f"{name} must be True or False, not 'yes'"):
        convert(graph, net.params, F16, **{name: "yes"})
