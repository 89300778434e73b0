"""Every node of a bound model is timed under the name that it has in the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

mx = pytest.importorskip("mxnet", reason="it binds models")

from mxamp.model import Model
from mxamp.profile.observation import with_positions_as_names
from mxamp.runtime.node_times import NodeClock, backend_nodes, time_nodes, undisturbed
from tests.building import Net


def network() -> Model:
    """Return a Convolution, BatchNorm and relu that are fused, and a split with two outputs that is not."""
    net = Net()
    fused = net.bn(net.conv(net.var("data"), "conv0"), "bn0")
    relu = net.op("Activation", fused, name="relu0", act_type="relu")
    split = net.op("SliceChannel", relu, name="halves", outputs=2, num_outputs=2, axis=1)
    head = net.op("Concat", split, split._replace(output=1), name="joined", dim=1, num_args=2)
    graph = with_positions_as_names(net.graph(net.op("exp", head, name="exp0")))
    auxs = {name: net.params.pop(name) for name in ("bn0_moving_mean", "bn0_moving_var")}
    return Model.of(graph, net.params, auxs)


def test_the_backend_says_what_it_fuses() -> None:
    model = network()
    position = {node.op: node.name for node in model.graph.nodes if not node.is_variable}
    fused, *others = backend_nodes(model.sym)
    assert fused.op == "_sg_mkldnn_conv"
    assert fused.members == tuple(position[op] for op in ("Convolution", "BatchNorm", "Activation"))
    # The others are themselves, in the order in which they run.
    assert others == [(position[op], op, (position[op],)) for op in ("SliceChannel", "Concat", "exp")]


def test_every_node_that_runs_is_timed_once_a_pass() -> None:
    model = network()
    data = {"data": np.zeros((1, 4, 5, 5), np.float32)}
    first, second = time_nodes([model, model], data, ctx="cpu", seconds=0.001, rounds=7)
    fused, *others = backend_nodes(model.sym)
    assert (
        set(first["microseconds"]) == set(second["microseconds"]) == {fused.name, *(n.name for n in others)}
    )
    assert first["fused"] == {fused.name: list(fused.members)}
    assert all(time > 0 for time in first["microseconds"].values())
    assert 5 <= first["rounds"] <= 7


@pytest.mark.parametrize(
    ("output", "node"),
    [("n3_output", "n3"), ("n3_output1", "n3"), ("sg_conv_0_output", "sg_conv_0"), ("other_x", "other_x")],
)
def test_outputs_are_of_the_node_with_the_longest_name_that_fits(output: str, node: str) -> None:
    class Bound:
        executor: Any = network().sym.simple_bind(mx.cpu(), data=(1, 4, 5, 5))

    assert NodeClock(Bound(), ["n3", "sg_conv_0", "sg"]).node_of(output.encode()) == node


@given(
    times=st.lists(st.floats(0.5, 1e4), min_size=1, max_size=30),
    share=st.floats(0.01, 1.5),
)
def test_nodes_that_nobody_watches_take_what_the_whole_takes(times: list[float], share: float) -> None:
    watched = {f"n{number}": time for number, time in enumerate(times)}
    whole = share * sum(times)
    found = undisturbed(watched, whole)
    assert list(found) == list(watched)
    lost = [watched[node] - found[node] for node in watched]
    assert min(lost) >= 0
    assert all(found[node] >= 0.3 * watched[node] for node in watched)
    if share >= 1:
        assert found == watched
    elif share > 0.31:
        assert sum(found.values()) == pytest.approx(whole, rel=1e-6)
        # What keeps more than the least has lost the same.
        free = [own for node, own in zip(watched, lost) if found[node] > 0.301 * watched[node]]
        assert max(free) - min(free) <= 1e-6 * max(times)
    else:
        assert sum(found.values()) <= 0.32 * sum(times)


def test_nothing_is_timed_of_no_nodes() -> None:
    assert undisturbed({}, 1.0) == {}
