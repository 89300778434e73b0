"""Converting what was converted changes nothing: models of which the first conversion knew less."""

from __future__ import annotations

from typing import Any

import pytest

import mxamp
from mxamp.graph import Entry, write_symbol
from tests.building import Net

pytestmark = pytest.mark.filterwarnings("ignore::mxamp.MxampWarning")


def assert_converting_again_changes_nothing(net: Net, *heads: Entry, **options: Any) -> mxamp.Model:
    """Convert twice; return what came of it."""
    model = mxamp.convert_model(net.graph(*heads), net.params, {}, "bfloat16", **options)
    again = mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "bfloat16", **options)
    assert write_symbol(again.graph) == write_symbol(model.graph)
    assert {name: value.dtype for name, value in again.arg_params.items()} == {
        name: value.dtype for name, value in model.arg_params.items()
    }
    return model


def test_an_input_that_a_conversion_lets_say_float32_says_nothing_for_sure() -> None:
    """A sum of an input that may be integers stays one that promotes, the second time too."""
    net = Net()
    data = net.var("data")
    sums = net.op("_npi_add", data, data)
    layer = net.op("FullyConnected", data, net.var("weight"), num_hidden=4, no_bias=True)
    model = assert_converting_again_changes_nothing(
        net, layer, sums, low_precision="required", inputs=["data", "weight"]
    )
    nodes = model.graph.nodes
    assert nodes[model.graph.variables["data"]].attrs["__dtype__"] == "0"
    assert "_npi_add" in [node.op for node in nodes]


def test_an_input_that_a_layer_reads_is_no_integers_the_second_time_either() -> None:
    """Its weight says so, which the second time is behind a cast."""
    net = Net()
    data = net.var("data")
    sums = net.op("_npi_add", data, data)
    model = assert_converting_again_changes_nothing(net, net.conv(data), sums, low_precision="required")
    nodes = model.graph.nodes
    assert nodes[model.graph.variables["data"]].attrs["__dtype__"] == "0"
    assert "_npi_add" not in [node.op for node in nodes]


def test_what_arrives_low_by_wish_is_spelled_as_what_is_cast_up_behind_it() -> None:
    net = Net()
    scaled = net.op("_npi_add_scalar", net.var("data"), scalar="0.25")
    sums = net.op("_npi_add", scaled, net.param("weight", 4, 3))
    model = assert_converting_again_changes_nothing(net, net.op("exp", sums), io_dtype="low")
    assert not [node.op for node in model.graph.nodes if node.op.startswith("_npi")]


def test_a_chain_of_casts_behind_what_arrives_low_by_wish_goes_at_once() -> None:
    net = Net()
    wide = net.op("Cast", net.op("softmin", net.var("data")), dtype="float64")
    narrow = net.op("Cast", wide, dtype="float32")
    model = assert_converting_again_changes_nothing(net, net.op("exp", narrow), io_dtype="low")
    assert "Cast" not in [node.op for node in model.graph.nodes]


def test_a_rounding_of_the_users_stays_behind_what_arrives_low_by_wish() -> None:
    net = Net()
    rounded = net.op("Cast", net.op("softmin", net.var("data")), dtype="bfloat16")
    model = assert_converting_again_changes_nothing(
        net, net.op("exp", net.op("Cast", rounded, dtype="float32")), io_dtype="low"
    )
    assert [node.op for node in model.graph.nodes].count("Cast") == 2


def test_what_becomes_equal_when_a_pattern_is_rewritten_is_merged_at_once() -> None:
    net = Net()
    data = net.var("data")
    pooled = net.op("_contrib_AdaptiveAvgPooling2D", data, output_size="1")
    same = net.op("Pooling", data, global_pool=True, kernel="(1, 1)", pool_type="avg")
    model = assert_converting_again_changes_nothing(
        net, net.op("broadcast_mul", data, pooled), net.op("broadcast_add", data, same)
    )
    assert [node.op for node in model.graph.nodes].count("Pooling") == 1


