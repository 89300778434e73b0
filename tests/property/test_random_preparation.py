"""Random graphs with no-ops, duplicates and hard sigmoids: prepared, they compute what they did."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

mx = pytest.importorskip("mxnet", reason="graphs are executed before and after")

from mxamp.conversion import PREPARATIONS
from mxamp.graph import Entry, Graph, Node, verify_graph
from mxamp.graph.output_names import output_names
from mxamp.passes import PreparedNode
from mxamp.policy import Policy
from mxamp.runtime.symbol import symbol_from_graph
from mxamp.targets.fusion_defect import lost_branches
from tests.building import BF16, parameters
from tests.passes.preparing import prepare_graph
from tests.property.strategies import SHAPE, Sample, kept_params, samples

DATA = np.random.default_rng(5).uniform(-4, 4, SHAPE).astype(np.float32)

NO_OPS = ("Dropout", "BlockGrad", "cast there and back", "cast to itself")


@st.composite
def littered(draw: st.DrawFn) -> Sample:
    """Draw a graph and strew no-ops, copies of nodes and hard sigmoids over it."""
    sample = draw(samples(continuous=True, casts=False, most_nodes=10))
    nodes: list[Node] = []
    values: list[int] = []

    def add(op: str, *inputs: Entry, outputs: int = 1, **attrs: str) -> Entry:
        nodes.append(Node(op, f"extra{len(nodes)}", attrs, inputs, outputs))
        return Entry(len(nodes) - 1)

    def no_op(value: Entry) -> Entry:
        kind = draw(st.sampled_from(NO_OPS))
        if kind == "cast there and back":
            return add("Cast", add("Cast", value, dtype="float64"), dtype="float32")
        if kind == "cast to itself":
            return add("amp_cast", value, dtype="float32")
        return add(kind, value, outputs=2 if kind == "Dropout" else 1)

    for node in sample.graph.nodes:
        inputs = []
        for producer, output in node.inputs:
            value = Entry(values[producer], output)
            is_parameter = sample.graph.nodes[producer].is_variable
            if not is_parameter and not draw(st.integers(0, 4)):
                value = no_op(value)
            elif not is_parameter and not draw(st.integers(0, 5)):
                clip = add("clip", add("_plus_scalar", value, scalar="3"), a_min="0", a_max="6")
                value = add("elemwise_mul", value, add("_div_scalar", clip, scalar="6"))
            inputs.append(value)
        moved = node._replace(inputs=tuple(inputs))
        nodes.append(moved)
        values.append(len(nodes) - 1)
        if not node.is_variable and node.op != "BatchNorm" and not draw(st.integers(0, 3)):
            nodes.append(moved._replace(name=f"{node.name}_again"))
            values[-1] = len(nodes) - draw(st.integers(1, 2))
    heads = tuple(Entry(values[head.node], head.output) for head in sample.graph.heads)
    graph = Graph(tuple(nodes), heads, sample.graph.attrs)
    return Sample(graph, sample.params)


def reachable(sample: Sample) -> Sample:
    from tests.property.strategies import reachable

    return Sample(reachable(sample.graph), sample.params)


def run(graph: Graph, params: dict[str, np.ndarray]) -> list[np.ndarray]:
    symbol = symbol_from_graph(graph)
    arrays = {name: mx.nd.array(value) for name, value in {**params, "data": DATA}.items()}
    arguments = {name: arrays[name] for name in symbol.list_arguments()}
    states = {name: arrays[name] for name in symbol.list_auxiliary_states()}
    return [output.asnumpy() for output in symbol.bind(mx.cpu(), arguments, aux_states=states).forward()]


@given(sample=littered().map(reachable))
def test_prepared_graphs_compute_the_same(sample: Sample) -> None:
    params = kept_params(sample)
    preparation = prepare_graph(sample.graph, parameters(params), Policy.default(BF16))
    after = preparation.graph
    verify_graph(after)
    assert output_names(after) == output_names(sample.graph)
    assert list(after.variables) == list(sample.graph.variables)
    assert not lost_branches(after)
    names = {node.name for node in after.nodes}
    gone = [node.name for node in sample.graph.nodes if node.name not in names]
    reported = {change.node: change.into for change in preparation.record(PreparedNode)}
    assert all(reported[name] is not None for name in gone)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
        before, found = run(sample.graph, params), run(after, params)
    for one, other in zip(before, found):
        scale = max(1.0, float(np.abs(one).max(initial=0.0)))
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4 * scale)
    inexact = {"hard_sigmoid", "activations"}  # to FP32's own rounding
    if inexact.isdisjoint([change.step for change in preparation.record(PreparedNode)]):
        for one, other in zip(before, found):
            np.testing.assert_array_equal(other, one)


@given(sample=littered().map(reachable), step=st.sampled_from(PREPARATIONS))
def test_a_second_run_finds_nothing(sample: Sample, step: str) -> None:
    params = parameters(kept_params(sample))
    once = prepare_graph(sample.graph, params, Policy.default(BF16), [step]).graph
    assert prepare_graph(once, params, Policy.default(BF16), [step]).graph is once


@given(sample=littered().map(reachable))
def test_prepared_graphs_are_computed_alike_with_fusion_and_without(sample: Sample) -> None:
    params = kept_params(sample)
    after = prepare_graph(sample.graph, parameters(params), Policy.default(BF16)).graph
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for backend in ("NONE", "MKLDNN"):
            patch.setenv("MXNET_SUBGRAPH_BACKEND", backend)  # read at bind time
            found.append(run(after, params))
    for one, other in zip(*found):
        scale = max(1.0, float(np.abs(one).max(initial=0.0)))
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-3 * scale)
