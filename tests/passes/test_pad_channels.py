"""Convolutions get channels of zeros up to whole blocks, which nobody sees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.graph.output_names import output_names
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.params.padded import PaddedParameter
from mxamp.params.parameter import ArrayParameter
from mxamp.passes import PadChannels
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, named, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepare_graph, prepared


class Layers(Net):
    """Convolutions of any size, each with a bias."""

    def layer(
        self, data: Entry, name: str, channels: int, filters: int, *, kernel: int = 3, **attrs: Any
    ) -> Entry:
        op = attrs.pop("op", "Convolution")
        groups = int(attrs.get("num_group", 1))
        rows = (filters, channels // groups) if op == "Convolution" else (channels, filters // groups)
        weight = self.param(f"{name}_weight", *rows, kernel, kernel)
        bias = self.param(f"{name}_bias", filters)
        options = {"num_filter": filters, "kernel": f"({kernel}, {kernel})", "no_bias": False, **attrs}
        return self.op(op, data, weight, bias, name=name, **options)

    def norm(self, data: Entry, name: str, channels: int) -> Entry:
        parts = [
            self.param(f"{name}_{part}", channels, value=value)
            for part, value in (("gamma", 2.0), ("beta", 0.5), ("moving_mean", 0.25), ("moving_var", 4.0))
        ]
        return self.op("BatchNorm", data, *parts, name=name, outputs=3, fix_gamma=False)

    def done(self, *heads: Entry, inserted: tuple[str, ...] = (), **options: Any) -> Any:
        return prepared(PadChannels, self.graph(*heads), self.params, inserted=inserted, **options)


def relu(net: Net, data: Entry) -> Entry:
    return net.op("Activation", data, act_type="relu")


def test_layers_between_get_rows_and_the_next_columns_of_zeros() -> None:
    net = Layers()
    first = net.layer(net.var("x"), "first", 16, 20)
    pooled = net.op("Pooling", relu(net, first), kernel="(2, 2)", pool_type="max")
    after, done = net.done(net.layer(pooled, "second", 20, 32))
    assert named(after, "first").attrs["num_filter"] == "32"
    assert named(after, "second").attrs["num_filter"] == "32"
    for name, kept in (
        ("first_weight", np.s_[:20]),
        ("first_bias", np.s_[:20]),
        ("second_weight", np.s_[:, :20]),
    ):
        values = done.params[name].numpy().copy()
        assert np.array_equal(values[kept], net.params[name])
        values[kept] = 0
        assert not values.any()
    assert done.params["second_weight"].shape == (32, 32, 3, 3)
    assert [(change.node, change.into) for change in done.changes] == [("first", "first")]


def test_an_output_of_the_graph_keeps_its_name_and_channels() -> None:
    net = Layers()
    graph_before = net.graph(net.layer(net.var("x"), "last", 32, 3))
    after, _ = prepared(PadChannels, graph_before, net.params, inserted=("last_padded",))
    assert output_names(after) == ("last_output",)
    assert named(after, "last").op == "slice_axis"
    assert named(after, "last").attrs == {"axis": "1", "begin": "0", "end": "3"}
    assert named(after, "last_padded").attrs["num_filter"] == "16"


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Dropout", {}),
        ("identity", {}),
        ("Pooling", {"kernel": "(1, 1)", "pool_type": "avg"}),
        ("Pooling", {"kernel": "(2, 2)", "pool_type": "avg"}),
    ],
)
def test_an_output_that_does_nothing_has_the_channels_that_there_are(op: str, attrs: dict[str, str]) -> None:
    """With more it would be read by a slice, and converting again took it out."""
    net = Layers()
    active = net.op("Activation", net.layer(net.var("x"), "last", 32, 30), name="active", act_type="relu")
    last = net.op(op, active, name="y", **attrs)
    pools = attrs.get("kernel") == "(2, 2)"
    after, _ = net.done(last, inserted=("y_padded" if pools else "active_channels",))
    assert named(after, "last").attrs["num_filter"] == "32"
    assert named(after, "y").op == ("slice_axis" if pools else op)


@pytest.mark.parametrize(
    ("shape", "is_carrier"),
    [("(0, 0, 0, 0)", True), ("(-2,)", True), ("(0, 0, 0)", False), ("(0, 0)", False), ("(0,)", False)],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_reshape_that_keeps_every_axis_carries_channels_on(
    shape: str, is_carrier: bool, reverse: bool
) -> None:
    net = Layers()
    plain = net.op("Reshape", net.layer(net.var("x"), "c", 16, 20), name="r", shape=shape, reverse=reverse)
    head = net.op("Activation", plain, name="act", act_type="relu")
    after, _ = net.done(head, inserted=("c_channels", "act_padded"))
    sliced = [node.inputs[0].node for node in after.nodes if node.op == "slice_axis"]
    assert [after.nodes[position].op for position in sliced] == [
        "Activation" if is_carrier and not reverse else "Convolution"
    ]


def test_what_cannot_be_padded_reads_the_first_channels_once() -> None:
    net = Layers()
    layer = relu(net, net.layer(net.var("x"), "layer", 16, 20))
    heads = [net.op("transpose", layer, axes="(0, 2, 3, 1)"), net.op("mean", layer, axis="1")]
    after, _ = net.done(*heads, inserted=(f"{net.nodes[layer.node].name}_channels",))
    assert sum(node.op == "slice_axis" for node in after.nodes) == 1


@pytest.mark.parametrize("flatten", ["Flatten", "Reshape", None])
def test_a_fully_connected_layer_gets_columns_for_every_place_of_a_channel(flatten: str | None) -> None:
    net = Layers()
    x = net.layer(net.var("x"), "layer", 16, 20)
    if flatten:
        x = net.op(flatten, x, name="flat", **({"shape": "(0, -1)"} if flatten == "Reshape" else {}))
    weight, bias = net.param("fc_weight", 10, 20 * 9), net.param("fc_bias", 10)
    after, done = net.done(net.op("FullyConnected", x, weight, bias, name="fc", num_hidden=10))
    assert "slice_axis" not in {node.op for node in after.nodes}
    values = done.params["fc_weight"].numpy()
    assert values.shape == (10, 32 * 9)
    assert np.array_equal(values[:, : 20 * 9], net.params["fc_weight"])
    assert not values[:, 20 * 9 :].any()


def test_terms_of_a_sum_are_padded_together_with_their_batch_norm_and_depthwise_layers() -> None:
    net = Layers()
    x = net.var("x")
    one = net.norm(net.layer(x, "one", 16, 24), "norm", 24)
    two = net.layer(net.layer(x, "two", 16, 24), "depthwise", 24, 24, num_group=24)
    after, done = net.done(net.layer(net.op("elemwise_add", one, two), "next", 24, 16))
    assert "slice_axis" not in {node.op for node in after.nodes}
    assert named(after, "depthwise").attrs["num_group"] == "32"
    assert done.params["depthwise_weight"].shape == (32, 1, 3, 3)
    added = {
        part: set(done.params[f"norm_{part}"].numpy()[24:])
        for part in ("gamma", "beta", "moving_mean", "moving_var")
    }
    assert added == {"gamma": {1.0}, "beta": {0.0}, "moving_mean": {0.0}, "moving_var": {1.0}}


def test_what_is_added_to_what_it_reads_gets_rows_and_columns() -> None:
    """A block of one layer, with or without a depthwise one before it, as BlazeFace has them."""
    net = Layers()
    first = net.layer(net.var("x"), "first", 16, 24)
    depthwise = net.layer(first, "depthwise", 24, 24, pad="(1, 1)", num_group=24)
    one = net.op("elemwise_add", first, net.layer(depthwise, "one", 24, 24, kernel=1))
    two = net.op("elemwise_add", net.layer(one, "two", 24, 24, pad="(1, 1)"), one)
    after, done = net.done(net.layer(two, "next", 24, 16))
    assert "slice_axis" not in {node.op for node in after.nodes}
    for name, rows in (("one", 32), ("two", 32), ("next", 16)):
        weight, before = done.params[f"{name}_weight"].numpy().copy(), net.params[f"{name}_weight"]
        assert weight.shape == (rows, 32, *before.shape[2:])
        np.testing.assert_array_equal(weight[: before.shape[0], :24], before)
        weight[: before.shape[0], :24] = 0
        assert not weight.any()


def test_a_filter_a_group_is_not_depthwise_where_groups_have_several_channels() -> None:
    net = Layers()
    first = net.layer(net.var("x"), "first", 16, 48)
    end = net.layer(net.layer(first, "grouped", 48, 24, num_group=24), "last", 24, 16)
    after, done = net.done(end)
    assert named(after, "grouped").attrs["num_group"] == "24"
    assert done.params["grouped_weight"].shape == (24, 2, 3, 3)


def test_a_layer_is_left_where_its_input_is_no_whole_blocks_either() -> None:
    net = Layers()
    after, _ = net.done(net.layer(net.var("x"), "layer", 120, 40))
    assert named(after, "layer").attrs["num_filter"] == "40"


@pytest.mark.parametrize(
    ("channels", "filters", "kernel", "padded"),
    [
        (100, 100, 3, 128),
        (40, 200, 5, 224),
        (101, 100, 3, 100),
        (100, 100, 1, 100),
        (100, 70, 3, 70),
        (8, 50, 3, 50),
    ],
)
def test_a_layer_of_any_even_number_of_channels_gets_whole_pieces_of_filters(
    channels: int, filters: int, kernel: int, padded: int
) -> None:
    net = Layers()
    x = relu(net, net.layer(net.var("x"), "layer", channels, filters, kernel=kernel))
    after, _ = net.done(net.layer(x, "next", filters, 64))
    assert named(after, "layer").attrs["num_filter"] == str(padded)


@pytest.mark.parametrize(("places", "padded"), [(1, "128"), (20, "100"), (None, "100")])
def test_pieces_pay_where_little_is_sliced(places: int | None, padded: str) -> None:
    net = Layers()
    x = net.layer(net.var("x"), "layer", 100, 100)
    y = net.op("transpose", x, name="y", axes=(0, 2, 3, 1))
    shapes = [((2, 100, 22, 22),), ((100, 100, 3, 3),), ((100,),), ((2, 100, places, places),), ((2,),)]
    inserted = () if padded == "100" else ("layer_channels",)
    after, _ = net.done(y, inserted=inserted, shapes=shapes if places else None)
    assert named(after, "layer").attrs["num_filter"] == padded


def shared(net: Layers, x: Entry) -> tuple[Entry, Entry, Entry]:
    """Return three layers with one weight and one bias."""
    first = net.layer(x, "first", 16, 20)
    weight, bias = net.nodes[first.node].inputs[1:]
    same = {"num_filter": 20, "kernel": "(3, 3)", "no_bias": False}
    second = net.op("Convolution", relu(net, x), weight, bias, name="second", **same)
    third = net.op("Convolution", x, weight, bias, name="fixed", **same)
    return first, second, third


def test_layers_with_one_weight_share_the_padded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the heads of a detector that reads several scales; what stays as it is has the weight as it was."""
    net = Layers()
    first, second, fixed = shared(net, net.var("x"))
    graph = net.graph(net.layer(first, "a", 20, 32), net.layer(second, "b", 20, 32), fixed)
    policy = Policy.default(BF16).excluding(names=["fixed"])
    put_in = ("first_weight_padded", "first_bias_padded")
    after, done = prepared(PadChannels, graph, net.params, policy, inserted=put_in)
    for name in ("first", "second"):
        read = [after.nodes[entry.node].name for entry in named(after, name).inputs[1:]]
        assert read == ["first_weight_padded", "first_bias_padded"]
        assert named(after, name).attrs["num_filter"] == "32"
    kept = [after.nodes[entry.node].name for entry in named(after, "fixed").inputs[1:]]
    assert kept == ["first_weight", "first_bias"]
    assert done.params["first_weight"].shape == (20, 16, 3, 3)
    assert done.params["first_weight_padded"].shape == (32, 16, 3, 3)
    data = {"x": np.random.default_rng(0).normal(size=(2, 16, 9, 9)).astype(np.float32)}
    expected = outputs(monkeypatch, graph, parameters(net.params), data)
    for one, other in zip(outputs(monkeypatch, after, done.params, data), expected):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_a_weight_that_no_layer_reads_as_it_was_goes() -> None:
    net = Layers()
    first, second, _ = shared(net, net.var("x"))
    put_in = ("first_weight_padded", "first_bias_padded")
    after, done = net.done(net.layer(first, "a", 20, 32), net.layer(second, "b", 20, 32), inserted=put_in)
    assert "first_weight" not in after.variables
    assert "first_weight" not in done.params


