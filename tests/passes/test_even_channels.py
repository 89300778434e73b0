"""The first low layer reads one channel twice, and computes what it computed, better."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.dtypes import DType
from mxamp.graph import Entry, Graph
from mxamp.ops.equivalents import reads_odd_channels
from mxamp.params.cast import cast_array
from mxamp.passes import EvenChannels, PlannedNode
from mxamp.passes.state import State
from mxamp.targets import Support, Target
from mxamp.targets.target import OperatorSupport
from tests.building import BF16, LOW, Net, capable, parameters, planned_state
from tests.passes.executing import outputs
from tests.passes.preparing import operators


def image_layer(channels: int = 3, filters: int = 16, **attrs: Any) -> tuple[Net, Entry]:
    """Return a layer that reads an image."""
    net = Net()
    weight = net.param("weight", filters, channels // int(attrs.get("num_group", 1)), 3, 3)
    given = {"num_filter": filters, "kernel": "(3, 3)", "no_bias": True, **attrs}
    return net, net.op("Convolution", net.var("data"), weight, name="layer", **given)


def done(net: Net, *heads: Entry, dtype: DType = BF16, **options: Any) -> State | None:
    """Return the state behind the pass; None where it did nothing."""
    state = planned_state(net.graph(*heads), net.params, dtype, **options)
    found = EvenChannels().run(state)
    if found is None:
        return None
    after = state.after(found)
    assert EvenChannels().run(after) is None, "a second run changed something"
    return after


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_one_channel_is_read_twice_and_its_weights_are_two_numbers(dtype: DType) -> None:
    net, layer = image_layer()
    net.params["weight"][:, 1] *= 8  # so that rounding costs this one most
    after = done(net, layer, dtype=dtype)
    assert after is not None
    assert operators(after.graph) == [
        "layer_channel = slice_axis(data) {axis: 1, begin: 1, end: 2}",
        "layer_channels = Concat(layer_channel, data) {dim: 1, num_args: 2}",
        "layer = Convolution(layer_channels, weight) {kernel: (3, 3), no_bias: True, num_filter: 16}",
    ]
    assert after.plan is not None
    decisions = [each for each in after.plan.decisions if each is not None]
    assert [set(each.outputs) for each in decisions] == [{dtype}] * 3
    weight, given = after.params["weight"].values(), net.params["weight"]
    assert weight.shape == (16, 4, 3, 3)
    np.testing.assert_array_equal(weight[:, 1], given[:, 0])
    np.testing.assert_array_equal(weight[:, 3], given[:, 2])
    np.testing.assert_array_equal(weight[:, 0] + weight[:, 2], given[:, 1])
    first, second = (cast_array(weight[:, part], dtype).astype(np.float64) for part in (0, 2))
    digits = 8 if dtype is BF16 else 11
    bound = 2.0 ** (1 - 2 * digits) * np.abs(given[:, 1]) + dtype.smallest_subnormal / 2
    assert (np.abs(first + second - given[:, 1]) <= bound).all()
    np.testing.assert_array_equal(second, weight[:, 2])
    (record,) = after.record(PlannedNode)
    assert record.reason.startswith("reads one channel twice")


@pytest.mark.parametrize(("other", "reads"), [(1, 1), (2, 2)], ids=["the same channel", "another"])
def test_layers_that_read_one_image_share_it(other: int, reads: int) -> None:
    net, layer = image_layer()
    net.params["weight"][:, 1] *= 8
    weight = net.param("twin_weight", 16, 3, 3, 3)
    net.params["twin_weight"][:, other] *= 8
    data = net.nodes[layer.node].inputs[0]
    options = {"num_filter": 16, "kernel": "(3, 3)", "no_bias": True}
    after = done(net, layer, net.op("Convolution", data, weight, name="twin", **options))
    assert after is not None
    assert sum(node.op == "Concat" for node in after.graph.nodes) == reads


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_of_one_channel_there_is_nothing_to_slice(dtype: DType) -> None:
    net, layer = image_layer(channels=1)
    after = done(net, layer, dtype=dtype)
    assert after is not None
    assert operators(after.graph) == [
        "layer_channels = Concat(data, data) {dim: 1, num_args: 2}",
        "layer = Convolution(layer_channels, weight) {kernel: (3, 3), no_bias: True, num_filter: 16}",
    ]
    assert after.plan is not None
    assert [set(each.outputs) for each in after.plan.decisions if each is not None] == [{dtype}] * 2
    weight, given = after.params["weight"].values(), net.params["weight"]
    assert weight.shape == (16, 2, 3, 3)
    np.testing.assert_array_equal(weight.sum(axis=1), given[:, 0])
    np.testing.assert_array_equal(cast_array(weight[:, 1], dtype), weight[:, 1])


def test_both_numbers_have_the_sign_of_the_weight_and_neither_is_zero() -> None:
    """So that an infinite value is multiplied to what it was: infinite, and not NaN."""
    net, layer = image_layer(16 - 1)
    values = np.random.default_rng(3).normal(0, 1, net.params["weight"].shape).astype(np.float32)
    values[::2] = cast_array(values[::2], BF16).astype(np.float32)  # of these nothing is left
    values[0, :, 0, 0] = 0.0
    net.params["weight"] = values
    after = done(net, layer)
    assert after is not None
    channel = int(after.graph.nodes[after.graph.heads[0].node - 2].attrs["begin"])
    weight = after.params["weight"].values()
    given = values[:, channel]
    for part in (weight[:, 0], weight[:, 1 + channel]):
        np.testing.assert_array_equal(np.sign(part), np.sign(given))
    np.testing.assert_array_equal(weight[:, 0] + weight[:, 1 + channel], given)


REFUSED: dict[str, dict[str, Any]] = {
    "4 channels": {"channels": 4},
    "17 channels": {"channels": 17},
    "24 filters": {"filters": 24},
    "groups": {"channels": 48, "num_group": 16},
    "another layout": {"layout": "NHWC"},
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case: str) -> None:
    net, layer = image_layer(**REFUSED[case])
    assert done(net, layer) is None


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3.4e38])
def test_refuses_weights_that_are_no_numbers_or_out_of_range(value: float) -> None:
    net, layer = image_layer()
    net.params["weight"][0, 0, 0, 0] = value
    assert done(net, layer) is None


def test_refuses_a_layer_that_stays_float32() -> None:
    net, layer = image_layer()
    assert done(net, layer, kept={"layer": "for a test"}) is None


def test_refuses_weights_that_something_else_reads() -> None:
    net, layer = image_layer()
    assert done(net, layer, net.op("exp", Entry(0))) is None
    net, layer = image_layer()
    assert done(net, layer, Entry(0)) is None


def test_refuses_weights_that_are_cast_at_run_time() -> None:
    net, layer = image_layer()
    assert done(net, layer, offline=False) is None


def test_refuses_where_the_channel_cannot_be_put_there_low() -> None:
    net, layer = image_layer()
    state = planned_state(net.graph(layer), net.params)
    for op in ("Concat", "slice_axis"):
        slow = {op: OperatorSupport(Support.UNSUPPORTED, "for a test")}
        target = replace(capable(BF16), operators=slow)
        assert EvenChannels().run(replace(state, target=target)) is None


def test_only_targets_that_name_it() -> None:
    net, layer = image_layer()
    graph, given = net.graph(layer), parameters(net.params)
    for rewrites, expected in (((), 1), (("even_channels",), 3)):
        target = replace(Target.builtin("cpu-bf16"), rewrites=rewrites)
        model = mxamp.convert_model(graph, given, {}, "bfloat16", target=target, low_precision="required")
        found = [node.op for node in model.graph.nodes if not node.is_variable and node.op != "amp_cast"]
        assert len(found) == expected


@pytest.mark.parametrize(
    ("weight", "attrs", "expected"),
    [
        ((16, 3, 7, 7), {}, True),
        ((32, 1, 5, 5), {}, True),
        ((64, 15, 1, 1), {"num_group": "1", "layout": "NCHW"}, True),
        ((16, 3, 7), {}, False),
        ((16, 3, 3, 3, 3), {}, False),
        ((8, 3, 7, 7), {}, False),
    ],
)
def test_which_weights(weight: tuple[int, ...], attrs: dict[str, str], expected: bool) -> None:
    assert reads_odd_channels("Convolution", attrs, weight) is expected
    assert not reads_odd_channels("Deconvolution", attrs, weight)


def test_behind_a_folded_norm_the_report_says_it_of_the_layer() -> None:
    net, layer = image_layer()
    parts = ("gamma", "beta", "moving_mean", "moving_var")
    own = [net.param(f"norm_{part}", 16, value=float(part in ("gamma", "moving_var"))) for part in parts]
    norm = net.op("BatchNorm", layer, *own, name="norm", outputs=3, fix_gamma=False)
    graph = net.graph(net.op("Activation", norm, act_type="relu"))
    given = parameters(net.params)
    auxs = {name: given.pop(name) for name in list(given) if "moving" in name}
    target = replace(Target.builtin("cpu-bf16"), rewrites=("even_channels",))
    model = mxamp.convert_model(graph, given, auxs, "bfloat16", target=target, low_precision="required")
    report = model.report
    assert report is not None
    assert "reads one channel twice" in report.node("layer").reason
    assert report.node("norm").rule == "fold batch norm"


def exact(graph: Graph, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, data: Any) -> Any:
    (found,) = outputs(monkeypatch, graph, given, {"data": data})
    return found.astype(np.float64)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("batch", [1, 3])
def test_mxnet_computes_the_same_with_less_error(
    monkeypatch: pytest.MonkeyPatch, batch: int, channels: int
) -> None:
    pytest.importorskip("mxnet", reason="networks are executed")
    net, layer = image_layer(channels, filters=64)
    graph, given = net.graph(layer), parameters(net.params)
    data = np.random.default_rng(5).normal(0, 1, (batch, channels, 40, 40)).astype(np.float32)
    data = cast_array(data, BF16).astype(np.float32)  # so that rounding the image is none of it
    wanted = exact(graph, given, monkeypatch, data)
    errors = []
    for rewrites in ((), ("even_channels",)):
        target = replace(Target.builtin("cpu-bf16"), rewrites=rewrites)
        model = mxamp.convert_model(
            graph,
            given,
            {},
            "bfloat16",
            target=target,
            low_precision="required",
            input_shapes={"data": data.shape},
        )
        widened = {name: value.cast(DType.FLOAT32) for name, value in model.arg_params.items()}
        nodes = [
            node._replace(attrs={**node.attrs, "dtype": "float32"}) if node.op == "amp_cast" else node
            for node in model.graph.nodes
        ]
        found = exact(replace(model.graph, nodes=tuple(nodes)), widened, monkeypatch, data)
        errors.append(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
    assert 0 < errors[1] < 0.9 * errors[0]  # a third of the weights is exact but for 2^-17: sqrt(2 / 3)


def test_an_infinite_value_becomes_what_it_became(monkeypatch: pytest.MonkeyPatch) -> None:
    net, layer = image_layer()
    after = done(net, layer)
    assert after is not None
    data = np.random.default_rng(5).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)
    data[0, :, 3, 3] = [np.inf, -np.inf, 1.0]
    wanted = exact(net.graph(layer), parameters(net.params), monkeypatch, data)
    found = exact(after.graph, dict(after.params), monkeypatch, data)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert np.isinf(wanted).any()
