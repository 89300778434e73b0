"""Shapes inferred without MXNet are those that MXNet infers."""

from __future__ import annotations

import math
from typing import Any, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

mx = pytest.importorskip("mxnet", reason="MXNet is what the shapes are compared with")

from mxamp.errors import DataError
from mxamp.graph import Entry, Graph, Node
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.params.parameter import Parameter
from mxamp.runtime.shapes import infer_shapes
from mxamp.runtime.symbol import graph_from_symbol
from tools.networks.build import build_network
from tools.networks.catalogue import find_network
from tools.networks.names import NETWORK_NAMES

ATTRS = {"mxnet_version": ["int", 10901]}


def assert_same(
    graph: Graph, shapes: Mapping[str, Any], params: Mapping[str, Parameter] | None = None
) -> None:
    params = params or {}
    expected = infer_shapes(graph, shapes, params)
    found = infer_entry_shapes(graph, shapes, {name: value.shape for name, value in params.items()})
    assert not found.without_rule
    differ = {
        node.name: (node.op, ours, theirs)
        for node, ours, theirs in zip(graph.nodes, found.entries, expected)
        if ours != theirs
    }
    assert not differ


def one_call(op: str, shapes: Sequence[Sequence[int]], attrs: Mapping[str, Any], outputs: int = 1) -> Graph:
    inputs = tuple(Node("null", f"in{number}") for number in range(len(shapes)))
    entries = tuple(Entry(number) for number in range(len(shapes)))
    node = Node(op, "n", {key: str(value) for key, value in attrs.items()}, entries, outputs)
    return Graph((*inputs, node), tuple(Entry(len(shapes), number) for number in range(outputs)), ATTRS)


def assert_same_or_refused(
    op: str, shapes: Sequence[Sequence[int]], attrs: Mapping[str, Any], outputs: int = 1
) -> None:
    """Where MXNet refuses the call, so do we; and else only where the number of values would change."""
    graph = one_call(op, shapes, attrs, outputs)
    inputs = {f"in{number}": tuple(shape) for number, shape in enumerate(shapes)}
    try:
        expected = infer_shapes(graph, inputs, {})
    except DataError:
        with pytest.raises(DataError, match=r"at node 'n' \("):
            infer_entry_shapes(graph, inputs, {})
        return
    made = expected[-1][0]
    if op == "Reshape" and (made is None or math.prod(made) != math.prod(shapes[0])):
        with pytest.raises(DataError, match="cannot be reshaped"):
            infer_entry_shapes(graph, inputs, {})
        return
    assert infer_entry_shapes(graph, inputs, {}).entries == expected


@pytest.mark.parametrize("name", NETWORK_NAMES)
def test_networks_have_the_shapes_that_mxnet_infers(name: str) -> None:
    network = find_network(name)
    model = build_network(network)
    for batch in (1, 3):
        shapes = {key: value.batched(batch) for key, value in network.inputs.items()}
        assert_same(model.graph, shapes, {**model.arg_params, **model.aux_params})


_FORGETFUL = ("_npi_vstack", "_npi_hstack", "_npi_dstack", "_npi_column_stack")
"""Operators of whose inputs MXNet tells no shape, or a wrong one, once it has inferred theirs."""


def test_operators_have_the_shapes_that_mxnet_infers() -> None:
    pytest.importorskip("onnx", reason="the calls are those of the exporter's tests")
    pytest.importorskip("onnxruntime", reason="the calls are those of the exporter's tests")
    from tests.onnx.cases import CASES
    from tests.onnx.operators import array_shapes, graph_of_case

    for case in CASES:
        if case.op in _FORGETFUL:
            continue  # has a test of its own
        shapes = array_shapes(case)
        params = {name: _Shaped(shapes.pop(name)) for name in [f"in{number}" for number in case.parameters]}
        try:
            assert_same(graph_of_case(case), shapes, params)  # type: ignore[arg-type]
        except AssertionError as error:
            raise AssertionError(str(case)) from error


class _Shaped:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


_SIZES = st.integers(1, 12)
_SHAPES = st.lists(_SIZES, min_size=1, max_size=5)


