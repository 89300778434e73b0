from __future__ import annotations

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

import mxamp.runtime.shapes
from mxamp.errors import DataError, UnknownNameError
from mxamp.graph import Entry, Graph, Node
from mxamp.params.parameter import ArrayParameter
from mxamp.runtime.shapes import infer_shapes
from mxamp.runtime.symbol import graph_from_symbol, symbol_from_graph

ATTRS = {"mxnet_version": ["int", 10901]}


def zeros(*shape):
    return ArrayParameter(np.zeros(shape, np.float32))


@pytest.fixture
def graph():
    x = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=4, name="conv")
    x = mx.sym.BatchNorm(x, name="bn")
    x = mx.sym.FullyConnected(x, num_hidden=3, name="fc")
    return graph_from_symbol(mx.sym.elemwise_add(x, mx.sym.var("other"), name="sum"))


def by_name(graph, shapes):
    return {node.name: outputs for node, outputs in zip(graph.nodes, shapes)}


def test_every_entry_gets_its_shape_in_the_order_of_the_graph(graph):
    shapes = infer_shapes(graph, {"data": (2, 3, 8, 8)}, {})
    assert len(shapes) == len(graph.nodes)
    found = by_name(graph, shapes)
    assert found["conv"] == ((2, 4, 6, 6),)
    assert found["conv_weight"] == ((4, 3, 3, 3),)
    assert found["fc"] == found["sum"] == ((2, 3),)


def test_hidden_outputs_have_a_place(graph):
    found = by_name(graph, infer_shapes(graph, {"data": (2, 3, 8, 8)}, {}))
    assert found["bn"] == ((2, 4, 6, 6), None, None)


def test_outputs_that_are_read_are_known():
    first, second = mx.sym.split(mx.sym.var("data"), num_outputs=2, axis=1, name="split")
    graph = graph_from_symbol(mx.sym.Group([mx.sym.relu(second, name="relu"), first]))
    found = by_name(graph, infer_shapes(graph, {"data": (2, 6)}, {}))
    assert found["split"] == ((2, 3), (2, 3))


def test_batchnorm_statistics_as_outputs_are_known():
    bn = mx.sym.BatchNorm(mx.sym.var("data"), output_mean_var=True, name="bn")
    graph = graph_from_symbol(bn)
    assert by_name(graph, infer_shapes(graph, {"data": (2, 6, 4, 4)}, {}))["bn"] == ((2, 6, 4, 4), (6,), (6,))


def test_what_cannot_be_known_is_none(graph):
    found = by_name(graph, infer_shapes(graph, {}, {"conv_weight": zeros(4, 3, 3, 3)}))
    assert found["conv_weight"] == ((4, 3, 3, 3),)
    assert found["data"] == found["conv"] == (None,)


def test_a_size_of_zero_is_unknown(graph):
    found = by_name(graph, infer_shapes(graph, {"data": (0, 3, 8, 8)}, {}))
    assert found["conv"] == (None,)
    assert found["conv_weight"] == ((4, 3, 3, 3),)


def test_parameters_tell_shapes_too():
    graph = graph_from_symbol(mx.sym.broadcast_mul(mx.sym.var("data"), mx.sym.var("scale"), name="mul"))
    shapes = infer_shapes(graph, {"data": (2, 3)}, {"scale": zeros(1, 3)})
    assert by_name(graph, shapes)["mul"] == ((2, 3),)


def test_repeated_node_names_keep_their_own_shapes():
    nodes = (
        Node("null", "data"),
        Node("transpose", "same", {"axes": "(1, 0)"}, (Entry(0),)),
        Node("Flatten", "same", {}, (Entry(1),)),
        Node("transpose", "same", {"axes": "(1, 0)"}, (Entry(2),)),
    )
    shapes = infer_shapes(Graph(nodes, (Entry(3),), ATTRS), {"data": (2, 5)}, {})
    assert shapes == [((2, 5),), ((5, 2),), ((5, 2),), ((2, 5),)]


def test_an_operator_may_be_called_what_a_parameter_is():
    weight = mx.sym.var("blur")
    x = mx.sym.Convolution(
        mx.sym.var("data"), weight, kernel=(3, 3), num_filter=4, num_group=4, no_bias=True, name="blur"
    )
    graph = graph_from_symbol(x)
    shapes = infer_shapes(graph, {"data": (1, 4, 8, 8)}, {"blur": zeros(4, 1, 3, 3)})
    assert shapes[graph.heads[0].node] == ((1, 4, 6, 6),)


def test_nodes_the_outputs_do_not_need_are_known_too():
    nodes = (
        Node("null", "data"),
        Node("Flatten", "dead", {}, (Entry(0),)),
        Node("relu", "live", {}, (Entry(0),)),
    )
    shapes = infer_shapes(Graph(nodes, (Entry(2),), ATTRS), {"data": (2, 3, 4)}, {})
    assert shapes == [((2, 3, 4),), ((2, 12),), ((2, 3, 4),)]


def test_output_count_from_a_damaged_file_reads_no_memory_it_should_not():
    nodes = (Node("null", "data"), Node("relu", "relu", {}, (Entry(0),), num_outputs=1000))
    shapes = infer_shapes(Graph(nodes, (Entry(1),), ATTRS), {"data": (2, 3)}, {})
    assert shapes[1] == ((2, 3), *[None] * 999)


