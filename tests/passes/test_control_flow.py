"""Loops and branches are converted inside; what crosses their boundary keeps its dtype."""

from __future__ import annotations

from typing import Any

import pytest

mx = pytest.importorskip("mxnet", reason="the loops are built and bound with MXNet")

import numpy as np

from mxamp.dtypes import DType
from mxamp.graph import Graph, verify_graph
from mxamp.graph.control_flow import body_inputs, graphs_within
from mxamp.graph.infer import check_dtypes, infer_dtypes
from mxamp.model import Model
from mxamp.policy import Policy
from mxamp.runtime.symbol import graph_from_symbol, symbol_from_graph
from mxamp.targets import Target
from tests import building
from tests.building import BF16, F32, capable, casts, parameters, variables_of

S = mx.sym


def layer(data: Any, weight: Any, name: str = "fc") -> Any:
    return S.FullyConnected(data, weight, num_hidden=4, no_bias=True, name=name)


def foreach(*, exact_weight: bool = False, weight_is_head: bool = False) -> Any:
    weight = S.var("w")

    def body(data: Any, state: Any) -> Any:
        out = layer(data, weight) + state
        if exact_weight:
            out = S.broadcast_add(out, S.sum(S.exp(weight), axis=0, keepdims=True))
        return out, S.tanh(out)

    out, state = S.contrib.foreach(body, S.var("x"), S.var("s"), name="loop")
    heads = [out, state]
    if weight_is_head:
        heads.append(S.exp(weight, name="outside"))
    return S.Group(heads)


def while_loop() -> Any:
    weight = S.var("w")

    def step(count: Any, state: Any) -> Any:
        new = layer(state, weight)
        return new * 2, [count + 1, new]

    # As many steps as there may be: MXNet leaves the rows of steps that are not taken uninitialised.
    out, states = S.contrib.while_loop(
        lambda count, state: count < 3, step, [S.var("i"), S.var("s")], max_iterations=3
    )
    return S.Group([*out, *states] if isinstance(out, list) else [out, *states])


def cond() -> Any:
    state, weight = S.var("s"), S.var("w")
    return S.contrib.cond(S.var("p") < 1, lambda: layer(state, weight), lambda: S.exp(state))


SHAPES = {"x": (3, 2, 4), "s": (2, 4), "w": (4, 4), "i": (1,), "p": (1,)}
BUILDERS = {"foreach": foreach, "while_loop": while_loop, "cond": cond}


def values(graph: Graph) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(7)
    return {
        name: np.zeros(SHAPES[name], np.float32)
        if name in "ip"
        else rng.uniform(-0.5, 0.5, SHAPES[name]).astype(np.float32)
        for name in graph.variables
    }


def converted(symbol: Any, **options: Any) -> tuple[Graph, Model]:
    graph = graph_from_symbol(symbol)
    weights = parameters({name: value for name, value in values(graph).items() if name == "w"})
    model = building.converted(
        graph, weights, {}, policy=Policy.default(BF16), target=capable(BF16), **options
    )
    check_everywhere(model)
    return graph, model


def check_everywhere(model: Model) -> None:
    """Check the graph and every body in it, with the dtypes that cross the boundaries."""
    verify_graph(model.graph)
    pending = [(model.graph, variables_of(model))]
    for graph, variables in pending:
        found = infer_dtypes(graph, variables)
        check_dtypes(graph, found)
        for node in graph.nodes:
            for number, body in enumerate(node.subgraphs):
                outer = {name: node.inputs[place] for name, place in body_inputs(node, number).items()}
                inside = {name: found[entry.node][entry.output] for name, entry in outer.items()}
                pending.append((body, {name: dtype for name, dtype in inside.items() if dtype is not None}))


@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
@pytest.mark.filterwarnings("ignore:The target cpu-bf16-emulated", "ignore:Nothing was converted")
def test_bodies_stay_float32_where_low_precision_is_only_emulated(build: Any) -> None:
    target = Target.builtin("cpu-bf16-emulated")
    graph = graph_from_symbol(build())
    weights = parameters({name: value for name, value in values(graph).items() if name == "w"})
    model = building.converted(graph, weights, {}, policy=Policy.default(BF16), target=target)
    assert not any(casts(body) for body in graphs_within(model.graph))


