"""Graphs on which MXNet ends the process never reach it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mxamp.errors import GraphError, MxampError
from mxamp.graph import parse_symbol

mx = pytest.importorskip("mxnet", reason="asks MXNet for the inputs of operators")

from mxamp.runtime.arity import check_arity
from mxamp.runtime.symbol import graph_from_symbol, symbol_from_graph

ATTRS = {"mxnet_version": ["int", 10901]}


def symbol_text(op, inputs, head=0, attrs=None, **rest):
    nodes = [{"op": "null", "name": f"v{number}", "inputs": []} for number in range(max(inputs, 1))]
    reads = [[number, 0, 0] for number in range(inputs)]
    nodes.append({"op": op, "name": "n", "attrs": attrs or {}, "inputs": reads, **rest})
    return json.dumps({"nodes": nodes, "heads": [[len(nodes) - 1, head, 0]], "attrs": ATTRS})


DEADLY = {
    "an output that is not there": symbol_text("Activation", 1, 7, {"act_type": "tanh"}),
    "an output of clip": symbol_text("clip", 1, 1, {"a_min": "0", "a_max": "1"}),
    "inputs missing": symbol_text("SequenceMask", 0, 0, {"use_sequence_length": "True"}),
    "copy of nothing": symbol_text("_copyto", 0),
    "training": symbol_text("_backward_BatchNorm_v1", 0),
    "an address": symbol_text("_Native", 2, 0, {"info": "2"}),
    "what a backend fused, without its subgraph": symbol_text("_sg_mkldnn_fully_connected", 2),
}

_LOADS = """
import sys, mxnet as mx
symbol = mx.sym.load_json(sys.stdin.read())
symbol.list_outputs()
symbol.get_internals().list_outputs()
symbol.infer_type_partial()
symbol.infer_shape_partial(v0=(1, 3, 8, 8))
"""


@pytest.mark.parametrize("text", DEADLY.values(), ids=DEADLY)
def test_a_graph_that_kills_mxnet_is_refused_at_its_door(text):
    with pytest.raises(GraphError, match=r"node 'n'.*Export the model again"):
        symbol_from_graph(parse_symbol(text))


@pytest.mark.slow
@pytest.mark.parametrize("text", DEADLY.values(), ids=DEADLY)
def test_such_a_graph_does_kill_mxnet_or_makes_it_err(text):
    done = subprocess.run(
        [sys.executable, "-c", _LOADS], input=text, text=True, capture_output=True, check=False
    )
    assert done.returncode != 0


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("FullyConnected", 2, {"num_hidden": "3"}),
        ("FullyConnected", 3, {"num_hidden": "3", "no_bias": "True"}),
        ("Concat", 2, {"num_args": "3"}),
        ("elemwise_add", 1, {}),
        ("elemwise_add", 3, {}),
    ],
)
def test_a_wrong_number_of_inputs_is_refused(op, inputs, attrs):
    with pytest.raises(GraphError, match=rf"reads {inputs} entries.*the operator has \d inputs"):
        check_arity(parse_symbol(symbol_text(op, inputs, attrs=attrs)))


@pytest.mark.parametrize("subgraphs", [None, [], [{"nodes": [], "heads": []}] * 2], ids=["no", "none", "two"])
def test_a_rounding_without_its_one_subgraph_is_refused(subgraphs):
    rest = {} if subgraphs is None else {"subgraphs": subgraphs}
    with pytest.raises(MxampError, match=r"node 'n'|subgraphs"):
        check_arity(
            parse_symbol(symbol_text("_mxamp_round_both_ways", 1, attrs={"format": "float16"}, **rest))
        )


def test_a_rounding_with_an_input_too_many_is_refused():
    body = json.loads(symbol_text("_copy", 1))
    text = symbol_text("_mxamp_round_both_ways", 2, attrs={"format": "float16"}, subgraphs=[body])
    with pytest.raises(GraphError, match="reads 2 entries"):
        check_arity(parse_symbol(text))


def test_missing_inputs_in_the_file_of_an_old_version_are_left_to_mxnet_which_adds_them():
    text = symbol_text("BatchNorm", 3).replace('"mxnet_version": ["int", 10901]', "")
    check_arity(parse_symbol(text))
    assert len(symbol_from_graph(parse_symbol(text)).list_inputs()) >= 3


def test_an_operator_that_mxnet_does_not_know_is_left_to_its_own_message():
    with pytest.raises(MxampError, match=r"does not accept the graph.*library"):
        symbol_from_graph(parse_symbol(symbol_text("nobody_knows_this", 1)))


def loops():
    def step(data, states):
        return data + states[0], [data * states[0]]

    data, state = mx.sym.var("data"), mx.sym.var("state")
    outputs, states = mx.sym.contrib.foreach(step, data, [state])
    outputs, _ = mx.sym.contrib.while_loop(
        lambda x, y: mx.sym.sum(x) < 10, lambda x, y: (x, [x + y, y]), [outputs, states[0]], max_iterations=3
    )
    chosen = mx.sym.contrib.cond(mx.sym.sum(data) > 0, lambda: outputs[0] * 2, lambda: outputs[0])
    return mx.sym.Group([chosen, outputs])


def various():
    data = mx.sym.var("data")
    split = mx.sym.split(data, num_outputs=3, axis=1)
    both = mx.sym.topk(split[2], k=2, ret_typ="both")
    norm = mx.sym.BatchNorm(data, output_mean_var=True)
    cast = mx.sym.amp_multicast(data, split[1], num_outputs=2)
    return mx.sym.Group([both[1], norm[1], mx.sym.add_n(*cast), mx.sym.LeakyReLU(data, act_type="prelu")])


def fused():
    data = mx.sym.Activation(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4), act_type="relu")
    return data.get_backend_symbol("MKLDNN_QUANTIZE")


@pytest.mark.parametrize("make", [loops, various, fused])
def test_what_mxnet_makes_passes(make):
    symbol = make()
    graph = graph_from_symbol(symbol)
    check_arity(graph)
    assert symbol_from_graph(graph).list_outputs() == symbol.list_outputs()


def test_a_loop_with_an_input_too_few_is_refused():
    document = json.loads(graph_text())
    loop = next(node for node in document["nodes"] if node["op"] == "_foreach")
    loop["inputs"].pop()
    with pytest.raises(MxampError, match="_foreach"):
        check_arity(parse_symbol(json.dumps(document)))


def graph_text():
    return loops().tojson(remove_amp_cast=False)
