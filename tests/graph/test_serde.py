"""``symbol.json`` in and out: nothing is lost, whatever the version that wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mxamp.errors import GraphError
from mxamp.graph import Entry, Graph, Node, parse_symbol, read_symbol, verify_graph, write_symbol
from tests.building import Net


def document(*nodes: dict[str, Any], heads: Any = ((0, 0, 0),), **rest: Any) -> str:
    return json.dumps({"nodes": list(nodes), "heads": heads, **rest})


def variable(name: str, **attrs: str) -> dict[str, Any]:
    return {"op": "null", "name": name, "inputs": [], **({"attrs": attrs} if attrs else {})}


def operator(op: str, name: str, *inputs: list[int], **rest: Any) -> dict[str, Any]:
    return {"op": op, "name": name, "inputs": list(inputs), **rest}


def assert_round_trip(text: str) -> Graph:
    graph = parse_symbol(text)
    verify_graph(graph)
    assert parse_symbol(write_symbol(graph)) == graph
    assert write_symbol(parse_symbol(write_symbol(graph))) == write_symbol(graph)
    return graph


def test_compact_text_says_the_same_in_fewer_characters() -> None:
    nodes = [
        variable("a", __shape__="(2, 3)"),
        operator("split", "s", [0, 0], attrs={"num_outputs": "2"}),
        operator("_plus", "sum", [1, 0], [1, 1, 2], control_deps=[0]),
    ]
    text = json.dumps({"nodes": nodes, "heads": [[2, 0, 1]], "attrs": {"mxnet_version": ["int", 10901]}})
    graph = assert_round_trip(text)
    compact = write_symbol(graph, compact=True)
    assert parse_symbol(compact) == graph
    assert len(compact) < 0.9 * len(write_symbol(graph))
    assert "node_row_ptr" not in compact


def test_round_trip_keeps_attributes_of_nodes_and_of_the_graph() -> None:
    text = document(
        variable("data", __shape__="(1, 3)", __dtype__="2", __lr_mult__="0.1"),
        operator("clip", "c", [0, 0, 0], attrs={"a_min": "0", "a_max": "6", "ctx_group": 'say "ß"\n'}),
        heads=[[1, 0, 0]],
        attrs={"mxnet_version": ["int", 10901], "mine": ["str", "x"]},
    )
    graph = assert_round_trip(text)
    assert graph.nodes[0].attrs == {"__shape__": "(1, 3)", "__dtype__": "2", "__lr_mult__": "0.1"}
    assert graph.nodes[1].attrs["ctx_group"] == 'say "ß"\n'
    assert graph.attrs == {"mxnet_version": ["int", 10901], "mine": ["str", "x"]}


def test_round_trip_keeps_versions_of_inputs_and_heads() -> None:
    text = document(variable("x"), operator("exp", "e", [0, 0, 3]), heads=[[1, 0, 2], [0, 0, 0]])
    graph = assert_round_trip(text)
    assert graph.nodes[1].input_versions == (3,)
    assert graph.head_versions == (2, 0)
    assert json.loads(write_symbol(graph))["heads"] == [[1, 0, 2], [0, 0, 0]]


def test_round_trip_keeps_control_dependencies() -> None:
    nodes = variable("x"), operator("exp", "e", [0, 0, 0]), operator("log", "l", [0, 0, 0], control_deps=[1])
    graph = assert_round_trip(document(*nodes, heads=[[2, 0, 0]]))
    assert graph.nodes[2].control_deps == (1,)


def test_round_trip_keeps_bodies_within_bodies() -> None:
    innermost = {"nodes": [variable("a")], "heads": [[0, 0, 0]]}
    inner = {
        "nodes": [variable("b"), operator("_cond", "c", [0, 0, 0], subgraphs=[innermost] * 3)],
        "heads": [[1, 0, 0]],
    }
    outer = operator("_foreach", "loop", [0, 0, 0], subgraphs=[inner], attrs={"num_args": "2"})
    graph = assert_round_trip(document(variable("x"), outer, heads=[[1, 0, 0]]))
    assert graph.nodes[1].subgraphs[0].nodes[1].subgraphs[2].nodes[0].name == "a"


def test_attributes_under_the_keys_of_old_versions_are_read() -> None:
    old = operator("clip", "c", [0, 0], param={"a_min": "0", "a_max": "6"}, attr={"ctx_group": "dev1"})
    graph = assert_round_trip(document(variable("x"), old, heads=[[1, 0]]))
    assert graph.nodes[1].attrs == {"a_min": "0", "a_max": "6", "ctx_group": "dev1"}


def test_inputs_and_heads_without_a_version_are_version_zero() -> None:
    graph = assert_round_trip(document(variable("x"), operator("exp", "e", [0, 0]), heads=[[1, 0]]))
    assert graph.nodes[1].inputs == (Entry(0, 0),)
    assert (graph.nodes[1].input_versions, graph.head_versions) == ((), ())


def test_without_node_row_ptr_a_node_has_the_outputs_that_are_read() -> None:
    nodes = variable("x"), operator("SliceChannel", "s", [0, 0, 0]), operator("exp", "e", [1, 2, 0])
    assert assert_round_trip(document(*nodes, heads=[[2, 0, 0]])).nodes[1].num_outputs == 3
    assert assert_round_trip(document(*nodes[:2], heads=[[1, 4, 0]])).nodes[1].num_outputs == 5


def test_node_row_ptr_counts_outputs_nobody_reads() -> None:
    nodes = variable("x"), operator("BatchNorm", "bn", [0, 0, 0])
    graph = assert_round_trip(document(*nodes, heads=[[1, 0, 0]], node_row_ptr=[0, 1, 4]))
    assert graph.nodes[1].num_outputs == 3


def test_node_row_ptr_of_another_length_is_ignored() -> None:
    graph = assert_round_trip(document(variable("x"), operator("exp", "e", [0, 0]), node_row_ptr=[0, 1]))
    assert [node.num_outputs for node in graph.nodes] == [1, 1]


def test_forward_references_are_reordered_with_heads_and_dependencies() -> None:
    nodes = (
        operator("log", "l", [2, 0, 0], control_deps=[3]),
        variable("x"),
        operator("exp", "e", [1, 0, 0]),
        variable("y"),
    )
    graph = assert_round_trip(document(*nodes, heads=[[0, 0, 0], [2, 0, 0]]))
    assert sorted(node.name for node in graph.nodes) == ["e", "l", "x", "y"]
    (log,) = [node for node in graph.nodes if node.name == "l"]
    assert [graph.nodes[entry.node].name for entry in log.inputs] == ["e"]
    assert [graph.nodes[dependency].name for dependency in log.control_deps] == ["y"]
    assert [graph.describe(head) for head in graph.heads] == ["l", "e"]


def test_a_file_in_order_keeps_its_order() -> None:
    names = ["z", "y", "x"]
    graph = parse_symbol(document(*map(variable, names), operator("add_n", "s", [2, 0], [0, 0], [1, 0])))
    assert [node.name for node in graph.nodes] == [*names, "s"]


def test_arg_nodes_are_written_for_mxnet() -> None:
    net = Net()
    x = net.var("x")
    net.op("elemwise_add", x, net.var("y"), name="s")
    written = json.loads(write_symbol(net.graph(Entry(2))))
    assert written["arg_nodes"] == [0, 1]
    assert written["node_row_ptr"] == [0, 1, 2, 3]


def test_one_node_is_one_line() -> None:
    net = Net()
    net.op("exp", net.var("x"))
    lines = write_symbol(net.graph(Entry(1))).splitlines()
    assert [line.rstrip(",") for line in lines[1:3]] == [
        '{"op": "null", "name": "x", "inputs": []}',
        '{"op": "exp", "name": "exp1", "inputs": [[0, 0, 0]]}',
    ]


def test_a_symbol_of_one_variable_is_a_symbol() -> None:
    assert assert_round_trip(document(variable("x"))).heads == (Entry(0),)


def test_a_graph_made_by_hand_equals_the_one_parsed_from_its_text() -> None:
    graph = Graph((Node("null", "x"), Node("split", "s", {"n": "2"}, (Entry(0),), 2)), (Entry(1, 1),), {})
    assert parse_symbol(write_symbol(graph)) == graph


def test_a_file_is_read_as_its_text(tmp_path: Any) -> None:
    path = tmp_path / "net-symbol.json"
    path.write_text(document(variable("größe")), encoding="utf-8")
    assert read_symbol(path) == read_symbol(str(path)) == parse_symbol(path.read_text(encoding="utf-8"))


def test_texts_are_written_as_json_writes_them() -> None:
    odd = 'a "quoted" \\ back\tslash, \u00e4\u20ac and \U0001f600'
    attrs = {"plain": "(3, 3)", odd: odd, "empty": ""}
    text = write_symbol(Graph((Node("null", odd, attrs),), (Entry(0),)))
    line = text.splitlines()[1]
    assert line == json.dumps({"op": "null", "name": odd, "attrs": attrs, "inputs": []}, ensure_ascii=False)


@pytest.mark.parametrize("says", [{}, {"__dtype__": "0"}, {"__dtype__": "1"}])
def test_variables_of_one_name_are_one_where_a_loop_reads_its_own(says: dict[str, str]) -> None:
    """A layer's parameter inside a loop and outside of it, as Gluon writes it."""
    body = {"nodes": [variable("a"), operator("exp", "e", [0, 0, 0])], "heads": [[1, 0, 0]]}
    own = {**variable("w"), "attrs": {"__shape__": "(2,)", **says}}
    nodes = [
        {**variable("w"), "attrs": {"__dtype__": "0"}},
        own,
        operator("_foreach", "loop", [1, 0, 0], subgraphs=[body], attrs={"num_args": "2"}),
        operator("elemwise_add", "sum", [0, 0, 0], [2, 0, 0]),
    ]
    text = json.dumps({"nodes": nodes, "heads": [[3, 0, 0], [1, 0, 0]]})
    if says == {"__dtype__": "1"}:
        with pytest.raises(GraphError, match="two variables named 'w'"):
            parse_symbol(text)
        return
    graph = parse_symbol(text)
    assert [node.name for node in graph.nodes] == ["w", "loop", "sum"]
    assert graph.nodes[0].attrs == {"__shape__": "(2,)", "__dtype__": "0"}
    assert graph.nodes[1].inputs == (Entry(0),)
    assert graph.nodes[2].inputs == (Entry(0), Entry(1))
    assert graph.heads == (Entry(2), Entry(0))
