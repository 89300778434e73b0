"""The text form of a graph is stable: documents and tests quote it."""

from __future__ import annotations

from mxamp.graph import Entry, Graph, Node
from mxamp.graph.infer import infer_dtypes
from mxamp.graph.printer import print_graph
from tests.building import BF16, F32, Net


def sample() -> Graph:
    net = Net()
    data = net.var("data", __shape__="(1, 4)")
    low = net.op("amp_cast", data, name="down", dtype="bfloat16")
    halves = net.op("SliceChannel", low, name="split", outputs=2, num_outputs=2, axis=1)
    unknown = net.op("mystery", Entry(halves.node, 1), name="who")
    return net.graph(unknown, halves)


def test_one_line_a_node_and_the_heads() -> None:
    assert print_graph(sample()) == (
        "data\n"
        "down = amp_cast(data)\n"
        "split = SliceChannel(down)\n"
        "who = mystery(split[1])\n"
        "return who, split\n"
    )


def test_attributes_are_sorted_and_hidden_ones_left_out() -> None:
    lines = print_graph(sample(), attrs=True).splitlines()
    assert lines[0] == "data"
    assert lines[2] == "split = SliceChannel(down) {axis: 1, num_outputs: 2}"


def test_dtypes_stand_after_the_name_and_unknown_ones_are_a_question_mark() -> None:
    graph = sample()
    lines = print_graph(graph, dtypes=infer_dtypes(graph, {"data": F32})).splitlines()
    assert lines[:4] == [
        "data: float32",
        "down: bfloat16 = amp_cast(data)",
        "split: bfloat16 = SliceChannel(down)",
        "who: ? = mystery(split[1])",
    ]


def test_outputs_of_several_dtypes_are_all_shown() -> None:
    graph = Graph((Node("null", "x"), Node("topk", "t", {"ret_typ": "both"}, (Entry(0),), 2)), (Entry(1),))
    assert "t: bfloat16, float32 = topk(x)" in print_graph(graph, dtypes=infer_dtypes(graph, {"x": BF16}))


def test_bodies_are_indented_under_their_node() -> None:
    net = Net()
    inner = net.graph(net.op("exp", net.var("i"), name="e"))
    outer = Graph((Node("null", "x"), Node("_foreach", "f", {}, (Entry(0),), 1, (inner,))), (Entry(1),))
    assert print_graph(outer) == (
        "x\nf = _foreach(x)\n  body 0:\n    i\n    e = exp(i)\n    return e\nreturn f\n"
    )
