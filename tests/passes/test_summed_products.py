"""Products that are summed up are products of matrices, whatever is fed."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.passes import PreparedNode, RewriteSummedProducts
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepare_graph, prepared, targets_that_choose

Shapes = Mapping[str, "tuple[int, ...]"]


def votes(net: Net) -> Graph:
    """Write what capsules say: a vector of 8 for each of 36, and 40 times 8 weights for each."""
    weight = net.param("weight", 1, 36, 40, 8)
    said = net.op("Reshape", net.var("x"), name="said", shape=(0, -1, 1, 8))
    tiled = net.op("tile", said, name="tiled", reps=(1, 1, 40, 1))
    product = net.op("broadcast_mul", weight, tiled, name="product")
    return net.graph(net.op("sum", product, name="y", axis=3))


def pooled(net: Net) -> Graph:
    """Write attention: words weighted and added up."""
    x = net.var("x")
    weights = net.op(
        "FullyConnected", x, net.param("score", 1, 64), num_hidden=1, flatten=False, no_bias=True
    )
    shares = net.op("softmax", weights, name="shares", axis=1)
    return net.graph(net.op("sum", net.op("broadcast_mul", x, shares, name="product"), name="y", axis=1))


def scores(net: Net) -> Graph:
    """Write how well each word fits a question: one sum for each, which keeps its axis."""
    x = net.var("x", __dtype__="0")
    asked = net.op("expand_dims", net.op("mean", x, axis=1), name="asked", axis=1)
    product = net.op("broadcast_mul", x, asked, name="product")
    return net.graph(net.op("sum", product, name="y", axis=-1, keepdims=True))


def matrices(net: Net) -> Graph:
    """Write copies of weights and of what they are multiplied by, as MXNet's example of capsules has it."""
    parts = net.op("Reshape", net.var("x"), name="parts", shape=(0, -1, 1, 8, 1))
    tiled = net.op("tile", parts, name="tiled", reps=(1, 1, 5, 1, 1))
    weight = net.op("broadcast_axis", net.param("weight", 1, 36, 5, 8, 16), name="copied", axis=0, size=2)
    return net.graph(net.op("_linalg_gemm2", weight, tiled, name="y", transpose_a=True))


CASES: dict[str, tuple[Callable[[Net], Graph], Shapes]] = {
    "votes": (votes, {"x": (2, 288)}),
    "pooled": (pooled, {"x": (3, 50, 64)}),
    "scores": (scores, {"x": (3, 50, 64)}),
    "matrices": (matrices, {"x": (2, 288)}),
}


def shapes_in(graph: Graph, net: Net, inputs: Shapes) -> Any:
    return infer_entry_shapes(
        graph, inputs, {name: value.shape for name, value in net.params.items()}
    ).entries


def rewritten(case: str, policy: Policy | None = None, **options: Any) -> tuple[Graph, Any]:
    build, inputs = CASES[case]
    net = Net()
    graph = build(net)
    return prepared(
        RewriteSummedProducts, graph, net.params, policy, shapes=shapes_in(graph, net, inputs), **options
    )


def parts(*names: str) -> list[str]:
    return [f"y_{name}" for name in names]


def test_votes() -> None:
    inserted = parts("left_reshape", "right_transpose", "right_reshape", "product", "product_reshape")
    after, done = rewritten("votes", inserted=[*inserted, *parts("product_transpose", "stretched")])
    assert operators(after)[1:] == [
        "y_stretched = broadcast_to(said) {shape: (0, 36, 0, 0)}",
        "y_left_reshape = Reshape(weight) {shape: (36, 40, 8)}",
        "y_right_transpose = transpose(y_stretched) {axes: (1, 0, 3, 2)}",
        "y_right_reshape = Reshape(y_right_transpose) {shape: (36, 0, 8)}",
        "y_product = batch_dot(y_left_reshape, y_right_reshape) {transpose_b: True}",
        "y = transpose(y_product) {axes: (2, 0, 1)}",
    ]
    assert [(change.node, change.into) for change in done.changes] == [
        ("tiled", "y"),
        ("product", "y"),
        ("y", "y"),
    ]


