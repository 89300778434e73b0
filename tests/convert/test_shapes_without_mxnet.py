"""A conversion with shapes is the same whether MXNet or mxamp's own rules tell them."""

from __future__ import annotations

from typing import Any, Mapping

import pytest

import mxamp
from mxamp.errors import DataError
from mxamp.graph.symbol_writer import write_symbol
from mxamp.model import Model
from tests.building import Net
from tools.networks.names import NETWORK_NAMES

pytestmark = pytest.mark.filterwarnings("ignore:Nothing was converted:mxamp.MxampWarning")

SMALL = ("lenet", "captcha_lstm", "faster_rcnn_symbols", "gru_language_model", "mtcnn_output")


def without_mxnet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mxamp.conversion.shapes.why_no_mxnet", lambda: "it is hidden")


def outcome(model: Model) -> Mapping[str, Any]:
    return {
        "symbol": write_symbol(model.graph),
        "report": model.report.to_mapping() if model.report is not None else None,
        "parameters": {name: (value.dtype, value.shape) for name, value in model.arg_params.items()},
    }


@pytest.mark.parametrize("target", ["cpu-bf16", "cpu-bf16-zen5", "cpu-bf16-amx"])
@pytest.mark.parametrize("name", [name for name in NETWORK_NAMES if name in SMALL])
def test_networks_convert_to_the_same_models(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mxnet", reason="MXNet's shapes are one side of it")
    from tools.networks.build import build_network
    from tools.networks.catalogue import find_network

    network = find_network(name)
    model = build_network(network)
    shapes = {key: value.batched(1) for key, value in network.inputs.items()}

    def converted() -> Mapping[str, Any]:
        given = model.graph, model.arg_params, model.aux_params
        return outcome(mxamp.convert_model(*given, "bfloat16", target=target, input_shapes=shapes))

    told_by_mxnet = converted()
    without_mxnet(monkeypatch)
    assert converted() == told_by_mxnet
    assert told_by_mxnet["report"]["time"] is not None


def test_costs_decide_where_there_is_no_mxnet(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tiny layer does not pay for its casts, as an order to make it low would have it."""
    without_mxnet(monkeypatch)
    net = Net()
    graph = net.graph(net.fc(net.var("data")))
    models = [
        mxamp.convert_model(
            graph, net.params, {}, "bfloat16", input_shapes={"data": (1, 4)}, low_precision=low_precision
        )
        for low_precision in ("required", None)
    ]
    assert [model.report.low_nodes for model in models] == [1, 0]


def test_an_operator_without_a_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without_mxnet(monkeypatch)
    net = Net()
    graph = net.graph(net.fc(net.op("_image_flip_left_right", net.var("data"), name="middle")))
    with pytest.warns(
        mxamp.MxampWarning, match=r"the operator _image_flip_left_right returns \(node 'middle'\)"
    ):
        model = mxamp.convert_model(graph, net.params, {}, "bfloat16", input_shapes={"data": (4, 4)})
    assert model.report.time is None
    assert any("operator _image_flip_left_right" in warning for warning in model.report.warnings)


def test_shapes_that_contradict_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    without_mxnet(monkeypatch)
    net = Net()
    graph = net.graph(net.fc(net.var("data"), "fc"))
    with pytest.raises(DataError, match=r"node 'fc' .*the weight has the shape"):
        mxamp.convert_model(graph, net.params, {}, "bfloat16", input_shapes={"data": (1, 99)})
