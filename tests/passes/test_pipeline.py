"""The pipeline verifies after every pass and names the one that broke the graph."""

from __future__ import annotations

import pytest

from mxamp.errors import GraphError, PassError
from mxamp.graph import Entry, Graph, Node
from mxamp.graph.node_map import NodeMap
from mxamp.passes import Done, InsertCasts, Pass, State, run_passes
from mxamp.passes.edit import Edited
from tests.building import Net, plan_for, state_for


class Nothing(Pass):
    def run(self, state: State) -> Done | None:
        return None


class Change(Pass):
    def run(self, state: State) -> Done | None:
        graph = self.changed(state.graph)
        return Done(Edited(graph, NodeMap.identity(len(graph.nodes))))


class Rename(Change):
    def changed(self, graph: Graph) -> Graph:
        nodes = [node._replace(name=node.name + "_") for node in graph.nodes]
        return Graph(tuple(nodes), graph.heads, graph.attrs)

    def ensures(self, before: State, after: State) -> None:
        """Promise nothing: the outputs have other names."""


class Break(Change):
    def changed(self, graph: Graph) -> Graph:
        return Graph(graph.nodes, (Entry(99),))


class Promise(Rename):
    def ensures(self, before: State, after: State) -> None:
        raise GraphError("promised too much.")


class Demand(Nothing):
    def requires(self, state: State) -> None:
        raise GraphError("needs something else.")


def graph() -> Graph:
    return Graph((Node("null", "x"), Node("exp", "e", {}, (Entry(0),))), (Entry(1),))


def test_passes_run_in_order() -> None:
    after = run_passes([Nothing(), Rename(), Rename()], state_for(graph()))
    assert [node.name for node in after.graph.nodes] == ["x__", "e__"]


def test_without_passes_the_state_stays_what_it_is() -> None:
    start = state_for(graph())
    assert run_passes([], start) is start
    assert run_passes([Nothing()], start) is start


def test_by_default_a_pass_keeps_the_names_of_outputs() -> None:
    class Careless(Change):
        def changed(self, graph: Graph) -> Graph:
            return Rename().changed(graph)

    with pytest.raises(PassError, match="names or the number of the graph's outputs changed"):
        run_passes([Careless()], state_for(graph()))


@pytest.mark.parametrize("broken", [Break(), Promise()])
def test_a_broken_graph_names_the_pass_and_those_before_it(broken: Pass) -> None:
    with pytest.raises(PassError, match=f"pass {broken.name} left .* ran before: Nothing, Rename") as caught:
        run_passes([Nothing(), Rename(), broken, Nothing()], state_for(graph()))
    assert isinstance(caught.value.__cause__, GraphError)


def test_a_pass_that_breaks_first_ran_after_none() -> None:
    with pytest.raises(PassError, match="ran before: none"):
        run_passes([Break()], state_for(graph()))


def test_an_unmet_requirement_is_the_callers_error() -> None:
    with pytest.raises(GraphError, match="needs something else"):
        run_passes([Demand()], state_for(graph()))


def test_a_plan_for_another_graph_is_refused() -> None:
    net = Net()
    other = net.graph(net.op("exp", net.op("exp", net.var("x"))))
    with pytest.raises(PassError, match="another graph"):
        run_passes([InsertCasts()], state_for(other).after(Done(None, plan=plan_for(graph()))))


def test_an_unknown_cast_operator_is_refused() -> None:
    with pytest.raises(PassError, match="amp_cast, Cast, not 'cast'"):
        InsertCasts("cast")
