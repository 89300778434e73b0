"""A BatchNorm without a layer before it becomes a depthwise Convolution where that is the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mxamp.dtypes import DType
from mxamp.errors import PassError
from mxamp.graph import VARIABLE, Entry, Graph, Node
from mxamp.model import Model
from mxamp.params.cast import cast_array
from mxamp.passes import ConvolveBatchNorm, Done, run_passes
from mxamp.policy import Color, Policy
from mxamp.targets import Target
from tests.building import (
    AUXILIARY,
    BF16,
    F16,
    F32,
    LOW,
    Net,
    capable,
    convert,
    named,
    plan_for,
    reads,
    state_for,
)
from tests.passes.pre_activation import CHANNELS, PreActivation, convolve


def is_convolved(net: Net, head: Entry, **options: Any) -> bool:
    graph = net.graph(head)
    return convolve(graph, net.params, **options)[0] is not graph


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_scale_and_shift_are_weight_and_bias(dtype: DType) -> None:
    net = PreActivation(eps="0.01")
    net.set("relu", act_type="sigmoid")  # nothing behind that takes anything over
    after, done = convolve(net.graph(net.last), net.params, dtype)
    gamma, beta, mean, variance = (
        net.params[f"bn_{part}"].astype(np.float64) for part in ("gamma", "beta", "moving_mean", "moving_var")
    )
    scale = gamma / np.sqrt(variance + 0.01)
    weight, bias = done.arg_params["bn_weight"].numpy(), done.arg_params["bn_bias"].numpy()
    np.testing.assert_allclose(weight.reshape(-1), scale, rtol=2e-7)
    rounded = cast_array(weight.reshape(-1), dtype).astype(np.float64)
    np.testing.assert_allclose(bias, beta - mean * rounded, rtol=2e-7, atol=1e-8)
    node = named(after, "bn")
    assert node.op == "Convolution"
    assert node.attrs == {"kernel": "(1, 1)", "num_filter": "16", "num_group": "16", "no_bias": "False"}
    assert weight.shape == (16, 1, 1, 1)
    assert reads(after, "bn") == ["joined", "bn_weight", "bn_bias"]
    assert reads(after, "relu") == ["bn"]
    assert set(done.arg_params) == {"first_weight", "second_weight", "bn_weight", "bn_bias"}
    assert done.aux_params == {}


def test_where_x_is_its_mean_the_result_is_beta_but_for_one_rounding() -> None:
    """The shift goes with the rounded scale, so that rounding the scale moves no mean."""
    net = PreActivation()
    net.set("relu", act_type="sigmoid")
    _, done = convolve(net.graph(net.last), net.params)
    rounded = cast_array(done.arg_params["bn_weight"].numpy().reshape(-1), BF16).astype(np.float64)
    at_mean = net.params["bn_moving_mean"] * rounded + done.arg_params["bn_bias"].numpy()
    np.testing.assert_allclose(at_mean, net.params["bn_beta"], atol=3e-7)


def test_a_fixed_gamma_is_one_whatever_is_stored() -> None:
    net = PreActivation(fix_gamma=True, eps="0")
    net.set("relu", act_type="sigmoid")
    _, done = convolve(net.graph(net.last), net.params)
    scale = 1 / np.sqrt(net.params["bn_moving_var"].astype(np.float64))
    np.testing.assert_allclose(done.arg_params["bn_weight"].numpy().reshape(-1), scale, rtol=2e-7)


def test_a_graph_output_keeps_its_name() -> None:
    net = PreActivation(head=True)
    assert is_convolved(net, net.last)


def test_a_graph_output_that_fusion_would_lose_keeps_the_norm() -> None:
    net = PreActivation()
    graph = net.graph(net.last, net.norm)
    assert convolve(graph, net.params)[0] is graph


def test_a_gamma_that_somebody_else_reads_stays() -> None:
    net = PreActivation()
    gamma = next(Entry(n) for n, node in enumerate(net.nodes) if node.name == "bn_gamma")
    other = net.op("exp", gamma, name="other")
    after, done = convolve(net.graph(net.last, other), net.params)
    assert "bn_gamma" in after.variables
    assert {"bn_gamma", "bn_weight", "bn_bias"} <= set(done.arg_params)
    assert done.made_from == {"bn_weight": ("bn_gamma",), "bn_bias": ("bn_beta",)}


def test_names_that_are_taken_are_avoided() -> None:
    net = PreActivation()
    taken = net.op("exp", net.x, name="bn_weight")
    net.params["bn_bias"] = np.zeros(3, np.float32)  # in the file, though the graph does not use it
    after, _ = convolve(net.graph(net.last, taken), net.params)
    assert reads(after, "bn") == ["joined", "bn_weight_1", "bn_bias_1"]


def test_behind_every_operator_that_keeps_an_image_an_image() -> None:
    net = PreActivation()
    net.nodes[net.joined.node] = Node(
        "slice_axis",
        "joined",
        {"axis": "2", "begin": "0", "end": "None"},
        net.nodes[net.joined.node].inputs[:1],
    )
    net.params["first_weight"] = np.ones((CHANNELS, 3, 1, 1), np.float32)
    net.set("first", num_filter=str(CHANNELS))
    assert is_convolved(net, net.last)


# ---------------------------------------------------------------------- refusals


def test_a_norm_that_stays_fp32_stays() -> None:
    net = PreActivation()
    policy = Policy.default(BF16)
    red = replace(policy, color_function=lambda node: Color.RED if node.name == "bn" else None)
    assert not is_convolved(net, net.last, policy=red)


def in_float32(*low: str) -> Policy:
    """Return a policy that keeps all nodes but some in FP32."""
    return replace(Policy.default(BF16), color_function=lambda node: None if node.name in low else Color.RED)


def with_costs_of(name: str) -> Target:
    return replace(capable(BF16), cost=Target.builtin(name).cost)


def test_one_that_stays_fp32_is_written_so_where_all_does() -> None:
    net = PreActivation(eps="0.01")
    graph, target = net.graph(net.last), with_costs_of("cpu-bf16-emulated")
    after, done = convolve(graph, net.params, policy=in_float32(), image=IMAGE, target=target)
    gamma, beta, mean, variance = (
        net.params[f"bn_{part}"].astype(np.float64) for part in ("gamma", "beta", "moving_mean", "moving_var")
    )
    scale = gamma / np.sqrt(variance + 0.01)
    weight, bias = done.arg_params["bn_weight"].numpy(), done.arg_params["bn_bias"].numpy()
    np.testing.assert_array_equal(weight.reshape(-1), scale.astype(np.float32))
    np.testing.assert_allclose(bias, beta - mean * scale, rtol=3e-7, atol=3e-7)
    assert reads(after, "relu") == ["bn"]
    assert named(after, "bn").op == "Convolution"
    decision = done.plan.decisions[[node.name for node in after.nodes].index("bn")]
    assert set(decision.inputs) == {F32} == set(decision.outputs)


IMAGE = (1, 3, 8, 8)


@pytest.mark.parametrize(
    "case",
    [
        "sigmoid",
        "read twice",
        "plain",
        "large",
        "no shapes",
        "no costs",
        "behind a Deconvolution",
        "beside low ones",
        "the user's",
    ],
)
def test_one_that_stays_fp32_stays_where_nothing_is_gained(case: str) -> None:
    net = PreActivation()
    heads = [net.last]
    if case == "sigmoid":
        net.set("relu", act_type="sigmoid")
    elif case == "read twice":
        heads.append(net.norm)
    elif case == "plain":
        net.nodes[net.joined.node] = net.nodes[net.joined.node]._replace(
            op="_npi_concatenate", attrs={"axis": "1", "num_args": "2"}
        )
    elif case == "behind a Deconvolution":
        position = next(n for n, node in enumerate(net.nodes) if node.name == "first")
        net.nodes[position] = net.nodes[position]._replace(op="Deconvolution")
        net.params["first_weight"] = net.params["first_weight"].swapaxes(0, 1)
    graph = net.graph(*heads)
    # What no cache near a core holds takes longer so on one CPU, and not on another.
    image = {"large": (64, 3, 56, 56), "no shapes": None}.get(case, IMAGE)
    target = with_costs_of("cpu-bf16-zen5" if case == "large" else "cpu-bf16-emulated")
    if case == "no costs":
        target = capable(BF16)
    policy = in_float32("first") if case == "beside low ones" else in_float32()
    if case == "the user's":
        policy = policy.excluding(names=["bn"])
    assert convolve(graph, net.params, policy=policy, image=image, target=target)[0] is graph
    if case == "large":
        target = with_costs_of("cpu-bf16-emulated")
        assert convolve(graph, net.params, policy=policy, image=image, target=target)[0] is not graph


def test_statistics_that_are_handed_on_keep_the_norm() -> None:
    net = PreActivation(output_mean_var=True)
    graph = net.graph(net.last, Entry(net.norm.node, 1))
    assert convolve(graph, net.params)[0] is graph


@pytest.mark.parametrize(
    "attrs", [{"axis": "3"}, {"axis": "-1"}], ids=["channels last", "channels last, counted from the end"]
)
def test_another_axis_keeps_the_norm(attrs: dict[str, str]) -> None:
    net = PreActivation(**attrs)
    assert not is_convolved(net, net.last)


def test_channels_that_are_no_multiple_of_sixteen_keep_the_norm() -> None:
    net = PreActivation(24)
    assert not is_convolved(net, net.last)


@pytest.mark.parametrize("kernel", ["(1,)", "(1, 1, 1)"], ids=["sequences", "volumes"])
def test_what_is_no_image_keeps_the_norm(kernel: str) -> None:
    net = PreActivation()
    net.set("first", kernel=kernel)
    assert not is_convolved(net, net.last)


def test_a_channels_last_image_keeps_the_norm() -> None:
    net = PreActivation()
    net.set("first", layout="NHWC")
    assert not is_convolved(net, net.last)


def test_an_input_of_unknown_rank_keeps_the_norm() -> None:
    net = PreActivation()
    net.nodes[net.joined.node] = net.nodes[net.joined.node]._replace(inputs=(net.x, net.x))
    assert not is_convolved(net, net.last)


def test_casts_at_run_time_keep_the_norm() -> None:
    net = PreActivation()
    assert not is_convolved(net, net.last, offline=False)


def test_a_scale_beyond_the_range_keeps_the_norm() -> None:
    net = PreActivation(eps="0")
    net.params["bn_moving_var"][3] = 1e-12  # a scale of about a million, which float16 does not hold
    assert not is_convolved(net, net.last, dtype=F16)
    assert is_convolved(net, net.last, dtype=BF16)


def test_a_variance_of_zero_keeps_the_norm() -> None:
    net = PreActivation(eps="0")
    net.params["bn_moving_var"][3] = 0.0
    assert not is_convolved(net, net.last)


def test_where_fusion_would_lose_a_branch_the_norm_stays() -> None:
    """MXNet takes the sum of a convolution and something that depends on its activation into one kernel."""
    net = PreActivation()
    relu = next(Entry(n) for n, node in enumerate(net.nodes) if node.name == "relu")
    total = net.op("elemwise_add", net.op("exp", relu, name="f"), net.norm, name="total")
    assert not is_convolved(net, total)


def test_a_plan_for_another_graph_is_refused() -> None:
    net = PreActivation()
    graph = net.graph(net.last)
    small = Graph((Node(VARIABLE, "x"), Node("exp", "y", {}, (Entry(0),))), (Entry(1),))
    state = state_for(graph, net.params).after(Done(None, plan=plan_for(small)))
    with pytest.raises(PassError, match="another graph"):
        run_passes([ConvolveBatchNorm()], state)


# ---------------------------------------------------------------------- as a part of the conversion


def converted(net: PreActivation, *, convolves: bool = True, **options: Any) -> Model:
    target = replace(capable(BF16), convolves_batch_norm=convolves)
    return convert(net.graph(net.last), net.params, target=target, fold_batch_norm=True, **options)


def test_the_target_asks_for_it() -> None:
    assert Target.builtin("cpu-bf16").convolves_batch_norm
    assert not Target.builtin("cuda-fp16").convolves_batch_norm
    net = PreActivation()
    assert named(converted(net).graph, "bn").op == "Convolution"
    assert named(converted(net, convolves=False).graph, "bn").op == "BatchNorm"


def test_a_pure_policy_leaves_the_users_nodes() -> None:
    assert named(converted(PreActivation(), policy=Policy.pure(BF16)).graph, "bn").op == "BatchNorm"


def test_the_report_says_what_became_of_the_norm_and_its_parameters() -> None:
    model = converted(PreActivation())
    assert model.report is not None
    norm = next(node for node in model.report.nodes if node.name == "bn")
    assert (norm.op, norm.compute) == ("BatchNorm", "bfloat16")
    assert norm.reason.endswith("written as a depthwise Convolution, which is faster")
    parameters = {parameter.name: parameter for parameter in model.report.parameters}
    assert parameters["bn_gamma"].stored == {"bn_weight": "bfloat16"}
    assert parameters["bn_beta"].stored == {"bn_bias": "bfloat16"}
    assert parameters["bn_moving_mean"].stored == {}
    assert parameters["bn_gamma"].bytes_after == 2 * CHANNELS
    stored = sum(value.numpy().nbytes for value in (*model.arg_params.values(), *model.aux_params.values()))
    assert sum(parameter.bytes_after for parameter in model.report.parameters) == stored


def test_stored_values_are_rounded_once() -> None:
    model = converted(PreActivation())
    net = PreActivation()
    _, done = convolve(net.graph(net.last), net.params)
    for name in ("bn_weight", "bn_bias"):
        expected = cast_array(done.arg_params[name].numpy(), BF16)
        assert model.arg_params[name].dtype is BF16
        np.testing.assert_array_equal(model.arg_params[name].numpy(), expected)


def test_mxnet_computes_the_same_but_for_rounding() -> None:
    pytest.importorskip("mxnet", reason="runs the model")
    from mxamp.runtime.executor import run_outputs

    net = PreActivation()
    reference = Model.of(
        net.graph(net.last),
        {name: value for name, value in net.params.items() if not name.endswith(AUXILIARY)},
        {name: value for name, value in net.params.items() if name.endswith(AUXILIARY)},
    )
    data = {"x": np.random.default_rng(0).uniform(-1, 1, (2, 3, 9, 7)).astype(np.float32)}
    (expected,) = run_outputs(reference, data)
    norms = {}
    for convolves in (False, True):
        (got,) = run_outputs(converted(net, convolves=convolves), data)
        norms[convolves] = np.linalg.norm(got - expected) / np.linalg.norm(expected)
        assert norms[convolves] < 2**-6
