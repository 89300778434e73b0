"""Twins become one operator, bit for bit, and only where they certainly are twins."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

import mxamp
from mxamp.graph import Entry, Graph
from mxamp.passes import OneSpelling
from mxamp.passes.equal_shapes import EqualShapes
from mxamp.policy import Policy
from tests.building import BF16, Net, parameters
from tests.passes.preparing import operators, prepare_graph, prepared

FLOAT = {"__dtype__": "0"}
NUMPY_SHAPES = {
    "mxnet_version": ["int", 10901],
    "is_np_shape": ["int", 1],
}
SCALARS = ["add", "subtract", "rsubtract", "multiply", "true_divide", "rtrue_divide", "power"]
ARITHMETIC = ["add", "subtract", "multiply", "true_divide"]

UNARY = (
    *("arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "cbrt", "ceil", "cos", "cosh"),
    *("degrees", "exp", "expm1", "fix", "floor", "log", "log10", "log1p", "log2", "negative", "radians"),
    *("reciprocal", "rint", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc"),
)


def on(op: str, count: int = 1, **attrs: Any) -> Graph:
    """Return a graph of one operator on inputs that are declared float32."""
    net = Net()
    inputs = [net.var(f"x{number}", **FLOAT) for number in range(count)]
    return net.graph(net.op(op, *inputs, name="y", **attrs))


def inside(op: str, count: int = 1, **attrs: Any) -> Graph:
    """Return the same, behind which something else is the output."""
    net = Net()
    inputs = [net.var(f"x{number}", **FLOAT) for number in range(count)]
    return net.graph(net.op("tanh", net.op(op, *inputs, name="y", **attrs), name="last"))


def of_one_shape(op: str) -> Graph:
    net = Net()
    x = pooled(net)
    return in_numpy_mode(net.graph(net.op(op, net.op("tanh", x, name="t"), x, name="y")))


def in_numpy_mode(graph: Graph) -> Graph:
    """Return the graph as MXNet saves it under numpy's shape semantics, where tensors may be empty."""
    return Graph(graph.nodes, graph.heads, NUMPY_SHAPES)


def behind_a_layer(op: str, **attrs: Any) -> Graph:
    net = Net()
    return in_numpy_mode(net.graph(net.op(op, pooled(net), name="y", **attrs)))


def pooled(net: Net) -> Entry:
    """Return what certainly is not empty: the input, through a layer that raises where it is."""
    return net.op("Pooling", net.var("x0", **FLOAT), name="p", kernel=(1, 1), pool_type="avg")


def padding(widths: str, **attrs: Any) -> Graph:
    return behind_a_layer("_npi_pad", pad_width=widths, **{"mode": "constant", **attrs})


TWINS = [
    (on("_npx_relu"), "relu(x0)"),
    (on("_npx_sigmoid"), "sigmoid(x0)"),
    (on("_npi_absolute"), "abs(x0)"),
    *((on(f"_npi_{name}"), f"{name}(x0)") for name in UNARY),
    (on("_maximum_scalar", scalar=0), "relu(x0)"),
    (on("_npi_maximum_scalar", scalar="0.0", is_int=False), "relu(x0)"),
    (on("_power_scalar", scalar=2), "square(x0)"),
    (on("_npi_power_scalar", scalar="2.0", is_int=False), "square(x0)"),
    *(
        (
            on(f"_npi_{name}_scalar", scalar=3.3, is_int=False),
            f"_{twin}_scalar(x0) {{is_int: False, scalar: 3.3}}",
        )
        for name, twin in zip(SCALARS, ["plus", "minus", "rminus", "mul", "div", "rdiv", "power"])
    ),
    *(
        (on(f"_npi_{name}", 2), f"broadcast_{twin}(x0, x1)")
        for name, twin in zip(ARITHMETIC, ["add", "sub", "mul", "div"])
    ),
    *(
        (of_one_shape(f"{prefix}{name}"), f"elemwise_{twin}(t, p)")
        for prefix, names in (("_npi_", ARITHMETIC), ("broadcast_", ["plus", "sub", "mul", "div"]))
        for name, twin in zip(names, ["add", "sub", "mul", "div"])
    ),
    (on("_grad_add", 2), "elemwise_add(x0, x1)"),
    (behind_a_layer("_np_reshape", newshape="(-1, 8, 4)"), "Reshape(p) {shape: (-1, 8, 4)}"),
    (
        behind_a_layer("_npx_reshape", newshape="(64, 8)", order="C", reverse=False),
        "Reshape(p) {shape: (64, 8)}",
    ),
    (inside("_npi_concatenate", 2, axis=1, num_args=2), "Concat(x0, x1) {dim: 1, num_args: 2}"),
    (inside("_npi_concatenate", 2, axis=-1, num_args=2), "Concat(x0, x1) {dim: -1, num_args: 2}"),
]


