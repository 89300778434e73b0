"""The zeros of a Pad become padding of the Convolutions that read it, where that is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import FoldPadding
from mxamp.policy import Policy
from tests.building import BF16, Net, named, parameters, reads
from tests.passes.preparing import prepare_graph, prepared

AROUND = "(0, 0, 0, 0, 1, 1, 2, 2)"


class Padded(Net):
    """x -> Pad -> Convolution, with attributes of both to be changed."""

    def __init__(self, pad: dict[str, str] | None = None, conv: dict[str, str] | None = None) -> None:
        super().__init__()
        self.x = self.var("x")
        self.pad = self.op(
            "Pad", self.x, name="pad", **{"mode": "constant", "pad_width": AROUND, **(pad or {})}
        )
        self.convolution = self.layer(self.pad, "conv", **(conv or {}))

    def layer(self, data: Entry, name: str, **attrs: Any) -> Entry:
        weight = self.param(f"{name}_weight", 4, 4, 3, 3)
        options = {"num_filter": 4, "kernel": "(3, 3)", "no_bias": True, **attrs}
        return self.op("Convolution", data, weight, name=name, **options)


@pytest.mark.parametrize(
    ("own", "total"), [({}, "(1, 2)"), ({"pad": "(0, 0)"}, "(1, 2)"), ({"pad": "(1, 0)"}, "(2, 2)")], ids=str
)
def test_the_convolution_pads_for_itself(own: dict[str, str], total: str) -> None:
    net = Padded(conv=own)
    after, done = prepared(FoldPadding, net.graph(net.convolution))
    assert reads(after, "conv") == ["x", "conv_weight"]
    assert named(after, "conv").attrs["pad"] == total
    assert [(change.node, change.op, change.into) for change in done.changes] == [("pad", "Pad", "conv")]


def test_every_reader_pads() -> None:
    net = Padded()
    other = net.layer(net.pad, "other", stride="(2, 2)")
    after, _ = prepared(FoldPadding, net.graph(net.convolution, other))
    assert {named(after, name).attrs["pad"] for name in ("conv", "other")} == {"(1, 2)"}


def test_one_pad_behind_another_is_folded_as_well() -> None:
    net = Net()
    pads = net.var("x")
    for name in ("first", "second"):
        pads = net.op("Pad", pads, name=name, mode="constant", pad_width=AROUND)
    weight = net.param("w", 4, 4, 3, 3)
    last = net.op("Convolution", pads, weight, name="conv", num_filter=4, kernel="(3, 3)")
    graph = net.graph(last)
    once = prepare_graph(graph, parameters(net.params), Policy.default(BF16), ["padding"]).graph
    assert reads(once, "conv")[0] == "first"
    assert named(once, "conv").attrs["pad"] == "(1, 2)"


def volume() -> Graph:
    net = Net()
    pad = net.op("Pad", net.var("x"), name="pad", mode="constant", pad_width="(0, 0, 0, 0, 1, 1, 0, 0, 2, 2)")
    weight = net.param("w", 4, 4, 3, 3, 3)
    return net.graph(
        net.op("Convolution", pad, weight, name="conv", num_filter=4, kernel="(3, 3, 3)", no_bias=True)
    )


def pooled(around: dict[str, Any] | None = None, **attrs: Any) -> Graph:
    """Return a Pooling behind a Pad, by default of the mode that it can take over."""
    net = Net()
    attrs = {"kernel": "(3, 3)", "stride": "(2, 2)", "pool_type": "max", **attrs}
    mode = "edge" if attrs["pool_type"] == "max" else "constant"
    pads = net.op("Pad", net.var("x"), name="pad", **{"mode": mode, "pad_width": AROUND, **(around or {})})
    return net.graph(net.op("Pooling", pads, name="pool", **attrs))


@pytest.mark.parametrize("pool_type", ["max", "avg"])
@pytest.mark.parametrize("own", [{}, {"pad": "(0, 0)"}])
def test_a_pooling_pads_for_itself(pool_type: str, own: dict[str, str]) -> None:
    after, done = prepared(FoldPadding, pooled(pool_type=pool_type, **own))
    assert reads(after, "pool") == ["x"]
    assert named(after, "pool").attrs["pad"] == "(1, 2)"
    assert [(change.node, change.into) for change in done.changes] == [("pad", "pool")]


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(pooled({"mode": "constant"}), id="zeros are not the largest"),
        pytest.param(pooled({"mode": "edge"}, pool_type="avg"), id="a mean of the border"),
        pytest.param(pooled(pool_type="avg", count_include_pad=False), id="zeros that are not counted"),
        pytest.param(pooled(kernel="(3, 2)"), id="a window of padding alone"),
        pytest.param(pooled(pooling_convention="full"), id="windows that stand out"),
        pytest.param(pooled(global_pool=True), id="all places"),
        pytest.param(pooled(pad="(1, 1)"), id="padding of its own"),
        pytest.param(pooled(pool_type="sum"), id="sums"),
        pytest.param(
            pooled({"pad_width": "(0, 0, 0, 0, 1, 1, 1, 1, 1, 1)"}, kernel="(3, 3, 3)"), id="volume"
        ),
    ],
)
def test_other_poolings_read_the_pad(graph: Graph) -> None:
    assert prepared(FoldPadding, graph)[0] is graph


def test_volumes() -> None:
    after, _ = prepared(FoldPadding, volume())
    assert named(after, "conv").attrs["pad"] == "(1, 0, 2)"


def read_by_something_else() -> Graph:
    net = Padded()
    return net.graph(net.convolution, net.op("exp", net.pad))


def read_as_a_weight() -> Graph:
    net = Padded()
    return net.graph(
        net.op("Convolution", net.x, net.pad, name="again", num_filter=4, kernel="(3, 3)", no_bias=True)
    )


def with_the_pad_as_output() -> Graph:
    net = Padded()
    return net.graph(net.convolution, net.pad)


def changed(pad: dict[str, str] | None = None, conv: dict[str, str] | None = None) -> Graph:
    net = Padded(pad, conv)
    return net.graph(net.convolution)


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(changed({"constant_value": "1"}), id="another constant"),
        pytest.param(changed({"constant_value": "much"}), id="no constant"),
        pytest.param(changed({"mode": "edge"}), id="edge"),
        pytest.param(changed({"mode": "reflect"}), id="reflect"),
        pytest.param(changed({"pad_width": "(0, 0, 0, 0, 0, 1, 0, 1)"}), id="one end"),
        pytest.param(changed({"pad_width": "(0, 0, 1, 1, 1, 1, 1, 1)"}), id="channels"),
        pytest.param(changed({"pad_width": "(1, 1, 0, 0, 1, 1, 1, 1)"}), id="batch"),
        pytest.param(changed({"pad_width": "(0, 0, 0, 0, -1, -1, 1, 1)"}), id="negative"),
        pytest.param(changed({"pad_width": ""}), id="no width"),
        pytest.param(changed(conv={"layout": "NHWC"}), id="channels last"),
        pytest.param(changed(conv={"kernel": "(3,)"}), id="another rank"),
        pytest.param(read_by_something_else(), id="another reader"),
        pytest.param(read_as_a_weight(), id="as a weight"),
        pytest.param(with_the_pad_as_output(), id="an output"),
    ],
)
def test_refuses(graph: Graph) -> None:
    after, _ = prepared(FoldPadding, graph)
    assert after is graph


@pytest.mark.parametrize("op", ["Pad", "Convolution"])
def test_what_a_rule_of_the_users_picks_stays(op: str) -> None:
    graph = changed()
    after, _ = prepared(FoldPadding, graph, policy=Policy.default(BF16).excluding(operators=[op]))
    assert after is graph


@pytest.mark.parametrize(
    ("graph", "shape"),
    [
        (changed(), (2, 4, 7, 9)),
        (volume(), (1, 4, 5, 6, 7)),
        (pooled(), (2, 16, 8, 9)),
        (pooled(stride="(1, 1)"), (2, 3, 8, 9)),
        (pooled(pool_type="avg"), (2, 16, 8, 9)),
        (pooled(pool_type="avg", stride="(3, 1)"), (2, 3, 8, 9)),
    ],
    ids=["image", "volume", "largest", "largest of each", "mean", "mean of some"],
)
def test_mxnet_computes_the_same(graph: Graph, shape: tuple[int, ...]) -> None:
    pytest.importorskip("mxnet", reason="runs the model")
    from mxamp.model import Model
    from mxamp.runtime.executor import run_outputs

    rng = np.random.default_rng(1)
    sizes = {"conv_weight": (4, 4, 3, 3), "w": (4, 4, 3, 3, 3)}
    params = {
        name: rng.uniform(-1, 1, sizes[name]).astype(np.float32) for name in graph.variables if name != "x"
    }
    data = {"x": rng.uniform(-1, 1, shape).astype(np.float32)}
    after, _ = prepared(FoldPadding, graph)
    (expected,), (found,) = (run_outputs(Model.of(each, params, {}), data) for each in (graph, after))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
