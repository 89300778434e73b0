"""Transposes that undo each other go, with what works place by place in between."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import MoveTransposes
from mxamp.policy import Policy
from tests.building import BF16, Net, parameters, reads
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import CPUS, operators, prepared, targets_that_choose

LAST, FIRST = "(0, 2, 3, 1)", "(0, 3, 1, 2)"
SHAPE = (2, 6, 3, 4)
"""Batch, channels, height, width."""


class Turned(Net):
    """An image whose channels were moved to the end, and back behind something."""

    def __init__(self) -> None:
        super().__init__()
        self.x = self.var("x")
        self.last = self.op("transpose", self.x, name="last", axes=LAST)

    def back(self, inner: Entry, axes: str = FIRST) -> Graph:
        first = self.op("transpose", inner, name="first", axes=axes)
        return self.graph(self.op("negative", first, name="y"))

    def other(self) -> Entry:
        return self.op("transpose", self.op("exp", self.x), name="other", axes=LAST)

    def norm(self, data: Entry, axis: int) -> Entry:
        statistics = [self.param(f"{name}", 6, value=1.5) for name in ("gamma", "beta", "mean", "variance")]
        return self.op("BatchNorm", data, *statistics, name="norm", axis=axis, fix_gamma=False)


INNER: dict[str, Callable[[Turned], Entry]] = {
    "nothing": lambda net: net.last,
    "relu": lambda net: net.op("Activation", net.last, act_type="relu"),
    "leaky": lambda net: net.op("LeakyReLU", net.last, act_type="leaky", slope=0.1),
    "several": lambda net: net.op(
        "clip", net.op("tanh", net.op("_mul_scalar", net.last, scalar=3)), a_min=-1, a_max=0.5
    ),
    "bias": lambda net: net.op("broadcast_add", net.last, net.param("c", 6)),
    "bias of all axes": lambda net: net.op("broadcast_mul", net.param("c", 1, 1, 1, 6), net.last),
    "an array of places": lambda net: net.op("broadcast_sub", net.last, net.param("c", 3, 4, 1)),
    "a whole array": lambda net: net.op("broadcast_add", net.last, net.param("c", 2, 3, 4, 6)),
    "sum": lambda net: net.op("elemwise_add", net.last, net.other()),
    "product": lambda net: net.op("broadcast_mul", net.other(), net.last),
    "joined": lambda net: net.op("Concat", net.last, net.other(), dim=3, num_args=2),
    "joined in rows": lambda net: net.op("Concat", net.last, net.other(), dim=-3, num_args=2),
    "cut": lambda net: net.op("slice_axis", net.last, axis=-1, begin=1, end=5),
    "cut along some axes": lambda net: net.op("slice", net.last, begin="(0, 1)", end="(None, 3)"),
    "cut in steps": lambda net: net.op(
        "slice",
        net.last,
        begin="(None, None, 3, 1)",
        end="(None, 2, None, 5)",
        step="(None, 1, -1, 2)",
    ),
    "norm": lambda net: net.norm(net.last, 3),
    "norm of the last": lambda net: net.norm(net.last, -1),
    "mean that keeps axes": lambda net: net.op("mean", net.last, axis="(1, 2)", keepdims=True),
}


@pytest.mark.parametrize("inner", INNER)
def test_what_is_undone_goes(monkeypatch: pytest.MonkeyPatch, inner: str) -> None:
    net = Turned()
    graph = net.back(INNER[inner](net))
    given = parameters(net.params)
    added = {f"{name}_turned" for name in net.params if name == "c"}
    after, done = prepared(MoveTransposes, graph, net.params, inserted=added)
    assert "transpose" not in [node.op for node in after.nodes]
    data = {"x": on_edges(*SHAPE)}
    with np.errstate(all="ignore"):
        (expected,) = outputs(monkeypatch, graph, given, data)
        (found,) = outputs(monkeypatch, after, done.params, data)
    if inner.startswith(("mean", "norm")):  # other kernels, and another order of summation
        data = {"x": np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)}
        (expected,) = outputs(monkeypatch, graph, given, data)
        (found,) = outputs(monkeypatch, after, done.params, data)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("op", ["mean", "max", "sum"])
@pytest.mark.parametrize("axis", ["(1, 2)", "(-2, 1)", "(0, 1, 2)"])
def test_what_is_reduced_away_needs_no_transpose(monkeypatch: pytest.MonkeyPatch, op: str, axis: str) -> None:
    net = Turned()
    graph = net.graph(net.op("negative", net.op(op, net.last, name="reduced", axis=axis)))
    after, done = prepared(MoveTransposes, graph, net.params)
    assert "transpose" not in [node.op for node in after.nodes]
    data = {"x": np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)}
    (expected,) = outputs(monkeypatch, graph, {}, data)
    (found,) = outputs(monkeypatch, after, {}, data)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    del done


@pytest.mark.parametrize("axes", ["()", None])
def test_a_transpose_without_axes_turns_all_of_them_around(
    monkeypatch: pytest.MonkeyPatch, axes: str | None
) -> None:
    net = Turned()
    given = {} if axes is None else {"axes": axes}
    graph = net.graph(net.op("exp", net.op("negative", net.op("transpose", net.last, name="b", **given))))
    after, _ = prepared(MoveTransposes, graph, net.params, inserted=["negative3_turned"])
    assert [node.attrs for node in after.nodes if node.op == "transpose"] == [{"axes": "(1, 3, 2, 0)"}]
    data = {"x": on_edges(*SHAPE)}
    (expected,) = outputs(monkeypatch, graph, {}, data)
    (found,) = outputs(monkeypatch, after, {}, data)
    np.testing.assert_array_equal(found, expected)


def test_two_transposes_are_one() -> None:
    net = Turned()
    graph = net.back(net.op("exp", net.last), axes=LAST)
    after, _ = prepared(MoveTransposes, graph, net.params)
    assert operators(after) == [
        "exp2 = exp(x)",
        "first = transpose(exp2) {axes: (0, 3, 1, 2)}",
        "y = negative(first)",
    ]


def test_whoever_reads_it_as_it_was_still_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A residual network: what is added is read by the next layer as well, in the other order."""
    net = Turned()
    inner = net.op("tanh", net.last, name="inner")
    two = net.op("elemwise_add", net.other(), inner)
    first = net.op("transpose", two, name="first", axes=FIRST)
    graph = net.graph(net.op("negative", first, name="y"), net.op("softmax", inner, name="p"))
    after, _ = prepared(MoveTransposes, graph, net.params, inserted=["inner_turned"])
    assert sum(node.op == "transpose" for node in after.nodes) == 1
    assert reads(after, "p") == ["inner_turned"]
    data = {"x": np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)}
    for one, other in zip(outputs(monkeypatch, graph, {}, data), outputs(monkeypatch, after, {}, data)):
        np.testing.assert_array_equal(one, other)