WITH_AXES = [
    *(
        (
            behind_a_layer(op, axis="(2, -1)", keepdims=keeps),
            f"{twin}(p) {{axis: (2, -1), keepdims: {keeps}}}",
        )
        for op, twin in zip(["_np_max", "_np_min", "_np_sum", "_npi_mean"], ["max", "min", "sum", "mean"])
        for keeps in (False, True)
    ),
    (
        behind_a_layer("_npi_mean", axis="(0, 1, 2, 3)", keepdims=True),
        "mean(p) {axis: (0, 1, 2, 3), keepdims: True}",
    ),
    *(
        (
            padding("((0, 0), (0, 0), (1, 2), (0, 3))", mode=mode, constant_value=1.5),
            f"Pad(p) {{constant_value: 1.5, mode: {mode}, pad_width: (0, 0, 0, 0, 1, 2, 0, 3)}}",
        )
        for mode in ("constant", "edge", "reflect")
    ),
]
"""What has a twin where the number of axes is certain."""


@pytest.mark.parametrize(("graph", "expected"), WITH_AXES, ids=[expected for _, expected in WITH_AXES])
def test_so_does_what_has_a_certain_number_of_axes(graph: Graph, expected: str) -> None:
    mx = pytest.importorskip("mxnet", reason="both graphs are executed")
    from mxamp.runtime.symbol import symbol_from_graph

    shape = (2, 4, 8, 9)
    shapes: list[Any] = [(shape,), (shape,), (None,)]
    after, _ = prepared(OneSpelling, graph, shapes=shapes)
    assert the_node(after) == expected
    assert prepared(OneSpelling, graph)[0] is graph
    with mx.util.np_shape(True):
        fed = {"x0": mx.nd.array(np.random.default_rng(0).normal(0, 10, shape).astype(np.float32))}
        before, found = (
            symbol_from_graph(each).bind(mx.cpu(), fed).forward()[0].asnumpy() for each in (graph, after)
        )
    assert found.shape == before.shape
    np.testing.assert_array_equal(found.view(np.uint32), before.view(np.uint32))


def the_node(graph: Graph) -> str:
    return next(line for line in operators(graph) if line.startswith("y = "))[len("y = ") :]


@pytest.mark.parametrize(("graph", "expected"), TWINS, ids=[expected for _, expected in TWINS])
def test_twins_become_one(graph: Graph, expected: str) -> None:
    after, done = prepared(OneSpelling, graph)
    assert the_node(after) == expected
    (change,) = done.changes
    assert (change.node, change.into) == ("y", "y")


NUMBERS = {
    "broadcast_add": ("_plus_scalar", "_plus_scalar"),
    "broadcast_sub": ("_minus_scalar", "_rminus_scalar"),
    "broadcast_mul": ("_mul_scalar", "_mul_scalar"),
    "broadcast_div": ("_div_scalar", "_rdiv_scalar"),
    "broadcast_power": ("_power_scalar", "_rpower_scalar"),
    "broadcast_maximum": ("_maximum_scalar", "_maximum_scalar"),
    "broadcast_minimum": ("_minimum_scalar", "_minimum_scalar"),
    "_npi_add": ("_plus_scalar", "_plus_scalar"),
    "_npi_subtract": ("_minus_scalar", "_rminus_scalar"),
}
"""Operator -> with a number for its second input, and for its first."""


def with_number(op: str, side: int, value: float, *shape: int, layer: str = "tanh") -> tuple[Net, Graph]:
    net = Net()
    x = net.var("x", __dtype__="0")
    other = net.fc(x) if layer == "FullyConnected" else net.op(layer, x, name="other")
    inputs = [other, net.param("number", *shape or (1,), value=value)]
    graph = net.graph(net.op(op, *inputs[:: 1 if side == 1 else -1], name="y"))
    numpy = {"is_np_shape": ["int", 1]} if op.startswith("_np") else {}
    return net, Graph(graph.nodes, graph.heads, {**graph.attrs, **numpy})


