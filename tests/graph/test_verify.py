"""Every invariant of a graph, broken once: the message names the node and the entry."""

from __future__ import annotations

import pytest

from mxamp.errors import GraphError
from mxamp.graph import VARIABLE, Entry, Graph, Node, verify_graph

X = Node(VARIABLE, "x")
EXP = Node("exp", "e", {}, (Entry(0),))


@pytest.mark.parametrize(
    ("nodes", "heads", "message"),
    [
        (
            [X, Node("exp", "e", {}, (Entry(1),))],
            [Entry(1)],
            r"node 'e' \(exp\) at position 1 reads.*input 0",
        ),
        ([X, Node("exp", "e", {}, (Entry(2),)), X], [Entry(1)], r"reads, as input 0, node 'x' \(null\)"),
        ([X, Node("exp", "e", {}, (Entry(9),))], [Entry(1)], "number 9, which does not come before"),
        ([X, Node("exp", "e", {}, (Entry(-1),))], [Entry(1)], "number -1"),
        (
            [X, Node("exp", "e", {}, (Entry(0, 1),))],
            [Entry(1)],
            r"output 1 of node 'x' \(null\), which has 1",
        ),
        ([X, Node("exp", "e", {}, (Entry(0, -1),))], [Entry(1)], "output -1"),
        ([X, EXP._replace(control_deps=(1,))], [Entry(1)], "depends on node number 1"),
        ([X, EXP._replace(input_versions=(0, 0))], [Entry(1)], "1 inputs and 2 versions"),
        ([X, Node(VARIABLE, "y", {}, (Entry(0),))], [Entry(1)], "variable 'y' reads 1 entries"),
        ([X, X], [Entry(0)], "Two variables are named 'x', at positions 0 and 1"),
        ([X, EXP], [], "no heads"),
        ([X, EXP], [Entry(2)], "Head 0 names output 0 of node number 2"),
        ([X, EXP], [Entry(1), Entry(1, 1)], "Head 1 names output 1 of node number 1"),
        ([X, EXP], [Entry(-1)], "Head 0"),
    ],
)
def test_a_broken_invariant_is_named(nodes: list[Node], heads: list[Entry], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        verify_graph(Graph(tuple(nodes), tuple(heads)))


def test_a_broken_body_is_found() -> None:
    body = Graph((X,), (Entry(3),))
    with pytest.raises(GraphError, match="Head 0"):
        verify_graph(Graph((X, EXP._replace(subgraphs=(body,))), (Entry(1),)))


def test_a_sound_graph_passes() -> None:
    split = Node("split", "s", {}, (Entry(0),), 2)
    reader = Node("exp", "e", {}, (Entry(1, 1),), control_deps=(0,), input_versions=(1,))
    verify_graph(Graph((X, split, reader), (Entry(2), Entry(1), Entry(1), Entry(0))))
