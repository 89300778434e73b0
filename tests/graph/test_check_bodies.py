"""Dtypes are checked inside control-flow bodies too."""

from __future__ import annotations

import pytest

from mxamp.dtypes import DType
from mxamp.errors import OperatorError
from mxamp.graph import Entry, Graph, Node
from mxamp.graph.infer import check_dtypes, infer_dtypes


def loop(low_inside: bool) -> Graph:
    """Return a loop over ``data`` that adds the invariant ``w`` to each slice, casting the slice or not."""
    nodes = [Node("null", "slice"), Node("null", "w"), Node("null", "state")]
    source = 0
    if low_inside:
        nodes.append(Node("amp_cast", "cast", {"dtype": "bfloat16"}, (Entry(0),)))
        source = 3
    nodes.append(Node("elemwise_add", "sum", {}, (Entry(source), Entry(1))))
    nodes.append(Node("_copy", "next", {}, (Entry(2),)))
    body = Graph(tuple(nodes), (Entry(len(nodes) - 2), Entry(len(nodes) - 1)))
    attrs = {"in_data_locs": "[0]", "in_state_locs": "[2]", "remain_locs": "[1]"}
    outer = (
        Node("null", "data"),
        Node("null", "init"),
        Node("null", "w"),
        Node("_foreach", "loop", attrs, (Entry(0), Entry(1), Entry(2)), num_outputs=2, subgraphs=(body,)),
    )
    return Graph(outer, (Entry(3, 0),))


def check(graph: Graph) -> None:
    check_dtypes(graph, infer_dtypes(graph, dict.fromkeys(graph.variables, DType.FLOAT32)))


def test_a_clash_inside_a_body_is_found() -> None:
    with pytest.raises(OperatorError, match=r"'sum'.*must have one dtype"):
        check(loop(low_inside=True))


def test_a_body_without_a_clash_passes() -> None:
    check(loop(low_inside=False))
