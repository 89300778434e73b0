"""Inspection: dtypes from the graph itself, for models mxamp has never seen."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from mxamp.dtypes import DType
from mxamp.errors import ParamsError
from mxamp.params.parameter import ArrayParameter
from mxamp.policy import Policy
from mxamp.report.inspection import inspect_model
from mxamp.report.inspection_text import inspection_summary
from tests import building
from tests.building import BF16, LOW, Net, capable, parameters


def converted(net: Net, *heads, dtype=BF16):
    return building.converted(
        net.graph(*heads), parameters(net.params), {}, policy=Policy.default(dtype), target=capable(dtype)
    )


@pytest.mark.parametrize("dtype", LOW)
def test_inspection_of_the_result_agrees_with_the_report(dtype):
    net = Net()
    power = net.op("exp", net.conv(net.var("data"), "conv0"), name="exp0")
    model = converted(net, net.conv(net.bn(power, "bn0"), "conv1"), dtype=dtype)
    assert model.report is not None
    inspection = inspect_model(model.graph, model.arg_params)
    names = {node.name_after: node.compute for node in model.report.nodes}
    assert {node.name: node.compute for node in inspection.nodes} == names
    assert [(cast.name, cast.direction) for cast in inspection.casts] == [
        (cast.name, cast.direction) for cast in model.report.casts
    ]
    assert inspection.inputs == model.report.inputs
    assert inspection.outputs == model.report.outputs
    assert inspection.parameter_bytes == model.report.parameter_bytes_after


def test_casts_are_no_operator_nodes():
    net = Net()
    model = converted(net, net.fc(net.var("data"), "fc0"))
    inspection = inspect_model(model.graph, model.arg_params)
    assert inspection.operators() == {"FullyConnected": {"bfloat16": 1}}
    assert len(inspection.casts) == 2


def test_cast_that_changes_nothing_is_told_from_the_others():
    net = Net()
    cast = net.op("amp_cast", net.var("data"), name="cast0", dtype="float32")
    inspection = inspect_model(net.graph(cast), {})
    assert [one.direction for one in inspection.casts] == ["none"]
    assert inspection.casts[0].consumers == ("(output)",)


def test_each_input_that_multicast_changes_is_a_cast():
    net = Net()
    low = net.op("amp_cast", net.var("x"), name="low", dtype="float16")
    both = net.op("amp_multicast", low, net.var("y"), name="both", outputs=2, num_outputs=2)
    inspection = inspect_model(net.graph(both, both._replace(output=1)), {})
    assert [(one.name, one.entry, one.direction) for one in inspection.casts] == [
        ("low", "x", "down"),
        ("both", "low", "up"),
    ]


def test_hidden_outputs_are_left_out():
    net = Net()
    inspection = inspect_model(net.graph(net.bn(net.var("data"), "bn0")), parameters(net.params))
    assert inspection.nodes[0].outputs == ("float32",)


def test_unknown_operator_has_unknown_dtype():
    net = Net()
    inspection = inspect_model(net.graph(net.op("my_operator", net.var("data"), name="mine")), {})
    assert inspection.nodes[0].compute == "unknown"
    assert inspection.outputs == {"mine_output": "unknown"}
    assert "1 in unknown" not in inspection_summary(inspection, 80).splitlines()[0]


def test_bodies_of_loops_are_inspected_too():
    body = Net()
    item, state = body.var("item"), body.var("state")
    total = body.op("elemwise_add", item, state, name="add0")
    net = Net()
    outer = net.op("_foreach", net.var("data"), net.var("init"), name="loop0", outputs=2)
    node = net.nodes[outer.node]._replace(
        subgraphs=(body.graph(total, total),),
        attrs={"in_data_locs": "[0]", "in_state_locs": "[1]", "remain_locs": "[]"},
    )
    net.nodes[outer.node] = node
    inspection = inspect_model(net.graph(outer), {})
    assert [(one.name, one.compute) for one in inspection.nodes][-1] == ("loop0/add0", "float32")


def test_parameters_are_totalled_by_dtype():
    net = Net()
    graph = net.graph(net.fc(net.var("data"), "fc0"))
    half = {"fc0_weight": ArrayParameter(np.zeros((4, 4), np.float16))}
    inspection = inspect_model(graph, half)
    assert dataclasses.astuple(inspection.parameters["float16"]) == (1, 16, 32)
    assert inspection.inputs == {"data": DType.FLOAT16.label}


def test_files_of_different_models_are_refused():
    net = Net()
    graph = net.graph(net.fc(net.var("data"), "fc0"))
    with pytest.raises(ParamsError, match="'fc0_weight' is missing"):
        inspect_model(graph, {})


def test_mapping_is_plain_json():
    net = Net()
    model = converted(net, net.fc(net.var("data"), "fc0"))
    document = inspect_model(model.graph, model.arg_params).to_mapping()
    assert json.loads(json.dumps(document))["operators"] == {"FullyConnected": {"bfloat16": 1}}