@given(shape=_SHAPES, spec=st.lists(st.integers(-3, 12), min_size=1, max_size=6), reverse=st.booleans())
@settings(max_examples=300)
def test_reshape_follows_its_codes(shape: list[int], spec: list[int], reverse: bool) -> None:
    assert_same_or_refused("Reshape", [shape], {"shape": tuple(spec), "reverse": reverse})


@given(data=st.data(), shape=_SHAPES)
@settings(max_examples=200)
def test_reshapes_that_fit(data: st.DataObject, shape: list[int]) -> None:
    """A shape with codes that fit: some axes are kept, some joined, one split or left open.

    -4 with ``reverse``, and a split by zero, end the process in MXNet.
    """
    spec: list[int] = []
    axis = 0
    while axis < len(shape):
        code = data.draw(st.sampled_from([0, -1, -2, -3, -4, shape[axis]]))
        spec += [code, data.draw(st.sampled_from([1, -1, shape[axis]])), -1] if code == -4 else [code]
        axis += {-2: len(shape), -3: 2}.get(code, 1)
    reverse = -4 not in spec and data.draw(st.booleans())
    assert_same_or_refused("Reshape", [shape], {"shape": tuple(spec), "reverse": reverse})


@given(data=st.data(), shape=_SHAPES)
@settings(max_examples=300)
def test_slices(data: st.DataObject, shape: list[int]) -> None:
    count = data.draw(st.integers(1, len(shape)))
    place = st.one_of(st.none(), st.integers(-14, 14))
    begin, end, step = (
        data.draw(st.lists(each, min_size=count, max_size=count))
        for each in (place, place, st.sampled_from([None, 1, 2, -1, -3]))
    )
    assert_same_or_refused("slice", [shape], {"begin": tuple(begin), "end": tuple(end), "step": tuple(step)})
    axis = data.draw(st.integers(-6, 5))
    first, last = data.draw(st.integers(-14, 14)), data.draw(place)
    assert_same_or_refused("slice_axis", [shape], {"axis": axis, "begin": first, "end": last})


_VALUE_BY_VALUE = (
    *("_contrib_quadratic", "_linalg_inverse", "_linalg_potrf", "_linalg_potri", "_scatter_minus_scalar"),
    *("_scatter_plus_scalar", "_npi_around", "_npi_arctan2_scalar", "_npi_bitwise_not", "_npi_cholesky"),
    *("_npi_copysign_scalar", "_npi_isfinite", "_npi_isinf", "_npi_isnan", "_npi_isneginf"),
    *("_npi_isposinf", "_npi_ldexp_scalar", "_npi_nan_to_num", "_npi_rarctan2_scalar"),
    *("_npi_rcopysign_scalar", "_npi_rldexp_scalar", "_npi_tril"),
)


