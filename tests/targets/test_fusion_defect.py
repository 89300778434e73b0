"""Where MXNet's oneDNN fusion is wrong, we say so, and nowhere else: executed with fusion and without."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="the defect is MXNet's, and is looked for by execution")

import mxamp
from mxamp.conversion import PREPARATIONS
from mxamp.errors import MxampWarning
from mxamp.passes import PreparedNode
from mxamp.policy import Policy
from mxamp.runtime.symbol import graph_from_symbol, symbol_from_graph
from mxamp.targets.fusion_defect import lost_branches
from tests.passes.preparing import prepare_graph

S = mx.sym
SHAPE = (1, 4, 8, 8)


class Parts:
    """What the networks of the tests are made of."""

    def __init__(self) -> None:
        self.x = S.var("data")

    def conv(self, data: Any, name: str = "y", *, norm: bool = False) -> Any:
        layer = S.Convolution(data, num_filter=4, kernel=(3, 3), pad=(1, 1), no_bias=True, name=name)
        return self.norm(layer, f"{name}_norm") if norm else layer

    def norm(self, data: Any, name: str = "norm") -> Any:
        return S.BatchNorm(data, fix_gamma=False, name=name)

    def relu(self, data: Any) -> Any:
        return S.Activation(data, act_type="relu", name="relu")

    def dense(self) -> Any:
        return S.FullyConnected(S.Flatten(self.x), num_hidden=16, name="y")


def residual(parts: Parts, y: Any, taken: Any, *, swapped: bool = False) -> Any:
    branch = parts.conv(taken, "second")
    return 1.0 * ((y + branch) if swapped else (branch + y))


def with_taken(take: Callable[[Parts, Any], Any], **options: bool) -> Callable[[Parts], Any]:
    norm = options.pop("norm", False)

    def make(parts: Parts) -> Any:
        y = parts.conv(parts.x, norm=norm)
        return residual(parts, y, take(parts, y), **options)

    return make


def both(take: Callable[[Parts, Any], Any], layer: Callable[[Parts], Any]) -> Callable[[Parts], Any]:
    def make(parts: Parts) -> Any:
        y = layer(parts)
        return S.Group([y, take(parts, y)])

    return make


def two_sums(parts: Parts) -> Any:
    y = parts.conv(parts.x)
    return 1.0 * (3.0 * (y + parts.x) + y)


def third_reader(parts: Parts) -> Any:
    y = parts.conv(parts.x)
    return residual(parts, y, parts.relu(y)) + S.exp(y)


def independent_sum(parts: Parts) -> Any:
    y = parts.conv(parts.x)
    return residual(parts, y, parts.relu(y)) + (parts.x + y)


def dense_branches(parts: Parts, *, swapped: bool) -> Any:
    y = parts.dense()
    branches = [S.FullyConnected(y, num_hidden=16, name="second"), parts.relu(y)]
    return S.elemwise_add(*(branches[::-1] if swapped else branches))


def relu(parts: Parts, y: Any) -> Any:
    return parts.relu(y)


def pointwise(function: Callable[[Any], Any]) -> Callable[[Parts, Any], Any]:
    return lambda _, y: function(y)


WRONG: dict[str, Callable[[Parts], Any]] = {
    "relu, then the sum": with_taken(relu),
    "relu, the sum's operands swapped": with_taken(relu, swapped=True),
    "behind BatchNorm": with_taken(relu, norm=True),
    "BatchNorm": with_taken(lambda parts, y: parts.norm(y)),
    "BatchNorm and relu": with_taken(lambda parts, y: parts.relu(parts.norm(y))),
    "sigmoid": with_taken(pointwise(lambda y: S.Activation(y, act_type="sigmoid"))),
    "clip from 0": with_taken(pointwise(lambda y: S.clip(y, 0, 6))),
    "leaky": with_taken(pointwise(lambda y: S.LeakyReLU(y, act_type="leaky", slope=0.1))),
    "gelu": with_taken(pointwise(lambda y: S.LeakyReLU(y, act_type="gelu"))),
    "a sum, then another": two_sums,
    "an output": both(relu, lambda parts: parts.conv(parts.x)),
    "an output behind BatchNorm": both(relu, lambda parts: parts.conv(parts.x, norm=True)),
    "an output behind a sum": both(relu, lambda parts: parts.conv(parts.x) + parts.x),
    "an output of FullyConnected": both(relu, lambda parts: parts.dense()),
    "FullyConnected, the activation visited last": lambda parts: dense_branches(parts, swapped=False),
    "an output of FullyConnected, squared": both(pointwise(S.square), lambda parts: parts.dense()),
}


def statistics(*outputs: int, use: bool = True) -> Callable[[Parts], Any]:
    """Return a network that reads a BatchNorm's outputs by number, or that has them for outputs itself."""

    def make(parts: Parts) -> Any:
        layer = S.BatchNorm(parts.conv(parts.x), fix_gamma=False, output_mean_var=True, name="norm")
        return S.Group([layer[number] * 2 if use else layer[number] for number in outputs])

    return make