def test_a_dense_layer_takes_the_norm_of_its_last_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    x = net.var("x")
    layer = net.op("FullyConnected", x, net.param("w", 6, 5), num_hidden=6, no_bias=True, flatten=False)
    first = net.op("transpose", layer, axes=FIRST)
    norm = net.op("BatchNorm", first, *[net.param(f"p{i}", 6, value=1.5) for i in range(4)], fix_gamma=False)
    graph = net.graph(net.op("negative", net.op("transpose", norm, axes=LAST), name="y"))
    after, done = prepared(MoveTransposes, graph, net.params)
    assert [node.attrs["axis"] for node in after.nodes if node.op == "BatchNorm"] == ["-1"]
    data = {"x": np.random.default_rng(1).normal(size=(2, 3, 4, 5)).astype(np.float32)}
    (expected,) = outputs(monkeypatch, graph, parameters(net.params), data)
    (found,) = outputs(monkeypatch, after, done.params, data)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def refused(case: str) -> tuple[Turned, Graph]:
    """Return a graph that is left alone."""
    net = Turned()
    if case == "nothing undoes it":
        return net, net.graph(net.op("negative", net.op("exp", net.last)))
    if case == "norm of another axis":
        return net, net.back(net.norm(net.last, 1))
    inner: dict[str, Callable[[], Entry]] = {
        "softmax": lambda: net.op("softmax", net.last),
        "prelu": lambda: net.op("LeakyReLU", net.last, net.param("slope", 3), act_type="prelu"),
        "another tensor": lambda: net.op("broadcast_add", net.last, net.var("z")),
        "turned otherwise": lambda: net.op(
            "elemwise_add", net.last, net.op("transpose", net.var("z"), axes="(0, 3, 2, 1)")
        ),
        "axes reduced": lambda: net.op("expand_dims", net.op("mean", net.last, axis="(1,)"), axis=1),
        "other axes": lambda: net.op("mean", net.last, axis="(1,)", exclude=True, keepdims=True),
        "rule": lambda: net.op("exp", net.last, name="ruled"),
    }
    return net, net.back(inner[case]())


