"""Prices against finite differences, and against the emulated error of random subsets of roundings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mxamp.calibration import EntryName
from mxamp.calibration.priced_heads import priced_heads
from mxamp.calibration.pricing import price_roundings, rounding_error
from mxamp.compare.inputs import as_model
from mxamp.conversion.emulation import emulate_model
from mxamp.dtypes import DType
from mxamp.errors import DataError
from mxamp.graph.graph import VARIABLE, Entry, Node
from mxamp.model import Model
from mxamp.passes import Emulation
from mxamp.profile.choices import these
from mxamp.runtime.entries import run_entries
from mxamp.runtime.executor import BoundModel, run_outputs
from mxamp.runtime.symbol import graph_from_symbol, symbol_from_graph
from mxamp.tuning.curve import explore
from tests.tuning.networks import network, with_weights

mx = pytest.importorskip("mxnet")

BF16 = DType.BFLOAT16


@pytest.fixture(scope="module")
def model() -> Model:
    return with_weights(network(), data=(1, 3, 12, 12))


@pytest.fixture(scope="module")
def images() -> Any:
    return np.random.default_rng(0).normal(size=(16, 3, 12, 12)).astype(np.float32)


def run_with(model: Model, images: Any, name: str) -> Any:
    """Return the outputs where one node's results are rounded, and nothing else."""
    graph = model.graph
    position = next(number for number, node in enumerate(graph.nodes) if node.name == name)
    ((_, values),) = run_entries(model, {"data": images}, [Entry(position)])
    nodes = list(graph.nodes)
    nodes[position] = Node(VARIABLE, "rounded")
    cut = symbol_from_graph(replace(graph, nodes=tuple(nodes)))
    read = Model(graph_from_symbol(cut), model.arg_params, model.aux_params)
    return BoundModel(read, fusion=False).run(
        {"rounded": values + rounding_error(values, BF16), "data": images}
    )[0]


@pytest.mark.parametrize("name", ["relu0", "norm1", "relu2", "pool", "fc"])
def test_the_price_of_an_entry_is_the_error_that_rounding_it_alone_causes(
    model: Model, images: Any, name: str
) -> None:
    prices = price_roundings(model, {"data": images}, draws=40)
    exact = run_outputs(model, {"data": images}, fusion=False)[0]
    found = run_with(model, images, name)
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    priced = math.sqrt(prices.entries["bfloat16"][EntryName(name)])
    assert priced == pytest.approx(error, rel=0.25)


@pytest.mark.parametrize("name", ["fc_weight", "fc_bias"])
def test_the_price_of_a_parameter_is_the_error_that_rounding_it_alone_causes(
    model: Model, images: Any, name: str
) -> None:
    prices = price_roundings(model, {"data": images}, draws=60)
    exact = run_outputs(model, {"data": images}, fusion=False)[0]
    values = model.args[name].asnumpy()
    changed = {**model.args, name: mx.nd.array(values + rounding_error(values, BF16))}
    found = run_outputs(Model.of(model.sym, changed, model.auxs), {"data": images}, fusion=False)[0]
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert math.sqrt(prices.parameters["bfloat16"][name]) == pytest.approx(error, rel=0.3)


def test_the_prices_of_random_subsets_predict_their_emulated_error(model: Model, images: Any) -> None:
    prices = price_roundings(model, {"data": images}, draws=20)
    curve = explore(model, prices, {"data": (1, 3, 12, 12)}, target="cpu-bf16")
    random = np.random.default_rng(0)
    reference = run_outputs(model, {"data": images}, fusion=False)[0]
    ratios = []
    for _ in range(8):
        some = frozenset(n for n in sorted(curve.problem.free) if random.random() < 0.6)
        point = curve.point(these(some)(curve.problem, set()))
        emulated = emulate_model(curve.convert(point), curve.options.target, Emulation())
        found = run_outputs(emulated, {"data": images})[0]
        error = np.linalg.norm(found - reference) / np.linalg.norm(reference)
        if error > 1e-6:
            ratios.append(curve.error(point) / error)
    assert len(ratios) >= 4
    assert 1 / 1.5 < np.median(ratios) < 1.5
    assert max(ratios) < 2
    assert min(ratios) > 0.5


def test_what_is_ranked_is_priced_in_place_of_the_ranks() -> None:
    sym = mx.sym.topk(mx.sym.softmax(network(), name="probabilities"), k=2, name="best")
    model = with_weights(sym, data=(1, 3, 12, 12))
    graph = model.graph
    (head,) = priced_heads(graph)
    assert graph.nodes[head.node].name == "probabilities"
    data = {"data": np.random.default_rng(0).normal(size=(4, 3, 12, 12)).astype(np.float32)}
    prices = price_roundings(model, data, draws=1)
    assert prices.heads == (EntryName("probabilities"),)
    assert all(price > 0 for price in prices.entries["bfloat16"].values())


def peaks(scores: Any) -> Any:
    """Scores where they are the largest around them, and 0 elsewhere: CenterNet's way to suppress."""
    largest = mx.sym.Pooling(scores, kernel=(3, 3), pad=(1, 1), pool_type="max", name="largest")
    return mx.sym.broadcast_mul(scores, mx.sym.broadcast_equal(scores, largest, name="is_peak"), name="peaks")


def convolved(image: Any, name: str) -> Any:
    return mx.sym.Convolution(image, kernel=(1, 1), num_filter=1, name=name)


