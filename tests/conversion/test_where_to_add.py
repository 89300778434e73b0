"""One of each that docs/architecture.md says where to add, as a file would hold it, and its line."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.conversion import pipeline
from mxamp.conversion.pipeline import Step, preparing
from mxamp.dtypes import DType
from mxamp.errors import PassError
from mxamp.graph import Entry, Graph, Node
from mxamp.graph.printer import print_graph
from mxamp.params.parameter import ArrayParameter
from mxamp.passes import Done, NodeRewrite, PlannedPass, State
from mxamp.passes.edit import GraphEdit
from mxamp.policy import coloring
from mxamp.policy.color import Color, Verdict
from mxamp.policy.context import ColoringContext
from tests.building import BF16, Net, assert_sound, convert, reconvert

# ---------------------------------------------------------------------- a pass that prepares the graph


class SquareOnce(NodeRewrite):
    """Write a product of a value with itself as ``square``.

    Before::

        x, x -> elemwise_mul -> y

    After::

        x -> square -> y

    Refuses: a product of two values.
    """

    step = "square_once"
    operators = frozenset({"elemwise_mul"})

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        node = state.graph.nodes[position]
        if node.inputs[0] != node.inputs[1]:
            return None
        edit.replace(position, Node("square", node.name, {}, node.inputs[:1]))
        return "one operand is enough"


def squares() -> tuple[Graph, Net]:
    net = Net()
    value = net.conv(net.var("data"), "conv")
    return net.graph(net.op("tanh", net.op("elemwise_mul", value, value, name="twice"), name="last")), net


def test_a_preparation_pass_is_a_class_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "PREPARING", (*pipeline.PREPARING, preparing(SquareOnce)))
    graph, net = squares()
    model = convert(graph, net.params, prepare=pipeline.check_prepare(["square_once"]))
    assert [node.op for node in model.graph.nodes if node.name == "twice"] == ["square"]
    assert_sound(graph, model)
    assert model.report is not None
    assert [(change.step, change.into) for change in model.report.preparations] == [("square_once", "twice")]
    assert "1 node changed by square_once: twice." in str(model.report)
    left_out = convert(graph, net.params, prepare=())
    assert "square" not in [node.op for node in left_out.graph.nodes]


# ---------------------------------------------------------------------- a planned pass


class AddOnce(PlannedPass):
    """Put a constant that is added behind a layer without a bias into a bias of the layer.

    Before::

        x -> FullyConnected(w) -> _plus_scalar -> y

    After::

        x -> FullyConnected(w, b) -> y

    Refuses: where both do not compute in one dtype; where anything else reads the layer.
    """

    step = "add_once"

    def run(self, state: State) -> Done | None:
        graph, plan, edit = state.graph, self.plan(state), GraphEdit(state.graph, state.params)
        decisions, records = {}, []
        for position, node in enumerate(graph.nodes):
            layer = node.inputs[0].node if node.op == "_plus_scalar" else -1
            if layer < 0 or graph.nodes[layer].op != "FullyConnected" or state.only_reader(layer) != position:
                continue
            own, other = plan.decisions[layer], plan.decisions[position]
            if own is None or other is None or own.compute is not other.compute or own.compute is None:
                continue
            before = graph.nodes[layer]
            weight = graph.nodes[before.inputs[1].node].name
            value = np.full(state.params[weight].shape[0], float(node.attrs["scalar"]), np.float32)
            bias = edit.add_parameter(f"{before.name}_bias", ArrayParameter(value), [weight], before=layer)
            attrs = {**before.attrs, "no_bias": "False"}
            edit.replace(layer, before._replace(attrs=attrs, inputs=(*before.inputs, bias)))
            edit.merge(position, into=layer)
            decisions[layer] = own._replace(inputs=(*own.inputs, own.compute))
            records.append(self.changed(state, position, f"it is the bias of {before.name!r}", is_gone=True))
        return Done(edit.finish(), tuple(records), decisions) if records else None


def layer_and_sum() -> tuple[Graph, Net]:
    net = Net()
    weight = net.param("fc_weight", 4, 4)
    layer = net.op("FullyConnected", net.var("data"), weight, name="fc", num_hidden=4, no_bias=True)
    plus = net.op("_plus_scalar", layer, name="plus", scalar=0.5)
    return net.graph(net.op("Activation", plus, name="last", act_type="relu")), net


@pytest.fixture
def adding(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step(lambda options: AddOnce(), lambda options: True)
    monkeypatch.setattr(pipeline, "PLANNING", (*pipeline.PLANNING, step))


def test_a_planned_pass_is_a_class_and_a_line(adding: None) -> None:
    graph, net = layer_and_sum()
    model = convert(graph, net.params)
    assert print_graph(model.graph) == (
        "fc_weight\n"
        "data\n"
        "fc_bias\n"
        "data_amp_cast_bfloat16 = amp_cast(data)\n"
        "fc = FullyConnected(data_amp_cast_bfloat16, fc_weight, fc_bias)\n"
        "last_bfloat16 = Activation(fc)\n"
        "last = amp_cast(last_bfloat16)\n"
        "return last\n"
    )
    assert list(model.arg_params) == ["fc_weight", "fc_bias"]
    assert {name: value.dtype for name, value in model.arg_params.items()} == dict.fromkeys(
        ("fc_weight", "fc_bias"), BF16
    )
    report = model.report
    assert report is not None
    assert [node.name for node in report.nodes] == ["fc", "plus", "last"]
    assert (report.node("plus").rule, report.node("plus").reason) == ("add once", "it is the bias of 'fc'")
    assert report.node("plus").name_after == "fc"
    (parameter,) = report.parameters
    assert list(parameter.stored) == ["fc_weight", "fc_bias"]
    assert parameter.bytes_after == 2 * 16 + 2 * 4
    assert reconvert(model).graph == model.graph


def test_an_operator_without_a_decision_is_blamed_on_its_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(PlannedPass):
        step = "careless"

        def run(self, state: State) -> Done | None:
            edit = GraphEdit(state.graph, state.params)
            edit.connect(
                state.graph.uses_of(Entry(0))[0],
                edit.insert(Node("exp", "new", {}, (Entry(0),)), after=0),
            )
            return Done(edit.finish(), decisions={})

    monkeypatch.setattr(
        pipeline, "PLANNING", (*pipeline.PLANNING, Step(lambda o: Careless(), lambda o: True))
    )
    graph, net = layer_and_sum()
    with pytest.raises(PassError, match=r"The pass Careless left .* no decision for node 'new'.* Decide"):
        convert(graph, net.params)


# ---------------------------------------------------------------------- a rule


class NoCubes:
    """What is raised to the third power stays FP32."""

    name = "no cubes"
    is_hard = False

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        node = context.graph.nodes[position]
        if node.op == "_power_scalar" and node.attrs.get("scalar") == "3":
            return Verdict(Color.RED, self.name, "it is a cube")
        return None


def test_a_rule_is_a_class_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coloring, "RULES", (NoCubes(), *coloring.RULES))
    net = Net()
    value = net.conv(net.var("data"), "conv")
    cube = net.op("_power_scalar", value, name="cube", scalar=3)
    model = convert(net.graph(net.op("tanh", cube, name="last")), net.params)
    assert model.report is not None
    node = model.report.node("cube")
    assert (node.color, node.rule, node.compute) == ("red", "no cubes", DType.FLOAT32.label)
    assert "it is a cube" in node.reason
