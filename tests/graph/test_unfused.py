"""What was fused for oneDNN is taken apart again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph, Node, parse_symbol, verify_graph
from mxamp.graph.unfused import unfused

FUSED = "_sg_mkldnn_fully_connected"


def body(*inputs: str) -> Graph:
    """Return a layer and its activation, as a fused node holds them."""
    variables = [Node("null", f"{name}0") for name in inputs]
    layer = Node(
        *("FullyConnected", "layer", {"num_hidden": "4", "no_bias": "True"}),
        tuple(map(Entry, range(len(inputs)))),
    )
    act = Node("Activation", "act", {"act_type": "relu"}, (Entry(len(inputs)),))
    return Graph((*variables, layer, act), (Entry(len(inputs) + 1),))


def fused_graph(inner: Graph, *, is_head: bool = False, op: str = FUSED, **attrs: str) -> Graph:
    variables = [Node("null", name) for name in ("data", "weight")]
    fused = Node(op, "fused", attrs, (Entry(0), Entry(1)), subgraphs=(inner,))
    behind = Node("Flatten", "flat", {}, (Entry(2),))
    nodes = (*variables, fused) if is_head else (*variables, fused, behind)
    return Graph(nodes, (Entry(len(nodes) - 1),), {"mxnet_version": ["int", 10901]})


def test_a_fused_node_is_what_it_was_made_of() -> None:
    graph = fused_graph(body("data", "weight"))
    after, layers = unfused(graph)
    verify_graph(after)
    assert layers == ("fused",)
    assert [(node.op, node.name) for node in after.nodes] == [
        ("null", "data"),
        ("null", "weight"),
        ("FullyConnected", "layer"),
        ("Activation", "act"),
        ("Flatten", "flat"),
    ]
    assert after.nodes[2].inputs == (Entry(0), Entry(1))
    assert after.attrs == graph.attrs


def test_an_output_keeps_its_name() -> None:
    after, _ = unfused(fused_graph(body("data", "weight"), is_head=True))
    assert [node.name for node in after.nodes if node.op == "Activation"] == ["fused"]
    assert after.heads == (Entry(3),)


def test_names_that_are_taken_are_changed() -> None:
    inner = body("data", "weight")
    graph = fused_graph(inner)
    outer = [node._replace(name="act") if node.op == "Flatten" else node for node in graph.nodes]
    after, _ = unfused(Graph(tuple(outer), graph.heads, graph.attrs))
    verify_graph(after)
    assert [node.name for node in after.nodes if not node.is_variable] == ["layer", "act_1", "act"]


@pytest.mark.parametrize(
    "graph",
    [
        fused_graph(body("data", "weight"), quantized="true"),
        fused_graph(body("data", "weight", "bias")),
        fused_graph(body("data", "weight"), op="their_fused_operator"),
    ],
    ids=["quantized", "more is read inside", "unknown"],
)
def test_what_computes_something_else_stays(graph: Graph) -> None:
    assert unfused(graph) == (graph, ())
    assert unfused(graph).graph is graph


def fused_by_mxnet(mx: Any) -> tuple[Any, Any]:
    """Return a network of all that MXNet fuses, before and after."""
    data = mx.sym.var("data")
    x = mx.sym.Convolution(data, num_filter=8, kernel=(3, 3), pad=(1, 1), no_bias=True, name="first")
    x = mx.sym.Activation(mx.sym.BatchNorm(x, name="norm", fix_gamma=False), act_type="relu", name="act")
    y = mx.sym.Convolution(x, num_filter=8, kernel=(1, 1), name="second")
    y = mx.sym.Activation(x + y, act_type="relu", name="sum")
    z = mx.sym.Activation(mx.sym.FullyConnected(y, num_hidden=12, name="dense"), act_type="relu", name="top")
    steps = mx.sym.reshape(z, shape=(-1, 1, 12))
    weights = mx.sym.softmax(mx.sym.contrib.interleaved_matmul_selfatt_qk(steps, heads=2))
    attended = mx.sym.contrib.interleaved_matmul_selfatt_valatt(steps, weights, heads=2, name="attended")
    sym = mx.sym.Group([attended, y])
    return sym, sym.get_backend_symbol("MKLDNN")


def test_what_mxnet_fuses_computes_what_it_did_before() -> None:
    mx = pytest.importorskip("mxnet", reason="it fuses")
    if not mx.runtime.Features().is_enabled("MKLDNN"):
        pytest.skip("this MXNet has no oneDNN, for which it fuses")
    from mxamp.runtime.symbol import symbol_from_graph

    sym, fused = fused_by_mxnet(mx)
    before = parse_symbol(fused.tojson())
    after, layers = unfused(before)
    verify_graph(after)
    assert len(layers) == 5
    plain = parse_symbol(sym.tojson())
    assert sorted(node.op for node in after.nodes) == sorted(node.op for node in plain.nodes)
    shapes, _, aux_shapes = sym.infer_shape(data=(2, 3, 4, 4))
    random = np.random.RandomState(0)
    arrays = {
        name: mx.nd.array(random.uniform(0.1, 1, shape))
        for name, shape in zip((*sym.list_arguments(), *sym.list_auxiliary_states()), (*shapes, *aux_shapes))
    }
    expected, found = (
        [output.asnumpy() for output in executor_of(one, arrays).forward()]
        for one in (sym, symbol_from_graph(after))
    )
    for one, other in zip(expected, found):
        np.testing.assert_array_equal(one, other)


def executor_of(sym: Any, arrays: Any) -> Any:
    import mxnet as mx

    own = (sym.list_arguments(), sym.list_auxiliary_states())
    args, auxs = ({name: arrays[name] for name in names} for names in own)
    return sym.bind(mx.cpu(), args, aux_states=auxs)