@pytest.mark.parametrize("op", NUMBERS)
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("value", [0.1, -0.0, 3.4e38, 1e-45])
def test_a_parameter_of_one_value_is_a_number(op: str, side: int, value: float) -> None:
    mx = pytest.importorskip("mxnet", reason="both graphs are executed")
    from mxamp.runtime.symbol import symbol_from_graph

    net, graph = with_number(op, side, value)
    after, done = prepared(OneSpelling, graph, net.params, shapes=[((2, 4),)] * 3 + [((1,),)])
    if value == 0 and side == 0 and op in ("broadcast_maximum", "broadcast_minimum"):
        assert after is graph  # the larger of 0 and -0 is the second
        return
    number = float(np.float32(value))
    assert the_node(after) == f"{NUMBERS[op][1 - side]}(other) {{scalar: {number!r}}}"
    assert not done.params
    results = []
    with mx.util.np_shape(op.startswith("_np")):
        for each, values in ((graph, net.params), (after, {})):
            fed = {"x": special_values(3, 50), **values}
            bound = symbol_from_graph(each).bind(mx.cpu(), {key: mx.nd.array(fed[key]) for key in fed})
            results.append(bound.forward()[0].asnumpy().view(np.uint32))
    np.testing.assert_array_equal(*results)


def test_a_number_may_be_computed_from_a_parameter() -> None:
    """Constants are folded before; else a model that is converted again would change."""
    net = Net()
    x = net.op("tanh", net.var("x", __dtype__="0"), name="other")
    number = net.op("abs", net.param("number", 1, value=-3.0))
    graph = net.graph(net.op("broadcast_div", x, number, name="y"))
    steps = ["fold_constants", "one_spelling"]
    done = prepare_graph(graph, parameters(net.params), Policy.default(BF16), steps)
    assert the_node(done.graph) == "_div_scalar(other) {scalar: 3.0}"
    again = prepare_graph(done.graph, done.params, Policy.default(BF16), steps)
    assert again.graph is done.graph


def test_a_power_that_a_parameter_says_is_a_square() -> None:
    net, graph = with_number("broadcast_power", 1, 2.0, 1, 1)
    assert the_node(prepared(OneSpelling, graph, net.params, shapes=[((2, 4),)] * 4)[0]) == "square(other)"


@pytest.mark.parametrize(
    ("given", "shapes"),
    [
        pytest.param({"value": np.inf}, (2, 4), id="no number"),
        pytest.param({"shape": (2,)}, (2, 2), id="two values"),
        pytest.param({"shape": (1, 1, 1)}, (2, 4), id="more axes than it is added to"),
        pytest.param({"shape": (1, 1)}, None, id="axes of any number"),
        pytest.param({"layer": "FullyConnected"}, (2, 4), id="a bias"),
    ],
)
def test_other_parameters_stay(given: Any, shapes: Any) -> None:
    shape = given.pop("shape", (1,)) if "shape" in given else (1,)
    net, graph = with_number(
        "broadcast_add", 1, given.get("value", 1.0), *shape, layer=given.get("layer", "tanh")
    )
    known = None if shapes is None else [(shapes,)] * len(graph.nodes)
    assert prepared(OneSpelling, graph, net.params, shapes=known)[0] is graph


@pytest.mark.parametrize("read_twice", [False, True])
def test_a_layer_that_something_else_reads_takes_no_bias(read_twice: bool) -> None:
    """As in a hard swish that was read from ONNX: x * clip(x + 3, 0, 6) / 6."""
    net = Net()
    layer = net.conv(net.var("x", __dtype__="0"), "layer", 8)
    shifted = net.op("broadcast_add", layer, net.param("three", 1, 1, 1, 1, value=3.0), name="y")
    graph = net.graph(net.op("elemwise_mul", layer, shifted, name="z") if read_twice else shifted)
    shapes = [((2, 8, 5, 5),)] * len(graph.nodes)
    after, _ = prepared(OneSpelling, graph, net.params, shapes=shapes)
    assert ("y = _plus_scalar(layer) {scalar: 3.0}" in operators(after)) == read_twice


