"""A layer times the columns that are cut out of its input is what MXNet computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mxamp.calibration.layers import as_matrices, from_matrices, layers_of
from mxamp.model import Model
from tests.building import Net, parameters

mx = pytest.importorskip("mxnet")

from mxamp.runtime.executor import run_outputs

CASES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ("Convolution", (2, 3, 7, 6), (5, 3, 3, 3), {}),
    "strides and padding": ("Convolution", (2, 3, 7, 6), (5, 3, 3, 2), {"stride": "(2, 1)", "pad": "(1, 2)"}),
    "dilated": ("Convolution", (2, 3, 9, 9), (5, 3, 3, 3), {"dilate": "(2, 3)", "pad": "(2, 2)"}),
    "groups": ("Convolution", (2, 6, 5, 5), (4, 3, 3, 3), {"num_group": 2}),
    "depthwise": ("Convolution", (2, 6, 5, 5), (6, 1, 3, 3), {"num_group": 6, "pad": "(1, 1)"}),
    "one axis": ("Convolution", (2, 3, 9), (4, 3, 3), {"stride": "(2,)"}),
    "three axes": ("Convolution", (2, 3, 4, 5, 4), (4, 3, 2, 3, 2), {}),
    "deconvolution": ("Deconvolution", (2, 3, 4, 5), (3, 5, 3, 3), {"stride": "(2, 3)", "pad": "(1, 0)"}),
    "deconvolution with adj": (
        "Deconvolution",
        (2, 3, 4, 5),
        (3, 5, 4, 4),
        {"stride": "(2, 2)", "adj": "(1, 1)"},
    ),
    "deconvolution in groups": (
        "Deconvolution",
        (2, 4, 4, 5),
        (4, 3, 3, 3),
        {"num_group": 2, "stride": "(2, 2)"},
    ),
    "flattened": ("FullyConnected", (4, 3, 2, 2), (5, 12), {}),
    "tokens": ("FullyConnected", (4, 6, 3), (5, 3), {"flatten": False}),
    "dot": ("dot", (6, 3), (3, 5), {}),
    "dot, transposed": ("dot", (6, 3), (5, 3), {"transpose_b": True}),
}


def model_of(case: str) -> tuple[Model, NDArray[np.float32]]:
    op, data, weight, attrs = CASES[case]
    net = Net()
    if "onvolution" in op:
        attrs = {**attrs, "kernel": str(weight[2:]), "no_bias": True}
        groups = attrs.get("num_group", 1) if op == "Deconvolution" else 1
        attrs["num_filter"] = weight[1] * groups if op == "Deconvolution" else weight[0]
    elif op == "FullyConnected":
        attrs = {**attrs, "num_hidden": weight[0], "no_bias": True}
    graph = net.graph(net.op(op, net.var("data"), net.param("weight", *weight), name="layer", **attrs))
    values = np.random.default_rng(1).standard_normal(data).astype(np.float32)
    return Model(graph, parameters(net.params), parameters({})), values


@pytest.mark.parametrize("case", CASES)
def test_columns_times_matrices_are_the_output(case: str) -> None:
    model, values = model_of(case)
    weight = model.arg_params["weight"].values()
    (layer,) = layers_of(model.graph, {"weight": weight.shape})
    columns = layer.sampled(values, 10**6, 0)
    assert columns.shape[2] == layer.columns
    matrices = as_matrices(layer.op, layer.attrs, weight)
    np.testing.assert_array_equal(from_matrices(layer.op, layer.attrs, matrices, weight.shape), weight)
    products = np.matmul(columns, matrices.transpose(0, 2, 1))  # (groups, columns, outputs)
    (output,) = run_outputs(model, {"data": values}, fusion=False)
    if "onvolution" in layer.op:
        output = np.moveaxis(output, 1, -1)
    flat = output.reshape(products.shape[1], products.shape[0], products.shape[2]).transpose(1, 0, 2)
    np.testing.assert_allclose(products, flat, rtol=1e-4, atol=1e-5)


def test_columns_are_drawn_alike_in_any_batch() -> None:
    model, values = model_of("strides and padding")
    (layer,) = layers_of(model.graph, {"weight": (5, 3, 3, 2)})
    whole = layer.sampled(values, 4, 7)
    alone = [layer.sampled(values[number : number + 1], 4, 7 + number) for number in range(2)]
    np.testing.assert_array_equal(whole, np.concatenate(alone, axis=1))
    assert whole.shape == (1, 8, 18)


@pytest.mark.parametrize(
    "attrs", [{"layout": "NHWC"}, {"target_shape": "(9, 9)"}, {"pad": "(3, 3)"}], ids=str
)
def test_what_no_matrix_stands_for_is_no_layer(attrs: dict[str, str]) -> None:
    net = Net()
    op = "Convolution" if "layout" in attrs else "Deconvolution"
    weight = net.param("weight", 3, 5, 3, 3)
    graph = net.graph(
        net.op(op, net.var("data"), weight, name="layer", kernel="(3, 3)", num_filter=5, **attrs)
    )
    assert layers_of(graph, {"weight": (3, 5, 3, 3)}) == []
