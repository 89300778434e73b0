"""The pipeline verifies after every pass and names the one that broke the graph."""

from __future__ import annotations

import pytest

from mxamp.errors import GraphError, PassError
from mxamp.graph import Entry, Graph, Node
from mxamp.passes import GraphPass, InsertCasts, Pipeline
from tests.building import Net, plan_for


class Nothing(GraphPass):
    def run(self, graph: Graph) -> Graph:
        return graph


class Rename(GraphPass):
    def run(self, graph: Graph) -> Graph:
        return Graph(tuple(n._replace(name=n.name + "_") for n in graph.nodes), graph.heads, graph.attrs)


class Break(GraphPass):
    def run(self, graph: Graph) -> Graph:
        return Graph(graph.nodes, (Entry(99),))


class Promise(Nothing):
    def ensures(self, before: Graph, after: Graph) -> None:
        raise GraphError("promised too much.")


class Demand(Nothing):
    def requires(self, graph: Graph) -> None:
        raise GraphError("needs something else.")


def graph() -> Graph:
    return Graph((Node("null", "x"), Node("exp", "e", {}, (Entry(0),))), (Entry(1),))


def test_passes_run_in_order() -> None:
    after = Pipeline([Nothing(), Rename(), Rename()]).run(graph())
    assert [node.name for node in after.nodes] == ["x__", "e__"]


def test_an_empty_pipeline_returns_the_graph_itself() -> None:
    start = graph()
    assert Pipeline([]).run(start) is start


def test_a_valid_graph_is_handed_on_before_promises_are_checked() -> None:
    seen: list[str] = []
    with pytest.raises(PassError, match="promised too much"):
        Pipeline([Rename(), Promise()]).run(
            graph(), when_valid=lambda valid: seen.append(valid.nodes[0].name)
        )
    assert seen == ["x_", "x_"]


def test_a_broken_graph_is_not_handed_on() -> None:
    with pytest.raises(PassError, match="Break left"):
        Pipeline([Break()]).run(graph(), when_valid=lambda _: pytest.fail("it was handed on"))


@pytest.mark.parametrize("broken", [Break(), Promise()])
def test_a_broken_graph_names_the_pass_and_those_before_it(broken: GraphPass) -> None:
    with pytest.raises(PassError, match=f"pass {broken.name} left .* ran before: Nothing, Rename") as caught:
        Pipeline([Nothing(), Rename(), broken, Nothing()]).run(graph())
    assert isinstance(caught.value.__cause__, GraphError)


def test_a_pass_that_breaks_first_ran_after_none() -> None:
    with pytest.raises(PassError, match="ran before: none"):
        Pipeline([Break()]).run(graph())


def test_an_unmet_requirement_is_the_callers_error() -> None:
    with pytest.raises(GraphError, match="needs something else"):
        Pipeline([Demand()]).run(graph())


def test_a_plan_for_another_graph_is_refused() -> None:
    net = Net()
    other = net.graph(net.op("exp", net.op("exp", net.var("x"))))
    with pytest.raises(PassError, match="another graph"):
        Pipeline([InsertCasts(plan_for(graph()))]).run(other)


def test_an_unknown_cast_operator_is_refused() -> None:
    with pytest.raises(PassError, match="amp_cast, Cast, not 'cast'"):
        InsertCasts(plan_for(graph()), cast_op="cast")