def special_values(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    draw = np.random.default_rng(seed)
    values = draw.normal(0, 10, shape).astype(np.float32)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, -3.4e38, 1e-39]
    return np.where(draw.random(shape) < 0.3, draw.choice(np.array(special, np.float32), shape), values)


@pytest.mark.parametrize(("graph", "expected"), TWINS, ids=[expected for _, expected in TWINS])
@pytest.mark.parametrize("shape", [(2, 4, 8, 8), (0, 4, 8, 8)], ids=["values", "empty"])
def test_mxnet_computes_the_same_bits(graph: Graph, expected: str, shape: tuple[int, ...]) -> None:
    mx = pytest.importorskip("mxnet", reason="both graphs are executed")
    from mxamp.runtime.symbol import symbol_from_graph

    if 0 in shape and not all(node.op.startswith("_np") for node in graph.nodes if node.name == "y"):
        pytest.skip("nothing is empty outside NumPy mode")
    if 0 in shape and any(node.name == "p" for node in graph.nodes):
        pytest.skip("oneDNN's pooling raises for empty tensors, in both graphs")
    after, _ = prepared(OneSpelling, graph)
    names = list(graph.variables)
    results = []
    with mx.util.np_shape(True):
        fed = {name: mx.nd.array(special_values(*shape, seed=seed)) for seed, name in enumerate(names)}
        for each in (graph, after):
            (output,) = symbol_from_graph(each).bind(mx.cpu(), fed).forward()
            results.append(output.asnumpy())
    before, found = results
    assert found.shape == before.shape
    assert found.dtype == before.dtype == np.float32
    # Which NaN a NaN is, the processor says.
    number = ~np.isnan(before)
    np.testing.assert_array_equal(np.isnan(found), ~number)
    np.testing.assert_array_equal(found[number].view(np.uint32), before[number].view(np.uint32))


@pytest.mark.parametrize("op", ["_power_scalar", "_npi_power_scalar"])
def test_a_cube_is_a_product(op: str) -> None:
    mx = pytest.importorskip("mxnet", reason="both graphs are executed")
    from mxamp.runtime.symbol import symbol_from_graph

    graph = on(op, scalar="3.0")
    after, _ = prepared(OneSpelling, graph, inserted=["y_square"])
    assert the_node(after) == "elemwise_mul(x0, y_square)"
    x = np.random.default_rng(0).normal(0, 10, 1 << 20).astype(np.float32)
    exact = x.astype(np.float64) ** 3
    with mx.util.np_shape(True):
        (found,) = symbol_from_graph(after).bind(mx.cpu(), {"x0": mx.nd.array(x)}).forward()
        error = (found.asnumpy() - exact) / exact
        assert np.abs(error).max() <= 2.0 * 2.0**-24
        assert abs(error.mean()) <= 0.01 * 2.0**-24
        edges = mx.nd.array(special_values(4, 64))
        before, found = (
            symbol_from_graph(one).bind(mx.cpu(), {"x0": edges}).forward()[0].asnumpy()
            for one in (graph, after)
        )
    np.testing.assert_allclose(found, before, rtol=3e-7)


