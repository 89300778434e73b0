"""A product with a matrix of parameters becomes FullyConnected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import RewriteDenseLayer
from mxamp.policy import Policy
from tests.building import BF16, Net, named, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import CPUS, prepared, targets_that_choose

UNITS, CHANNELS = 5, 4


class Product(Net):
    """Products of one matrix of parameters with inputs."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__()
        self.attrs = attrs
        turned = attrs.get("transpose_b", False)
        self.weight = self.param("w", *((UNITS, CHANNELS) if turned else (CHANNELS, UNITS)))

    def product(self, data: Entry, name: str = "y", op: str = "dot") -> Entry:
        return self.op(op, data, self.weight, name=name, **self.attrs)

    def shapes(self, graph: Graph, *data: int) -> list[Any]:
        return [(self.params[node.name].shape if node.name in self.params else data,) for node in graph.nodes]


@pytest.mark.parametrize("op", ["dot", "_np_dot", "_npi_matmul"])
@pytest.mark.parametrize("shape", [(3, CHANNELS), (1, CHANNELS), (2, 3, CHANNELS), (2, 1, 3, CHANNELS)])
def test_it_is_a_layer(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], op: str) -> None:
    net = Product()
    product = net.product(net.var("x"), op=op)
    # What matmul writes has another name.
    graph = net.graph(net.op("negative", product) if op == "_npi_matmul" else product)
    after, done = prepared(RewriteDenseLayer, graph, net.params, shapes=net.shapes(graph, *shape))
    layer = named(after, "y")
    flattens = {} if len(shape) == 2 else {"flatten": "False"}
    assert (layer.op, layer.attrs) == ("FullyConnected", {"num_hidden": "5", "no_bias": "True", **flattens})
    np.testing.assert_array_equal(done.params["w"].values(), net.params["w"].T)
    assert [(change.node, change.into) for change in done.changes] == [("y", "y")]
    data = {"x": np.random.default_rng(1).normal(size=shape).astype(np.float32)}
    (found,) = outputs(monkeypatch, after, done.params, data)
    assert found.shape == (*shape[:-1], UNITS)
    sign = -1 if op == "_npi_matmul" else 1
    exact = sign * data["x"].astype(np.float64) @ net.params["w"].astype(np.float64)
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6)
    if op == "dot":  # the others run in NumPy mode alone
        (expected,) = outputs(monkeypatch, graph, parameters(net.params), data)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_transposed_matrix_is_the_weight() -> None:
    net = Product(transpose_b=True)
    graph = net.graph(net.product(net.var("x")))
    after, done = prepared(RewriteDenseLayer, graph, net.params, shapes=net.shapes(graph, 3, CHANNELS))
    assert named(after, "y").op == "FullyConnected"
    np.testing.assert_array_equal(done.params["w"].values(), net.params["w"])


@pytest.mark.parametrize("beside", ["an Embedding", "an output"])
def test_what_need_not_be_turned_may_be_read_by_others(beside: str) -> None:
    """As the last layer of a language model that is tied to its first."""
    net = Product(transpose_b=True)
    other = net.weight
    if beside == "an Embedding":
        other = net.op("Embedding", net.var("words"), net.weight, input_dim=CHANNELS, output_dim=UNITS)
    graph = net.graph(net.product(net.var("x")), other)
    after, done = prepared(RewriteDenseLayer, graph, net.params, shapes=net.shapes(graph, 3, CHANNELS))
    assert named(after, "y").op == "FullyConnected"
    np.testing.assert_array_equal(done.params["w"].values(), net.params["w"])


@pytest.mark.parametrize("turned", [False, True])
def test_a_product_of_matrices_is_a_layer(monkeypatch: pytest.MonkeyPatch, turned: bool) -> None:
    """As models have it that were read from ONNX: shapes need not be known."""
    net = Product(transpose_b=turned)
    graph = net.graph(net.product(net.var("x"), op="_linalg_gemm2"))
    after, done = prepared(RewriteDenseLayer, graph, net.params)
    assert named(after, "y").op == "FullyConnected"
    data = {"x": np.random.default_rng(1).normal(size=(3, CHANNELS)).astype(np.float32)}
    (found,) = outputs(monkeypatch, after, done.params, data)
    (expected,) = outputs(monkeypatch, graph, parameters(net.params), data)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attrs", [{"alpha": 2.0}, {"alpha": "x"}, {"axis": 0}, {"transpose_a": True}])
def test_other_products_of_matrices_stay(attrs: dict[str, Any]) -> None:
    net = Product(**attrs)
    graph = net.graph(net.product(net.var("x"), op="linalg_gemm2"))
    assert prepared(RewriteDenseLayer, graph, net.params)[0] is graph


def test_layers_may_share_it() -> None:
    net = Product()
    graph = net.graph(net.product(net.var("x")), net.product(net.var("z"), name="twin"))
    after, done = prepared(RewriteDenseLayer, graph, net.params, shapes=net.shapes(graph, 3, CHANNELS))
    assert [named(after, name).op for name in ("y", "twin")] == ["FullyConnected"] * 2
    np.testing.assert_array_equal(done.params["w"].values(), net.params["w"].T)


def test_without_shapes_what_is_flat_has_two_axes() -> None:
    net = Product()
    graph = net.graph(net.product(net.op("Flatten", net.var("x"))))
    after, _ = prepared(RewriteDenseLayer, graph, net.params)
    assert named(after, "y").op == "FullyConnected"


@pytest.mark.parametrize(
    "case",
    [
        "one axis",
        "unknown axes",
        "turned data",
        "read by others",
        "an output",
        "sparse data",
        "a sparse matrix",
        "a matrix fed",
        "rule",
    ],
)
def test_refuses(case: str) -> None:
    net = Product(**({"transpose_a": True} if case == "turned data" else {}))
    data = net.var("x", **({"__storage_type__": "2"} if case == "sparse data" else {}))
    if case == "a matrix fed":
        net.weight = net.var("fed")
    elif case == "a sparse matrix":  # what is stored is dense, and Module makes an array as declared
        net.nodes[net.weight.node] = net.nodes[net.weight.node]._replace(attrs={"__storage_type__": "1"})
    heads = [net.product(data, op="_npi_matmul" if case == "another name" else "dot")]
    if case == "read by others":
        heads.append(net.op("exp", net.weight))
    elif case == "an output":
        heads.append(net.weight)
    graph = net.graph(*heads)
    shape = (CHANNELS,) if case == "one axis" else (CHANNELS, CHANNELS)
    shapes = None if case == "unknown axes" else net.shapes(graph, *shape)
    policy = Policy.default(BF16).excluding(names=["y"]) if case == "rule" else None
    assert prepared(RewriteDenseLayer, graph, net.params, policy, shapes=shapes)[0] is graph


def test_what_may_be_empty_stays() -> None:
    net = Product()
    graph = net.graph(net.product(net.var("x"), op="_np_dot"))
    graph = Graph(graph.nodes, graph.heads, {**graph.attrs, "is_np_shape": ["int", 1]})
    shapes = net.shapes(graph, 3, CHANNELS)
    assert prepared(RewriteDenseLayer, graph, net.params, shapes=shapes)[0] is graph


def test_targets_choose() -> None:
    net = Product()
    graph = net.graph(net.product(net.var("x")))
    shapes = net.shapes(graph, 3, CHANNELS)
    assert targets_that_choose("dense_layer", graph, parameters(net.params), shapes) == CPUS