def test_words_are_weighted_in_place() -> None:
    after, _ = rewritten("pooled", inserted=parts("product"))
    assert operators(after)[2:] == [
        "y_product = batch_dot(x, shares) {transpose_a: True}",
        "y = Reshape(y_product) {shape: (0, 0)}",
    ]


def test_a_sum_that_keeps_its_axis_is_the_product() -> None:
    after, _ = rewritten("scores")
    assert operators(after)[2:] == ["y = batch_dot(x, asked) {transpose_b: True}"]


def refused(case: str, net: Net) -> tuple[Graph, Shapes | None]:
    """Return what stays as it is: of 50 words of 64 values each, unless the case says otherwise."""
    x = net.var("x", __dtype__="2" if case == "float16" else "0")
    inputs: Shapes | None = {"x": (3, 50, 64)}
    op, attrs = "broadcast_mul", {"axis": 1}
    weights = net.op("sum", x, name="weights", axis=2, keepdims=True)
    if case == "both have every axis":
        op, weights = "elemwise_mul", net.op("exp", x, name="weights")
    elif case == "not certainly one":
        weights = net.op("slice", x, name="weights", begin=(0, 0, 0), end=(3, 50, 1))
    elif case == "two axes":
        attrs = {"axis": (1, 2)}
    elif case == "excluded":
        attrs["exclude"] = True
    elif case == "few values":
        inputs = {"x": (3, 50, 8)}
    elif case == "small matrices":
        inputs = {"x": (300, 6, 8)}
    elif case == "few terms":
        inputs = {"x": (3, 3, 640)}
    elif case == "many terms":
        inputs = {"x": (3, 5000, 64)}
    elif case == "no shapes":
        inputs = None
    elif case == "not a product":
        op = "broadcast_add"
    elif case == "turned and few":
        weights, attrs = net.op("sum", x, name="weights", axis=1, keepdims=True), {"axis": 0}
    product = net.op(op, x, weights, name="product")
    heads = [net.op("sum", product, name="y", **attrs)]
    if case == "read elsewhere":
        heads.append(net.op("exp", product, name="z"))
    elif case == "an output":
        heads.append(product)
    return net.graph(*heads), inputs


@pytest.mark.parametrize(
    "case",
    [
        *(
            "both have every axis",
            "not certainly one",
            "two axes",
            "excluded",
            "few values",
            "small matrices",
        ),
        *("few terms", "many terms", "no shapes", "not a product", "read elsewhere", "an output", "float16"),
        *("rule for the sum", "rule for the product", "turned and few"),
    ],
)
def test_refuses(case: str) -> None:
    net, policy = Net(), None
    graph, inputs = refused(case, net)
    shapes = None if inputs is None else shapes_in(graph, net, inputs)
    if case.startswith("rule"):
        policy = Policy.default(BF16).excluding(names=["y" if case.endswith("sum") else "product"])
    assert prepared(RewriteSummedProducts, graph, policy=policy, shapes=shapes)[0] is graph


def test_a_copy_that_is_read_elsewhere_stays() -> None:
    net = Net()
    votes(net)
    tiled = next(position for position, node in enumerate(net.nodes) if node.name == "tiled")
    product = len(net.nodes) - 1
    graph = net.graph(Entry(product), net.op("exp", Entry(tiled), name="z"))
    shapes = shapes_in(graph, net, {"x": (2, 288)})
    inserted = parts("left_reshape", "right_transpose", "right_reshape", "product", "stretched")
    after, _ = prepared(RewriteSummedProducts, graph, net.params, shapes=shapes, inserted=inserted)
    assert "tile" in [node.op for node in after.nodes]
    assert "broadcast_mul" not in [node.op for node in after.nodes]