def norm_over(axis: int) -> Callable[[Parts], Any]:
    def make(parts: Parts) -> Any:
        layer = S.Convolution(parts.x, num_filter=4, kernel=(5, 5), no_bias=True, name="y")
        return S.BatchNorm(layer, axis=axis, fix_gamma=False, name="norm")

    return make


WRONG.update(
    {
        "BatchNorm's mean": statistics(0, 1),
        "BatchNorm's variance alone": statistics(2),
        "BatchNorm's mean as an output": statistics(0, 1, use=False),
        "BatchNorm over axis 2": norm_over(2),
        "BatchNorm over the last axis": norm_over(-1),
    }
)

RIGHT: dict[str, Callable[[Parts], Any]] = {
    "the operator relu": with_taken(pointwise(S.relu)),
    "clip from -1": with_taken(pointwise(lambda y: S.clip(y, -1, 6))),
    "softsign": with_taken(pointwise(lambda y: S.Activation(y, act_type="softsign"))),
    "elu": with_taken(pointwise(lambda y: S.LeakyReLU(y, act_type="elu"))),
    "pooling": with_taken(pointwise(lambda y: S.Pooling(y, kernel=(1, 1), pool_type="max"))),
    "BatchNorm over axis 1": norm_over(1),
    "BatchNorm over axis -3": norm_over(-3),
    "BatchNorm's result alone": statistics(0),
    "BatchNorm's statistics behind a FullyConnected": lambda parts: S.Group(
        list(S.BatchNorm(parts.dense(), fix_gamma=False, output_mean_var=True, name="norm"))
    ),
    "BatchNorm behind BatchNorm": with_taken(lambda parts, y: parts.norm(y), norm=True),
    "a third reader": third_reader,
    "a sum that does not depend on it": independent_sum,
    "relu behind the sum": lambda parts: parts.relu(parts.conv(parts.x) + parts.x),
    "no second reader": lambda parts: parts.conv(parts.relu(parts.conv(parts.x)), "second"),
    "FullyConnected, the activation visited first": lambda parts: dense_branches(parts, swapped=True),
    "an output, exp": both(pointwise(S.exp), lambda parts: parts.conv(parts.x)),
}


def around_a_square(order: str) -> Any:
    """Return a layer whose readers are visited in an order: a square among what is never fused."""
    y = Parts().dense()
    readers = {"s": S.square, "a": lambda y: y * 0.5, "b": lambda y: y + 1, "t": S.tan}
    return S.Group([readers[key](y) * 2 for key in order])


@pytest.mark.parametrize(
    ("order", "may_be_lost"),
    [
        *(("sa", False), ("as", True), ("sab", False), ("asb", True), ("abs", True)),
        *(("sabt", False), ("asbt", True), ("abst", True), ("abts", True)),
    ],
)
def test_of_several_readers_any_but_the_first_may_be_taken(
    monkeypatch: pytest.MonkeyPatch, order: str, may_be_lost: bool
) -> None:
    """Which one is depends on addresses, so it is lost now and then: a graph is bound again and again."""
    symbol = around_a_square(order)
    assert len(lost_branches(graph_from_symbol(symbol))) == may_be_lost
    if not may_be_lost:
        assert max(error_of_fusion(symbol, monkeypatch) for _ in range(20)) < 1e-5
        return
    guarded = prepare_graph(graph_from_symbol(symbol), {}, Policy.default("bfloat16"), ["keep_branches"])
    after = symbol_from_graph(guarded.graph)
    assert max(error_of_fusion(after, monkeypatch) for _ in range(20)) < 1e-5


def test_each_of_several_that_may_be_taken_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    y = Parts().dense()
    symbol = S.Group([S.exp(y) * 2, S.square(y) * 2, y * 0.5, S.abs(y) * 2])
    assert len(lost_branches(graph_from_symbol(symbol))) == 2
    guarded = prepare_graph(graph_from_symbol(symbol), {}, Policy.default("bfloat16"), ["keep_branches"])
    assert not lost_branches(guarded.graph)
    after = symbol_from_graph(guarded.graph)
    assert max(error_of_fusion(after, monkeypatch) for _ in range(20)) < 1e-5