def with_dtypes(op: str, *dtypes: str | None, **attrs: Any) -> Graph:
    net = Net()
    inputs = [
        net.var(f"x{number}", **({} if dtype is None else {"__dtype__": dtype}))
        for number, dtype in enumerate(dtypes)
    ]
    return net.graph(net.op("tanh", net.op(op, *inputs, name="y", **attrs)))


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(with_dtypes("_npi_add", "0", "4"), id="promotes"),
        pytest.param(with_dtypes("_npi_true_divide_scalar", "4", scalar=255), id="integers"),
        pytest.param(with_dtypes("_npi_true_divide_scalar", None, scalar=255), id="may be an image of bytes"),
        pytest.param(with_dtypes("_npx_relu", "2"), id="float16"),
        pytest.param(on("broadcast_add", 2), id="may be broadcast"),
        pytest.param(on("_maximum_scalar", scalar=1), id="a maximum with one"),
        pytest.param(on("_maximum_scalar", scalar="-0.0"), id="a maximum with minus zero"),
        pytest.param(on("_maximum_scalar", scalar="nan"), id="a maximum with NaN"),
        pytest.param(on("_power_scalar", scalar=4), id="a fourth power"),
        pytest.param(behind_a_layer("_np_reshape", newshape="(0, -1)"), id="an empty axis"),
        pytest.param(behind_a_layer("_npx_reshape", newshape="(-2, -1)"), id="an axis copied"),
        pytest.param(behind_a_layer("_np_reshape", newshape="(-1, 4)", order="F"), id="columns first"),
        pytest.param(behind_a_layer("_npx_reshape", newshape="(-1, 4)", reverse=True), id="from the right"),
        pytest.param(behind_a_layer("_np_reshape", newshape="()"), id="to a scalar"),
        pytest.param(on("_npi_concatenate", 2, axis=1, num_args=2), id="an output's name would change"),
        pytest.param(inside("_npi_concatenate", 2, axis=None, num_args=2), id="flattened first"),
        pytest.param(inside("_npi_concatenate", 1, axis=0, num_args=1), id="a single array"),
        pytest.param(in_numpy_mode(on("_np_reshape", newshape="(-1, 8)")), id="may be empty"),
        pytest.param(in_numpy_mode(on("_grad_add", 2)), id="a sum that may be empty"),
        pytest.param(on("elemwise_add", 2), id="that spelling already"),
        pytest.param(with_dtypes("_npi_exp", "4"), id="a function of integers"),
    ],
)
def test_refuses(graph: Graph) -> None:
    assert prepared(OneSpelling, graph)[0] is graph


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(behind_a_layer("_npi_mean", axis=None), id="a scalar"),
        pytest.param(behind_a_layer("_npi_mean", axis="(0, 1, 2, 3)"), id="a scalar, axis by axis"),
        pytest.param(behind_a_layer("_npi_mean", axis="(1,)", dtype="float64"), id="in another dtype"),
        pytest.param(behind_a_layer("_np_sum", axis="(1,)", initial="2.0"), id="begun with a number"),
        pytest.param(padding("((1, 0), (0, 0), (1, 1), (1, 1))"), id="padded samples"),
        pytest.param(padding("((0, 0), (0, 1), (1, 1), (1, 1))"), id="padded channels"),
        pytest.param(padding("((0, 0), (0, 0), (1, 1), (1, 1))", mode="maximum"), id="padded otherwise"),
        pytest.param(
            padding("((0, 0), (0, 0), (1, 1), (1, 1))", mode="reflect", reflect_type="odd"), id="mirrored"
        ),
    ],
)
def test_refuses_whatever_is_known_of_axes(graph: Graph) -> None:
    shapes: list[Any] = [((2, 4, 8, 9),), ((2, 4, 8, 9),), (None,)]
    assert prepared(OneSpelling, graph, shapes=shapes)[0] is graph


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"axis": 1, "sections": 3}, "{axis: 1, num_outputs: 3}"),
        (
            {"axis": -3, "sections": 2, "squeeze_axis": False},
            "{axis: -3, num_outputs: 2, squeeze_axis: False}",
        ),
        ({"axis": 1, "indices": "[0, 2, 4]", "sections": 0}, "{axis: 1, num_outputs: 3}"),
        ({"axis": 1, "sections": 6, "squeeze_axis": True}, "{axis: 1, num_outputs: 6, squeeze_axis: True}"),
        ({"axis": 1, "sections": 4}, None),
        ({"axis": 1, "indices": "[0, 2, 3]", "sections": 0}, None),
        ({"axis": 1, "indices": "[2, 4]", "sections": 0}, None),
        ({"axis": 0, "sections": 2}, None),
        ({"axis": 7, "sections": 2}, None),
    ],
)
def test_equal_parts_are_cut_apart_as_channels_are(given: dict[str, Any], expected: str | None) -> None:
    """Of an axis that is as long in every call: six channels, and a batch of two."""
    net = Net()
    weight = net.param("w", 6, 4, 1, 1)
    layer = net.op(
        "Convolution", net.var("x0", **FLOAT), weight, name="l", kernel="(1, 1)", num_filter=6, no_bias=True
    )
    counts = given["sections"] or given["indices"].count(",") + 1
    parts = net.op("_split_v2", layer, name="y", outputs=counts, **{"indices": "[]", **given})
    graph = net.graph(*(net.op("tanh", Entry(parts.node, number)) for number in range(counts)))
    after, _ = prepared(OneSpelling, graph, net.params)
    if expected is None:
        assert after is graph
        return
    assert the_node(after) == f"SliceChannel(l) {expected}"
    mx = pytest.importorskip("mxnet", reason="both graphs are executed")
    from mxamp.runtime.symbol import symbol_from_graph

    data = np.random.default_rng(0).normal(size=(2, 4, 3, 5)).astype(np.float32)
    fed = {"x0": mx.nd.array(data), "w": mx.nd.array(net.params["w"])}
    before, found = (
        [each.asnumpy() for each in symbol_from_graph(one).bind(mx.cpu(), fed).forward()]
        for one in (graph, after)
    )
    for one, other in zip(before, found):
        np.testing.assert_array_equal(one, other)


