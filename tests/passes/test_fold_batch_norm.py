"""BatchNorm goes into the layer before it where that loses nothing, and stays where it would."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from mxamp.decisions import LowPrecision
from mxamp.dtypes import DType
from mxamp.errors import PassError
from mxamp.graph import Entry, Graph
from mxamp.model import Model
from mxamp.passes import Done, FoldBatchNorm, PlannedNode, State, run_passes
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import (
    AUXILIARY,
    BF16,
    F16,
    Net,
    convert,
    named,
    plan_for,
    planned_state,
    reads,
    state_for,
)
from tests.passes.harness import run_pass


def split(params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    auxs = {name: value for name, value in params.items() if name.endswith(AUXILIARY)}
    return {name: value for name, value in params.items() if name not in auxs}, auxs


def fold(graph: Graph, params: dict[str, Any], dtype: DType = BF16, **options: Any) -> tuple[Graph, State]:
    """Fold under the harness; parameters that the first run replaced are those of the second."""

    def again(done: State) -> State:
        values = {name: np.asarray(value.numpy(), np.float32) for name, value in done.params.items()}
        return planned_state(done.graph, values, dtype, **options)

    before = {node.name for node in graph.nodes if not node.is_variable}
    start = planned_state(graph, params, dtype, **options)
    done = run_pass(start, FoldBatchNorm(), again, variables_may_go=True)
    gone = {graph.nodes[change.node].name for change in done.record(PlannedNode) if change.is_gone}
    assert {node.name for node in done.graph.nodes if not node.is_variable} == before - gone
    return done.graph, done


def statistics(net: Net, name: str = "bn") -> dict[str, Any]:
    """Give a BatchNorm statistics that do something."""
    rng = np.random.default_rng(5)
    for part, low, high in (
        ("gamma", 0.5, 2),
        ("beta", -1, 1),
        ("moving_mean", -1, 1),
        ("moving_var", 0.1, 4),
    ):
        net.params[f"{name}_{part}"] = rng.uniform(low, high, 4).astype(np.float32)
    return net.params


def conv_bn(**attrs: str) -> tuple[Net, Entry]:
    net = Net()
    last = net.bn(net.conv(net.var("x"), "conv"), "bn")
    statistics(net)
    for op in ("conv", "bn"):
        position = next(n for n, node in enumerate(net.nodes) if node.name == op)
        here = {key[len(op) + 1 :]: value for key, value in attrs.items() if key.startswith(op)}
        net.nodes[position] = net.nodes[position]._replace(attrs={**net.nodes[position].attrs, **here})
    return net, last


def after_it(net: Net, last: Entry) -> Graph:
    return net.graph(net.op("Activation", last, name="relu", act_type="relu"))


def is_folded(graph: Graph, params: dict[str, Any], dtype: DType = BF16, **options: Any) -> bool:
    return fold(graph, params, dtype, **options)[0] is not graph


def test_the_layer_takes_over_scale_and_shift() -> None:
    net, last = conv_bn(bn_eps="0.01")
    after, done = fold(after_it(net, last), net.params)
    gamma, beta, mean, variance = (
        net.params[f"bn_{part}"].astype(np.float64) for part in ("gamma", "beta", "moving_mean", "moving_var")
    )
    scale = gamma / np.sqrt(variance + 0.01)
    weight, bias = done.arg_params["conv_weight"].numpy(), done.arg_params["conv_bias"].numpy()
    np.testing.assert_allclose(weight, net.params["conv_weight"] * scale.reshape(-1, 1, 1, 1), rtol=1e-6)
    np.testing.assert_allclose(bias, beta - mean * scale, rtol=1e-6)
    assert reads(after, "relu") == ["conv"]
    assert reads(after, "conv") == ["x", "conv_weight", "conv_bias"]
    assert named(after, "conv").attrs["no_bias"] == "False"
    assert set(done.arg_params) == {"conv_weight", "conv_bias"}
    assert done.aux_params == {}


def test_a_bias_that_is_there_takes_part() -> None:
    net = Net()
    x, weight, bias = net.var("x"), net.param("w", 4, 4, 1, 1), net.param("b", 4)
    layer = net.op("Convolution", x, weight, bias, name="conv", num_filter=4, kernel="(1, 1)")
    last = net.bn(layer, "bn")
    statistics(net)
    _, done = fold(after_it(net, last), net.params)
    scale = net.params["bn_gamma"] / np.sqrt(net.params["bn_moving_var"] + 1e-3)
    expected = (net.params["b"] - net.params["bn_moving_mean"]) * scale + net.params["bn_beta"]
    np.testing.assert_allclose(done.arg_params["b"].numpy(), expected, rtol=1e-5)


def test_a_fixed_gamma_is_one_whatever_is_stored() -> None:
    net, last = conv_bn(bn_fix_gamma="True", bn_eps="0")
    _, done = fold(after_it(net, last), net.params)
    scale = 1 / np.sqrt(net.params["bn_moving_var"])
    np.testing.assert_allclose(
        done.arg_params["conv_weight"].numpy(),
        net.params["conv_weight"] * scale.reshape(-1, 1, 1, 1),
        rtol=1e-6,
    )


def test_a_dense_layer_folds_too() -> None:
    net = Net()
    last = net.bn(net.fc(net.var("x"), "fc"), "bn")
    assert is_folded(after_it(net, last), statistics(net))


@pytest.mark.parametrize(
    ("flatten", "axis", "folds"),
    [
        *(("True", "1", True), ("True", "-1", True), ("True", "2", False)),
        *(("False", "-1", True), ("False", "1", False), ("False", "2", False)),
    ],
)
def test_a_dense_layer_folds_the_norm_of_its_units(flatten: str, axis: str, folds: bool) -> None:
    net = Net()
    layer = net.fc(net.var("x"), "fc")
    net.nodes[layer.node].attrs["flatten"] = flatten
    last = net.bn(layer, "bn")
    net.nodes[last.node].attrs["axis"] = axis
    assert is_folded(after_it(net, last), statistics(net)) == folds


@pytest.mark.parametrize("attrs", [{"bn_axis": "3"}, {"conv_layout": "NHWC"}, {"bn_axis": "-1"}])
def test_another_channel_axis_is_refused(attrs: dict[str, str]) -> None:
    net, last = conv_bn(**attrs)
    assert not is_folded(after_it(net, last), net.params)


REFUSALS: dict[str, Callable[[Net, Entry, Entry], Graph]] = {
    "the layer is read twice": lambda net, layer, norm: net.graph(
        norm_reader(net, norm), net.op("exp", layer)
    ),
    "the layer is an output": lambda net, layer, norm: net.graph(norm_reader(net, norm), layer),
    "the norm is an output": lambda net, layer, norm: net.graph(norm),
    "statistics are read": lambda net, layer, norm: net.graph(
        norm_reader(net, norm), net.op("exp", Entry(norm.node, 1))
    ),
    "the weight is read twice": lambda net, layer, norm: net.graph(
        norm_reader(net, norm), net.op("exp", net.nodes[layer.node].inputs[1])
    ),
    "the weight is an output": lambda net, layer, norm: net.graph(
        norm_reader(net, norm), net.nodes[layer.node].inputs[1]
    ),
}


def norm_reader(net: Net, norm: Entry) -> Entry:
    return net.op("Activation", norm, name="relu", act_type="relu")


@pytest.mark.parametrize("reason", REFUSALS)
def test_what_somebody_else_sees_is_not_folded_away(reason: str) -> None:
    net, norm = conv_bn()
    layer = net.nodes[norm.node].inputs[0]
    assert not is_folded(REFUSALS[reason](net, layer, norm), net.params)


@pytest.mark.parametrize("name", ["conv", "bn"])
def test_what_stays_fp32_is_not_folded(name: str) -> None:
    net, last = conv_bn()
    policy = Policy.default(BF16).excluding(names=[name])
    assert not is_folded(after_it(net, last), net.params, policy=policy)


def test_weights_that_would_overflow_are_not_folded() -> None:
    net, last = conv_bn()
    net.params["bn_moving_var"] = np.full(4, 1e-12, np.float32)
    net.params["bn_gamma"] = np.full(4, 1e6, np.float32)
    assert not is_folded(after_it(net, last), net.params, F16)


def test_parameters_cast_at_run_time_are_not_folded() -> None:
    net, last = conv_bn()
    assert not is_folded(after_it(net, last), net.params, offline=False)


def test_statistics_shared_with_a_norm_that_stays_are_kept() -> None:
    net, last = conv_bn()
    shared = net.nodes[last.node].inputs[1:]
    pooled = net.op("Pooling", net.var("y"), name="pool", kernel="(1, 1)")
    other = net.op("BatchNorm", pooled, *shared, name="other", outputs=3, fix_gamma=False)
    relu = net.op("Activation", last, name="relu", act_type="relu")
    _, done = fold(net.graph(relu, other), net.params)
    assert set(done.aux_params) == {"bn_moving_mean", "bn_moving_var"}
    assert {"bn_gamma", "bn_beta"} <= set(done.arg_params)


def test_a_plan_for_another_graph_is_refused() -> None:
    net, last = conv_bn()
    small = Net()
    plan = plan_for(small.graph(small.op("exp", small.var("x"))))
    state = state_for(after_it(net, last), net.params).after(Done(None, plan=plan))
    with pytest.raises(PassError, match="another graph"):
        run_passes([FoldBatchNorm()], state)


def whole(net: Net, last: Entry, **extra: Any) -> Model:
    return convert(after_it(net, last), {**net.params, **extra}, BF16, fold_batch_norm=True)


def test_a_new_bias_does_not_take_the_name_of_a_parameter_the_graph_does_not_use() -> None:
    net, last = conv_bn()
    plain = whole(net, last)
    left_over = np.full(4, 99, np.float32)
    model = whole(net, last, conv_bias=left_over)
    (bias,) = [name for name in model.graph.variables if "bias" in name]
    np.testing.assert_array_equal(model.arg_params[bias].numpy(), plain.arg_params["conv_bias"].numpy())
    np.testing.assert_array_equal(model.arg_params["conv_bias"].numpy(), left_over)


def test_a_second_copy_does_not_take_the_name_of_a_parameter_the_graph_does_not_use() -> None:
    net = Net()
    layer = net.fc(net.var("x"), "fc")
    weight = net.nodes[layer.node].inputs[1]
    graph = net.graph(layer, net.op("exp", weight, name="e"))
    left_over = np.full(3, 99, np.float32)
    params = {**net.params, "fc_weight_bfloat16": left_over}
    model = convert(graph, params, low_precision=LowPrecision.REQUIRED)
    low = reads(model.graph, "fc_bfloat16")[1]
    assert model.arg_params[low].shape == (4, 4)
    np.testing.assert_array_equal(model.arg_params["fc_weight_bfloat16"].numpy(), left_over)


def test_the_report_says_where_a_norm_went() -> None:
    net, last = conv_bn()
    report = whole(net, last).report
    assert report is not None
    assert report.node("bn").rule == "fold batch norm"
    assert "'conv'" in report.node("bn").reason


def test_float32_norms_go_into_float32_layers_only_where_all_is_float32() -> None:
    net, last = conv_bn()
    graph = net.graph(net.conv(last, "behind"))
    kept = {"conv": "it is measured", "bn": "it is measured"}
    beside_low = convert(graph, net.params, fold_batch_norm=True, kept=kept)
    assert "bn" in {node.name for node in beside_low.graph.nodes}
    model = convert(graph, net.params, fold_batch_norm=True, kept={**kept, "behind": "it is measured"})
    assert "bn" not in {node.name for node in model.graph.nodes}
    values = {name: value.astype(np.float64) for name, value in net.params.items()}
    scale = values["bn_gamma"] / np.sqrt(values["bn_moving_var"] + 1e-3)
    weight = values["conv_weight"] * scale[:, None, None, None]
    shift = values["bn_beta"] - values["bn_moving_mean"] * scale
    # Each is rounded once, from what float64 gives.
    for name, exact in (("conv_weight", weight), ("conv_bias", shift)):
        found = model.arg_params[name].numpy()
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, exact, rtol=2.0**-24)
    assert model.report is not None
    assert model.report.node("bn").rule == "fold batch norm"
    assert not model.report.casts


def test_a_float32_norm_behind_which_an_output_is_cast_stays() -> None:
    """Before outputs were cast it was one itself: converting again is to change nothing."""
    net, last = conv_bn()
    kept = dict.fromkeys(["conv", "bn"], "it is measured")
    for cast in ("amp_cast", "Cast"):
        head = net.op(cast, last, name=f"y_{cast}", dtype="bfloat16")
        model = convert(net.graph(head), net.params, fold_batch_norm=True, kept=kept)
        assert "bn" in {node.name for node in model.graph.nodes}


@pytest.mark.parametrize("is_low", [False, True])
def test_a_norm_behind_a_norm_is_folded_too(is_low: bool) -> None:
    net, last = conv_bn()
    graph = net.graph(net.bn(last, "second"))
    kept = {} if is_low else dict.fromkeys(["conv", "bn", "second"], "it is measured")
    model = convert(graph, net.params, fold_batch_norm=True, kept=kept)
    found = [node.op for node in model.graph.nodes if not node.is_variable and node.op != "amp_cast"]
    # What is an output keeps its name.
    assert found == ["Convolution", "BatchNorm"]
    model = convert(
        net.graph(net.op("Activation", graph.heads[0], act_type="relu")),
        net.params,
        fold_batch_norm=True,
        kept=kept,
    )
    found = [node.op for node in model.graph.nodes if not node.is_variable and node.op != "amp_cast"]
    assert found == ["Convolution", "Activation"]
    report = model.report
    assert report is not None
    assert {report.node(name).rule for name in ("bn", "second")} == {"fold batch norm"}


def sequence_bn(kernel: str) -> tuple[Net, Graph]:
    """Return a layer and a BatchNorm, and a layer behind."""
    net = Net()
    sides = [1] * (kernel.count(",") if kernel != "(1, 1)" else 2)
    options = {"num_filter": 4, "kernel": kernel, "no_bias": True}
    x = net.op("Convolution", net.var("x"), net.param("w0", 4, 4, *sides), name="conv", **options)
    x = net.bn(x, "bn")
    statistics(net)
    return net, net.graph(net.op("Convolution", x, net.param("w1", 4, 4, *sides), name="behind", **options))


@pytest.mark.parametrize(
    ("kernel", "target", "is_folded"),
    [("(1,)", "cpu-bf16", True), ("(1, 1)", "cpu-bf16", False), ("(1,)", "cuda-fp16", False)],
)
def test_beside_low_layers_a_float32_norm_is_folded_where_mxnet_would_not_fuse_it(
    kernel: str, target: str, is_folded: bool
) -> None:
    net, graph = sequence_bn(kernel)
    where = Target.builtin(target)
    kept = dict.fromkeys(["conv", "bn"], "it is measured")
    options = {"fold_batch_norm": True, "kept": kept, "target": where, "low_precision": LowPrecision.REQUIRED}
    model = convert(graph, net.params, where.dtype, **options)
    names = {node.name for node in model.graph.nodes}
    assert ("bn" not in names) is is_folded
    assert model.report is not None
    assert model.report.node("behind").compute == where.dtype.label
    assert model.report.node("conv").compute == "float32"
    policy = Policy.default(where.dtype).excluding(names=["bn"])
    left = convert(graph, net.params, where.dtype, **{**options, "policy": policy})
    assert "bn" in {node.name for node in left.graph.nodes}


@pytest.mark.parametrize("name", ["conv", "bn"])
def test_in_a_float32_model_what_the_user_picks_stays(name: str) -> None:
    net, last = conv_bn()
    kept = dict.fromkeys(["conv", "bn", "relu"], "it is measured")
    policy = Policy.default(BF16).excluding(names=[name])
    model = convert(after_it(net, last), net.params, fold_batch_norm=True, kept=kept, policy=policy)
    assert "bn" in {node.name for node in model.graph.nodes}


def test_a_norm_and_a_layer_that_disagree_about_their_dtype_are_not_folded() -> None:
    net, last = conv_bn()
    kept = {"bn": "it is measured"}
    model = convert(after_it(net, last), net.params, fold_batch_norm=True, kept=kept)
    assert "bn" in {node.name for node in model.graph.nodes}
