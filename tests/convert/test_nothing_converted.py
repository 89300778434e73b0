"""A conversion that changes nothing says so first, and why."""

from __future__ import annotations

from typing import Any

import pytest

import mxamp
from mxamp.errors import MxampWarning
from mxamp.graph.graph import Graph
from mxamp.guard import Guard
from mxamp.measuring.race import Race
from mxamp.report.guard import CONVERTED, PREPARED
from tests.building import Net

SHAPES = {"data": (1, 4, 2, 2)}


def small(*, dropout: bool = False, norm: bool = False) -> tuple[Graph, dict[str, Any], dict[str, Any]]:
    """Return a convolution for which two casts take longer than all it does."""
    net = Net()
    value = net.conv(net.var("data"), "c0")
    if norm:
        value = net.op("relu", net.bn(value, "bn0"), name="relu0")
    if dropout:
        value = net.op("Dropout", value, name="drop", outputs=2)
    graph = net.graph(net.op("softmax", value, name="probabilities"))
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    return graph, {name: value for name, value in net.params.items() if name not in auxs}, auxs


def first_line(report: mxamp.Report) -> str:
    return report_text(report).partition(". ")[0]


def report_text(report: mxamp.Report) -> str:
    return " ".join(str(report).split())


def never(*_: Any) -> Race:
    raise AssertionError("two equal models were raced")


def test_the_first_line_says_that_nothing_was_gained_and_why() -> None:
    pytest.importorskip("mxnet", reason="asks for shapes")
    with pytest.warns(MxampWarning, match="Nothing was converted to bfloat16: float32 takes the least time"):
        model = mxamp.convert_model(*small(), "bfloat16", input_shapes=SHAPES)
    assert model.report.low_nodes == 0
    assert first_line(model.report) == (
        "Nothing was converted to bfloat16 for the target cpu-bf16: float32 takes the least time here, as "
        "estimated"
    )
    assert any("Nothing was converted" in warning for warning in model.report.warnings)
    assert mxamp.Report.from_json(model.report.to_json()) == model.report


def test_the_cause_is_that_of_what_would_gain() -> None:
    """However many nodes are float32 for the sake of an order beside it."""
    pytest.importorskip("mxnet", reason="asks for shapes")
    net = Net()
    value = net.conv(net.var("data"), "c0")
    for number in range(3):
        value = net.op("_plus_scalar", value, name=f"plus{number}", scalar=number)
    graph = net.graph(net.op("topk", value, name="best", axis=1))
    with pytest.warns(MxampWarning, match="Nothing was converted to bfloat16: float32 takes the least time"):
        report = mxamp.convert_model(graph, net.params, {}, "bfloat16", input_shapes=SHAPES).report
    assert "'best' (topk) puts its values in order" in {node.reason for node in report.nodes}


def test_what_a_pass_put_in_is_no_cause() -> None:
    """Products with ones, which sums become, do not run low; the network has none."""
    pytest.importorskip("mxnet", reason="asks for shapes")
    net = Net()
    layer = net.conv(net.var("data"), "layer")
    # Equal sums would be merged.
    sums = [net.op("sum", net.op("_plus_scalar", layer, scalar=1 + n), axis="-1") for n in range(3)]
    graph = net.graph(*sums)
    known = {"data": (1, 4, 64, 64)}
    with pytest.warns(MxampWarning, match="Nothing was converted to bfloat16") as caught:
        model = mxamp.convert_model(
            graph, net.params, {}, "bfloat16", input_shapes=known, exclude=["layer"], target="cpu-bf16"
        )
    assert "last_axis_sum" in {change.step for change in model.report.preparations}
    (said,) = (str(one.message) for one in caught if "Nothing was converted" in str(one.message))
    assert "dot" not in said


def test_a_model_that_no_operator_of_gains_says_so() -> None:
    net = Net()
    graph = net.graph(net.op("softmax", net.var("data"), name="probabilities"))
    with pytest.warns(MxampWarning, match="none of its operators gains by bfloat16"):
        mxamp.convert_model(graph, {}, {}, "bfloat16")


def test_what_the_user_kept_in_float32_is_named_as_the_cause() -> None:
    with pytest.warns(MxampWarning, match="Nothing was converted to bfloat16: excluded by the user"):
        mxamp.convert_model(*small(), "bfloat16", exclude=["c0", "probabilities"])


@pytest.mark.parametrize("asked", ["float16", "bfloat16"])
def test_a_low_model_says_that_it_is_low_already(asked: str, recwarn: pytest.WarningsRecorder) -> None:
    low = mxamp.convert_model(*small(), "bfloat16")
    recwarn.clear()
    again = mxamp.convert_model(low.graph, low.arg_params, low.aux_params, asked)
    assert "the model is bfloat16 already" in first_line(again.report)
    said = [str(warning.message) for warning in recwarn if issubclass(warning.category, MxampWarning)]
    # What was asked for is there in one case, and is not in the other.
    assert bool(said) is (asked == "float16")
    assert not said or "the model is bfloat16 already; convert the float32 model" in said[0]


def test_what_a_bfloat16_model_left_in_float32_does_not_become_float16_in_silence() -> None:
    graph, params, auxs = small()
    low = mxamp.convert_model(graph, params, auxs, "bfloat16", exclude=["probabilities"])
    with pytest.warns(MxampWarning, match="bfloat16 already, and what it had in float32 becomes float16 now"):
        mxamp.convert_model(low.graph, low.arg_params, low.aux_params, "float16", policy="pure")


@pytest.mark.parametrize("dropout", [False, True], ids=["same graph", "without what does nothing"])
@pytest.mark.filterwarnings("ignore:Nothing was converted")
def test_equal_models_are_not_raced(dropout: bool) -> None:
    pytest.importorskip("mxnet", reason="asks for shapes")
    guard = Guard(measure=never)
    model = mxamp.convert_model(*small(dropout=dropout), "bfloat16", input_shapes=SHAPES, guard=guard)
    assert (model.report.guard.outcome, model.report.guard.result) == (CONVERTED, None)


@pytest.mark.filterwarnings("ignore:guard")
def test_what_preparation_made_of_a_model_is_raced_once() -> None:
    pytest.importorskip("mxnet", reason="asks for shapes")
    races = []

    def measure(models: Any, labels: Any, seconds: float) -> Race:
        races.append(len(models))
        return Race(((2.0,) * 20, (1.0,) * 20))

    guard = Guard(measure=measure)
    model = mxamp.convert_model(*small(norm=True), "bfloat16", input_shapes=SHAPES, guard=guard)
    assert races == [2]
    assert model.report.guard.outcome == PREPARED
    assert "BatchNorm" not in {node.op for node in model.graph.nodes}