def test_a_deconvolution_has_its_own_order_of_rows_and_columns() -> None:
    net = Layers()
    up = net.layer(net.layer(net.var("x"), "layer", 16, 24), "up", 24, 40, op="Deconvolution")
    _, done = net.done(net.layer(up, "last", 40, 16))
    assert done.params["up_weight"].shape == (32, 48, 3, 3)


def grouped(net: Layers) -> Entry:
    return net.layer(net.var("x"), "layer", 16, 20, num_group=2)


def weight_is_an_input(net: Layers) -> Entry:
    return net.op(
        "Convolution", net.var("x"), net.var("w"), name="layer", num_filter=20, kernel="(1, 1)", no_bias=True
    )


def part_comes_from_elsewhere(net: Layers) -> Entry:
    return net.op("elemwise_add", net.layer(net.var("x"), "layer", 16, 20), net.var("y"))


def channels_last(net: Layers) -> Entry:
    return net.layer(net.var("x"), "layer", 16, 20, layout="NHWC")


def whole_blocks(net: Layers) -> Entry:
    return net.layer(net.var("x"), "layer", 20, 32)


def one_place(net: Layers) -> Entry:
    pooled = net.op("Pooling", net.var("x"), global_pool=True, kernel="(1, 1)", pool_type="avg")
    return net.layer(pooled, "layer", 16, 20, kernel=1)