def test_a_pass_that_was_taken_back_for_fusions_sake_is_so_behind_casts() -> None:
    net = Net()
    layer = net.conv(net.var("data"))
    model = assert_converting_again_changes_nothing(
        net, net.op("add_n", layer, layer, num_args=2), prepare=["short_sums"], low_precision="required"
    )
    assert "add_n" in [node.op for node in model.graph.nodes]


@pytest.mark.parametrize("op", ["Dropout", "identity"])
def test_what_does_nothing_and_is_an_output_reads_the_channels_that_were_there(op: str) -> None:
    net = Net()
    attrs = {"kernel": "(3, 3)", "num_filter": 2, "no_bias": True}
    layer = net.op("Convolution", net.var("data"), net.param("weight", 2, 4, 3, 3), **attrs)
    model = assert_converting_again_changes_nothing(
        net, net.op(op, layer, name="last"), target="cpu-bf16-avx2"
    )
    assert [node.op for node in model.graph.nodes[-3:]] == ["Convolution", "slice_axis", op]


def test_what_a_layer_is_reordered_by_keeps_its_readers_from_being_read_in_a_slice() -> None:
    """So that a layer without whole blocks, whose gate is slow, stays as it is the second time, too."""
    net = Net()
    layer = net.conv(net.var("data"))
    gate = net.op("elemwise_mul", layer, net.op("Activation", layer, act_type="sigmoid"))
    model = assert_converting_again_changes_nothing(
        net, gate, net.op("clip", layer, a_min="-1", a_max="4"), target="cpu-bf16-avx2"
    )
    assert "Reshape" in [node.op for node in model.graph.nodes]
    assert "slice_axis" not in [node.op for node in model.graph.nodes]


def test_so_does_what_keeps_a_branch_from_fusion() -> None:
    net = Net()
    layer = net.conv(net.var("data"))
    gate = net.op("Activation", layer, act_type="sigmoid")
    model = assert_converting_again_changes_nothing(
        net, layer, net.op("elemwise_mul", gate, gate), target="cpu-bf16-avx2"
    )
    assert [node.attrs["shape"] for node in model.graph.nodes if node.op == "Reshape"] == ["(-2,)"]


def test_what_scales_an_upsampling_is_folded_into_it_at_once() -> None:
    net = Net()
    weight = net.param("weight", 2, 1, 4, 4)
    larger = net.op(
        "UpSampling", net.var("data"), weight, sample_type="bilinear", scale=2, num_filter=2, num_args=2
    )
    model = assert_converting_again_changes_nothing(
        net, net.op("exp", net.op("_mul_scalar", larger, scalar="5")), target="cpu-bf16-avx2"
    )
    assert [node.op for node in model.graph.nodes if not node.is_variable] == ["Deconvolution", "exp"]


def square(net: Net, channels: int = 8, name: str = "layer") -> Entry:
    """Add a Convolution of an image, which keeps its size."""
    weight = net.param(f"{name}_weight", channels, channels, 3, 3)
    attrs = {"kernel": "(3, 3)", "pad": "(1, 1)", "num_filter": channels, "no_bias": True}
    return net.op("Convolution", net.var("data"), weight, name=name, **attrs)


def normed(net: Net, name: str = "norm") -> Entry:
    """Add an InstanceNorm of a layer, which becomes a BatchNorm."""
    layer = square(net)
    return net.op("InstanceNorm", layer, net.param("gamma", 8), net.param("beta", 8), name=name)


def swish_by_clip(net: Net) -> Entry:
    """Add x clip(x + 3, 0, 6) / 6 of a layer."""
    layer = square(net)
    gate = net.op("clip", net.op("_plus_scalar", layer, scalar="3"), a_min="0", a_max="6")
    return net.op("_div_scalar", net.op("elemwise_mul", layer, gate), scalar="6")