def error_of_fusion(symbol: Any, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return the relative L2 error of the fused outputs, infinite where they have other shapes."""
    shapes, _, aux_shapes = symbol.infer_shape(data=SHAPE)
    rng = np.random.default_rng(1)

    def array(name: str, shape: tuple[int, ...]) -> Any:
        low = 0.5 if name.endswith(("gamma", "var")) else -1.5
        return mx.nd.array(rng.uniform(low, 1.5, shape))

    args = {name: array(name, shape) for name, shape in zip(symbol.list_arguments(), shapes)}
    auxs = {name: array(name, shape) for name, shape in zip(symbol.list_auxiliary_states(), aux_shapes)}
    found = []
    for backend in ("NONE", "MKLDNN"):
        monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", backend)  # read at bind time
        outputs = symbol.bind(mx.cpu(), args, aux_states=auxs).forward()
        found.append(np.concatenate([output.asnumpy().ravel() for output in outputs]))
    if found[0].shape != found[1].shape:
        return float("inf")
    return float(np.linalg.norm(found[1] - found[0]) / np.linalg.norm(found[0]))


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_what_is_lost_is_found(make: Callable[[Parts], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    symbol = make(Parts())
    graph = graph_from_symbol(symbol)
    (lost,) = lost_branches(graph)
    assert lost.value in [entry.node for entry in graph.nodes[lost.fused].inputs]
    assert error_of_fusion(symbol, monkeypatch) > 1e-2


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_a_guarded_graph_is_computed_as_it_is_written(
    make: Callable[[Parts], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    symbol = make(Parts())
    guarded = prepare_graph(graph_from_symbol(symbol), {}, Policy.default("bfloat16"), ["keep_branches"])
    assert [change.step for change in guarded.record(PreparedNode)] == ["keep_branches"]
    after = symbol_from_graph(guarded.graph)
    assert after.list_outputs() == symbol.list_outputs()
    assert after.list_arguments() == symbol.list_arguments()
    assert error_of_fusion(after, monkeypatch) < 1e-5


def test_a_converted_model_is_guarded_and_right_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    symbol = WRONG["relu, then the sum"](Parts())
    shapes, _, _ = symbol.infer_shape(data=SHAPE)
    rng = np.random.default_rng(1)
    args = {
        name: mx.nd.array(rng.uniform(-1, 1, shape)) for name, shape in zip(symbol.list_arguments(), shapes)
    }
    data = args.pop("data")
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
    expected = symbol.bind(mx.cpu(), {**args, "data": data}).forward()[0].asnumpy()
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "MKLDNN")
    errors = []
    for prepare in ((), PREPARATIONS):
        with pytest.warns(MxampWarning, match="computes the float32 model wrongly on CPUs: it fuses 'y'"):
            model = mxamp.convert_model(symbol, args, {}, "bfloat16", prepare=prepare)
        found = model.sym.bind(mx.cpu(), {**model.args, "data": data}).forward()[0].asnumpy()
        errors.append(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    assert errors[0] > 0.1
    assert errors[1] < 0.01


def test_a_sum_of_a_layer_with_itself_cannot_be_bound_unless_it_is_guarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Parts()
    y = parts.conv(parts.x)
    symbol = 1.0 * (y + y)
    graph = graph_from_symbol(symbol)
    (lost,) = lost_branches(graph)
    assert lost.reader == lost.fused
    with pytest.raises(mx.base.MXNetError):
        error_of_fusion(symbol, monkeypatch)
    guarded = prepare_graph(graph, {}, Policy.default("bfloat16"), ["keep_branches"])
    assert error_of_fusion(symbol_from_graph(guarded.graph), monkeypatch) < 1e-5


@pytest.mark.parametrize("deleted", [S.Dropout, S.identity], ids=["Dropout", "identity"])
@pytest.mark.parametrize("makes", ["a sum", "relu, then the sum"])
def test_what_the_backend_deletes_hides_no_reader(
    makes: str, deleted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is gone before anything is fused; preparation may be told to leave it."""
    parts = Parts()
    y = parts.conv(parts.x)
    behind = deleted(y, name="behind")
    symbol = 1.0 * (y + behind) if makes == "a sum" else residual(parts, y, parts.relu(behind))
    graph = graph_from_symbol(symbol)
    assert len(lost_branches(graph)) == 1
    if makes == "a sum":
        with pytest.raises(mx.base.MXNetError):
            error_of_fusion(symbol, monkeypatch)
    else:
        assert error_of_fusion(symbol, monkeypatch) > 1e-2
    guarded = prepare_graph(graph, {}, Policy.default("bfloat16"), ["keep_branches"])
    assert error_of_fusion(symbol_from_graph(guarded.graph), monkeypatch) < 1e-5


@pytest.mark.parametrize("deleted", [S.Dropout, S.identity], ids=["Dropout", "identity"])
@pytest.mark.parametrize("layer", ["convolution", "dense"])
@pytest.mark.parametrize("reads", ["the layer", "what is deleted"])
def test_what_the_backend_deletes_may_be_an_output(
    reads: str, layer: str, deleted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its layer is one in its place, and lost as such."""
    parts = Parts()
    y = parts.dense() if layer == "dense" else parts.conv(parts.x)
    behind = deleted(y, name="behind")
    symbol = S.Group([behind, parts.relu(y if reads == "the layer" else behind)])
    graph = graph_from_symbol(symbol)
    (lost,) = lost_branches(graph)
    assert graph.nodes[lost.value].name == "y"
    assert lost.reader is None
    assert error_of_fusion(symbol, monkeypatch) > 1e-2
    guarded = symbol_from_graph(prepare_graph(graph, {}, Policy.default("bfloat16"), ["keep_branches"]).graph)
    assert error_of_fusion(guarded, monkeypatch) < 1e-5
    assert guarded.list_outputs() == symbol.list_outputs()


@pytest.mark.parametrize("make", RIGHT.values(), ids=RIGHT)
def test_what_is_right_is_not_blamed(make: Callable[[Parts], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    symbol = make(Parts())
    assert not lost_branches(graph_from_symbol(symbol))
    assert error_of_fusion(symbol, monkeypatch) < 1e-5