def gated(net: Layers) -> Entry:
    layer = net.layer(net.var("x"), "layer", 16, 20)
    return net.layer(net.op("elemwise_mul", layer, net.op("hard_sigmoid", layer)), "next", 20, 16)


def gated_little(net: Layers) -> Entry:
    layer = net.layer(net.var("x"), "layer", 16, 184)
    return net.layer(net.op("elemwise_mul", layer, net.op("hard_sigmoid", layer)), "next", 184, 16)


def clipped(net: Layers, least: str = "-1.0") -> Entry:
    layer = net.layer(net.var("x"), "layer", 16, 20)
    return net.layer(net.op("clip", layer, a_min=least, a_max="6.0"), "next", 20, 16)


def clipped_for_two(net: Layers) -> Entry:
    """Clip what somebody else reads too, which no layer does."""
    layer = net.layer(net.var("x"), "layer", 16, 20)
    bounded = net.op("clip", layer, a_min="0.0", a_max="6.0")
    return net.layer(net.op("elemwise_add", bounded, layer), "next", 20, 16)


def of_an_image(net: Layers, act_type: str = "leaky") -> Entry:
    """Write the first layer of MTCNN's second stage, with an activation."""
    layer = net.layer(net.var("x"), "layer", 3, 28)
    slopes = [net.param("slopes", 28)] if act_type == "prelu" else []
    return net.layer(net.op("LeakyReLU", layer, *slopes, act_type=act_type), "next", 28, 48)


