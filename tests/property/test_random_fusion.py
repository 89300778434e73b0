"""Random graphs of what MXNet's oneDNN backend fuses: wrong where we say so, and right once guarded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

mx = pytest.importorskip("mxnet", reason="graphs are executed with fusion and without")

from mxamp.graph import Entry
from mxamp.graph.output_names import output_names
from mxamp.policy import Policy
from mxamp.runtime.symbol import symbol_from_graph
from mxamp.targets.fusion_defect import lost_branches
from tests.building import BF16, Net, parameters
from tests.passes.preparing import prepare_graph
from tests.property.strategies import SHAPE, Sample, reachable

DATA = np.random.default_rng(5).uniform(-2, 2, SHAPE).astype(np.float32)

TAKEN = {
    "relu": ("Activation", {"act_type": "relu"}),
    "tanh": ("Activation", {"act_type": "tanh"}),
    "clip": ("clip", {"a_min": "0", "a_max": "6"}),
    "leaky": ("LeakyReLU", {"act_type": "leaky", "slope": "0.1"}),
    "elu": ("LeakyReLU", {"act_type": "elu", "slope": "0.25"}),
    "abs": ("abs", {}),
    "sin": ("sin", {}),
}


@st.composite
def fusable(draw: st.DrawFn) -> Sample:
    """Draw layers, activations and sums, whose values are read once, twice, or returned."""
    net = Net()
    values = [net.var("data")]

    def pick() -> Entry:
        return draw(st.sampled_from(values[-4:]))

    for number in range(draw(st.integers(2, 9))):
        kind = draw(st.sampled_from(["conv", "conv", "dense", "norm", "sum", "sum", "one", "one"]))
        if kind == "conv":
            values.append(net.conv(pick(), f"conv{number}"))
        elif kind == "dense":
            weight = net.param(f"weight{number}", 4, 4)
            values.append(net.op("FullyConnected", pick(), weight, num_hidden=4, no_bias=True, flatten=False))
        elif kind == "norm":
            values.append(net.bn(pick(), f"norm{number}"))
        elif kind == "sum":
            values.append(net.op("elemwise_add", pick(), pick()))
        else:
            op, attrs = TAKEN[draw(st.sampled_from(sorted(TAKEN)))]
            values.append(net.op(op, pick(), **attrs))
    # A variable that is an output as well is none of the backend's business.
    heads = {values[-1], *draw(st.lists(st.sampled_from(values[1:]), max_size=1))}
    return Sample(reachable(net.graph(*sorted(heads))), net.params)


def run(sample: Sample, backend: str) -> list[np.ndarray]:
    symbol = symbol_from_graph(sample.graph)
    arrays = {name: mx.nd.array(value) for name, value in {**sample.params, "data": DATA}.items()}
    arguments = {name: arrays[name] for name in symbol.list_arguments()}
    states = {name: arrays[name] for name in symbol.list_auxiliary_states()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXNET_SUBGRAPH_BACKEND", backend)  # read at bind time
        executor = symbol.bind(mx.cpu(), arguments, aux_states=states)
        return [output.asnumpy() for output in executor.forward()]


def assert_alike(sample: Sample) -> None:
    for one, other in zip(run(sample, "NONE"), run(sample, "MKLDNN")):
        scale = max(1.0, float(np.abs(one).max(initial=0.0)))
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4 * scale)


@given(sample=fusable())
def test_fusion_is_right_where_nothing_is_lost_and_once_guarded(sample: Sample) -> None:
    if not lost_branches(sample.graph):
        assert_alike(sample)
    guarded = prepare_graph(sample.graph, parameters(sample.params), Policy.default(BF16), ["keep_branches"])
    assert not lost_branches(guarded.graph)
    assert output_names(guarded.graph) == output_names(sample.graph)
    assert_alike(Sample(guarded.graph, sample.params))