def run(symbol: Any, arrays: Any) -> list[Any]:
    executor = symbol.bind(mx.cpu(), {name: arrays[name] for name in symbol.list_arguments()})
    return [output.asnumpy() for output in executor.forward()]


def body_of(graph: Graph, number: int = 0) -> Graph:
    (node,) = [node for node in graph.nodes if node.subgraphs]
    return node.subgraphs[number]


@pytest.mark.parametrize("name", BUILDERS)
def test_layers_inside_compute_low_and_outputs_stay_fp32(name: str) -> None:
    _, model = converted(BUILDERS[name]())
    layers = [
        node for graph in graphs_within(model.graph) for node in graph.nodes if node.op == "FullyConnected"
    ]
    assert layers
    assert model.report is not None
    inside = [node for node in model.report.nodes if "/" in node.name and node.op == "FullyConnected"]
    assert [node.compute for node in inside] == ["bfloat16"]
    assert set(model.report.outputs.values()) == {"float32"}


@pytest.mark.parametrize("name", BUILDERS)
def test_loops_run_and_agree_with_fp32(name: str) -> None:
    symbol = BUILDERS[name]()
    graph, model = converted(symbol)
    arrays = values(graph)
    expected = run(symbol, {key: mx.nd.array(value) for key, value in arrays.items()})
    found = run(model.sym, {**{key: mx.nd.array(value) for key, value in arrays.items()}, **model.args})
    for one, other in zip(expected, found):
        assert other.dtype == np.float32
        np.testing.assert_allclose(other, one, rtol=0.05, atol=0.02)


def test_an_invariant_weight_crosses_the_boundary_low() -> None:
    _, model = converted(foreach())
    assert model.arg_params["w"].dtype is BF16
    assert [cast for cast in casts(body_of(model.graph)) if cast.startswith("w ")] == []


def test_an_invariant_weight_whose_readers_disagree_crosses_in_fp32() -> None:
    _, model = converted(foreach(exact_weight=True))
    assert model.arg_params["w"].dtype is F32
    assert "w -> bfloat16" in casts(body_of(model.graph))


def test_a_weight_read_inside_low_and_outside_in_fp32_is_stored_twice() -> None:
    _, model = converted(foreach(weight_is_head=True))
    assert {name: value.dtype for name, value in model.arg_params.items()} == {"w": F32, "w_bfloat16": BF16}


def test_the_state_of_a_loop_keeps_its_dtype() -> None:
    _, model = converted(foreach())
    body = body_of(model.graph)
    state = [name for name in body.variables if name.startswith("s")]
    inside = infer_dtypes(body, {**dict.fromkeys(body.variables, F32), "w": BF16})
    assert [inside[head.node][head.output] for head in body.heads] == [F32, F32]
    assert all(inside[body.variables[name]] == (F32,) for name in state)


def test_the_condition_of_a_loop_is_exact() -> None:
    _, model = converted(while_loop())
    assert casts(body_of(model.graph, 0)) == []


def test_a_converted_loop_converts_to_itself() -> None:
    for build in BUILDERS.values():
        _, model = converted(build())
        again = building.converted(
            model.graph, model.arg_params, {}, policy=Policy.default(BF16), target=capable(BF16)
        )
        assert again.graph is model.graph
        check_everywhere(again)


def test_excluding_a_layer_by_name_reaches_into_the_body() -> None:
    graph = graph_from_symbol(foreach())
    policy = Policy.default(BF16).excluding(names=["fc"])
    model = building.converted(
        graph, parameters({"w": values(graph)["w"]}), {}, policy=policy, target=capable(BF16)
    )
    assert model.graph is graph


def test_mxnet_infers_the_dtypes_we_expect_inside() -> None:
    _, model = converted(foreach())
    symbol = symbol_from_graph(model.graph)
    types, outputs, _ = symbol.infer_type(x="float32", s="float32")
    assert dict(zip(symbol.list_arguments(), types))["x"] is np.float32
    assert all(np.dtype(kind) == DType.FLOAT32.numpy for kind in outputs)