def test_parts_that_are_outputs_keep_their_names() -> None:
    net = Net()
    parts = net.op("_split_v2", pooled(net), name="y", outputs=2, axis=1, sections=2)
    shapes: list[Any] = [((2, 4, 8, 9),), ((2, 4, 8, 9),), (None, None)]
    assert prepared(OneSpelling, net.graph(parts), shapes=shapes)[0].nodes[-1].op == "_split_v2"


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(in_numpy_mode(on("_np_max", axis="(1,)")), id="of what may be empty"),
        pytest.param(in_numpy_mode(on("_npi_pad", pad_width="((0, 0),) * 4")), id="padding of such"),
    ],
)
def test_what_may_be_empty_stays(graph: Graph) -> None:
    shapes: list[Any] = [((2, 4, 8, 9),), (None,)]
    assert prepared(OneSpelling, graph, shapes=shapes)[0] is graph


@pytest.mark.parametrize(("shape", "stays"), [((1,), True), ((), False)])
def test_a_number_takes_the_axes_of_a_parameter(shape: tuple[int, ...], stays: bool) -> None:
    net = Net()
    total = net.op("_np_sum", net.var("x0", **FLOAT), name="total")
    graph = in_numpy_mode(
        net.graph(net.op("tanh", net.op("_npi_multiply", total, net.param("p", *shape), name="y")))
    )
    shapes = [((3, 4),), ((),), (shape,), (shape,), (shape,)]
    after, _ = prepared(OneSpelling, graph, net.params, shapes=shapes)
    assert ("_mul_scalar" in [node.op for node in after.nodes]) != stays


def test_an_addition_of_what_may_be_empty_stays_one_that_broadcasts() -> None:
    net = Net()
    x = net.var("x0", **FLOAT)
    graph = in_numpy_mode(net.graph(net.op("_npi_add", net.op("tanh", x, name="t"), x, name="y")))
    assert the_node(prepared(OneSpelling, graph)[0]) == "broadcast_add(t, x0)"


def test_what_a_rule_of_the_users_picks_stays() -> None:
    graph = on("_npx_relu")
    policy = Policy.default(BF16).excluding(operators=["_npx_relu"])
    assert prepared(OneSpelling, graph, policy=policy)[0] is graph


