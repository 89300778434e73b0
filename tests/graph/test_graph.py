"""The graph as a value: uses, variables, order of inputs, descriptions; and what builds it."""

from __future__ import annotations

import pytest

from mxamp.graph import Entry, Graph, Node, Use, parse_symbol, verify_graph, write_symbol
from mxamp.graph.builder import GraphBuilder
from mxamp.graph.infer import check_dtypes, infer_dtypes, variable_dtypes
from mxamp.graph.printer import print_graph
from tests.building import F32, Net

CHAIN = 100_000


@pytest.fixture(scope="module")
def chain() -> Graph:
    nodes = [Node("null", "x")]
    nodes += [Node("exp", f"e{number}", {}, (Entry(number),)) for number in range(CHAIN)]
    return Graph(tuple(nodes), (Entry(CHAIN),))


def test_a_chain_of_a_hundred_thousand_nodes_needs_no_recursion(chain: Graph) -> None:
    verify_graph(chain)
    assert parse_symbol(write_symbol(chain)) == chain
    assert chain.input_order() == (0,)
    assert chain.uses_of(Entry(CHAIN - 1)) == (Use(CHAIN, 0),)
    dtypes = infer_dtypes(chain, variable_dtypes(chain, {}))
    check_dtypes(chain, dtypes)
    assert dtypes[-1] == (F32,)
    assert print_graph(chain).count("\n") == CHAIN + 2


def test_a_chain_written_backwards_is_reordered_without_recursion(chain: Graph) -> None:
    last = len(chain.nodes) - 1
    backwards = [
        node._replace(inputs=tuple(Entry(last - entry.node) for entry in node.inputs))
        for node in reversed(chain.nodes)
    ]
    assert parse_symbol(write_symbol(Graph(tuple(backwards), (Entry(0),)))) == chain


def test_uses_name_every_reader_and_position() -> None:
    net = Net()
    x = net.var("x")
    halves = net.op("split", x, outputs=3)
    total = net.op("elemwise_add", Entry(halves.node, 2), Entry(halves.node, 2))
    graph = net.graph(total, x)
    assert graph.uses_of(x) == (Use(1, 0),)
    assert graph.uses_of(Entry(1, 2)) == (Use(2, 0), Use(2, 1))
    assert graph.uses_of(Entry(1, 0)) == ()
    assert graph.uses_of(total) == ()


def test_inputs_are_listed_depth_first_from_the_heads() -> None:
    net = Net()
    a, b, c, _unused = net.var("a"), net.var("b"), net.var("c"), net.var("unused")
    right = net.op("elemwise_add", c, b)
    total = net.op("elemwise_add", right, a)
    graph = net.graph(total, b)
    assert [graph.nodes[position].name for position in graph.input_order()] == ["c", "b", "a"]


def test_control_dependencies_are_listed_after_inputs() -> None:
    nodes = (
        Node("null", "late"),
        Node("null", "x"),
        Node("exp", "e", {}, (Entry(1),), control_deps=(0,)),
    )
    assert Graph(nodes, (Entry(2),)).input_order() == (1, 0)


def test_graphs_are_equal_by_structure() -> None:
    def build(name: str) -> Graph:
        net = Net()
        return net.graph(net.op("exp", net.var("x"), name=name))

    assert build("e") == build("e")
    assert build("e") != build("f")


def test_entries_are_described_by_name_and_output() -> None:
    net = Net()
    halves = net.op("split", net.var("x"), name="s", outputs=2)
    graph = net.graph(halves)
    assert (graph.describe(halves), graph.describe(Entry(halves.node, 1))) == ("s", "s[1]")
    assert str(graph.nodes[halves.node]) == "node 's' (split)"


def test_the_builder_gives_every_name_once() -> None:
    builder = GraphBuilder(["conv", "conv_1"])
    assert [builder.free_name("conv"), builder.free_name("conv"), builder.free_name("bn")] == [
        "conv_2",
        "conv_3",
        "bn",
    ]
    assert builder.free_name("bn") == "bn_1"


def test_the_builder_builds_what_was_added() -> None:
    builder = GraphBuilder()
    x = builder.add(Node("null", "x"))
    e = builder.add(Node("exp", "e", {}, (Entry(x),)))
    graph = builder.build([Entry(e)], {"mxnet_version": ["int", 10901]})
    verify_graph(graph)
    assert (len(builder), builder.node(e).name, graph.heads) == (2, "e", (Entry(1),))


def test_uses_are_in_the_order_of_their_readers_however_many_there_are() -> None:
    nodes = [Node("null", "x"), Node("split", "s", {}, (Entry(0),), 2)]
    nodes += [Node("add", f"a{n}", {}, (Entry(1, n % 2), Entry(1), Entry(1))) for n in range(2)]
    graph = Graph(tuple(nodes), (Entry(3),))
    assert graph.uses[1] == {0: (Use(2, 0), Use(2, 1), Use(2, 2), Use(3, 1), Use(3, 2)), 1: (Use(3, 0),)}


def test_bodies_are_those_of_all_nodes() -> None:
    bodies = tuple(Graph((Node("null", name),), (Entry(0),)) for name in "abc")
    nodes = (Node("_cond", "first", subgraphs=bodies[:2]), Node("_foreach", "second", subgraphs=bodies[2:]))
    assert Graph(nodes, (Entry(0),)).bodies == bodies
