"""A converted graph in float32: rounded where low precision is stored, and nowhere else."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import pytest

from mxamp.conversion.emulation import emulate_model
from mxamp.dtypes import DType
from mxamp.graph import Graph, verify_graph
from mxamp.graph.infer import infer_dtypes
from mxamp.graph.output_names import output_names
from mxamp.model import Model
from mxamp.ops.rounding import is_rounding
from mxamp.passes import EmulateLowPrecision, Emulation, run_passes
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, F16, Net, capable, convert, named, reads, state_for, variables_of

CPU = Target.builtin("cpu-bf16")


def emulated(
    graph: Graph, params: Mapping[str, Any] | None = None, dtype: DType = F16, **options: Any
) -> Model:
    """Convert and emulate, and check what must always hold."""
    emulation = options.pop("emulation", Emulation())
    converted = convert(graph, params, dtype, **options)
    model = emulate_model(converted, options.get("target", capable(dtype)), emulation)
    verify_graph(model.graph)
    assert list(model.graph.variables) == list(converted.graph.variables)
    assert output_names(model.graph) == output_names(graph)
    for found in infer_dtypes(model.graph, variables_of(model)):
        assert all(dtype is None or not dtype.is_low_precision for dtype in found)
    assert not any(value.dtype.is_low_precision for value in model.arg_params.values())
    assert not any(node.op.startswith("amp_") for node in model.graph.nodes)
    return model


def rounds(graph: Graph) -> list[str]:
    """Return every rounding as ``source -> name: format``."""
    return [
        f"{graph.describe(node.inputs[0])} -> {node.name}: {node.attrs['format']}"
        for node in graph.nodes
        if is_rounding(node.op)
    ]


def test_a_cast_down_becomes_a_round_and_a_cast_up_nothing() -> None:
    net = Net()
    graph = net.graph(net.op("exp", net.fc(net.var("data"), "fc0"), name="exp0"))
    model = emulated(graph, net.params)
    assert rounds(model.graph) == [
        "data -> data_amp_cast_float16: float16",
        "fc0 -> fc0_round_float16: float16",
    ]
    assert reads(model.graph, "exp0") == ["fc0_round_float16"]


def test_an_output_keeps_its_name_and_is_rounded() -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("data"), "fc0"))
    model = emulated(graph, net.params)
    assert rounds(model.graph)[-1] == "fc0_float16 -> fc0: float16"
    assert output_names(model.graph) == ("fc0_output",)


def test_an_output_that_only_moves_values_keeps_its_node() -> None:
    net = Net()
    graph = net.graph(net.op("Flatten", net.fc(net.var("data"), "fc0"), name="flat"))
    model = emulated(graph, net.params)
    assert named(model.graph, "flat").op == "Flatten"
    assert reads(model.graph, "flat") == ["fc0_round_float16"]


def test_two_outputs_of_one_value_keep_their_names() -> None:
    net = Net()
    low = net.fc(net.var("data"), "fc0")
    graph = net.graph(low, low)
    assert output_names(emulated(graph, net.params).graph) == ("fc0_output", "fc0_output")


def test_values_on_the_grid_are_not_rounded_again() -> None:
    net = Net()
    first = net.conv(net.var("data"), "conv0")
    moved = net.op("Activation", first, name="relu", act_type="relu")
    moved = net.op("Pooling", moved, name="pool", pool_type="max", kernel="(2, 2)")
    graph = net.graph(net.conv(moved, "conv1"))
    model = emulated(graph, net.params)
    assert reads(model.graph, "relu") == ["conv0_round_float16"]
    assert reads(model.graph, "conv1_float16") == ["pool", "conv1_weight"]


def test_an_inexact_activation_is_rounded() -> None:
    net = Net()
    bent = net.op("Activation", net.conv(net.var("data"), "conv0"), name="sigmoid", act_type="sigmoid")
    model = emulated(net.graph(net.conv(bent, "conv1")), net.params)
    assert reads(model.graph, "conv1_float16")[0] == "sigmoid_round_float16"


def test_float32_statistics_and_unread_outputs_are_not_rounded() -> None:
    net = Net()
    graph = net.graph(net.conv(net.bn(net.conv(net.var("data"), "conv0"), "bn"), "conv1"))
    model = emulated(graph, net.params)
    assert [text for text in rounds(model.graph) if text.startswith("bn")] == [
        "bn -> bn_round_float16: float16"
    ]


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_parameters_hold_the_values_of_the_converted_model(dtype: DType) -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("data"), "fc0"))
    low = convert(graph, net.params, dtype).arg_params["fc0_weight"]
    wide = emulated(graph, net.params, dtype).arg_params["fc0_weight"]
    assert low.dtype is dtype
    assert wide.dtype is DType.FLOAT32
    np.testing.assert_array_equal(wide.numpy(), low.numpy().astype(np.float32))


def test_a_softmax_that_hands_on_float32_is_not_rounded() -> None:
    net = Net()
    graph = net.graph(net.op("softmax", net.fc(net.var("data"), "fc0"), name="softmax"))
    model = emulated(graph, net.params)
    assert not [text for text in rounds(model.graph) if text.startswith("softmax")]


def test_a_low_input_is_rounded_as_it_arrives() -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("data"), "fc0"))
    model = emulated(graph, net.params, io_dtype="low")
    assert rounds(model.graph) == [
        "data -> data_round_float16: float16",
        "fc0_float16 -> fc0: float16",
    ]
    assert model.graph.nodes[0].attrs["__dtype__"] == "0"


class TestCastsOfTheModelItself:
    def test_a_cast_to_float16_becomes_a_round(self) -> None:
        net = Net()
        low = net.op("Cast", net.var("data"), name="cast", dtype="float16")
        graph = net.graph(net.op("Cast", low, name="back", dtype="float32"))
        model = emulated(graph, dtype=BF16)
        # The input does not say its dtype: what is fed may have to become float32 first.
        assert rounds(model.graph) == ["cast_float32 -> cast: float16"]
        assert reads(model.graph, "cast_float32") == ["data"]
        assert output_names(model.graph) == ("back_output",)

    def test_a_cast_of_integers_becomes_a_cast_and_a_round(self) -> None:
        net = Net()
        whole = net.op("Cast", net.var("data"), name="whole", dtype="int32")
        low = net.op("Cast", whole, name="cast", dtype="float16")
        graph = net.graph(net.op("Cast", low, name="back", dtype="float32"))
        model = emulated(graph, dtype=F16)
        assert rounds(model.graph) == ["cast_float32 -> cast: float16"]
        assert named(model.graph, "cast_float32").attrs["dtype"] == "float32"

    def test_a_cast_to_integers_stays(self) -> None:
        net = Net()
        graph = net.graph(net.op("Cast", net.fc(net.var("data"), "fc0"), name="whole", dtype="int32"))
        model = emulated(graph, net.params)
        assert named(model.graph, "whole").attrs["dtype"] == "int32"

    def test_made_values_are_rounded_and_made_in_float32(self) -> None:
        net = Net()
        made = net.op("_full", name="made", shape="(2,)", value="0.1", dtype="float16")
        graph = net.graph(net.op("Cast", made, name="back", dtype="float32"))
        model = emulated(graph, dtype=F16)
        assert named(model.graph, "made").attrs["dtype"] == "float32"
        assert [text.partition(" -> ")[0] for text in rounds(model.graph)] == ["made"]


class TestFusedChains:
    def chain(self) -> tuple[Graph, Mapping[str, Any]]:
        net = Net()
        data = net.op("Activation", net.conv(net.var("data"), "conv0"), name="relu0", act_type="relu")
        added = net.op("elemwise_add", data, net.conv(data, "conv1"), name="add")
        relu = net.op("Activation", added, name="relu1", act_type="relu")
        return net.graph(net.conv(relu, "conv2")), net.params

    def test_a_chain_is_rounded_once_at_its_end(self) -> None:
        graph, params = self.chain()
        model = emulated(graph, params, BF16, target=CPU)
        assert rounds(model.graph) == [
            "data -> data_amp_cast_bfloat16: bfloat16",
            "relu0 -> relu0_round_bfloat16: bfloat16",
            "relu1 -> relu1_round_bfloat16: bfloat16",
            "conv2_bfloat16 -> conv2: bfloat16",
        ]

    def test_without_fusion_every_result_is_rounded(self) -> None:
        graph, params = self.chain()
        model = emulated(graph, params, BF16, target=CPU, emulation=Emulation(fusion=False))
        assert [text.partition(" -> ")[0] for text in rounds(model.graph)] == [
            "data",
            "conv0",
            "conv1",
            "add",
            "conv2_bfloat16",
        ]

    def test_what_others_read_too_is_rounded(self) -> None:
        net = Net()
        first = net.conv(net.var("data"), "conv0")
        bent = net.op("Activation", first, name="sigmoid", act_type="sigmoid")
        added = net.op("elemwise_add", first, bent, name="add")
        model = emulated(net.graph(net.conv(added, "conv1")), net.params, BF16, target=CPU)
        assert "conv0 -> conv0_round_bfloat16: bfloat16" in rounds(model.graph)

    def test_gpus_round_after_every_operator(self) -> None:
        graph, params = self.chain()
        model = emulated(graph, params, F16, target=Target.builtin("cuda-fp16"))
        assert [text.partition(" -> ")[0] for text in rounds(model.graph)] == [
            "data",
            "conv0",
            "conv1",
            "add",
            "conv2_float16",
        ]


@pytest.mark.parametrize("label", ["tfloat32", "float8_e4m3fn", "float8_e5m2"])
def test_formats_beyond_mxnet_are_emulated(label: str) -> None:
    dtype = DType.parse(label, emulated=True)
    net = Net()
    graph = net.graph(net.op("exp", net.fc(net.var("data"), "fc0"), name="exp0"))
    model = emulated(graph, net.params, dtype, policy=Policy.default(label), target=Target.for_dtype(dtype))
    assert {node.attrs["format"] for node in model.graph.nodes if is_rounding(node.op)} == {label}
    from mxamp.ops.reference import round_to

    np.testing.assert_array_equal(
        model.arg_params["fc0_weight"].numpy(), round_to(net.params["fc0_weight"], label)
    )


def test_overflow_is_an_attribute_of_every_round() -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("data"), "fc0"))
    model = emulated(graph, net.params, emulation=Emulation(overflow="saturate"))
    assert {node.attrs["overflow"] for node in model.graph.nodes if is_rounding(node.op)} == {"saturate"}


def test_a_float32_graph_is_left_as_it_is() -> None:
    net = Net()
    graph = net.graph(net.op("exp", net.var("data"), name="exp0"))
    step = EmulateLowPrecision({"data": DType.FLOAT32}, capable(F16))
    assert run_passes([step], state_for(graph, {}, F16)).graph is graph


def test_the_report_names_the_format() -> None:
    net = Net()
    model = emulated(net.graph(net.fc(net.var("data"), "fc0")), net.params)
    assert model.report is not None
    assert model.report.emulated == "float16"
    assert model.report.node("fc0").compute == "float16"
    assert type(model.report).from_json(model.report.to_json()) == model.report
