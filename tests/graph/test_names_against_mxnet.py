"""Names and orders of inputs and outputs are those MXNet derives, and MXNet reads what we write."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="names, orders and texts are compared with MXNet's own")

from mxamp.graph import Graph, parse_symbol, verify_graph, write_symbol
from mxamp.graph.control_flow import body_inputs, graphs_within, invariant_inputs
from mxamp.graph.infer import check_dtypes, infer_dtypes, variable_dtypes
from mxamp.graph.output_names import output_names
from mxamp.runtime.symbol import building_symbol, graph_from_symbol

S = mx.sym
Build = Callable[[Any], Any]


def foreach() -> Any:
    weight = S.var("w")

    def body(data: Any, state: Any) -> Any:
        out = S.FullyConnected(data, weight, num_hidden=4, no_bias=True, name="fc") + state
        return out, S.tanh(out)

    out, state = S.contrib.foreach(body, S.var("x"), S.var("s"), name="loop")
    return S.Group([state, out])


def while_loop() -> Any:
    weight = S.var("w")

    def step(count: Any, state: Any) -> Any:
        return S.FullyConnected(state, weight, num_hidden=4, no_bias=True), [count + 1, state * 2]

    out, states = S.contrib.while_loop(
        lambda count, state: count < 5, step, [S.var("i"), S.var("s")], max_iterations=6
    )
    return S.Group([*out, *states] if isinstance(out, list) else [out, *states])


def cond() -> Any:
    state, weight = S.var("s"), S.var("w")
    return S.contrib.cond(
        S.var("p") < 1,
        lambda: S.FullyConnected(state, weight, num_hidden=4, no_bias=True),
        lambda: S.exp(state),
    )


def nested_loops() -> Any:
    def inner(data: Any, state: Any) -> Any:
        out = data * state
        return out, out

    def outer(data: Any, state: Any) -> Any:
        out, last = S.contrib.foreach(inner, data, state, name="inner")
        return out, last + 1

    out, state = S.contrib.foreach(outer, S.var("x"), S.var("s"), name="outer")
    return S.Group([out, state])


def group() -> Any:
    a = S.var("a")
    return S.Group([S.var("b") + a, S.var("c"), a])


def order() -> Any:
    a = S.var("a")
    return S.broadcast_add(S.var("c") * (S.var("b") - a), a / S.var("d"))


CONTROL_FLOW = {"foreach": foreach, "while_loop": while_loop, "cond": cond, "nested": nested_loops}

MODELS: dict[str, Build | Callable[[], Any]] = {
    "variable": lambda: S.var("x"),
    "chain": lambda: S.exp(S.log(S.var("x")), name="e"),
    "split": lambda: S.split(S.var("x"), num_outputs=3, name="sp"),
    "one split": lambda: S.split(S.var("x"), num_outputs=3, name="sp")[1],
    "split in one": lambda: S.split(S.var("x"), num_outputs=1, name="sp"),
    "split_v2": lambda: S.split_v2(S.var("x"), 2, axis=1),
    "batch norm": lambda: S.BatchNorm(S.var("x"), name="bn"),
    "batch norm with statistics": lambda: S.BatchNorm(S.var("x"), name="bn", output_mean_var=True),
    "layer norm with statistics": lambda: S.LayerNorm(S.var("x"), name="ln", output_mean_var=True),
    "dropout": lambda: S.Dropout(S.var("x"), name="drop"),
    "topk": lambda: S.topk(S.var("x"), ret_typ="both", name="top"),
    "sort": lambda: S.sort(S.var("x"), name="sorted"),
    "pooling": lambda: S.Pooling(S.var("x"), kernel=(2, 2), name="pool"),
    "rnn": lambda: S.RNN(
        *(S.var("x"), S.var("p"), S.var("h"), S.var("c")),
        **{"state_size": 4, "num_layers": 1, "mode": "lstm", "state_outputs": True, "name": "rnn"},
    ),
    "box nms": lambda: S.contrib.box_nms(S.var("x"), name="nms"),
    "proposal": lambda: S.contrib.Proposal(
        S.var("c"), S.var("b"), S.var("i"), output_score=True, name="proposal"
    ),
    "moments": lambda: S.moments(S.var("x"), axes=(1,), name="mom"),
    "group": group,
    "order": order,
    "attributes": lambda: S.var("x", shape=(0, 3), dtype="float16", lr_mult=0.1) + 1,
    "amp": lambda: S.amp_multicast(S.var("x"), S.var("y"), num_outputs=2, name="multi"),
    **CONTROL_FLOW,
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> tuple[Any, Graph]:
    symbol = MODELS[request.param]()
    return symbol, graph_from_symbol(symbol)


def test_inputs_are_listed_as_mxnet_lists_them(model: tuple[Any, Graph]) -> None:
    symbol, graph = model
    assert [graph.nodes[position].name for position in graph.input_order()] == symbol.list_inputs()


def test_outputs_are_named_as_mxnet_names_them(model: tuple[Any, Graph]) -> None:
    symbol, graph = model
    assert list(output_names(graph)) == symbol.list_outputs()


def test_mxnet_reads_what_we_write_as_what_it_wrote(model: tuple[Any, Graph]) -> None:
    symbol, graph = model
    verify_graph(graph)
    written = symbol.tojson(remove_amp_cast=False)
    for text in (write_symbol(graph), write_symbol(graph, compact=True)):
        assert mx.sym.load_json(text).tojson(remove_amp_cast=False) == written
    for beside in (False, True):
        assert building_symbol(graph, beside=beside)().tojson(remove_amp_cast=False) == written
    assert parse_symbol(write_symbol(graph)) == graph


@pytest.mark.parametrize("name", CONTROL_FLOW)
def test_dtypes_of_loops_are_those_mxnet_infers(name: str) -> None:
    symbol = CONTROL_FLOW[name]()
    graph = graph_from_symbol(symbol)
    known = variable_dtypes(graph, {})
    _, expected, _ = symbol.infer_type(**dict.fromkeys(symbol.list_inputs(), "float32"))
    found = infer_dtypes(graph, known)
    check_dtypes(graph, found)
    dtypes = [found[head.node][head.output] for head in graph.heads]
    assert [dtype.numpy for dtype in dtypes if dtype is not None] == [np.dtype(t) for t in expected]


@pytest.mark.parametrize(
    ("name", "count", "invariant"),
    # x and s vary, w does not; i and s vary; a branch runs once; both loops carry x and s.
    [
        *(("foreach", 2, {"w"}), ("while_loop", 3, {"w"}), ("cond", 4, {"s", "w", "_lesser_scalar"})),
        ("nested", 3, set()),
    ],
)
def test_only_what_no_iteration_changes_is_invariant(name: str, count: int, invariant: set[str]) -> None:
    graph = graph_from_symbol(CONTROL_FLOW[name]())
    assert len(graphs_within(graph)) == count
    (node,) = [node for node in graph.nodes if node.subgraphs]
    outer = {
        graph.nodes[node.inputs[number].node].name.rstrip("0123456789") for number in invariant_inputs(node)
    }
    assert outer == invariant
    for number, body in enumerate(node.subgraphs):
        assert set(body_inputs(node, number)) == set(body.variables)