def test_one_value_for_all_is_so_in_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are as many as a parameter has, and in another call there is one, which stands for all."""
    net = Net()
    whole = net.op("expand_dims", net.var("x", __dtype__="0"), axis=2)
    product = net.op("broadcast_mul", whole, net.param("w", 1, 64, 16, 8))
    graph = net.graph(net.op("sum", product, name="y", axis=3))
    given, target = parameters(net.params), Target.builtin("cpu-bf16")
    shapes = shapes_in(graph, net, {"x": (2, 64, 8)})
    done = prepare_graph(
        graph, given, Policy.default(BF16), ["summed_products"], target=target, shapes=shapes
    )
    assert [change.step for change in done.record(PreparedNode)]
    for shape in ((2, 64, 8), (5, 64, 8), (2, 1, 8)):
        data = {"x": np.random.default_rng(0).normal(size=shape).astype(np.float32)}
        (expected,) = outputs(monkeypatch, graph, given, data)
        (found,) = outputs(monkeypatch, done.graph, dict(done.params), data)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_mxnet_computes_the_same_in_every_call(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    build, inputs = CASES[case]
    net = Net()
    graph = build(net)
    given, target = parameters(net.params), Target.builtin("cpu-bf16")
    done = prepare_graph(
        graph, given, Policy.default(BF16), target=target, shapes=shapes_in(graph, net, inputs)
    )
    assert {change.step for change in done.record(PreparedNode)} >= {"summed_products"}
    assert {"sum", "tile", "broadcast_mul", "_linalg_gemm2"}.isdisjoint(node.op for node in done.graph.nodes)
    (name,) = inputs
    for batch in {inputs[name][0], *((1, 5) if case != "matrices" else ())}:
        x = np.random.default_rng(0).normal(0, 1, (batch, *inputs[name][1:])).astype(np.float32)
        (expected,) = outputs(monkeypatch, graph, given, {name: x})
        (found,) = outputs(monkeypatch, done.graph, done.params, {name: x}, "MKLDNN")
        assert found.shape == expected.shape
        # Up to 64 products of order one: what rounding leaves of them.
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=64 * 2.0**-24 * np.abs(expected).max())
        off = (found.astype(np.float64) - expected).mean() / np.abs(expected).mean()
        assert abs(off) < 2.0**-22


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinities_and_nan_go_where_they_went(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    net = Net()
    graph = scores(net)
    shapes, target = shapes_in(graph, net, {"x": (3, 50, 64)}), Target.builtin("cpu-bf16")
    done = prepare_graph(graph, {}, Policy.default(BF16), target=target, shapes=shapes)
    x = np.random.default_rng(0).normal(0, 1, (3, 50, 64)).astype(np.float32)
    x[1, 7, 3] = value
    (expected,) = outputs(monkeypatch, graph, {}, {"x": x})
    (found,) = outputs(monkeypatch, done.graph, {}, {"x": x}, "MKLDNN")
    assert not np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_products_are_not_rounded_before_they_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error against float64 is no larger than what MXNet's own sum of rounded products has."""
    net = Net()
    graph = scores(net)
    shapes, target = shapes_in(graph, net, {"x": (3, 500, 256)}), Target.builtin("cpu-bf16")
    done = prepare_graph(graph, {}, Policy.default(BF16), target=target, shapes=shapes)
    x = np.random.default_rng(2).normal(0, 1, (3, 500, 256)).astype(np.float32)
    asked = x.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    exact = (x.astype(np.float64) * asked).sum(axis=-1, keepdims=True)
    magnitude = np.abs(x.astype(np.float64) * asked).sum(axis=-1, keepdims=True)
    (found,) = outputs(monkeypatch, done.graph, {}, {"x": x}, "MKLDNN")
    off = (found - exact) / magnitude
    assert np.abs(off).max() < 256 * 2.0**-24
    assert abs(off.mean()) < 2.0**-24


def test_targets_of_cpus_name_it() -> None:
    net = Net()
    graph = pooled(net)
    shapes = shapes_in(graph, net, {"x": (3, 50, 64)})
    found = targets_that_choose("summed_products", graph, parameters(net.params), shapes)
    assert found == ["cpu-bf16", "cpu-bf16-amx", "cpu-bf16-intel"]
