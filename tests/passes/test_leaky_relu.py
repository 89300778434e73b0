"""A leaky relu that is spelled out becomes the operator."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import PreparedNode, RewriteLeakyReLU
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import operators, prepare_graph, prepared

CHANNELS = 16
SLOPES = np.linspace(-0.5, 1.5, CHANNELS, dtype=np.float32)


class Terms(Net):
    """The terms of a leaky relu of what a layer writes, which multiplies by one."""

    def __init__(self, filters: int = CHANNELS) -> None:
        super().__init__()
        self.filters = filters
        ones = self.param("ones", filters, 1, 1, 1, value=1.0)
        each = {"kernel": (1, 1), "num_filter": filters, "num_group": filters, "no_bias": True}
        self.x = self.op("Convolution", self.var("x", __dtype__="0"), ones, name="c", **each)

    def relu(self, entry: Entry, name: str = "positive") -> Entry:
        return self.op("Activation", entry, name=name, act_type="relu")

    def times(self, entry: Entry, number: float, name: str) -> Entry:
        return self.op("_mul_scalar", entry, name=name, scalar=number)

    def slopes(self, entry: Entry, *, sign: float = 1.0, name: str = "scaled") -> Entry:
        weight = self.param("slopes", self.filters, 1, 1)
        self.params["slopes"] = sign * np.resize(SLOPES, (self.filters, 1, 1))
        return self.op("broadcast_mul", entry, weight, name=name)

    def mirrored(self) -> Entry:
        return self.relu(self.op("negative", self.x, name="minus"), "mirrored")

    def magnitude(self) -> Entry:
        return self.op("elemwise_sub", self.x, self.op("abs", self.x, name="abs"), name="twice")

    def choice(self, comparison: str, first: Entry, second: Entry, number: float = 0.0) -> Entry:
        sign = self.op(comparison, self.x, name="sign", scalar=number)
        return self.op("where", sign, first, second, name="y")


OF_CHANNELS: dict[str, Callable[[Terms], Entry]] = {
    "the mirrored half": lambda n: n.op(
        "broadcast_add", n.relu(n.x), n.slopes(n.mirrored(), sign=-1.0), name="y"
    ),
    "less the mirrored half": lambda n: n.op(
        "elemwise_sub", n.op("relu", n.x, name="positive"), n.slopes(n.mirrored()), name="y"
    ),
    "the minimum": lambda n: n.op(
        "elemwise_add",
        n.slopes(n.op("_minimum_scalar", n.x, name="low", scalar=0)),
        n.relu(n.x),
        name="y",
    ),
    "half of x less its magnitude": lambda n: n.op(
        "broadcast_add", n.relu(n.x), n.times(n.slopes(n.magnitude()), 0.5, "half"), name="y"
    ),
    "divided by two": lambda n: n.op(
        "broadcast_add",
        n.slopes(n.op("_div_scalar", n.magnitude(), name="half", scalar=2)),
        n.relu(n.x),
        name="y",
    ),
}

OF_ONE_NUMBER: dict[str, Callable[[Terms], Entry]] = {
    "the larger": lambda n: n.op("_maximum", n.x, n.times(n.x, 0.1, "small"), name="y"),
    "the larger, turned round": lambda n: n.op(
        "broadcast_maximum", n.times(n.x, 0.1, "small"), n.x, name="y"
    ),
    "greater": lambda n: n.choice("_greater_scalar", n.x, n.times(n.x, 0.1, "small")),
    "lesser or equal": lambda n: n.choice("_lesser_equal_scalar", n.times(n.x, 0.1, "small"), n.x),
    "the mirrored half": lambda n: n.op(
        "elemwise_sub", n.relu(n.x), n.times(n.mirrored(), 0.1, "small"), name="y"
    ),
}


def written(spelling: Callable[[Terms], Entry], filters: int = CHANNELS) -> tuple[Graph, dict[str, Any]]:
    net = Terms(filters)
    return net.graph(spelling(net)), net.params


def differences(
    monkeypatch: pytest.MonkeyPatch, graph: Graph, given: Any, after: Graph, kept: Any, batch: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return edge cases and what both graphs make of them."""
    data = on_edges(batch, CHANNELS, 9, 7)
    with np.errstate(all="ignore"):
        (expected,) = outputs(monkeypatch, graph, parameters(given), {"x": data})
        (found,) = outputs(monkeypatch, after, kept, {"x": data})
        (fused,) = outputs(monkeypatch, after, kept, {"x": data}, "MKLDNN")
    numbers = ~np.isnan(data)
    np.testing.assert_array_equal(found[numbers], fused[numbers])
    return data, expected, found