def channels_last(net: Net) -> Entry:
    """Add a sum of a layer and of what was activated with its channels last."""
    layer = square(net)
    last = net.op("relu", net.op("transpose", layer, axes="(0, 2, 3, 1)"))
    return net.op("broadcast_add", net.op("transpose", last, axes="(0, 3, 1, 2)"), layer, name="sum")


PATTERNS = {
    "a mean behind a sum": lambda net: net.op("mean", twice(net), axis="(2, 3)"),
    "a mean behind a gate": lambda net: net.op("mean", swish_by_clip(net), axis="(2, 3)"),
    "an activation behind a norm": lambda net: net.op("relu", normed(net), name="last"),
    "a product behind a norm": lambda net: net.op("exp", net.op("_mul_scalar", normed(net), scalar="2")),
    "a sum that transposes hid": channels_last,
}


def twice(net: Net) -> Entry:
    layer = square(net)
    return net.op("add_n", layer, net.op("relu", layer), num_args=2)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_another_pass_makes_a_pattern_of_is_found_at_once(pattern: str) -> None:
    pytest.importorskip("mxnet", reason="MXNet says what the shapes are")
    net = Net()
    assert_converting_again_changes_nothing(
        net, PATTERNS[pattern](net), target="cpu-bf16-avx2", input_shapes={"data": (2, 8, 20, 20)}
    )


def test_an_image_that_is_put_together_twice_is_made_rows_of_once() -> None:
    pytest.importorskip("mxnet", reason="MXNet says what the shapes are")
    net = Net()
    larger = net.op("UpSampling", net.var("data"), scale=2, sample_type="nearest", num_args=1)
    model = assert_converting_again_changes_nothing(
        net,
        net.op("Concat", larger, larger, dim=1, num_args=2),
        target="cpu-bf16-avx2",
        input_shapes={"data": (1, 5, 40, 40)},
    )
    assert [node.op for node in model.graph.nodes].count("Reshape") == 1


@pytest.mark.parametrize("is_number", [False, True])
def test_a_sum_with_nothing_in_other_words_is_dropped_at_once(is_number: bool) -> None:
    net = Net()
    data = net.op("tanh", net.conv(net.var("data")))
    if is_number:
        total = net.op("_npi_add_scalar", data, scalar=0.0, is_int=False)
    else:
        total = net.op("broadcast_add", data, net.param("zero", 1, value=0.0))
    model = assert_converting_again_changes_nothing(net, net.op("exp", total), target="cpu-bf16-avx2")
    assert [node.op for node in model.graph.nodes if node.op != "null"][-2:] == ["Activation", "exp"]


def test_a_layer_of_unknown_shape_leaves_others_undecided_the_second_time_too() -> None:
    """Then it is low, and no choice is left about it that shapes would have to tell of."""
    net = Net()
    data, weight = net.var("data"), net.param("weight", 1, 2, 1, 1, 1)
    behind = net.op("_shuffle", net.op("elemwise_add", data, data))  # of which nobody says a shape
    layer = net.op("Convolution", behind, weight, name="conv", kernel="(1, 1, 1)", num_filter=1, no_bias=True)
    bounded = net.op("_minimum", layer, net.param("bound", 1, 1, 3, 4, 4))
    model = assert_converting_again_changes_nothing(net, bounded)
    report = model.report
    assert report is not None
    assert {node.name: node.compute for node in report.nodes}["conv"] == "bfloat16"


def test_images_are_known_behind_an_instance_norm_the_first_time_too() -> None:
    """Both become LayerNorms over rows, without shapes: a pooling before them says that they read images."""
    net = Net()
    pooled = net.op("Pooling", net.var("data"), kernel="(3, 3)", pool_type="sum")
    first = net.op("InstanceNorm", pooled, net.param("gamma0", 1), net.param("beta0", 1), name="first")
    second = net.op("InstanceNorm", first, net.param("gamma1", 1), net.param("beta1", 1), name="second")
    model = assert_converting_again_changes_nothing(net, second)
    assert not [node.name for node in model.graph.nodes if node.op == "InstanceNorm"]
