"""A preparation pass that changes parameters: what becomes of them, of shapes, and of the report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.conversion import PREPARATIONS, pipeline
from mxamp.conversion.pipeline import preparing
from mxamp.dtypes import DType
from mxamp.errors import PassError
from mxamp.graph import Entry, Graph, Node
from mxamp.graph.printer import print_graph
from mxamp.params.parameter import ArrayParameter
from mxamp.passes import Done, PreparationPass, PreparedNode, State
from mxamp.passes.edit import GraphEdit
from mxamp.policy import Policy
from tests.building import BF16, Net, convert, parameters
from tests.passes.preparing import prepare_graph


class _AddNow(PreparationPass):
    """``x + (b + c)`` with two parameters reads one, computed now; ``negative`` gets nodes before it."""

    step = "add_now"

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        edit = GraphEdit(graph, state.params)
        changes = []
        for position, node in enumerate(graph.nodes):
            sources = [state.parameter(entry) for entry in node.inputs]
            known = [source for source in sources if source is not None]
            if node.op == "elemwise_add" and len(known) == len(sources):
                names = [graph.nodes[entry.node].name for entry in node.inputs]
                value = ArrayParameter(known[0].values() + known[1].values())
                edit.drop(position, edit.add_parameter(node.name, value, names, before=position))
                changes.append(self.changed(node, "read parameters alone"))
            elif node.op == "negative":
                half = Node("_mul_scalar", f"{node.name}_half", {"scalar": "0.5"}, node.inputs)
                twice = tuple([edit.insert(half, before=position) for _ in range(2)])
                joined = Node("Concat", f"{node.name}_all", {"dim": "0", "num_args": "2"}, twice)
                total = edit.insert(joined, before=position, shapes=((6, 4),))
                edit.replace(position, node._replace(op="exp", inputs=(total,)))
                changes.append(self.changed(node, "for the test"))
        return Done(edit.finish(), tuple(changes)) if changes else None


def network(*, with_negative: bool = False) -> tuple[Graph, dict[str, Any]]:
    """Return ``broadcast_add(data, second + first)`` and its parameters, one of which is read elsewhere."""
    net = Net()
    data, first, second, apart = (net.var(name) for name in ("data", "first", "second", "apart"))
    total = net.op("elemwise_add", second, first, name="total")
    result = net.op("broadcast_add", data, total, name="result")
    other = net.op("broadcast_mul", net.op("broadcast_mul", data, first, name="more"), apart, name="other")
    heads = [result, other]
    if with_negative:
        heads.append(net.op("negative", data, name="minus"))
    arrays = {
        name: np.full((1, 4), value, np.float32) for value, name in enumerate(("second", "apart", "first"), 2)
    }
    return net.graph(*heads), {**arrays, "unread": np.ones(3, np.float32)}


@pytest.fixture
def adding(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Run the pass for the test as one of mxamp's, and return the names of all."""
    monkeypatch.setattr(pipeline, "PREPARING", (*pipeline.PREPARING, preparing(_AddNow)))
    return (*PREPARATIONS, "add_now")


def test_parameters_are_added_and_those_nobody_reads_are_dropped(adding: tuple[str, ...]) -> None:
    graph, arrays = network()
    given = parameters(arrays)
    done = prepare_graph(graph, given, Policy.default(BF16), ["add_now"])
    assert list(done.graph.variables) == ["data", "first", "apart", "total"]
    # The new one stands before the first that it was made of; a parameter that no graph reads stays.
    assert list(done.params) == ["total", "apart", "first", "unread"]
    np.testing.assert_array_equal(done.params["total"].values(), np.full((1, 4), 6, np.float32))
    assert done.made_from == {"total": ("second", "first")}
    assert list(given) == ["second", "apart", "first", "unread"]


def test_the_report_knows_what_was_computed_from_a_parameter(adding: tuple[str, ...]) -> None:
    graph, arrays = network()
    model = convert(graph, arrays, prepare=adding[-1:])
    report = model.report
    assert report is not None
    assert [node.name for node in report.nodes] == ["total", "result", "more", "other"]
    assert report.node("total").rule == "add now"
    assert report.node("total").name_after == "total"
    found = {each.name: each for each in report.parameters}
    assert list(found) == ["second", "apart", "first"]
    assert list(found["second"].stored) == ["total"]
    assert list(found["first"].stored) == ["first", "total"]
    stored = sum(value.nbytes for name, value in model.arg_params.items() if name != "unread")
    assert sum(each.bytes_after for each in report.parameters) == stored
    assert sum(each.bytes_before for each in report.parameters) == 48
    assert mxamp.Report.from_json(report.to_json()) == report