@pytest.mark.parametrize(
    "case",
    [
        *("nothing undoes it", "softmax", "prelu", "another tensor", "turned otherwise", "axes reduced"),
        *("other axes", "rule", "norm of another axis"),
    ],
)
def test_refuses(case: str) -> None:
    net, graph = refused(case)
    policy = Policy.default(BF16).excluding(names=["ruled"]) if case == "rule" else None
    assert prepared(MoveTransposes, graph, net.params, policy)[0] is graph


def test_outputs_keep_their_names_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Turned()
    inner = net.op("exp", net.last, name="inner")
    graph = net.graph(net.op("transpose", net.op("tanh", inner), name="y", axes=FIRST), inner)
    after, _ = prepared(MoveTransposes, graph, net.params)
    data = {"x": np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)}
    for one, other in zip(outputs(monkeypatch, graph, {}, data), outputs(monkeypatch, after, {}, data)):
        np.testing.assert_array_equal(one, other)


def test_targets_choose() -> None:
    net = Turned()
    graph = net.back(net.op("exp", net.last))
    shapes: list[Any] = [((2, 6, 3, 4),), ((2, 3, 4, 6),), ((2, 3, 4, 6),), ((2, 6, 3, 4),), ((2, 6, 3, 4),)]
    assert targets_that_choose("move_transposes", graph, parameters(net.params), shapes) == CPUS