def test_numpy_shape_semantics_know_scalars():
    nodes = (Node("null", "data"), Node("_np_sum", "sum", {"axis": "None", "keepdims": "False"}, (Entry(0),)))
    attrs = {**ATTRS, "is_np_shape": ["int", 1]}
    assert infer_shapes(Graph(nodes, (Entry(1),), attrs), {"data": (2, 3)}, {}) == [((2, 3),), ((),)]
    assert not mx.util.is_np_shape()


def test_a_chain_may_have_100000_nodes():
    length = 100_000
    nodes = [Node("null", "data")]
    nodes += [
        Node("Activation", f"relu{number}", {"act_type": "relu"}, (Entry(number),))
        for number in range(length)
    ]
    graph = Graph(tuple(nodes), (Entry(length),), ATTRS)
    assert infer_shapes(graph, {"data": (2, 3)}, {})[-1] == ((2, 3),)


def _several_outputs():
    first, second = mx.sym.split(mx.sym.var("data"), num_outputs=2, axis=1, name="split")
    return mx.sym.relu(first + second, name="relu")


def _names_that_repeat():
    x = mx.sym.relu(mx.sym.exp(mx.sym.var("data"), name="same"), name="same")
    return mx.sym.Group([x, mx.sym.BatchNorm(x, name="bn"), mx.sym.var("alone")])


def _a_name_that_begins_another():
    x = mx.sym.relu(mx.sym.var("data"), name="a")
    return mx.sym.sum(mx.sym.exp(x, name="a_b"), axis=1, name="a_b_output")


def _a_loop_with_a_state():
    outputs, states = mx.sym.contrib.foreach(
        lambda item, states: (item * 2, [states[0] + item]), mx.sym.var("data"), [mx.sym.var("state")]
    )
    return mx.sym.Group([outputs, *states])


@pytest.mark.parametrize(
    "build", [_several_outputs, _names_that_repeat, _a_name_that_begins_another, _a_loop_with_a_state]
)
def test_a_symbol_that_is_there_tells_the_same(build):
    sym = build()
    graph = graph_from_symbol(sym)
    given = {"data": (2, 6, 4, 4)}
    assert infer_shapes(graph, given, {}, sym=sym) == infer_shapes(graph, given, {})


def test_a_symbol_that_is_there_is_not_parsed_again(graph, monkeypatch):
    sym = symbol_from_graph(graph)
    expected = infer_shapes(graph, {"data": (2, 3, 8, 8)}, {})
    monkeypatch.setattr(mxamp.runtime.shapes, "symbol_from_graph", lambda _: pytest.fail("it was parsed"))
    assert infer_shapes(graph, {"data": (2, 3, 8, 8)}, {}, sym=sym) == expected


def test_a_symbol_of_another_graph_is_not_asked(graph):
    other = mx.sym.relu(mx.sym.relu(mx.sym.var("other"), name="sum"), name="conv")
    expected = infer_shapes(graph, {"data": (2, 3, 8, 8)}, {})
    assert infer_shapes(graph, {"data": (2, 3, 8, 8)}, {}, sym=other) == expected


def test_unknown_input_is_refused_with_the_nearest_name(graph):
    with pytest.raises(UnknownNameError, match=r"'dat', which is no input.* Did you mean 'data'\?"):
        infer_shapes(graph, {"dat": (2, 3, 8, 8)}, {})


def test_a_parameter_is_no_input(graph):
    with pytest.raises(UnknownNameError, match="'conv_weight', which is a parameter, whose shape is known"):
        infer_shapes(graph, {"conv_weight": (4, 3, 3, 3)}, {"conv_weight": zeros(4, 3, 3, 3)})


@pytest.mark.parametrize("shape", [3, "abc", (1, "x"), (-1, 3, 8, 8), (1.5, 2), None])
def test_what_is_no_shape_is_refused(graph, shape):
    with pytest.raises(DataError, match="shape of the input 'data' must be a sequence of sizes"):
        infer_shapes(graph, {"data": shape}, {})


@pytest.mark.parametrize(
    ("shapes", "params", "message"),
    [
        ({"data": (2, 3, 8)}, {}, r"node 'conv' \(Convolution\): Input data should be 4D"),
        ({"data": (2, 3, 1, 1)}, {}, r"node 'conv' \(Convolution\): kernel size exceed input"),
        ({"data": (2, 3, 8, 8), "other": (2, 9)}, {}, r"node 'sum' \(.*\): .*expected \[2,3\], got \[2,9\]"),
        (
            {"data": (2, 3, 8, 8)},
            {"conv_weight": zeros(4, 5, 3, 3)},
            r"node 'conv'.*inconsistent.*\[4,5,3,3\]",
        ),
    ],
)
def test_contradicting_shapes_name_the_node_and_mxnets_reason(graph, shapes, params, message):
    with pytest.raises(DataError, match=message) as caught:
        infer_shapes(graph, shapes, params)
    text = str(caught.value)
    assert "\n" not in text
    assert ".cc:" not in text
    assert f"data={shapes['data']}" in text


def test_the_inputs_that_nothing_was_given_for_are_named():
    symbol = mx.sym.CTCLoss(mx.sym.var("scores"), mx.sym.var("label"), name="ctc")
    with pytest.raises(DataError, match=r"node 'ctc' .*scores=\(20, 2, 5\), and nothing for 'label'\. Check"):
        infer_shapes(graph_from_symbol(symbol), {"scores": (20, 2, 5)}, {})