def same_values(data: np.ndarray, expected: np.ndarray, found: np.ndarray) -> None:
    """Assert that moderate numbers give the same, up to the sign of zeros, and infinities stay."""
    moderate = (np.abs(data) < 1e38) & ((np.abs(data) > 1e-30) | (data == 0))
    np.testing.assert_array_equal(found[moderate], expected[moderate])
    finite = np.isfinite(expected) & ~np.isnan(data)
    np.testing.assert_allclose(found[finite], expected[finite], atol=2e-45)
    assert np.isposinf(found[np.isposinf(data)]).all()


@pytest.mark.parametrize("spelling", OF_CHANNELS)
def test_terms_with_slopes_of_channels_are_one_operator(
    monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    graph, params = written(OF_CHANNELS[spelling])  # an output, whose name stays
    after, done = prepared(RewriteLeakyReLU, graph, params, inserted=["y_slope"])
    assert operators(after)[1:] == ["y = LeakyReLU(c, y_slope) {act_type: prelu}"]
    np.testing.assert_array_equal(done.params["y_slope"].values(), SLOPES)
    assert {change.into for change in done.changes} == {"y"}
    for batch in (1, 3):
        same_values(*differences(monkeypatch, graph, params, after, done.params, batch))


@pytest.mark.parametrize("spelling", OF_ONE_NUMBER)
def test_terms_with_one_slope_are_one_operator(monkeypatch: pytest.MonkeyPatch, spelling: str) -> None:
    graph, params = written(OF_ONE_NUMBER[spelling])
    after, done = prepared(RewriteLeakyReLU, graph, params)
    assert operators(after)[1:] == [f"y = LeakyReLU(c) {{act_type: leaky, slope: {float(np.float32(0.1))}}}"]
    for batch in (1, 3):
        same_values(*differences(monkeypatch, graph, params, after, done.params, batch))


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda n: n.op("_maximum", n.x, n.times(n.x, 2.0, "z"), name="y"), id="twice above"),
        pytest.param(
            lambda n: n.op("_maximum", n.x, n.op("_plus_scalar", n.x, name="z", scalar=1), name="y"),
            id="a sum",
        ),
        pytest.param(
            lambda n: n.choice("_greater_scalar", n.x, n.times(n.x, 0.1, "z"), 1.0), id="a choice at one"
        ),
        pytest.param(
            lambda n: n.op(
                "_maximum",
                n.x,
                n.op("where", n.op("_equal_scalar", n.x, scalar=0.0), n.x, n.times(n.x, 0.1, "z"), name="w"),
                name="y",
            ),
            id="another choice inside",
        ),
        pytest.param(
            lambda n: n.op("elemwise_add", n.x, n.times(n.op("abs", n.x, name="a"), 0.0, "z"), name="y"),
            id="x itself",
        ),
        pytest.param(
            lambda n: n.op("_maximum", n.x, n.times(n.x, float("nan"), "z"), name="y"), id="not a number"
        ),
    ],
)
def test_what_is_none_stays(write: Callable[[Terms], Entry]) -> None:
    graph, params = written(write)
    assert prepared(RewriteLeakyReLU, graph, params)[0] is graph


def test_a_magnitude_has_a_slope_of_minus_one() -> None:
    graph, params = written(lambda n: n.op("elemwise_add", n.relu(n.x), n.mirrored(), name="y"))
    assert "slope: -1.0" in operators(prepared(RewriteLeakyReLU, graph, params)[0])[-1]


def test_values_with_other_readers_stay() -> None:
    net = Terms()
    small = net.times(net.x, 0.1, "small")
    graph = net.graph(net.op("_maximum", net.x, small, name="y"), small)
    assert prepared(RewriteLeakyReLU, graph, net.params)[0] is graph


def test_channels_that_fill_no_block_stay_where_the_target_has_a_form_of_its_own() -> None:
    graph, params = written(OF_CHANNELS["the minimum"], 20)
    for name, changes in (("cpu-bf16", False), ("cuda-fp16", True)):
        target = Target.builtin(name)
        done = prepare_graph(
            graph, parameters(params), Policy.default(target.dtype), [RewriteLeakyReLU.step], target=target
        )
        assert bool(done.record(PreparedNode)) == changes


def test_one_behind_the_other() -> None:
    net = Terms()
    first = net.op("_maximum", net.x, net.times(net.x, 0.5, "half"), name="first")
    whole = net.op("_maximum", first, net.times(first, 0.25, "quarter"), name="y")
    after, _ = prepared(RewriteLeakyReLU, net.graph(whole), net.params)
    assert [line.split(" = ")[0] for line in operators(after)] == ["c", "first", "y"]


def test_the_form_for_prelu_follows() -> None:
    graph, params = written(OF_CHANNELS["half of x less its magnitude"])
    done = prepare_graph(graph, parameters(params), Policy.default(BF16), target=Target.builtin("cpu-bf16"))
    assert {change.step for change in done.record(PreparedNode)} >= {"leaky_relu", "prelu"}
    assert {node.op for node in done.graph.nodes} == {"null", "Convolution", "Activation", "elemwise_add"}