def put_together(net: Layers, channels: int = 24) -> Entry:
    """Write a Ghost module: a layer, and as many channels made of its own."""
    layer = net.layer(net.var("x"), "layer", 16, channels)
    return net.op("Concat", layer, net.op("exp", layer), name="both", dim=1)


def sliced_deconvolution(net: Layers) -> Entry:
    return net.layer(net.var("x"), "layer", 16, 3, op="Deconvolution")


@pytest.mark.parametrize(
    "build",
    [
        one_place,
        gated,
        gated_little,
        clipped,
        clipped_for_two,
        of_an_image,
        put_together,
        sliced_deconvolution,
        grouped,
        weight_is_an_input,
        part_comes_from_elsewhere,
        channels_last,
        whole_blocks,
    ],
    ids=lambda build: build.__name__,
)
def test_refused(build: Any) -> None:
    net = Layers()
    graph = net.graph(build(net))
    after, _ = prepared(PadChannels, graph, net.params)
    assert after is graph


@pytest.mark.parametrize(("build", "filters"), [(gated, 20), (gated_little, 192)])
def test_a_little_more_of_a_gate_pays_where_it_is_computed_in_blocks(build: Any, filters: int) -> None:
    net = Layers()
    target = replace(Target.builtin("cpu-bf16"), rewrites=("pad_channels", "hard_swish"))
    _, done = prepared(PadChannels, net.graph(build(net)), net.params, target=target)
    assert done.params["layer_weight"].shape[0] == filters


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_depthwise_layer_pays_for_whatever_its_region_reads(kernel: int) -> None:
    """ShuffleNet v2 has 58 channels in each half, and half of its time was in depthwise layers of those."""
    net = Layers()
    wide = net.layer(net.var("x"), "wide", 58, 58, kernel=1)
    deep = net.layer(wide, "deep", 58, 58, kernel=kernel, num_group=58)
    both = net.op("Concat", net.layer(deep, "last", 58, 58, kernel=1), net.var("half"), name="both", dim=1)
    graph = net.graph(both)
    if kernel == 1:  # no more than a product a value
        assert prepared(PadChannels, graph, net.params)[0] is graph
        return
    _, done = prepared(PadChannels, graph, net.params, inserted=["last_channels"])
    assert done.params["wide_weight"].shape == (64, 58, 1, 1)
    assert done.params["deep_weight"].shape == (64, 1, 3, 3)
    assert done.params["last_weight"].shape == (64, 64, 1, 1)


