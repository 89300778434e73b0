"""What a damaged ``symbol.json`` is told: what is wrong, where, and what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mxamp.errors import GraphError, ModelFileNotFoundError, MxampError, SymbolFormatError
from mxamp.graph import parse_symbol, read_symbol, write_symbol
from tests.building import Net

X = {"op": "null", "name": "x", "inputs": []}


def exp(*inputs: Any, name: str = "e", **rest: Any) -> dict[str, Any]:
    return {"op": "exp", "name": name, "inputs": list(inputs), **rest}


def text(*nodes: Any, heads: Any = ((0, 0, 0),), **rest: Any) -> str:
    return json.dumps({"nodes": list(nodes), "heads": heads, **rest})


def complaint(document: str, kind: type[MxampError] = SymbolFormatError) -> str:
    with pytest.raises(kind) as caught:
        parse_symbol(document, source="net-symbol.json")
    message = str(caught.value)
    assert message.startswith("net-symbol.json")
    assert isinstance(caught.value, ValueError)
    return message


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_truncated_text_is_called_truncated(share: float) -> None:
    net = Net()
    whole = write_symbol(net.graph(net.op("exp", net.op("log", net.var("a_long_name"), name="a_log"))))
    message = complaint(whole[: int(len(whole) * share)])
    assert "not valid JSON" in message
    assert re.search(r"line \d+, column \d+, character \d+ of \d+", message)
    assert "truncated" in message


@pytest.mark.parametrize("junk", ["", "   \n", "{nodes: []}", "<html>", "PK\x03\x04"])
def test_text_that_is_not_json_is_called_so(junk: str) -> None:
    assert "not valid JSON" in complaint(junk)


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ("[]", "a JSON list"),
        ("3", "a JSON int"),
        ('"text"', "a JSON str"),
        ("null", "a JSON NoneType"),
        ('{"layers": [], "version": 1}', r"\['layers', 'version'\]"),
        ('{"nodes": {}}', r"\['nodes'\]"),
    ],
)
def test_json_that_is_no_symbol_is_told_what_a_symbol_is(document: str, found: str) -> None:
    message = complaint(document)
    assert re.search(found, message)
    assert "'nodes'" in message
    assert "-symbol.json" in message


@pytest.mark.parametrize("heads", [None, [], {}, "x"])
def test_a_symbol_without_outputs_is_told_so(heads: Any) -> None:
    assert "has no outputs" in complaint(text(X, heads=heads))


def test_a_symbol_without_nodes_is_told_so() -> None:
    assert "heads[0]" in complaint(text())


@pytest.mark.parametrize(
    ("node", "where"),
    [
        (7, r"nodes\[1\] must be an object"),
        (None, r"nodes\[1\] must be an object"),
        ({"name": "e"}, "'op' and 'name'"),
        ({"op": "exp"}, "'op' and 'name'"),
        ({"op": 3, "name": "e"}, "'op' and 'name'"),
        ({"op": "exp", "name": ["e"]}, "'op' and 'name'"),
        (exp(attrs=[1]), r"nodes\[1\].attrs \(node 'e'\) must be an object"),
        (exp(param="x"), r"nodes\[1\].param \(node 'e'\)"),
        (exp(attrs={"axis": 3}), r"attrs.axis \(node 'e'\) must be a string, not int"),
        (exp(attrs={"axis": None}), "must be a string, not NoneType"),
        ({**exp(), "inputs": "x"}, r"inputs \(node 'e'\) must be a list"),
        (exp(control_deps=[5]), r"control_deps .* from 0 to 1"),
        (exp(control_deps="x"), "control_deps"),
        (exp(control_deps=[True]), "control_deps"),
        (exp(subgraphs=[3]), r"subgraphs\[0\] is a JSON int"),
        (exp(subgraphs=3), "subgraphs"),
    ],
)
def test_a_node_of_the_wrong_type_is_named(node: Any, where: str) -> None:
    assert re.search(where, complaint(text(X, node)))


@pytest.mark.parametrize(
    "entry",
    [
        *([9, 0, 0], [-1, 0, 0], [0, -1, 0], [10**40, 0, 0], [0, 2**31, 0]),
        *([0], [0, 0, 0, 0], [True, 0, 0], [0.0, 0, 0], ["0", 0, 0], [0, 0, None], 0, None),
    ],
)
def test_an_input_that_is_no_entry_is_named(entry: Any) -> None:
    message = complaint(text(X, exp([0, 0, 0], entry), heads=[[1, 0, 0]]))
    assert "nodes[1].inputs[1] (node 'e')" in message
    assert "a node from 0 to 1" in message
    in_heads = complaint(text(X, heads=[entry]))
    assert "heads[0]" in in_heads


def test_a_variable_that_reads_something_is_named() -> None:
    assert "the variable 'x', and a variable reads nothing" in complaint(text({**X, "inputs": [[0, 0, 0]]}))


def test_a_second_output_of_a_variable_is_refused() -> None:
    assert "output 1 of the variable 'x'" in complaint(text(X, heads=[[0, 1, 0]]))


def test_a_cycle_is_told_with_the_names_on_it() -> None:
    nodes = X, exp([3, 0, 0], name="a"), exp([1, 0, 0], name="b"), exp([2, 0, 0], [0, 0, 0], name="c")
    message = complaint(text(*nodes, heads=[[3, 0, 0]]), GraphError)
    assert "a cycle" in message
    assert re.search("a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c", message)
    assert "Export the model again" in message


def test_a_node_that_reads_itself_is_a_cycle() -> None:
    assert "e -> e" in complaint(text(exp([0, 0, 0])), GraphError)


def test_a_cycle_of_control_dependencies_is_a_cycle() -> None:
    nodes = X, exp([0, 0, 0], name="a", control_deps=[2]), exp([0, 0, 0], name="b", control_deps=[1])
    message = complaint(text(*nodes, heads=[[1, 0, 0]]), GraphError)
    assert "a cycle" in message


def test_a_forward_control_dependency_alone_is_reordered() -> None:
    graph = parse_symbol(text(X, exp([0, 0], control_deps=[2]), exp([0, 0], name="b"), heads=[[1, 0]]))
    assert [node.name for node in graph.nodes] == ["x", "b", "e"]


def test_nodes_downstream_of_a_cycle_are_not_blamed() -> None:
    nodes = exp([3, 0, 0], name="after"), exp([2, 0, 0], name="b"), exp([1, 0, 0], name="c")
    message = complaint(text(*nodes, exp([1, 0, 0], name="d")), GraphError)
    assert "after" not in message
    assert re.search("b -> c -> b|c -> b -> c", message)


def test_a_long_cycle_is_cut_short() -> None:
    count = 50
    nodes = [exp([(number + 1) % count, 0, 0], name=f"n{number}") for number in range(count)]
    message = complaint(text(*nodes), GraphError)
    assert "..." in message
    assert len(message) < 400


def test_two_variables_of_one_name_are_refused_by_name() -> None:
    assert "two variables named 'x'" in complaint(text(X, X), GraphError)


@pytest.mark.parametrize("row_ptr", [[0, "1", 2], [0, None, 2], [0, 1.5, 3], [0, True, 2], [{}, [], 1]])
def test_node_row_ptr_that_holds_no_numbers_is_refused(row_ptr: Any) -> None:
    assert "node_row_ptr" in complaint(text(X, exp([0, 0, 0]), heads=[[1, 0, 0]], node_row_ptr=row_ptr))


@pytest.mark.parametrize("row_ptr", [[0, 1, 1], [0, 1, 0], [0, 2, 1], [0, 0, 1]])
def test_node_row_ptr_that_denies_an_output_that_is_there_is_refused(row_ptr: Any) -> None:
    assert "node_row_ptr" in complaint(text(X, exp([0, 0, 0]), heads=[[1, 0, 0]], node_row_ptr=row_ptr))


@pytest.mark.parametrize("output", [2**16, 2**31 - 1])
def test_an_output_number_that_would_fill_memory_is_refused(output: int) -> None:
    assert "no operator has that many" in complaint(text(X, exp([0, 0, 0]), heads=[[1, output, 0]]))


def test_node_row_ptr_that_gives_a_variable_two_outputs_is_refused() -> None:
    assert "node_row_ptr" in complaint(text(X, exp([0, 0, 0]), heads=[[1, 0, 0]], node_row_ptr=[0, 2, 3]))


@pytest.mark.parametrize("attrs", [[], 3, "x"])
def test_graph_attributes_that_are_no_object_are_refused(attrs: Any) -> None:
    assert "attrs must be an object" in complaint(text(X, attrs=attrs))


def nested(depth: int) -> str:
    body: dict[str, Any] = {"nodes": [X], "heads": [[0, 0, 0]]}
    for _ in range(depth):
        node = {"op": "_cond", "name": "c", "inputs": [], "subgraphs": [body]}
        body = {"nodes": [node], "heads": [[0, 0, 0]]}
    return json.dumps(body)


def test_bodies_nested_beyond_reason_are_refused() -> None:
    assert "deep" in complaint(nested(40))
    assert parse_symbol(nested(30)).nodes[0].op == "_cond"


def test_json_nested_beyond_the_parser_is_refused_without_a_stack() -> None:
    assert "too deeply" in complaint("[" * 200_000)


def test_a_number_with_too_many_digits_is_refused() -> None:
    assert complaint(text(X, heads=[[0, 0, 0]], attrs={}).replace("[[0, 0, 0]]", f"[[{'9' * 5000}, 0, 0]]"))


def test_a_missing_file_suggests_the_symbols_beside_it(tmp_path: Path) -> None:
    (tmp_path / "resnet50-symbol.json").write_text("{}")
    with pytest.raises(ModelFileNotFoundError, match=r"Did you mean 'resnet50-symbol.json'\?") as caught:
        read_symbol(tmp_path / "resnet5-symbol.json")
    assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(ModelFileNotFoundError, match="PREFIX-symbol"):
        read_symbol(tmp_path / "nowhere" / "a-symbol.json")


def test_a_folder_in_place_of_a_file_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ModelFileNotFoundError, match="is a folder"):
        read_symbol(tmp_path)


def test_a_params_file_in_place_of_a_symbol_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "net-0000.params"
    path.write_bytes(b"\x12\x01\x00\x00\xff\xfe")
    with pytest.raises(SymbolFormatError, match=r"not UTF-8.*\.params"):
        read_symbol(path)
