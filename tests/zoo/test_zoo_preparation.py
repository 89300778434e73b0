"""What preparation makes of networks of the zoo: MobileNetV3 for hard swishes, NASNet for duplicates."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="converts and runs models of the zoo")
pytest.importorskip("gluoncv", reason="builds models of the zoo")

import mxamp
from mxamp.compare.metrics import distance
from mxamp.errors import MxampWarning
from mxamp.runtime.executor import run_outputs
from mxamp.runtime.zoo import load_zoo

pytestmark = pytest.mark.zoo


def test_mobilenetv3_converts_and_agrees_with_one_operator_a_hard_sigmoid() -> None:
    zoo = load_zoo("mobilenetv3_small", pretrained=False, input_shapes={"data": (1, 3, 64, 64)})
    model = zoo.model
    args = {key: value.numpy() for key, value in model.arg_params.items()}
    auxs = {key: value.numpy() for key, value in model.aux_params.items()}
    data = {"data": np.random.default_rng(0).normal(0.0, 1.0, (1, 3, 64, 64)).astype(np.float32)}
    (expected,) = run_outputs(model, data, fusion=False)
    # An order, for costs would leave the layers between hard swishes in float32.
    required = {"low_precision": "required"}
    plain = mxamp.convert_model(model.graph, args, auxs, "bfloat16", prepare=(), **required)
    prepared = mxamp.convert_model(model.graph, args, auxs, "bfloat16", **required)
    operators = Counter(node.op for node in prepared.graph.nodes)
    # 19 hard swishes and 9 gates of squeeze-and-excitation, each of three nodes; the gates of the swishes are
    # computed in blocks of channels.
    assert (operators["hard_sigmoid"], operators["clip"]) == (9, 19)
    assert not {"_plus_scalar", "_div_scalar", "Dropout"} & set(operators)
    # Each hard swish is float32: in it goes up, out of it down; and up as well goes a gate that is low.
    for converted, casts in ((plain, 59), (prepared, 59 + 19)):
        (found,) = run_outputs(converted, data)
        assert distance(expected, found).relative_l2 < 2e-2
        assert converted.report is not None
        assert len(converted.report.casts) == casts
    assert prepared.report is not None
    assert plain.report is not None
    assert sum(change.step == "hard_swish" for change in prepared.report.preparations) == 19
    inserted = {f"{node.name}{end}" for node in plain.report.nodes for end in ("_steep", "_channels")}
    of_user = [node.name for node in prepared.report.nodes if node.name not in inserted]
    assert of_user == [node.name for node in plain.report.nodes]


@pytest.mark.parametrize(
    ("name", "step", "least"),
    [("nasnet_4_1056", "common_subexpressions", 80), ("yolo3_mobilenet1.0_voc", "common_subexpressions", 4)],
)
def test_networks_that_compute_something_twice_no_longer_do(name: str, step: str, least: int) -> None:
    model = load_zoo(name, pretrained=False).model
    converted = mxamp.convert_model(
        model.graph,
        {key: value.numpy() for key, value in model.arg_params.items()},
        {key: value.numpy() for key, value in model.aux_params.items()},
        "bfloat16",
    )
    assert converted.report is not None
    assert sum(change.step == step for change in converted.report.preparations) >= least


def test_a_network_that_fusion_gets_wrong_is_right_once_converted() -> None:
    zoo = load_zoo("cifar_resnet20_v2", pretrained=False)
    model = zoo.model
    args = {key: value.numpy() for key, value in model.arg_params.items()}
    auxs = {key: value.numpy() for key, value in model.aux_params.items()}
    data = {"data": np.random.default_rng(0).normal(0.0, 1.0, (1, 3, 32, 32)).astype(np.float32)}
    (expected,) = run_outputs(model, data, fusion=False)
    (wrong,) = run_outputs(model, data, fusion=True)
    assert distance(expected, wrong).relative_l2 > 5e-2
    with pytest.warns(MxampWarning, match="computes the float32 model wrongly on CPUs"):
        converted = mxamp.convert_model(model.graph, args, auxs, "bfloat16")
    (found,) = run_outputs(converted, data, fusion=True)
    assert distance(expected, found).relative_l2 < 1e-2
