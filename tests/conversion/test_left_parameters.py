"""Parameters for a runtime that rounds them itself keep their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.dtypes import DType
from mxamp.graph import Graph
from mxamp.ops.casts import AMP_CAST
from mxamp.targets import Target
from tests.building import Net, assert_sound, convert, parameters, reconvert

OPENVINO = Target.builtin("openvino-bf16")


def net() -> tuple[Graph, dict[str, Any]]:
    net = Net()
    hidden = net.bn(net.conv(net.var("data"), "conv0"), "bn0")
    hidden = net.bn(net.conv(net.op("relu", hidden, name="relu0"), "conv1"), "bn1")
    graph = net.graph(net.conv(net.op("relu", hidden, name="relu1"), "conv2"))
    return graph, net.params


def is_on_grid(values: Any) -> bool:
    return not (np.ascontiguousarray(values, np.float32).view(np.uint32) & 0xFFFF).any()


def test_parameters_keep_their_values_and_the_runtime_folds() -> None:
    graph, params = net()
    model = convert(graph, params, target=OPENVINO, fold_batch_norm=True)
    assert_sound(graph, model)
    stored = {**model.arg_params, **model.aux_params}
    assert stored.keys() == params.keys()
    for name, values in params.items():
        assert stored[name].dtype is DType.FLOAT32
        np.testing.assert_array_equal(stored[name].numpy(), values)
    casts = [node for node in model.graph.nodes if node.op == AMP_CAST]
    read = {model.graph.nodes[node.inputs[0].node].name for node in casts}
    assert {"conv0_weight", "conv1_weight", "conv2_weight"} <= read
    # For a runtime that does not, all is as it was.
    elsewhere = convert(graph, params, fold_batch_norm=True)
    assert elsewhere.arg_params["conv0_weight"].dtype is DType.BFLOAT16
    assert "bn0_gamma" not in elsewhere.arg_params


def test_a_float32_layer_takes_its_batch_norm_for_the_runtime_would_forget_that_it_is_float32() -> None:
    graph, params = net()
    low = mxamp.convert_model(
        graph,
        parameters({name: values for name, values in params.items() if "moving" not in name}),
        parameters({name: values for name, values in params.items() if "moving" in name}),
        "bfloat16",
        target=OPENVINO,
        exclude=["conv1", "bn1"],
        low_precision="required",
    )
    norms = [node.name for node in low.graph.nodes if node.op == "BatchNorm"]
    assert norms == ["bn0"]
    assert low.arg_params["conv1_weight"].dtype is DType.FLOAT32


def test_converting_again_changes_nothing() -> None:
    graph, params = net()
    once = convert(graph, params, target=OPENVINO, fold_batch_norm=True)
    again = reconvert(once, target=OPENVINO, fold_batch_norm=True)
    assert again.graph.nodes == once.graph.nodes
    assert list(again.arg_params) == list(once.arg_params)


def test_parameters_whose_rounding_is_chosen_here_are_rounded_here() -> None:
    graph, params = net()
    model = convert(graph, params, target=OPENVINO, saturate=True)
    assert model.arg_params["conv0_weight"].dtype is DType.BFLOAT16


@pytest.mark.parametrize("target", ["openvino-bf16", "cpu-bf16"])
def test_emulation_rounds_parameters_in_the_form_that_runs(target: str) -> None:
    graph, params = net()
    split = [{n: v for n, v in params.items() if ("moving" in n) is aux} for aux in (False, True)]
    emulated = mxamp.convert_model(
        graph, *map(parameters, split), "bfloat16", target=target, emulate=True, low_precision="required"
    )
    assert not [node.name for node in emulated.graph.nodes if node.op == "BatchNorm"]
    assert all(is_on_grid(emulated.arg_params[f"conv{number}_weight"].numpy()) for number in range(3))
