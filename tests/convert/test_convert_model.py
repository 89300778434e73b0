"""The front door, without MXNet: errors, options, the report, and what is never changed."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.errors import MxampWarning, ParamsError, PolicyError, TargetError, UnknownNameError
from mxamp.graph import Entry, Graph, write_symbol
from mxamp.policy import Policy
from mxamp.report.model import Report
from tests.building import (
    BF16,
    F16,
    F32,
    LOW,
    Net,
    assert_sound,
    capable,
    casts,
    dtypes_of,
    named,
    variables_of,
)


def network() -> tuple[Graph, dict[str, Any], dict[str, Any]]:
    net = Net()
    trunk = net.bn(net.conv(net.var("data"), "conv"), "bn")
    relu = net.op("Activation", trunk, name="relu", act_type="relu")
    graph = net.graph(net.op("softmax", net.fc(net.op("Flatten", relu, name="flat"), "fc"), name="prob"))
    auxs = {name: net.params[name] for name in net.params if name.endswith(("moving_mean", "moving_var"))}
    return graph, {name: value for name, value in net.params.items() if name not in auxs}, auxs


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_network_converts_on_the_built_in_targets(dtype: str) -> None:
    graph, args, auxs = network()
    model = mxamp.convert_model(graph, args, auxs, dtype)
    assert_sound(graph, model)
    assert str(model.arg_params["conv_weight"].dtype) == dtype
    assert model.report is not None
    assert model.report.node("conv").compute == dtype


def test_without_folding_every_parameter_keeps_its_name_and_statistics_stay_fp32() -> None:
    graph, args, auxs = network()
    model = mxamp.convert_model(graph, args, auxs, "bfloat16", fold_batch_norm=False)
    assert_sound(graph, model)
    assert (set(model.arg_params), set(model.aux_params)) == (set(args), set(auxs))
    assert model.arg_params["bn_gamma"].dtype is F32
    assert model.aux_params["bn_moving_var"].dtype is F32


def test_the_callers_graph_dicts_and_arrays_are_never_changed() -> None:
    graph, args, auxs = network()
    text, before_args, before_auxs = write_symbol(graph), copy.deepcopy(args), copy.deepcopy(auxs)
    identities = {name: id(value) for name, value in {**args, **auxs}.items()}
    model = mxamp.convert_model(graph, args, auxs, "bfloat16", io_dtype="low")
    assert write_symbol(graph) == text
    assert {name: id(value) for name, value in {**args, **auxs}.items()} == identities
    for given, kept in ((args, before_args), (auxs, before_auxs)):
        assert list(given) == list(kept)
        assert all(np.array_equal(given[name], kept[name]) for name in kept)
        assert all(value.dtype == np.float32 for value in given.values())
    assert model.arg_params is not args


def test_read_only_arrays_convert() -> None:
    graph, args, auxs = network()
    for value in (*args.values(), *auxs.values()):
        value.flags.writeable = False
    mxamp.convert_model(graph, args, auxs, "float16")


def test_parameters_the_graph_does_not_have_are_kept_as_they_are() -> None:
    graph, args, auxs = network()
    model = mxamp.convert_model(graph, {**args, "spare": np.ones(3, np.float32)}, auxs, "float16")
    assert model.arg_params["spare"].dtype is F32


# ---------------------------------------------------------------------- parameters


def test_a_missing_parameter_is_named_with_its_reader_and_the_nearest_name() -> None:
    graph, args, auxs = network()
    args["fc_weigth"] = args.pop("fc_weight")
    with pytest.raises(ParamsError, match=r"'fc_weight' is missing; it is input 1 of node 'fc'.*'fc_weigth'"):
        mxamp.convert_model(graph, args, auxs, "float16")


def test_a_missing_statistic_is_named() -> None:
    graph, args, _ = network()
    with pytest.raises(ParamsError, match=r"'bn_moving_mean' and 1 more is missing"):
        mxamp.convert_model(graph, args, {}, "float16")


def test_a_parameter_of_the_wrong_shape_is_named_with_both_shapes() -> None:
    graph, args, auxs = network()
    args["fc_weight"] = np.zeros((5, 4), np.float32)
    with pytest.raises(
        ParamsError, match=r"'fc_weight' has the shape \(5, 4\), but node 'fc'.*wants \(4, \?\)"
    ):
        mxamp.convert_model(graph, args, auxs, "float16")


@pytest.mark.parametrize("args", [None, [1], "x"])
def test_parameters_that_are_no_dict_are_refused(args: Any) -> None:
    graph, _, auxs = network()
    with pytest.raises(ParamsError, match="args must be a dict"):
        mxamp.convert_model(graph, args, auxs, "float16")


def test_a_weight_that_overflows_keeps_its_layer_fp32_and_is_never_clamped() -> None:
    graph, args, auxs = network()
    args["fc_weight"] = args["fc_weight"] * 1e6
    model = mxamp.convert_model(graph, args, auxs, "float16")
    assert np.array_equal(model.arg_params["fc_weight"].numpy(), args["fc_weight"])
    assert model.report is not None
    assert "beyond float16's largest value" in model.report.node("fc").reason
    assert model.report.node("conv").compute == "float16"


def test_a_shared_parameter_is_stored_once_per_dtype_with_its_values() -> None:
    net = Net()
    layer = net.fc(net.var("x"), "fc")
    weight = Entry(net.graph(layer).variables["fc_weight"])
    graph = net.graph(layer, net.op("exp", weight, name="e"))
    # Nothing else is stored low here, so the model grows by the copy: only where low precision is required.
    options = {"target": capable(BF16), "low_precision": "required"}
    model = mxamp.convert_model(graph, net.params, {}, "bfloat16", **options)
    low, full = model.arg_params["fc_weight_bfloat16"].numpy(), model.arg_params["fc_weight"].numpy()
    assert np.array_equal(full, net.params["fc_weight"])
    assert np.array_equal(low, full.astype(BF16.numpy))
    assert model.report is not None
    (report,) = model.report.parameters
    assert report.stored == {"fc_weight": "float32", "fc_weight_bfloat16": "bfloat16"}
    assert (report.bytes_before, report.bytes_after) == (64, 96)


# ---------------------------------------------------------------------- options


def test_low_inputs_and_outputs_are_low() -> None:
    graph, args, auxs = network()
    model = mxamp.convert_model(graph, args, auxs, "float16", io_dtype="low", target=capable(F16))
    assert_sound(graph, model, low_inputs=["data"])
    found = dtypes_of(model)
    assert found["data"] == (F16,)
    head = model.graph.heads[0]
    assert found[model.graph.nodes[head.node].name][head.output] is F16
    assert model.report is not None
    assert (model.report.inputs, model.report.outputs) == ({"data": "float16"}, {"prob_output": "float16"})


def test_one_input_alone_may_be_low() -> None:
    graph, args, auxs = network()
    model = mxamp.convert_model(graph, args, auxs, "bfloat16", io_dtype={"data": "low"}, target=capable(BF16))
    assert_sound(graph, model, low_inputs=["data"])
    assert all(not cast.startswith("data") for cast in casts(model.graph))
    assert model.report is not None
    assert model.report.outputs == {"prob_output": "float32"}


def test_a_low_output_by_its_nodes_name() -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("x"), "first"), net.fc(Entry(0), "second"))
    model = mxamp.convert_model(
        graph, net.params, {}, "bfloat16", io_dtype={"first": "low"}, target=capable(BF16)
    )
    assert model.report is not None
    assert model.report.outputs == {"first_output": "bfloat16", "second_output": "float32"}
    assert named(model.graph, "first").op == "FullyConnected"


def test_a_parameter_is_no_input_whose_dtype_can_be_chosen() -> None:
    graph, args, auxs = network()
    with pytest.raises(UnknownNameError, match="'conv_weight'"):
        mxamp.convert_model(graph, args, auxs, "float16", io_dtype={"conv_weight": "low"})


def test_run_time_casts_leave_the_parameters_as_they_were() -> None:
    graph, args, auxs = network()
    model = mxamp.convert_model(
        graph, args, auxs, "bfloat16", cast_optional_params=False, target=capable(BF16)
    )
    assert all(value.dtype is F32 for value in model.arg_params.values())
    assert "conv_weight -> bfloat16" in casts(model.graph)
    assert_sound(graph, model)


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_plain_casts_convert_and_bfloat16_ones_warn(dtype: Any) -> None:
    graph, args, auxs = network()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = mxamp.convert_model(graph, args, auxs, dtype, cast_op="Cast", target=capable(dtype))
    assert [node.op for node in model.graph.nodes if node.op in ("Cast", "amp_cast")] == ["Cast"] * len(
        casts(model.graph)
    )
    messages = [str(item.message) for item in caught if issubclass(item.category, MxampWarning)]
    assert ["truncates to bfloat16" in message for message in messages] == ([True] if dtype is BF16 else [])


def test_excluded_names_and_patterns_stay_fp32() -> None:
    graph, args, auxs = network()
    model = mxamp.convert_model(graph, args, auxs, "float16", exclude=["conv", "f*"], target=capable(F16))
    assert model.report is not None
    assert model.report.node("conv").compute == model.report.node("fc").compute == "float32"
    assert model.report.low_nodes == 0
    assert model.graph is graph


def test_a_color_function_decides() -> None:
    graph, args, auxs = network()
    model = mxamp.convert_model(
        graph, args, auxs, "float16", color=lambda node: "red" if node.op == "FullyConnected" else None
    )
    assert model.report is not None
    assert model.report.node("fc").rule == "color function"


def test_a_policy_may_be_a_file(tmp_path: Path) -> None:
    graph, args, auxs = network()
    Policy.default("float16").excluding(names=["conv"], reason="measured").save(tmp_path / "p.toml")
    model = mxamp.convert_model(graph, args, auxs, "float16", policy=tmp_path / "p.toml")
    assert model.report is not None
    assert model.report.node("conv").reason == "measured"


def test_mxnets_lists_reach_the_policy() -> None:
    graph, args, auxs = network()
    model = mxamp.convert_model(
        graph, args, auxs, "float16", target_dtype_ops=["FullyConnected"], fp32_ops=["Convolution", "softmax"]
    )
    assert model.report is not None
    assert {name: model.report.node(name).color for name in ("fc", "conv", "prob")} == {
        "fc": "green",
        "conv": "red",
        "prob": "red",
    }


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target_dtype": "float8"}, PolicyError, "Did you mean"),
        ({"target": "gpu"}, TargetError, "no target 'gpu'"),
        ({"target": "cpu-bf16"}, PolicyError, "policy is for float16 and the target cpu-bf16 for bfloat16"),
        (
            {"policy": Policy.default("bfloat16")},
            PolicyError,
            "policy is for bfloat16, but target_dtype is float16",
        ),
        ({"cast_op": "cast"}, PolicyError, "amp_cast or Cast, not 'cast'"),
        ({"exclude": "conv"}, PolicyError, r"write \['conv'\]"),
        ({"exclude": ["cnov"]}, UnknownNameError, "Did you mean 'conv'"),
        ({"excluded_sym_names": ["cnov"]}, UnknownNameError, "Did you mean 'conv'"),
        ({"fp32_ops": ["exp"], "target_dtype_ops": ["exp"]}, PolicyError, "in two lists"),
        ({"io_dtype": {"dat": "low"}}, UnknownNameError, "Did you mean 'data'"),
        ({"color": lambda node: "blue"}, PolicyError, "'blue' for node 'conv'"),
    ],
)
def test_a_mistaken_option_is_explained(options: Any, error: type[Exception], message: str) -> None:
    graph, args, auxs = network()
    with pytest.raises(error, match=message):
        mxamp.convert_model(graph, args, auxs, **{"target_dtype": "float16", **options})


# ---------------------------------------------------------------------- warnings and the report


def test_an_unknown_operator_warns_once_per_operator_and_names_a_node() -> None:
    net = Net()
    first = net.op("mystery", net.fc(net.var("x"), "fc"), name="first")
    graph = net.graph(net.op("mystery", first, name="second"))
    with pytest.warns(MxampWarning, match=r"operator mystery \(node 'first'\)") as caught:
        model = mxamp.convert_model(graph, net.params, {}, "float16")
    assert len(caught) == 1
    assert model.report is not None
    assert len(model.report.warnings) == 1


def test_a_sound_model_warns_of_nothing() -> None:
    graph, args, auxs = network()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = mxamp.convert_model(graph, args, auxs, "bfloat16")
    assert model.report is not None
    assert model.report.warnings == ()


def test_the_report_tells_every_node_and_every_cast() -> None:
    graph, args, auxs = network()
    report = mxamp.convert_model(
        graph, args, auxs, "float16", target=capable(F16), fold_batch_norm=False
    ).report
    assert report is not None
    assert [node.name for node in report.nodes] == [n.name for n in graph.nodes if not n.is_variable]
    (down,) = report.casts
    assert (down.entry, down.direction, down.from_dtype, down.to_dtype) == (
        "data",
        "down",
        "float32",
        "float16",
    )
    assert down.consumers == ("conv",)
    assert report.parameter_bytes_after < report.parameter_bytes_before


def test_the_report_survives_json() -> None:
    graph, args, auxs = network()
    report = mxamp.convert_model(graph, args, auxs, "bfloat16").report
    assert report is not None
    assert Report.from_json(report.to_json()) == report


def test_a_node_the_report_does_not_have_suggests_the_nearest() -> None:
    graph, args, auxs = network()
    report = mxamp.convert_model(graph, args, auxs, "bfloat16").report
    assert report is not None
    with pytest.raises(UnknownNameError, match="Did you mean 'conv'"):
        report.node("cnov")


def test_the_report_names_a_renamed_output_by_the_users_name() -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("x"), "fc"))
    report = mxamp.convert_model(graph, net.params, {}, "bfloat16", target=capable(BF16)).report
    assert report is not None
    assert report.node("fc").name_after == "fc_bfloat16"
    up = report.casts[-1]
    assert (up.name, up.entry, up.direction, up.consumers) == ("fc", "fc", "up", ("(output)",))


# ---------------------------------------------------------------------- symbols alone


def test_a_symbol_alone_is_converted_with_casts_at_run_time() -> None:
    graph, _, _ = network()
    after = mxamp.convert_symbol(graph, "float16")
    assert isinstance(after, Graph)
    assert {"data -> float16", "conv_weight -> float16", "fc_weight -> float16"} <= set(casts(after))
    assert [node.name for node in after.nodes if node.is_variable] == list(graph.variables)


def test_a_symbol_alone_checks_its_data_names() -> None:
    graph, _, _ = network()
    mxamp.convert_symbol(graph, "float16", data_names=["data"])
    with pytest.raises(UnknownNameError, match=r"'dta'.*Did you mean 'data'"):
        mxamp.convert_symbol(graph, "float16", data_names=["dta"])


def test_a_symbol_alone_has_no_parameters_to_cast() -> None:
    graph, _, _ = network()
    with pytest.raises(PolicyError, match="Use convert_model"):
        mxamp.convert_symbol(graph, "float16", cast_optional_params=True)


def test_a_converted_model_converts_to_itself() -> None:
    graph, args, auxs = network()
    model = mxamp.convert_model(graph, args, auxs, "bfloat16")
    again = mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "bfloat16")
    assert again.graph is model.graph
    assert variables_of(again) == variables_of(model)


def images_by_adaptive_pooling(net: Net) -> tuple[Graph, dict[str, Any]]:
    pixel = net.op("_contrib_AdaptiveAvgPooling2D", net.var("data"), name="pixel", output_size=1)
    mean = net.op("mean", pixel, name="mean", axis=(2, 3), keepdims=True)
    return net.graph(net.op("broadcast_mul", pixel, mean, name="y")), {}


def large_features(net: Net) -> tuple[Graph, dict[str, Any]]:
    # The mean tells that images are small, in either of its spellings.
    layer = net.conv(net.var("data"), "layer")
    mean = net.op("mean", layer, name="mean", axis=(2, 3), keepdims=True)
    gate = net.conv(net.conv(mean, "squeeze", filters=4), "excite")
    return net.graph(net.op("broadcast_mul", layer, gate, name="y")), {}


def positions_cut_off(net: Net) -> tuple[Graph, dict[str, Any]]:
    places = net.op("argsort", net.var("words"), name="places", axis=0)
    return net.graph(net.op("_maximum_scalar", places, name="y", scalar=0.0)), {"io_dtype": "low"}


def whole_numbers_that_leave(net: Net) -> tuple[Graph, dict[str, Any]]:
    """Return a graph with an output of what is cast to whole numbers elsewhere."""
    moved = net.op("BlockGrad", net.var("data"), name="moved")
    whole = net.op("Cast", moved, name="whole", dtype="uint8")
    return net.graph(net.op("Cast", whole, name="y", dtype="float32"), moved), {"io_dtype": "low"}


@pytest.mark.parametrize(
    "made", [images_by_adaptive_pooling, large_features, positions_cut_off, whole_numbers_that_leave]
)
def test_what_preparing_spells_in_other_words_converts_to_itself(made: Any) -> None:
    net = Net()
    graph, options = made(net)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MxampWarning)
        model = mxamp.convert_model(graph, net.params, {}, "bfloat16", **options)
        again = mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "bfloat16", **options)
    assert model.report is not None
    assert model.report.preparations
    assert write_symbol(again.graph) == write_symbol(model.graph)


def test_a_bfloat16_model_is_not_mixed_with_float16() -> None:
    graph, args, auxs = network()
    model = mxamp.convert_model(graph, args, auxs, "bfloat16", fold_batch_norm=False)
    again = mxamp.convert_model(
        model.graph, model.arg_params, model.aux_params, "float16", target=capable(F16)
    )
    assert {name: value.dtype for name, value in again.arg_params.items()} == {
        name: value.dtype for name, value in model.arg_params.items()
    }
    found = dtypes_of(again)
    assert found["conv"] == (BF16,)
    assert_sound(graph, again)
