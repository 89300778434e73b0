"""Maxima and minima with numbers behind a layer become a clip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import PreparedNode, RewriteBounds
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import operators, prepare_graph, prepared

CHANNELS = 16
RELU = ("Activation", {"act_type": "relu"})


def least(number: float) -> tuple[str, dict[str, Any]]:
    return ("_maximum_scalar", {"scalar": number})


def most(number: float) -> tuple[str, dict[str, Any]]:
    return ("_minimum_scalar", {"scalar": number})


def clip(low: float, high: float) -> tuple[str, dict[str, Any]]:
    return ("clip", {"a_min": low, "a_max": high})


class Layer(Net):
    """A layer that multiplies by one."""

    def __init__(self, *, norm: bool = False, kernel: str = "(1, 1)") -> None:
        super().__init__()
        places = kernel.count("1")
        ones = self.param("ones", CHANNELS, *(1,) * (1 + places), value=1.0)
        each = {"kernel": kernel, "num_filter": CHANNELS, "num_group": CHANNELS, "no_bias": True}
        self.last = self.op("Convolution", self.var("x", __dtype__="0"), ones, name="c", **each)
        if norm:
            self.last = self.bn(self.last, "norm")

    def behind(self, *steps: tuple[str, dict[str, Any]], source: Entry | None = None) -> Entry:
        last = self.last if source is None else source
        for number, (op, attrs) in enumerate(steps):
            last = self.op(op, last, name=f"step{number}", **attrs)
        return last


CHAINS = {
    "relu and a minimum": ((RELU, most(6)), 6.0),
    "a maximum and a minimum": ((least(0), most(6)), 6.0),
    "a minimum and a maximum": ((most(6), least(0)), 6.0),
    "relu, a minimum and a maximum": ((("relu", {}), most(6.5), least(0)), 6.5),
    "a clip between": ((clip(-1, 8), least(0), most(6)), 6.0),
    "a minimum above another": ((RELU, most(6), most(7)), 6.0),
}


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("case", CHAINS)
def test_bounds_are_a_clip(monkeypatch: pytest.MonkeyPatch, case: str, norm: bool) -> None:
    steps, high = CHAINS[case]
    net = Layer(norm=norm)
    graph = net.graph(net.behind(*steps))  # an output, whose name stays
    after, done = prepared(RewriteBounds, graph, net.params)
    last = f"step{len(steps) - 1}"
    source = "norm" if norm else "c"
    assert operators(after)[-1] == f"{last} = clip({source}) {{a_max: {high}, a_min: 0.0}}"
    assert {change.into for change in done.changes} == {last}
    assert len(done.changes) == len(steps)
    if norm:  # which is folded, and rounds
        return
    for batch in (1, 3):
        data = on_edges(batch, CHANNELS, 5, 7)
        given = parameters(net.params)
        (expected,) = outputs(monkeypatch, graph, given, {"x": data})
        numbers = ~np.isnan(data)
        for backend in ("NONE", "MKLDNN"):
            (found,) = outputs(monkeypatch, after, done.params, {"x": data}, backend)
            np.testing.assert_array_equal(found[numbers], expected[numbers])


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((RELU,), id="one bound"),
        pytest.param((RELU, least(0)), id="two below"),
        pytest.param((most(6), most(3)), id="two above"),
        pytest.param((least(-1), most(1)), id="another number below"),
        pytest.param((RELU, most(0)), id="one number"),
        pytest.param((RELU, most(-1)), id="one number, below"),
        pytest.param((RELU, most(float("inf"))), id="no bound above"),
        pytest.param((RELU, most(float("nan"))), id="not a number"),
        pytest.param((clip(0, 6),), id="a clip"),
        pytest.param((RELU, ("_plus_scalar", {"scalar": 1}), most(6)), id="a sum between"),
    ],
)
def test_others_stay(steps: Any) -> None:
    net = Layer()
    graph = net.graph(net.behind(*steps))
    assert prepared(RewriteBounds, graph, net.params)[0] is graph


def test_what_has_other_readers_stays() -> None:
    net = Layer()
    relu = net.behind(RELU)
    graph = net.graph(net.op("_minimum_scalar", relu, name="y", scalar=6), relu)
    assert prepared(RewriteBounds, graph, net.params)[0] is graph
    net = Layer()
    graph = net.graph(net.behind(RELU, most(6)), net.last)
    assert prepared(RewriteBounds, graph, net.params)[0] is graph


def test_without_a_layer_that_takes_a_clip_they_stay() -> None:
    net = Layer(kernel="(1,)")
    sequence = net.graph(net.behind(RELU, most(6)))
    assert prepared(RewriteBounds, sequence, net.params)[0] is sequence
    net = Layer()
    alone = net.graph(net.behind(RELU, most(6), source=net.var("y", __dtype__="0")))
    assert prepared(RewriteBounds, alone, net.params)[0] is alone


def test_two_chains_one_behind_the_other() -> None:
    net = Layer()
    first = net.behind(RELU, most(6))
    layer = net.conv(first, "second", CHANNELS)
    last = net.op("_minimum_scalar", net.op("relu", layer, name="relu"), name="y", scalar=6)
    after, _ = prepared(RewriteBounds, net.graph(last), net.params)
    assert [node.op for node in after.nodes if node.op != "null"] == ["Convolution", "clip"] * 2


def test_scaled_and_shifted_layers_take_a_clip() -> None:
    """As TensorFlow's MobileNets come: a layer, products and sums along its channels, and three bounds."""
    net = Layer()
    scaled = net.op("broadcast_mul", net.last, net.param("scale", CHANNELS, 1, 1, value=1.5))
    shifted = net.op("broadcast_add", scaled, net.param("shift", 1, CHANNELS, 1, 1, value=0.5))
    graph: Graph = net.graph(net.behind(RELU, most(6), least(0), source=shifted))
    done = prepare_graph(
        graph, parameters(net.params), Policy.default(BF16), target=Target.builtin("cpu-bf16")
    )
    assert [change.into for change in done.record(PreparedNode) if change.step == "bounds"] == ["step2"] * 3
    assert [node.op for node in done.graph.nodes if node.op != "null"] == ["Convolution", "BatchNorm", "clip"]