def test_whole_blocks_bring_a_prelu_its_kernels() -> None:
    net = Layers()
    _, done = net.done(of_an_image(net, "prelu"))
    assert done.params["layer_weight"].shape[0] == done.params["slopes"].shape[0] == 32


@pytest.mark.parametrize(
    ("channels", "filters", "kernel", "stride", "is_padded"),
    [
        (2, 1, 7, 1, True),
        (2, 1, 5, 1, True),
        (2, 1, 3, 1, False),
        (1, 1, 5, 1, False),
        (3, 3, 7, 1, True),
        (3, 5, 7, 1, True),
        (3, 7, 7, 1, False),
        (2, 1, 7, 2, False),
        (6, 1, 7, 1, False),
    ],
)
def test_few_filters_of_wide_windows_are_computed_in_blocks(
    channels: int, filters: int, kernel: int, stride: int, is_padded: bool
) -> None:
    """They need more memory than oneDNN's matrix product may have."""
    net = Layers()
    layer = net.layer(net.var("x"), "layer", channels, filters, kernel=kernel, stride=f"({stride}, {stride})")
    graph = net.graph(layer)
    if not is_padded:
        assert prepared(PadChannels, graph, net.params)[0] is graph
        return
    _, done = prepared(PadChannels, graph, net.params, inserted=["layer_padded"])
    assert done.params["layer_weight"].shape[0] == 16


