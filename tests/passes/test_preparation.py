"""The passes that prepare a graph, together: what is reported, what can be left out, what the names are."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import mxamp
from mxamp.conversion import PREPARATIONS, check_prepare
from mxamp.errors import MxampWarning, PolicyError
from mxamp.graph import Graph
from mxamp.passes import PreparedNode
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, F16, Net, convert, parameters
from tests.passes.preparing import prepare_graph


def network() -> tuple[Graph, Net]:
    """Return a network with something for every pass."""
    net = Net()
    data = net.op("Dropout", net.var("data"), name="drop", outputs=2)
    padded = net.op("Pad", data, name="pad", mode="constant", pad_width="(0, 0, 0, 0, 1, 1, 1, 1)")
    layer = net.op("relu", net.conv(padded, "conv"), name="relu")
    plus = net.op("_plus_scalar", layer, name="plus", scalar=3)
    clip = net.op("clip", plus, name="clip", a_min=0, a_max=6)
    gate = net.op("_div_scalar", clip, name="gate", scalar=6)
    swish = net.op("elemwise_mul", layer, gate, name="swish")
    copies = [net.op("tanh", swish, name=name) for name in ("first", "second")]
    total = net.op("elemwise_add", *copies, name="sum")
    total = net.op("expand_dims", total, name="more", axis="1")
    halves = net.op("Reshape", total, name="halves", shape="(0, 2, 2, 0, 0)")
    half = net.op("sum", halves, name="half", axis="1")
    return net.graph(net.op("_contrib_AdaptiveAvgPooling2D", half, name="mean")), net


def test_every_pass_runs_and_every_node_is_reported() -> None:
    graph, net = network()
    model = convert(graph, net.params, prepare=PREPARATIONS)
    names = [node.name for node in model.graph.nodes if node.op not in ("null", "amp_cast")]
    assert names == [
        "conv",
        "relu",
        "gate",
        "swish",
        "first",
        "sum",
        "more",
        "halves",
        "half_terms",
        "half",
        "mean_bfloat16",
    ]
    report = model.report
    assert report is not None
    # All nodes of the user's, in the user's order, whatever became of them.
    of_user = [node.name for node in graph.nodes if not node.is_variable]
    assert [node.name for node in report.nodes if node.name != "half_terms"] == of_user
    assert [(change.step, change.node, change.into) for change in report.preparations] == [
        ("drop_no_ops", "drop", "data"),
        ("common_subexpressions", "second", "first"),
        ("padding", "pad", "conv"),
        ("global_pooling", "mean", "mean"),
        ("short_sums", "half", "half"),
        ("hard_sigmoid", "plus", "gate"),
        ("hard_sigmoid", "clip", "gate"),
        ("hard_sigmoid", "gate", "gate"),
        ("relu", "relu", "relu"),
    ]
    assert report.node("second").rule == "common subexpressions"
    assert report.node("second").name_after == "first"
    assert report.node("second").compute == report.node("first").compute
    assert report.node("plus").compute == report.node("gate").compute
    assert report.node("drop").name_after == "data"
    assert report.node("drop").compute is None
    assert mxamp.Report.from_json(report.to_json()) == report
    text = str(report)
    assert "1 node without effect dropped: drop." in text
    assert "1 node merged with an equal one: second." in text
    assert "1 Pad done by the layer that reads it: pad." in text
    assert "1 node written as global Pooling: mean." in text
    assert "1 sum of two terms written as an addition: half." in text
    assert "1 hard sigmoid computed by one operator: clip." in text
    assert "1 relu written as Activation: relu." in text


@pytest.mark.parametrize("name", PREPARATIONS)
def test_each_pass_can_be_left_out(name: str) -> None:
    graph, net = network()
    model = convert(graph, net.params, prepare=[step for step in PREPARATIONS if step != name])
    assert model.report is not None
    # These have tests of their own: nothing here is for them.
    elsewhere = {
        "fold_constants",
        "one_spelling",
        "instance_norm",
        "group_norm",
        "fold_scale",
        "fold_bias",
        "dense_layer",
        "dense_convolution",
        "known_choices",
        "move_transposes",
        "summed_products",
        "full_width",
        "depthwise_sequences",
        "sequence_pooling",
        "columns",
        "second_axis_max",
        "few_axes",
        "take_rows",
        "stretch_axis",
        "last_axis_concat",
        "last_axis_split",
        "gelu",
        "layer_norm",
        "plain_sums",
        "plain_softmax",
        "last_axis_sum",
        "second_axis_sum",
        "last_axis_norm",
        "last_axis_softmax",
        "pixel_shuffle",
        "best_boxes",
        "bilinear_upsampling",
        "bilinear_resize",
        "activations",
        "leaky_relu",
        "bounds",
        "uneven_padding",
        "channel_slices",
        "scale_and_shift",
        "nearest_upsampling",
        "few_channels",
        "pad_channels",
        "explicit_padding",
        "skipped_places",
        "short_rows",
        "activations_apart",
        "wide_pooling",
        "prelu",
        "deconvolution_bias",
        "hard_swish",
        "plain_for_pooling",
        "plain_concat",
        "share_layout",
        "dense_input",
        "keep_branches",
    }
    assert {change.step for change in model.report.preparations} == set(PREPARATIONS) - {name} - elsewhere


def test_a_graph_without_anything_to_do_is_returned_itself() -> None:
    net = Net()
    graph = net.graph(net.op("exp", net.conv(net.var("data")), name="exp"))
    shapes = [((number,),) for number in range(len(graph.nodes))]
    preparation = prepare_graph(graph, parameters(net.params), Policy.default(BF16), shapes=shapes)
    assert preparation.graph is graph
    assert not preparation.record(PreparedNode)
    assert preparation.shapes is shapes


def test_shapes_move_with_their_nodes() -> None:
    graph, net = network()
    shapes = [((number,),) * node.num_outputs for number, node in enumerate(graph.nodes)]
    preparation = prepare_graph(graph, parameters(net.params), Policy.default(BF16), shapes=shapes)
    moved = preparation.shapes
    assert moved is not None
    names = [graph.nodes[shape[0][0]].name for shape in moved]
    assert names == [node.name.replace("half_terms", "half") for node in preparation.graph.nodes]
    assert [len(shape) for shape in moved] == [node.num_outputs for node in preparation.graph.nodes]


def test_a_pure_policy_measures_the_users_own_nodes() -> None:
    graph, net = network()
    model = convert(graph, net.params, prepare=PREPARATIONS, policy=Policy.pure(BF16))
    assert model.report is not None
    assert not model.report.preparations


def test_a_merge_that_would_mislead_fusion_is_taken_back() -> None:
    net = Net()
    layer = net.conv(net.var("data"), "conv")
    both = [net.op("Activation", layer, name=name, act_type="relu") for name in ("first", "second")]
    product = net.op("elemwise_mul", *both, name="product")
    graph = net.graph(net.op("elemwise_add", product, layer, name="sum"))
    unguarded = [step for step in PREPARATIONS if step not in ("keep_branches", "share_layout")]
    preparation = prepare_graph(graph, parameters(net.params), Policy.default(BF16), unguarded)
    assert preparation.graph is graph
    (change,) = preparation.record(PreparedNode)
    assert (change.node, change.into) == ("second", None)
    elsewhere = prepare_graph(
        graph, parameters(net.params), Policy.default(F16), target=Target.builtin("cuda-fp16")
    )
    assert [change.into for change in elsewhere.record(PreparedNode)] == ["first"]
    guarded = prepare_graph(graph, parameters(net.params), Policy.default(BF16))
    assert [(change.node, change.into) for change in guarded.record(PreparedNode)] == [
        ("second", "first"),
        ("first", "first"),
    ]
    assert "conv_kept" in [node.name for node in guarded.graph.nodes]
    model = convert(graph, net.params, prepare=unguarded)
    assert model.report is not None
    assert "second (common_subexpressions): left as it is" in str(model.report)
    assert [node.name for node in model.report.nodes if node.name == "second"] == ["second"]


@pytest.mark.parametrize("prepare", [PREPARATIONS, ()], ids=["guarded", "as it is"])
@pytest.mark.parametrize("target", ["cpu-bf16", "cuda-fp16"])
def test_a_model_that_fusion_gets_wrong_is_warned_about_and_guarded(
    target: str, prepare: tuple[str, ...]
) -> None:
    net = Net()
    layer = net.conv(net.var("data"), "first")
    relu = net.op("Activation", layer, name="relu", act_type="relu")
    graph = net.graph(net.op("elemwise_add", net.conv(relu, "second"), layer, name="sum"))
    dtype = "bfloat16" if target == "cpu-bf16" else "float16"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = mxamp.convert_model(graph, net.params, {}, dtype, target=target, prepare=prepare)
    messages = [str(warning.message) for warning in caught if warning.category is MxampWarning]
    report = model.report
    assert report is not None
    assert list(report.warnings) == messages
    guards = [node.name for node in model.graph.nodes if node.op == "Reshape"]
    if target == "cuda-fp16":  # there, nothing is fused like that
        assert not messages
        assert not guards
        return
    (message,) = messages
    assert "it fuses 'first' with 'relu', although 'sum' reads it as well" in message
    assert "MXNET_SUBGRAPH_BACKEND=NONE" in message
    assert guards == (["first_kept"] if prepare else [])
    if prepare:
        assert "this one is guarded" in message
        assert "1 node guarded against MXNet's fusion: relu." in str(report)
        assert [node.name for node in report.nodes] == ["first", "first_kept", "relu", "second", "sum"]
    else:
        assert "before that model or this one is bound" in message


def test_passes_run_in_their_order_whatever_was_given() -> None:
    assert check_prepare(reversed(PREPARATIONS)) == PREPARATIONS
    assert check_prepare([]) == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("relu", "must be a list of passes, not 'relu'"),
        (None, "must be a list of passes, not None"),
        ([3], r"must be a list of passes, not \[3\]"),
        (["hard_sigmod"], "which is no pass. Did you mean 'hard_sigmoid'?"),
    ],
    ids=str,
)
def test_what_is_no_pass_is_refused(given: object, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        check_prepare(given)


def test_the_prepared_model_computes_the_same_in_mxnet() -> None:
    mx = pytest.importorskip("mxnet", reason="both graphs are executed")
    from mxamp.runtime.symbol import symbol_from_graph

    graph, net = network()
    prepared = prepare_graph(graph, parameters(net.params), Policy.default(BF16)).graph
    data = np.random.default_rng(0).normal(0, 3, (2, 4, 5, 5)).astype(np.float32)
    arrays = {name: mx.nd.array(value) for name, value in {**net.params, "data": data}.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
        one, other = (
            symbol_from_graph(each).bind(mx.cpu(), arrays).forward()[0].asnumpy()
            for each in (graph, prepared)
        )
    np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-6)