def layer(net: Net, x: Entry, name: str, kernel: int = 3, *, filters: int = 8, stride: int = 1) -> Entry:
    weight = net.param(f"{name}_weight", filters, 8, kernel, kernel)
    return net.op(
        "Convolution",
        *(x, weight),
        name=name,
        num_filter=filters,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        pad=(kernel // 2, kernel // 2),
        no_bias=True,
    )


def bare(net: Net, x: Entry, name: str, *, stride: int = 1) -> Entry:
    """Return a 3x3 Convolution of 8 filters without padding."""
    weight, each = net.param(f"{name}_weight", 8, 8, 3, 3), {"kernel": (3, 3), "stride": (stride, stride)}
    return net.op("Convolution", x, weight, name=name, num_filter=8, no_bias=True, **each)


def padded(net: Net, x: Entry, before: int, after: int) -> Entry:
    width = (0, 0, 0, 0, before, after, before, after)
    return net.op("Pad", x, mode="constant", pad_width=width)


def with_zeros(net: Net, x: Entry, channels: int) -> Entry:
    """Return an image with as many channels of zeros behind its own, or as many as it has."""
    some = net.op("slice_axis", x, axis=1, begin=0, end=channels)
    return net.op("Concat", x, net.op("zeros_like", some), dim=1, num_args=2)


SHAPES: dict[str, tuple[Callable[[Net, Entry], tuple[Entry, Entry]], bool]] = {
    "the block's input": (
        lambda net, x: (layer(net, x, "a"), layer(net, layer(net, x, "b", 5), "c", 1)),
        True,
    ),
    "a stride, and a shortcut of its own": (
        lambda net, x: (layer(net, x, "a", 3, stride=2), layer(net, x, "b", 1, stride=2)),
        True,
    ),
    "pooled and strided": (
        lambda net, x: (
            net.op("Pooling", layer(net, x, "a"), kernel=(3, 3), stride=(2, 2), pad=(1, 1)),
            layer(net, x, "b", 1, stride=2),
        ),
        True,
    ),
    "pooled to the ceiling": (
        lambda net, x: (
            net.op(
                *("Pooling", layer(net, x, "a")),
                kernel=(3, 3),
                stride=(2, 2),
                pad=(1, 1),
                pooling_convention="full",
            ),
            layer(net, x, "b", 1, stride=2),
        ),
        False,
    ),
    "other channels": (lambda net, x: (layer(net, x, "a"), layer(net, x, "b", filters=1)), False),
    "another stride": (lambda net, x: (layer(net, x, "a"), layer(net, x, "b", stride=2)), False),
    "no padding": (
        lambda net, x: (
            layer(net, x, "a"),
            net.op(
                *("Convolution", x, net.param("w", 8, 8, 3, 3)), num_filter=8, kernel=(3, 3), no_bias=True
            ),
        ),
        False,
    ),
    "an input of unknown shape": (lambda net, x: (layer(net, x, "a"), x), False),
    "globally pooled": (
        lambda net, x: (x, net.op("Pooling", x, kernel=(1, 1), global_pool=True)),
        False,
    ),
    "rows": (
        lambda net, x: (
            net.op("FullyConnected", x, net.param("w", 4, 4), num_hidden=4, no_bias=True, flatten=False),
            net.op(
                "FullyConnected",
                net.op("FullyConnected", x, net.param("v", 7, 4), num_hidden=7, no_bias=True, flatten=False),
                net.param("u", 4, 7),
                num_hidden=4,
                no_bias=True,
                flatten=False,
            ),
        ),
        True,
    ),
    "hidden layers": (lambda net, x: (net.fc(x), net.fc(net.fc(x))), True),
    "hidden layers of two sizes": (lambda net, x: (net.fc(x, hidden=1), net.fc(x)), False),
    "hidden layers in a spelling that is not read": (
        lambda net, x: tuple(
            net.op("FullyConnected", x, net.param(name, size, 4), num_hidden=f"+{size}", no_bias=True)
            for name, size in (("w", 4), ("u", 1))
        ),
        False,
    ),
    "two inputs": (lambda net, x: (net.fc(x), net.fc(net.var("other"))), False),
    "parts": (
        lambda net, x: (x, Entry(net.op("SliceChannel", x, name="s", outputs=2, num_outputs=2).node, 1)),
        False,
    ),
    "joined": (
        lambda net, x: (
            net.op("Concat", layer(net, x, "a"), layer(net, x, "b", filters=1), num_args=2),
            net.op("Concat", layer(net, x, "c", 5), layer(net, x, "d", 1, filters=1), num_args=2),
        ),
        True,
    ),
    "padded, and a layer without padding": (
        lambda net, x: (layer(net, x, "a"), bare(net, padded(net, x, 1, 1), "b")),
        True,
    ),
    "padded afterwards": (
        lambda net, x: (layer(net, x, "a"), padded(net, bare(net, x, "b"), 0, 2)),
        True,
    ),
    "padded too far": (
        lambda net, x: (layer(net, x, "a"), bare(net, padded(net, x, 1, 2), "b")),
        False,
    ),
    "padded behind, and pooled": (
        lambda net, x: (
            bare(net, padded(net, x, 0, 1), "a", stride=2),
            net.op("Pooling", layer(net, x, "b"), kernel=(2, 2), stride=(2, 2)),
        ),
        True,
    ),
    "channels of zeros": (
        lambda net, x: (layer(net, x, "a", filters=14), with_zeros(net, layer(net, x, "b"), 6)),
        True,
    ),
    "channels that there are not": (
        lambda net, x: (layer(net, x, "a", filters=17), with_zeros(net, layer(net, x, "b"), 9)),
        False,
    ),
    "parameters": (lambda net, x: (net.param("p", 3, 4), net.param("q", 3, 4)), True),
    "parameters of two shapes": (lambda net, x: (net.param("p", 3, 4), net.param("q", 1, 4)), False),
}


@pytest.mark.parametrize("case", SHAPES)
def test_one_shape_is_told_from_perhaps_two(case: str) -> None:
    build, expected = SHAPES[case]
    net = Net()
    one, other = build(net, net.var("data"))
    graph = net.graph(one, other)
    assert EqualShapes(graph, parameters(net.params)).are_equal(one, other) is expected


def test_shapes_are_compared_however_many_windows_went_over_them() -> None:
    net = Net()
    data = net.var("data")
    ends = []
    for name in ("a", "b"):
        end = data
        for number in range(3000):
            end = net.op("Pooling", end, name=f"{name}{number}", kernel="(2, 1)", pool_type="max")
            end = net.op("Concat", end, name=f"{name}{number}c", num_args=1)
        ends.append(end)
    graph = net.graph(*ends)
    assert EqualShapes(graph, {}).are_equal(*ends)


@pytest.mark.parametrize("case", [case for case, (_, expected) in SHAPES.items() if expected])
@pytest.mark.parametrize("size", [7, 8, 9])
def test_mxnet_agrees_that_it_is_one_shape(case: str, size: int) -> None:
    pytest.importorskip("mxnet", reason="MXNet infers the shapes")
    from mxamp.runtime.symbol import symbol_from_graph

    net = Net()
    one, other = SHAPES[case][0](net, net.var("data"))
    fed = (2, 4) if case in ("rows", "hidden layers") else (2, 8, size, size)
    symbol = symbol_from_graph(net.graph(one, other))
    known = {name: value.shape for name, value in net.params.items()}
    if "data" in symbol.list_inputs():
        known["data"] = fed
    _, shapes, _ = symbol.infer_shape(**known)
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(("places", "is_one"), [(1, True), (2, False)])
def test_a_weighted_image_has_the_shape_of_the_image(places: int, is_one: bool) -> None:
    """As in a block of squeeze and excite, whose result is added to what the block reads."""
    net = Net()
    x = layer(net, net.var("data"), "before")
    y = layer(net, x, "block")
    attrs = {"global_pool": True} if places == 1 else {"stride": (4, 4)}
    pooled = net.op("Pooling", y, kernel=(1, 1), pool_type="avg", **attrs)
    gate = net.op(
        *("Convolution", pooled, net.param("gate", 8, 8, 1, 1)), num_filter=8, kernel=(1, 1), no_bias=True
    )
    weighted = net.op("broadcast_mul", y, net.op("sigmoid", gate), name="weighted")
    graph = net.graph(net.op("broadcast_add", weighted, x, name="y"))
    shapes: list[Any] = [((2, 8, 8, 8),)] * len(graph.nodes)
    for entry in (pooled, gate):
        shapes[entry.node] = ((2, 8, places, places),)
    after, _ = prepared(OneSpelling, graph, net.params, shapes=shapes)
    assert (the_node(after) == "elemwise_add(weighted, before)") == is_one


def test_a_residual_network_of_numpy_mode_is_fused_and_returns_numpy_arrays() -> None:
    mx = pytest.importorskip("mxnet", reason="runs the block")
    with mx.util.np_shape(True), mx.util.np_array(True):

        class Residual(mx.gluon.HybridBlock):  # type: ignore[name-defined,misc]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second, self.last = (
                    mx.gluon.nn.Conv2D(16, 3, padding=1, in_channels=16) for _ in range(3)
                )

            def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803 - the name MXNet gives it
                x = self.first(x)
                y = F.npx.relu(self.second(x) + self.last(x))
                return F.np.reshape(F.np.concatenate([y, x * 2], axis=1), (-1, 32, 64))

        block = Residual()
        block.initialize(mx.init.Xavier())
        data = mx.np.random.uniform(-1, 1, (2, 16, 8, 8))
        expected = block(data)
        converted = mxamp.convert_block(block, target_dtype="bfloat16")
        found = converted(data)
        assert type(found) is type(expected)
        report = str(converted.report)
        error = np.abs(found.asnumpy() - expected.asnumpy()).max()
        assert error < 2**-6 * np.abs(expected.asnumpy()).max()
        assert "written as the operator that backends run best" in report