@pytest.mark.parametrize(
    ("filters", "kernel", "stride", "side", "target", "is_padded"),
    [
        pytest.param(100, 11, 1, 64, "cpu-bf16-intel", True, id="a wide window"),
        pytest.param(100, 11, 2, 64, "cpu-bf16-intel", True, id="by two places"),
        pytest.param(100, 11, 1, 64, "cpu-bf16-emulated", True, id="no bfloat16"),
        pytest.param(100, 11, 1, 64, "cpu-bf16", False, id="low layers, which gain nothing"),
        pytest.param(104, 11, 1, 64, "cpu-bf16-intel", False, id="blocks of eight"),
        pytest.param(100, 9, 1, 64, "cpu-bf16-intel", False, id="few products a value"),
        pytest.param(100, 11, 4, 64, "cpu-bf16-intel", False, id="by four places"),
        pytest.param(100, 11, 1, 20, "cpu-bf16-intel", False, id="few multiply-adds"),
        pytest.param(100, 11, 1, 11, "cpu-bf16-intel", False, id="one place"),
    ],
)
def test_wide_windows_over_few_channels_are_computed_in_blocks_where_layers_are_float32(
    filters: int, kernel: int, stride: int, side: int, target: str, is_padded: bool
) -> None:
    net = Layers()
    layer = net.layer(
        net.var("x"), "layer", 1, filters, kernel=kernel, stride=f"({stride}, {stride})", pad=(0, 0)
    )
    graph = net.graph(layer)
    known = infer_entry_shapes(
        graph, {"x": (1, 1, side, side)}, {name: values.shape for name, values in net.params.items()}
    ).entries
    named = replace(Target.builtin(target), rewrites=("pad_channels",))
    after, done = prepared(
        PadChannels, graph, net.params, inserted=["layer_padded"], target=named, shapes=known
    )
    assert (after is not graph) is is_padded
    if is_padded:
        assert done.params["layer_weight"].shape[0] == 112


@pytest.mark.parametrize(
    ("channels", "filters", "kernel", "target", "is_read_by", "is_padded"),
    [
        pytest.param(3, 20, 3, "cpu-bf16", "a layer", True, id="nothing is cut off"),
        pytest.param(3, 20, 3, "cpu-bf16", "nobody", False, id="few products for what is cut off"),
        pytest.param(3, 20, 3, "cpu-bf16", "what sums", False, id="likewise inside"),
        pytest.param(3, 20, 7, "cpu-bf16", "nobody", True, id="more products"),
        pytest.param(1, 20, 7, "cpu-bf16", "nobody", False, id="fewer again"),
        pytest.param(3, 10, 3, "cpu-bf16", "nobody", True, id="one block"),
        pytest.param(1, 10, 3, "cpu-bf16", "nobody", False, id="few products for one block"),
        pytest.param(3, 24, 3, "cpu-bf16", "a layer", True, id="eights of filters"),
        pytest.param(3, 24, 3, "cpu-bf16-intel", "a layer", False, id="eights where layers are float32"),
        pytest.param(3, 20, 3, "cpu-bf16-intel", "a layer", True, id="others where they are"),
    ],
)
def test_layers_over_few_channels_are_padded_where_that_outweighs_a_slice(
    channels: int, filters: int, kernel: int, target: str, is_read_by: str, is_padded: bool
) -> None:
    net = Layers()
    layer = net.layer(net.var("x"), "layer", channels, filters, kernel=kernel)
    if is_read_by == "a layer":
        layer = net.layer(relu(net, layer), "behind", filters, 32)
    elif is_read_by == "what sums":
        layer = net.op("sum", layer, name="total", axis=1)
    graph = net.graph(layer)
    named = replace(Target.builtin(target), rewrites=("pad_channels",))
    inserted = ["layer_padded", "layer_channels"]
    after, _ = prepared(PadChannels, graph, net.params, inserted=inserted, target=named)
    assert (after is not graph) is is_padded