@pytest.mark.parametrize("first", ["SwapAxis", "transpose"])
def test_a_swap_of_axes_is_a_transpose_where_their_number_is_certain(
    monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    net = Net()
    x = net.var("x", __dtype__="0")
    attrs = {"dim1": 1, "dim2": -1} if first == "SwapAxis" else {}  # without axes all are turned around
    turned = net.op("tanh", net.op(first, x, name="turned", **attrs), name="z")
    graph = net.graph(net.op("negative", net.op("SwapAxis", turned, name="back", dim1=3, dim2=1), name="y"))
    shapes = [(SHAPE,)] + [((2, 4, 3, 6) if first == "SwapAxis" else SHAPE[::-1],)] * 2
    last = SHAPE if first == "SwapAxis" else (4, 2, 6, 3)
    after, done = prepared(MoveTransposes, graph, shapes=[*shapes, (last,), (last,)])
    expected = ["z = tanh(x)", "back = transpose(z) {axes: (3, 0, 1, 2)}", "y = negative(back)"]
    assert operators(after) == ([expected[0], "y = negative(z)"] if first == "SwapAxis" else expected)
    assert {change.node for change in done.changes} == {"turned", "z", "back"}
    data = {"x": on_edges(*SHAPE)}
    (before,) = outputs(monkeypatch, graph, {}, data)
    (found,) = outputs(monkeypatch, after, {}, data)
    np.testing.assert_array_equal(found.view(np.int32), before.view(np.int32))


def test_a_swap_of_axes_of_any_number_stays() -> None:
    net = Net()
    turned = net.op("SwapAxis", net.var("x"), dim1=1, dim2=-1)
    graph = net.graph(net.op("negative", net.op("SwapAxis", turned, dim1=1, dim2=-1)))
    assert prepared(MoveTransposes, graph)[0] is graph


class Sequence(Net):
    """An image of one row, which is taken for a sequence, and for an image again."""

    def __init__(self, **axis: str) -> None:
        super().__init__()
        weight = self.param("w", 6, 6, 1, 1)
        attrs = {"num_filter": 6, "kernel": "(1, 1)", "no_bias": True}
        self.x = self.op("Convolution", self.var("x"), weight, name="before", **attrs)
        self.row = self.op("squeeze", self.x, name="row", **axis or {"axis": "(2,)"})

    def other(self) -> Entry:
        return self.op("squeeze", self.op("exp", self.x), name="other", axis="(-2,)")

    def back(self, inner: Entry, axis: int = 2) -> Graph:
        return self.graph(
            self.op("negative", self.op("expand_dims", inner, name="image", axis=axis), name="y")
        )


ROWS: dict[str, Callable[[Sequence], Entry]] = {
    "relu": lambda net: net.op("Activation", net.row, act_type="relu"),
    "a bias": lambda net: net.op("broadcast_add", net.row, net.param("c", 1, 6, 1)),
    "an array of places": lambda net: net.op("broadcast_mul", net.param("c", 5), net.row),
    "a whole array": lambda net: net.op("elemwise_add", net.row, net.param("c", 2, 6, 5)),
    "a sum": lambda net: net.op("elemwise_add", net.row, net.other()),
    "joined": lambda net: net.op("Concat", net.row, net.other(), dim=1, num_args=2),
    "joined in rows": lambda net: net.op("Concat", net.row, net.other(), dim=2, num_args=2),
    "cut": lambda net: net.op("slice_axis", net.row, axis=-1, begin=1, end=4),
    "cut along all axes": lambda net: net.op("slice", net.row, begin="(0, 2, 1)", end="(1, 5, None)"),
    "norm": lambda net: net.op(
        "BatchNorm", net.row, *[net.param(f"p{i}", 6, value=1.5) for i in range(4)], fix_gamma=False
    ),
    "a mean that keeps axes": lambda net: net.op("mean", net.row, axis="(2,)", keepdims=True),
    "transposes of its own": lambda net: net.op(
        "transpose",
        net.op("broadcast_add", net.op("transpose", net.row, axes="(0, 2, 1)"), net.param("c", 6)),
        axes="(0, 2, 1)",
    ),
}


@pytest.mark.parametrize("inner", ROWS)
def test_a_row_stays_an_image(monkeypatch: pytest.MonkeyPatch, inner: str) -> None:
    net = Sequence()
    graph = net.back(ROWS[inner](net))
    given = parameters(net.params)
    after, done = prepared(
        MoveTransposes, graph, net.params, inserted={f"{n}_turned" for n in net.params if n == "c"}
    )
    assert not {node.op for node in after.nodes} & {"squeeze", "expand_dims", "transpose"}
    data = {"x": np.random.default_rng(1).normal(size=(2, 6, 1, 5)).astype(np.float32)}
    (expected,) = outputs(monkeypatch, graph, given, data)
    (found,) = outputs(monkeypatch, after, done.params, data)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_channels_last_of_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """As layers over sequences come from TensorFlow: moved, squeezed, and all that undone."""
    net = Sequence()
    last = net.op("transpose", net.x, axes=LAST)
    row = net.op("broadcast_add", net.op("squeeze", last, axis="(1,)"), net.param("c", 6), name="biased")
    image = net.op("transpose", net.op("expand_dims", row, axis=1), axes=FIRST)
    graph = net.graph(net.op("negative", image, name="y"))
    after, done = prepared(MoveTransposes, graph, net.params, inserted=["c_turned"])
    assert operators(after)[1:] == ["biased = broadcast_add(before, c_turned)", "y = negative(biased)"]
    assert done.params["c_turned"].shape == (1, 6, 1, 1)
    data = {"x": np.random.default_rng(1).normal(size=(2, 6, 1, 5)).astype(np.float32)}
    (expected,) = outputs(monkeypatch, graph, parameters(net.params), data)
    (found,) = outputs(monkeypatch, after, done.params, data)
    np.testing.assert_array_equal(found, expected)


def test_whoever_reads_a_row_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Sequence()
    last = net.op("transpose", net.row, axes="(0, 2, 1)", name="last")
    inner = net.op("tanh", last, name="inner")
    image = net.op("expand_dims", net.op("transpose", inner, axes="(0, 2, 1)"), axis=2)
    graph = net.graph(net.op("negative", image, name="y"), net.op("softmax", inner, name="p"))
    inserted = ["inner_turned", "inner_turned_1"]
    after, _ = prepared(MoveTransposes, graph, net.params, inserted=inserted)
    assert [node.op for node in after.nodes if node.name.startswith("inner_")] == ["squeeze", "transpose"]
    data = {"x": np.random.default_rng(1).normal(size=(2, 6, 1, 5)).astype(np.float32)}
    given = parameters(net.params)
    for one, other in zip(outputs(monkeypatch, graph, given, data), outputs(monkeypatch, after, given, data)):
        np.testing.assert_array_equal(one, other)


def refused_row(case: str) -> tuple[Sequence, Graph]:
    """Return a graph whose row is left alone."""
    net = Sequence(axis="None") if case == "no axes said" else Sequence()
    if case == "nothing undoes it":
        return net, net.graph(net.op("negative", net.op("exp", net.row)))
    if case == "another axis":  # a transpose would take the place of what moves nothing
        return net, net.back(net.op("exp", net.row), axis=3)
    if case == "no axes said":
        return net, net.back(net.op("exp", net.row))
    if case == "any number of axes":
        net = Sequence.__new__(Sequence)
        Net.__init__(net)
        return net, net.back(net.op("exp", net.op("squeeze", net.var("x"), axis="(2,)")))
    return net, net.back(net.op("broadcast_add", net.row, net.var("z")))


@pytest.mark.parametrize(
    "case", ["nothing undoes it", "another axis", "no axes said", "any number of axes", "another tensor"]
)
def test_leaves_rows_alone(case: str) -> None:
    net, graph = refused_row(case)
    assert prepared(MoveTransposes, graph, net.params)[0] is graph