def chosen(image: Any) -> Any:
    """Values of one convolution where another one's are largest."""
    ranks = mx.sym.topk(mx.sym.Flatten(peaks(convolved(image, "scores"))), k=4, name="best")
    return mx.sym.pick(
        mx.sym.Flatten(convolved(image, "sizes"), name="flat"), mx.sym.max(ranks, axis=1), name="chosen"
    )


def priced_names(sym: Any) -> set[str]:
    graph = with_weights(sym, data=(1, 3, 6, 6)).graph
    return {graph.nodes[head.node].name for head in priced_heads(graph)}


def test_what_jumps_where_two_nearly_tie_is_priced_as_what_it_is_chosen_from() -> None:
    image = mx.sym.var("data")
    assert priced_names(peaks(convolved(image, "scores"))) == {"scores", "largest"}
    assert priced_names(chosen(image)) == {"scores", "largest", "flat"}


def test_behind_a_layer_what_was_chosen_is_priced_as_it_was_chosen() -> None:
    image = mx.sym.var("data")
    sym = mx.sym.FullyConnected(mx.sym.expand_dims(chosen(image), axis=1), num_hidden=2, name="second_stage")
    assert priced_names(sym) == {"scores", "largest", "second_stage"}


def test_what_only_the_shape_of_something_decides_has_no_price() -> None:
    image = mx.sym.var("data")
    places = mx.sym.slice_like(
        mx.sym.arange(0, 100), mx.sym.Reshape(convolved(image, "sizes"), shape=(-1,)), axes=(0,)
    )
    ones = mx.sym.ones_like(convolved(image, "scores"), name="ones")
    sym = mx.sym.Group([mx.sym.cast(places, "int32"), ones, convolved(image, "third")])
    assert priced_names(sym) == {"third"}


def test_a_training_head_is_priced_as_it_computes_in_inference() -> None:
    sym = mx.sym.SoftmaxOutput(network(), mx.sym.var("label"), name="softmax")
    plain = mx.sym.softmax(network(), name="softmax")
    data = {"data": np.random.default_rng(0).normal(size=(4, 3, 12, 12)).astype(np.float32)}
    model = with_weights(plain, data=(1, 3, 12, 12))
    headed = Model.of(sym, model.args, model.auxs)
    priced = price_roundings(headed, data).entries["float16"]
    assert priced == pytest.approx(price_roundings(model, data).entries["float16"], rel=1e-3)


def test_a_model_without_any_gradient_is_an_error() -> None:
    sym = mx.sym.argmax(mx.sym.var("data"), axis=1, name="best")
    with pytest.raises(DataError, match="gradient"):
        price_roundings((sym, {}, {}), {"data": np.zeros((2, 3), np.float32)})


def test_float16_rounds_eight_times_finer(model: Model, images: Any) -> None:
    prices = price_roundings(as_model(model, "it"), {"data": images})
    total = {label: sum(found.values()) for label, found in prices.entries.items()}
    assert 32 < total["bfloat16"] / total["float16"] < 128


def test_a_parameter_that_is_moved_is_priced_where_a_low_node_reads_it() -> None:
    image = mx.sym.var("data")
    x = mx.sym.Convolution(image, num_filter=4, kernel=(1, 1), name="conv")
    anchors = mx.sym.slice_like(mx.sym.var("anchors", shape=(1, 4, 8, 8)), image, axes=(2, 3))
    moved = mx.sym.Reshape(anchors, shape=(1, 4, 6, 6), name="moved")
    model = with_weights(mx.sym.Concat(x, moved, dim=1, name="both"), data=(1, 3, 6, 6))
    data = {"data": np.random.default_rng(0).normal(size=(1, 3, 6, 6)).astype(np.float32)}
    curve = explore(model, price_roundings(model, data, draws=40), {"data": (1, 3, 6, 6)}, target="cpu-bf16")
    node = {node.name: position for position, node in enumerate(curve.problem.graph.nodes)}
    (site,) = (site for site in curve.sites if site.name == "anchors")
    assert {node["moved"], node["both"]} <= site.price.nodes
    alone = curve.point({node["both"]})
    emulated = emulate_model(curve.convert(alone), curve.options.target, Emulation())
    exact, found = (run_outputs(own, data, fusion=False)[0] for own in (model, emulated))
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert curve.error(alone) == pytest.approx(error, rel=0.4)


@pytest.mark.parametrize("channels", [(7, 9), (4, 4), (20, 20), (8, 8)])
def test_parts_that_fill_no_blocks_of_channels_are_priced(channels: tuple[int, int]) -> None:
    """Stock MXNet's backward pass ends the process there, or fails."""
    image = mx.sym.var("data")
    parts = [
        mx.sym.relu(
            mx.sym.Convolution(image, num_filter=count, kernel=(3, 3), pad=(1, 1), name=f"c{count}_{k}")
        )
        for k, count in enumerate(channels)
    ]
    y = mx.sym.Convolution(
        mx.sym.Concat(*parts, dim=1, name="both"), num_filter=32, kernel=(1, 1), name="last"
    )
    model = with_weights(y, data=(2, 8, 9, 9))
    data = {"data": np.random.default_rng(0).normal(size=(2, 8, 9, 9)).astype(np.float32)}
    prices = price_roundings(model, data)
    assert prices.entries["bfloat16"][EntryName("both")] > 0
    assert not prices.unpriced
