"""An activation is computed apart from a sum behind a plain matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import PlainSums
from mxamp.policy import Policy
from tests.building import BF16, Net, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import CPUS, operators, prepared, targets_that_choose


class Block(Net):
    """A residual block: what a layer makes is added to what it reads, and activated."""

    def __init__(self, filters: int = 12, **attrs: Any) -> None:
        super().__init__()
        self.filters = filters
        self.x = self.op("tanh", self.var("x", __dtype__="0"), name="before")
        groups = int(attrs.get("num_group", 1))
        kernel = attrs.pop("kernel", "(3, 3)")
        sizes = [3] * (2 if kernel == "(3, 3)" else 3)
        weight = self.param("weight", filters, filters // groups, *sizes)
        given = {"num_filter": filters, "kernel": kernel, "pad": str(tuple(1 for _ in sizes)), **attrs}
        self.layer = self.op("Convolution", self.x, weight, name="layer", no_bias=True, **given)

    def normed(self) -> Entry:
        parts = [
            self.param(f"norm_{part}", self.filters, value=1.0) for part in ("gamma", "beta", "mean", "var")
        ]
        return self.op("BatchNorm", self.layer, *parts, name="norm", outputs=3, fix_gamma=False)

    def activated(self, data: Entry, op: str = "Activation", **attrs: Any) -> Entry:
        total = self.op("elemwise_add", self.x, data, name="sum")
        given = attrs or {"act_type": "relu"}
        return self.op(op, total, name="y", **given)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(
    ("op", "attrs"),
    [("Activation", {}), ("LeakyReLU", {"act_type": "leaky"}), ("clip", {"a_min": 0, "a_max": 6})],
)
def test_a_reshape_is_between_them(
    monkeypatch: pytest.MonkeyPatch, op: str, attrs: dict[str, Any], norm: bool
) -> None:
    net = Block()
    graph = net.graph(net.activated(net.normed() if norm else net.layer, op, **attrs))
    after, done = prepared(PlainSums, graph, net.params, inserted=["sum_apart"])
    assert operators(after)[-2] == "sum_apart = Reshape(sum) {shape: (-2,)}"
    assert operators(after)[-1].startswith(f"y = {op}(sum_apart)")
    assert [(change.node, change.into) for change in done.changes] == [("y", "y")]
    x = np.random.default_rng(0).normal(size=(2, 12, 9, 7)).astype(np.float32)
    (expected,) = outputs(monkeypatch, graph, parameters(net.params), {"x": x}, "MKLDNN")
    (found,) = outputs(monkeypatch, after, parameters(net.params), {"x": x}, "MKLDNN")
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def refused(case: str) -> tuple[Block, Graph]:
    """Return what stays fused, or is not."""
    net = Block(
        filters=24 if case == "blocks of eight" else 12,
        **{
            "groups": {"num_group": 2},
            "channels last": {"layout": "NHWC"},
            "volume": {"kernel": "(3, 3, 3)"},
        }.get(case, {}),
    )
    if case == "slopes":
        total = net.op("elemwise_add", net.x, net.layer, name="sum")
        return net, net.graph(net.op("LeakyReLU", total, net.param("slope", 12), name="y", act_type="prelu"))
    if case == "no layer":
        return net, net.graph(net.activated(net.op("exp", net.layer)))
    y = net.activated(net.layer)
    if case == "a sum that is read":
        return net, net.graph(net.op("exp", y), net.op("exp", net.nodes[y.node].inputs[0]))
    if case == "a layer that is read":
        return net, net.graph(net.op("exp", y), net.op("exp", net.layer))
    return net, net.graph(y)


@pytest.mark.parametrize(
    "case",
    [
        *("blocks of eight", "groups", "channels last", "volume", "slopes", "no layer", "rule"),
        *("a sum that is read", "a layer that is read"),
    ],
)
def test_refuses(case: str) -> None:
    net, graph = refused(case)
    policy = Policy.default(BF16).excluding(names=["y"]) if case == "rule" else None
    assert prepared(PlainSums, graph, net.params, policy)[0] is graph


def test_targets_of_cpus_name_it() -> None:
    net = Block()
    graph = net.graph(net.op("exp", net.activated(net.layer)))
    assert targets_that_choose("plain_sums", graph, parameters(net.params)) == CPUS