@pytest.mark.parametrize("op", _VALUE_BY_VALUE)
def test_what_is_shaped_as_its_first_input(op: str) -> None:
    attrs: dict[str, Any] = {"scalar": 2} if op.endswith("_scalar") else {}
    assert_same_or_refused(op, [(2, 3, 3)], attrs)


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"),
    [
        ("_npi_pad", [(2, 3, 4)], {"pad_width": ((1, 0), (2, 3), (0, 5)), "mode": "constant"}),
        ("_npi_tensordot_int_axes", [(2, 3, 4), (3, 4, 5)], {"axes": 2}),
        ("_npi_tensordot_int_axes", [(2, 3), (4, 5)], {"axes": 0}),
        ("_npi_tensordot_int_axes", [(2, 3), (4, 5)], {"axes": 1}),
        ("_npi_tensordot", [(2, 3, 4), (4, 5, 2)], {"a_axes_summed": (0, -1), "b_axes_summed": (2, 0)}),
        ("_npi_diff", [(2, 7)], {"n": 2, "axis": -1}),
        ("_npi_diff", [(4, 7)], {"n": 1, "axis": 0}),
        ("_np_diag", [(4,)], {"k": -2}),
        ("_np_diag", [(4, 6)], {"k": 3}),
        ("_np_diag", [(4, 6)], {"k": -1}),
        ("_np_diag", [(6, 4)], {"k": 1}),
        ("_np_roll", [(2, 3)], {"shift": 1, "axis": 0}),
        ("_npi_copysign", [(2, 1, 3), (4, 1)], {}),
        ("_npi_ldexp", [(3,), (2, 3)], {}),
        ("_npi_where_lscalar", [(2, 1), (1, 3)], {"scalar": 0.0}),
        ("_npi_where_rscalar", [(2, 3), (3,)], {"scalar": 0.0}),
        ("_npi_where_scalar2", [(2, 3)], {"x": 0.0, "y": 1.0}),
        ("_contrib_index_copy", [(5, 3), (2,), (2, 3)], {}),
        ("_linalg_trmm", [(2, 3, 3), (2, 3, 5)], {}),
        ("_linalg_trsm", [(3, 3), (4, 3)], {"rightside": True}),
        ("_linalg_syrk", [(2, 3, 5)], {}),
        ("_linalg_syrk", [(2, 3, 5)], {"transpose": True}),
        ("_contrib_fft", [(3, 8)], {}),
        ("_contrib_ifft", [(1, 2, 3, 8)], {}),
    ],
)
def test_operators_that_cannot_be_exported(op: str, shapes: Any, attrs: Mapping[str, Any]) -> None:
    assert_same_or_refused(op, shapes, attrs)


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        ("_npi_vstack", [(3,), (3,)]),
        ("_npi_vstack", [(2, 3), (4, 3)]),
        ("_npi_hstack", [(3,), (5,)]),
        ("_npi_hstack", [(2, 3), (2, 4)]),
        ("_npi_hstack", [(2, 3, 4), (2, 5, 4)]),
        ("_npi_dstack", [(3,), (3,)]),
        ("_npi_dstack", [(2, 3), (2, 3)]),
        ("_npi_dstack", [(2, 3, 4), (2, 3, 5)]),
        ("_npi_column_stack", [(3,), (3,)]),
        ("_npi_column_stack", [(3, 2), (3, 5)]),
    ],
)
def test_what_mxnet_forgets_the_inputs_of(op: str, shapes: Any) -> None:
    graph = one_call(op, shapes, {"num_args": 2})
    inputs = {"in0": shapes[0], "in1": shapes[1]}
    assert infer_entry_shapes(graph, inputs, {}).entries[-1] == infer_shapes(graph, inputs, {})[-1]


@given(
    sides=st.tuples(st.integers(4, 20), st.integers(4, 20)),
    kernel=st.sampled_from([1, 3]),
    displaced=st.integers(1, 4),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    pad=st.integers(4, 6),
)
@settings(max_examples=60)
def test_correlations(
    sides: tuple[int, int], kernel: int, displaced: int, strides: tuple[int, int], pad: int
) -> None:
    attrs = {"kernel_size": kernel, "max_displacement": displaced, "pad_size": pad}
    shape = (2, 3, *sides)
    assert_same_or_refused(
        "Correlation", [shape, shape], {**attrs, "stride1": strides[0], "stride2": strides[1]}
    )


_TWO = st.tuples(st.integers(1, 4), st.integers(1, 4))
_PADS = st.tuples(st.integers(0, 3), st.integers(0, 3))
_IMAGES = st.tuples(st.integers(1, 3), st.sampled_from([1, 4, 6]), st.integers(1, 12), st.integers(1, 12))


@given(
    shape=_IMAGES,
    kernel=_TWO,
    stride=_TWO,
    pad=_PADS,
    convention=st.sampled_from(["valid", "full", "same"]),
    is_global=st.booleans(),
    layout=st.sampled_from([None, "NCHW", "NHWC"]),
)
@settings(max_examples=300)
def test_pooling(
    shape: Any, kernel: Any, stride: Any, pad: Any, convention: str, is_global: bool, layout: Any
) -> None:
    attrs = {
        "kernel": kernel,
        "stride": stride,
        "pad": pad,
        "pooling_convention": convention,
        "global_pool": is_global,
        "layout": layout,
    }
    assert_same_or_refused("Pooling", [shape], attrs)