def test_shapes_follow_and_are_known_of_what_was_put_in(adding: tuple[str, ...]) -> None:
    graph, arrays = network(with_negative=True)
    shapes = [((3, 4),) if node.name not in arrays else ((1, 4),) for node in graph.nodes]
    done = prepare_graph(graph, parameters(arrays), Policy.default(BF16), ["add_now"], shapes=shapes)
    assert done.shapes is not None
    known = {node.name: shape for node, shape in zip(done.graph.nodes, done.shapes)}
    assert known["minus_half"] == known["minus_half_1"] == ((3, 4),)
    assert known["minus_all"] == ((6, 4),)
    assert known["total"] == ((1, 4),)


def test_a_parameter_gets_a_free_name_where_another_has_it(adding: tuple[str, ...]) -> None:
    graph, arrays = network()
    # The file holds a parameter of the name that no graph reads.
    done = prepare_graph(
        graph, parameters({**arrays, "total": np.zeros(1, np.float32)}), Policy.default(BF16), ["add_now"]
    )
    assert list(done.params) == ["total_1", "apart", "first", "unread", "total"]
    assert done.record(PreparedNode)[0].node == "total"


def test_a_pass_that_drops_an_input_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    class _Drop(_AddNow):
        def rewrite(self, graph: Graph, state: State) -> Done | None:
            edit = GraphEdit(graph, state.params)
            ones, position = ArrayParameter(np.ones((1, 4), np.float32)), graph.variables["data"]
            edit.drop(position, edit.add_parameter("data", ones, before=position))
            return Done(edit.finish(), ())

    graph, arrays = network()
    monkeypatch.setattr(pipeline, "PREPARING", (preparing(_Drop),))
    with pytest.raises(
        PassError, match="The pass _Drop left the graph broken: The names of the graph's inputs"
    ):
        prepare_graph(graph, parameters(arrays), Policy.default(BF16), ["add_now"])


def test_dtypes_other_than_float32_are_said_of_a_new_parameter() -> None:
    net = Net()
    graph = net.graph(net.op("exp", net.var("data"), name="exp"))
    edit = GraphEdit(graph, {})
    added = edit.add_parameter("order", ArrayParameter(np.arange(3, dtype=np.int32)), before=1)
    edit.replace(1, Node("take", "exp", {}, (Entry(0), added)))
    after = edit.finish()
    order = after.graph.nodes[after.graph.variables["order"]]
    assert order.attrs == {"__shape__": "(3,)", "__dtype__": str(DType.INT32.value)}
    assert after.shapes == {1: ((3,),)}


def chain() -> Graph:
    """Return ``data -> a -> b -> c``, with a parameter that ``b`` reads."""
    net = Net()
    first = net.op("exp", net.var("data"), name="a")
    second = net.op("broadcast_add", first, net.var("shift"), name="b")
    return net.graph(net.op("negative", second, name="c"))


def test_the_editor_says_where_every_node_went() -> None:
    graph = chain()
    shift = ArrayParameter(np.ones((1,), np.float32))
    edit = GraphEdit(graph, {"shift": shift})
    behind = edit.insert(Node("relu", "a", {}, (Entry(1),)), after=1)
    edit.drop(3, behind)  # b, and with it the parameter that nobody else reads
    edit.insert(Node("relu", "unread", {}, (Entry(1),)), before=4)
    after = edit.finish()
    assert print_graph(after.graph) == ("data\na = exp(data)\na_1 = relu(a)\nc = negative(a_1)\nreturn c\n")
    assert [after.nodes.forward(position) for position in range(5)] == [0, 1, None, 2, 3]
    assert [after.nodes.back(position) for position in range(4)] == [0, 1, 1, 4]
    assert after.inserted == {behind.node: 2}
    assert graph == chain()


def test_a_node_that_another_computes_now_lends_it_its_values() -> None:
    edit = GraphEdit(chain(), {})
    edit.merge(3, 1)
    after = edit.finish()
    assert after.nodes.forward(1) == after.nodes.forward(3) == 1
    assert after.nodes.back(1) == 3


def test_where_nodes_went_is_told_over_several_edits() -> None:
    graph = chain()
    first = GraphEdit(graph, {})
    first.drop(1, Entry(0))
    once = first.finish()
    second = GraphEdit(once.graph, {})
    second.insert(Node("relu", "new", {}, (Entry(2),)), before=3)
    second.replace(3, Node("negative", "c", {}, (Entry(4),)))
    twice = second.finish()
    whole = once.nodes.then(twice.nodes)
    assert [whole.forward(position) for position in range(5)] == [0, 0, 1, 2, 4]
    assert [whole.back(position) for position in range(5)] == [0, 2, 3, 4, 4]
    names = [node.name for node in graph.nodes]
    assert names[whole.back(4)] == twice.graph.nodes[4].name == "c"