@pytest.mark.parametrize("channels", [16, 20])
def test_weights_of_places_have_one_channel_beside_many(channels: int) -> None:
    """CBAM multiplies all channels with what a layer of one filter makes of their mean and their maximum."""
    net = Layers()
    wide = relu(net, net.layer(net.var("x"), "wide", 16, channels))
    weights = net.layer(net.var("both"), "weights", 2, 1, kernel=7, pad="(3, 3)")
    gate = net.op("Activation", weights, name="gate", act_type="sigmoid")
    graph = net.graph(net.op("broadcast_mul", wide, gate, name="weighted"))
    sizes = {"x": (1, 16, 8, 8), "both": (1, 2, 6, 6), "weights": (1, 1, 6, 6), "gate": (1, 1, 6, 6)}
    shapes = [
        (net.params[node.name].shape,)
        if node.name in net.params
        else (sizes.get(node.name, (1, channels, 6, 6)),)
        for node in graph.nodes
    ]
    after, done = prepared(PadChannels, graph, net.params, inserted=["gate_channels"], shapes=shapes)
    assert done.params["weights_weight"].shape[0] == 16
    assert done.params["wide_weight"].shape[0] == channels
    assert any("broadcast_mul(" in line and line.endswith("gate_channels)") for line in operators(after))


@pytest.mark.parametrize("is_normed", [False, True])
def test_a_clip_from_zero_is_a_part_of_the_layer_before(is_normed: bool) -> None:
    """So are MobileNetV2's: at widths of 0.25 and 0.75 no layer of it had whole blocks."""
    net = Layers()
    if is_normed:
        layer = net.norm(net.layer(net.var("x"), "layer", 16, 20), "norm", 20)
        after = net.layer(net.op("clip", layer, a_min="0.0", a_max="6.0"), "next", 20, 16)
    else:
        after = clipped(net, "0.0")
    _, done = net.done(after)
    assert done.params["layer_weight"].shape[0] == 32


def test_what_fills_no_small_blocks_is_put_together_in_slices() -> None:
    net = Layers()
    _, done = prepared(PadChannels, net.graph(put_together(net, 20)), net.params, inserted=["layer_channels"])
    assert done.params["layer_weight"].shape[0] == 32


def test_a_product_with_what_comes_from_elsewhere_reads_a_slice() -> None:
    """CenterNet multiplies its heat map with where its peaks are."""
    net = Layers()
    heat = net.op("Activation", net.layer(net.var("x"), "layer", 16, 20), name="heat", act_type="sigmoid")
    pooled = net.op("Pooling", heat, name="pool", kernel="(3, 3)", pad="(1, 1)")
    is_peak = net.op("broadcast_equal", pooled, heat, name="peaks")
    graph = net.graph(net.op("elemwise_mul", heat, is_peak, name="kept"))
    after, done = prepared(PadChannels, graph, net.params, inserted=["pool_channels", "heat_channels"])
    assert done.params["layer_weight"].shape[0] == 32
    assert [line.split(" {")[0] for line in operators(after)[1:]] == [
        "heat = Activation(layer)",
        "pool = Pooling(heat)",
        "pool_channels = slice_axis(pool)",
        "heat_channels = slice_axis(heat)",
        "peaks = broadcast_equal(pool_channels, heat_channels)",
        "kept = elemwise_mul(heat_channels, peaks)",
    ]


def simple() -> tuple[Layers, Graph]:
    net = Layers()
    return net, net.graph(net.layer(relu(net, net.layer(net.var("x"), "layer", 16, 20)), "next", 20, 32))


def test_a_node_that_a_rule_picks_is_left_alone() -> None:
    net, graph = simple()
    policy = Policy.default(BF16).excluding(operators=["Convolution"])
    after, _ = prepared(PadChannels, graph, net.params, policy)
    assert after is graph