@given(
    shape=_IMAGES,
    kernel=_TWO,
    stride=_TWO,
    dilate=_TWO,
    pad=_PADS,
    groups=st.sampled_from([1, 2, 4]),
    filters=st.sampled_from([4, 8]),
)
@settings(max_examples=300)
def test_convolutions(
    shape: Any, kernel: Any, stride: Any, dilate: Any, pad: Any, groups: int, filters: int
) -> None:
    attrs = {
        "kernel": kernel,
        "stride": stride,
        "dilate": dilate,
        "pad": pad,
        "num_group": groups if shape[1] % groups == 0 else 1,  # MXNet would end the process
        "num_filter": filters,
        "no_bias": True,
    }
    weight = (filters, shape[1] // attrs["num_group"], *kernel)
    assert_same_or_refused("Convolution", [shape, weight], attrs)


@given(
    shape=_IMAGES,
    kernel=_TWO,
    stride=_TWO,
    pad=_PADS,
    adjust=_PADS,
    target=st.one_of(st.none(), st.tuples(st.integers(0, 20), st.integers(0, 20))),
)
@settings(max_examples=300)
def test_deconvolutions(shape: Any, kernel: Any, stride: Any, pad: Any, adjust: Any, target: Any) -> None:
    attrs = {"kernel": kernel, "stride": stride, "pad": pad, "adj": adjust, "num_filter": 4, "no_bias": True}
    if target is not None:
        attrs["target_shape"] = target
    assert_same_or_refused("Deconvolution", [shape, (shape[1], 4, *kernel)], attrs)


@given(
    shape=_SHAPES,
    axes=st.lists(st.integers(-6, 5), max_size=3),
    keeps=st.booleans(),
    exclude=st.booleans(),
)
@settings(max_examples=200)
def test_reductions(shape: list[int], axes: list[int], keeps: bool, exclude: bool) -> None:
    attrs = {"axis": tuple(axes), "keepdims": keeps, "exclude": exclude}
    assert_same_or_refused("sum", [shape], attrs)


@given(shape=_SHAPES, axis=st.integers(-6, 5), parts=st.integers(1, 4), squeezes=st.booleans())
@settings(max_examples=200)
def test_parts(shape: list[int], axis: int, parts: int, squeezes: bool) -> None:
    attrs = {"num_outputs": parts, "axis": axis, "squeeze_axis": squeezes}
    assert_same_or_refused("SliceChannel", [shape], attrs, outputs=parts)


@given(data=st.data(), shape=_SHAPES)
@settings(max_examples=200)
def test_transposes_and_squeezes(data: st.DataObject, shape: list[int]) -> None:
    axes = data.draw(st.permutations(range(len(shape))))
    assert_same_or_refused("transpose", [shape], {"axes": tuple(axes)})
    axis = data.draw(st.one_of(st.none(), st.lists(st.integers(-6, 5), min_size=1, max_size=2)))
    attrs = {} if axis is None else {"axis": tuple(axis)}
    assert_same_or_refused("squeeze", [[data.draw(st.sampled_from([1, size])) for size in shape]], attrs)


@given(data=st.data(), shape=_SHAPES)
@settings(max_examples=200)
def test_broadcasting(data: st.DataObject, shape: list[int]) -> None:
    other = [data.draw(st.sampled_from([1, size, size + 1])) for size in shape][
        data.draw(st.integers(0, 4)) :
    ]
    assert_same_or_refused("broadcast_add", [shape, other or [1]], {})
    assert_same_or_refused("elemwise_add", [shape, other or [1]], {})


@given(data=st.data(), shape=_SHAPES, turned=st.tuples(st.booleans(), st.booleans()))
@settings(max_examples=200)
def test_products_of_matrices(data: st.DataObject, shape: list[int], turned: tuple[bool, bool]) -> None:
    axis = data.draw(st.integers(-5, 3))
    other = [*shape]
    if len(shape) > 1 and data.draw(st.booleans()):  # what fits, mostly
        row = axis % len(shape)
        summed = shape[row] if turned[0] else shape[-1]
        other[row], other[-1] = (3, summed) if turned[1] else (summed, 3)
    attrs = {"transpose_a": turned[0], "transpose_b": turned[1], "axis": axis}
    assert_same_or_refused("_linalg_gemm2", [shape, other], attrs)


# ---------------------------------------------------------------------- control flow


def _loop_over_data() -> Any:
    def step(item: Any, states: Any) -> Any:
        inner = mx.sym.FullyConnected(item, num_hidden=4, name="fc")
        return [inner, mx.sym.expand_dims(item, axis=0)], [states[0] + inner]

    found, states = mx.sym.contrib.foreach(step, mx.sym.var("data"), [mx.sym.var("state")])
    return mx.sym.Group([*found, *states])


def _loop_while() -> Any:
    found, states = mx.sym.contrib.while_loop(
        lambda count, total: count < 5,
        lambda count, total: ([mx.sym.sum(total, axis=1)], [count + 1, total * 2]),
        [mx.sym.var("count"), mx.sym.var("data")],
        max_iterations=7,
    )
    return mx.sym.Group([*found, *states])


def _branches() -> Any:
    data = mx.sym.var("data")
    return mx.sym.contrib.cond(
        mx.sym.sum(data) > 0, lambda: mx.sym.transpose(data), lambda: mx.sym.transpose(data) + 1
    )


def test_a_loop_over_data() -> None:
    shapes = {"data": (6, 2, 3), "state": (2, 4)}
    assert_same_but_for_parameters(graph_from_symbol(_loop_over_data()), shapes)


@pytest.mark.parametrize(
    ("build", "shapes", "expected"),
    [
        (_loop_while, {"data": (2, 3), "count": (1,)}, [(7, 2), (1,), (2, 3)]),
        (_branches, {"data": (2, 3)}, [(3, 2)]),
    ],
)
def test_control_flow_that_mxnet_leaves_open(build: Any, shapes: Any, expected: Any) -> None:
    """MXNet tells only when all is given; a loop has room for every iteration that there may be."""
    graph = graph_from_symbol(build())
    found = infer_entry_shapes(graph, shapes, {})
    assert [found.entries[head.node][head.output] for head in graph.heads] == expected


# ---------------------------------------------------------------------- what is looked for backwards


def test_zeros_that_a_recurrent_network_begins_with_have_the_batch_of_its_data() -> None:
    cell = mx.rnn.LSTMCell(6, prefix="lstm_")
    outputs, _ = cell.unroll(3, mx.sym.var("data"), merge_outputs=True, layout="NTC")
    graph = graph_from_symbol(outputs)
    assert any(node.op == "_zeros" for node in graph.nodes)
    assert_same_but_for_parameters(graph, {"data": (5, 3, 4)})


def assert_same_but_for_parameters(graph: Graph, shapes: Mapping[str, Any]) -> None:
    """MXNet finds the shapes of weights, too, which we are given."""
    expected = infer_shapes(graph, shapes, {})
    stored = {
        node.name: outputs[0]
        for node, outputs in zip(graph.nodes, expected)
        if node.is_variable and node.name.endswith(("weight", "bias", "gamma", "beta", "parameters"))
    }
    found = infer_entry_shapes(graph, shapes, {name: shape or () for name, shape in stored.items()})
    assert found.entries == expected
    assert (None,) not in found.entries


@pytest.mark.parametrize("multiple", [False, True])
def test_labels_that_nobody_feeds(multiple: bool) -> None:
    x = mx.sym.Convolution(mx.sym.var("data"), num_filter=4, kernel=(3, 3), name="conv")
    x = x if multiple else mx.sym.FullyConnected(x, num_hidden=4, name="fc")
    sym = mx.sym.SoftmaxOutput(x, multi_output=multiple, name="softmax")
    assert_same_but_for_parameters(graph_from_symbol(sym), {"data": (2, 3, 8, 8)})


def test_the_states_of_a_recurrent_layer() -> None:
    sym = mx.sym.RNN(
        mx.sym.var("data"),
        mx.sym.var("parameters"),
        mx.sym.zeros((4, 0, 6)),
        mx.sym.var("cells"),
        mode="lstm",
        state_size=6,
        num_layers=2,
        bidirectional=True,
        name="rnn",
    )
    assert_same_but_for_parameters(graph_from_symbol(sym), {"data": (5, 3, 4)})