def test_targets_that_do_not_ask_for_it_keep_their_channels() -> None:
    net, graph = simple()
    after, _ = prepared(
        PadChannels, graph, net.params, target=replace(Target.builtin("cpu-bf16"), rewrites=())
    )
    assert after is graph


def test_shapes_are_carried_along() -> None:
    net, graph = simple()
    sizes = {"x": (1, 16, 9, 9), "layer": (1, 20, 7, 7), "next": (1, 32, 5, 5)}
    shapes = [
        (net.params[node.name].shape,) if node.name in net.params else (sizes.get(node.name, (1, 20, 7, 7)),)
        for node in graph.nodes
    ]
    target = replace(Target.builtin("cpu-bf16"), rewrites=(PadChannels.step,))
    given, policy = parameters(net.params), Policy.default(BF16)
    done = prepare_graph(graph, given, policy, [PadChannels.step], target=target, shapes=shapes)
    assert done.shapes is not None
    found = {node.name: shape for node, shape in zip(done.graph.nodes, done.shapes)}
    assert found["layer"] == ((1, 32, 7, 7),)
    assert found["layer_weight"] == ((32, 16, 3, 3),)
    assert found["next_weight"] == ((32, 32, 3, 3),)
    assert found["next"] == ((1, 32, 5, 5),)


def test_a_padded_parameter_is_rounded_as_what_it_is_made_of() -> None:
    values = np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32)
    padded = PaddedParameter(ArrayParameter(values), {0: 2, 1: 1}, 1.0)
    low = padded.cast(BF16).numpy()
    assert low.shape == padded.shape == (5, 3)
    assert np.array_equal(low[:3, :2], ArrayParameter(values).cast(BF16).numpy())
    assert set(low[3:].astype(np.float32).ravel()) == set(low[:, 2].astype(np.float32)) == {1.0}


def test_results_are_those_of_float32_but_for_the_order_of_summation() -> None:
    pytest.importorskip("mxnet", reason="runs the graphs")
    from mxamp.model import Model
    from mxamp.runtime.executor import BoundModel

    net = Layers()
    x = net.var("x")
    one = relu(net, net.norm(net.layer(x, "one", 16, 24, pad="(1, 1)"), "norm", 24))
    one = net.op("elemwise_add", one, net.layer(one, "block", 24, 24, kernel=1))
    two = net.layer(x, "two", 16, 24, pad="(1, 1)")
    up = net.layer(
        net.op("elemwise_add", one, two), "up", 24, 20, op="Deconvolution", kernel=2, stride="(2, 2)"
    )
    last = net.layer(relu(net, up), "last", 20, 5, kernel=1)
    weight = net.param("fc_weight", 10, 20 * 16 * 16)
    fc = net.op("FullyConnected", net.op("Flatten", up), weight, name="fc", num_hidden=10, no_bias=True)
    graph = net.graph(last, fc)
    after, done = prepared(PadChannels, graph, net.params, inserted=("last_padded",))
    assert len(done.changes) == 5
    states = ("norm_moving_mean", "norm_moving_var")

    def run(graph: Graph, values: Any) -> Any:
        args = {name: value for name, value in values.items() if name not in states}
        model = Model.of(graph, args, {name: values[name] for name in states})
        data = np.random.default_rng(1).standard_normal((2, 16, 8, 8)).astype(np.float32)
        return BoundModel(model, fusion=False).run({"x": data})

    expected = run(graph, net.params)
    found = run(after, {name: value.numpy() for name, value in done.params.items()})
    for left, right in zip(expected, found):
        assert left.shape == right.shape
        np.testing.assert_allclose(right, left, rtol=1e-4, atol=1e-4)


def test_a_layer_without_a_weight_is_left_to_whoever_refuses_it() -> None:
    net = Layers()
    net.layer(net.var("x"), "first", 16, 20)
    bare = net.op("Convolution", net.var("y"), kernel="(1, 1)", num_filter=4)
    _, done = net.done(bare)
    assert [change.node for change in done.changes] == ["first"]
