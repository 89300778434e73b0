"""What is said of axes holds in every call."""

from __future__ import annotations

from typing import Any, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxamp.errors import MxampError
from mxamp.graph import Entry, Graph
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.passes.axis_sizes import AxisSizes, joined
from tests.building import Net, parameters

CALLS = ((2, 6, 4, 5), (3, 9, 4, 5), (1, 1, 4, 5))
"""Batch and steps are other ones from call to call."""


def shapes_in(graph: Graph, net: Net, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...] | None, ...]]:
    params = {name: value.shape for name, value in net.params.items()}
    return list(infer_entry_shapes(graph, {"x": shape}, params).entries)


def axis_sizes(graph: Graph, net: Net, shapes: Sequence[tuple[tuple[int, ...] | None, ...]]) -> AxisSizes:
    return AxisSizes(graph, parameters(net.params), lambda read: shapes[read.node][read.output])


def sizes_of(net: Net, entry: Entry, shape: tuple[int, ...] = CALLS[0]) -> Any:
    graph = net.graph(entry)
    shapes = shapes_in(graph, net, shape)
    return axis_sizes(graph, net, shapes).of(entry)


X = [("axis", 0, axis) for axis in range(4)]
JOINED = joined(X[:2])


@pytest.mark.parametrize(
    ("op", "attrs", "expected"),
    [
        ("exp", {}, X),
        ("Reshape", {"shape": (0, 0, 20)}, [*X[:2], 20]),
        ("Reshape", {"shape": (0, -1, 1, 8)}, [X[0], ("axis", 1, 1), 1, 8]),
        ("Reshape", {"shape": (-3, 0, -1)}, [JOINED, X[2], X[3]]),
        ("Reshape", {"shape": (0, 0, 0, -4, 1, -1)}, [*X[:3], 1, X[3]]),
        ("Reshape", {"shape": (0, -2)}, X),
        ("Reshape", {"shape": (0, 0, 0, 0), "reverse": True}, [("axis", 1, axis) for axis in range(4)]),
        ("transpose", {"axes": (0, 2, 3, 1)}, [X[0], X[2], X[3], X[1]]),
        ("transpose", {}, X[::-1]),
        ("SwapAxis", {"dim1": 1, "dim2": -1}, [X[0], X[3], X[2], X[1]]),
        ("expand_dims", {"axis": -1}, [*X, 1]),
        ("tile", {"reps": (1, 2)}, [*X[:3], ("axis", 1, 3)]),
        ("repeat", {"repeats": 3, "axis": -1}, [*X[:3], ("axis", 1, 3)]),
        ("repeat", {"repeats": 3}, [("axis", 1, 0)]),
        ("_contrib_BilinearResize2D", {"height": 7, "width": 9}, [*X[:2], ("axis", 1, 2), ("axis", 1, 3)]),
        ("UpSampling", {"scale": 2, "sample_type": "nearest"}, [*X[:2], ("axis", 1, 2), ("axis", 1, 3)]),
        ("sum", {"axis": 1}, [X[0], *X[2:]]),
        ("sum", {"axis": 1, "keepdims": True}, [X[0], 1, *X[2:]]),
        ("sum", {"axis": (0, 1), "exclude": True, "keepdims": True}, [*X[:2], 1, 1]),
        ("mean", {}, [1]),
        ("slice_axis", {"axis": 1, "begin": 0, "end": 1}, [X[0], 1, *X[2:]]),
        ("slice_axis", {"axis": 1, "begin": 1, "end": "None"}, [X[0], ("axis", 1, 1), *X[2:]]),
        ("slice_axis", {"axis": 1, "begin": 0, "end": -1}, [X[0], ("axis", 1, 1), *X[2:]]),
        ("slice", {"begin": (None, 0, 1), "end": (None, None, 3)}, [*X[:2], ("axis", 1, 2), X[3]]),
        (
            "slice",
            {"begin": (0, None), "end": (1, None), "step": (1, 2)},
            [("axis", 1, 0), ("axis", 1, 1), *X[2:]],
        ),
        (
            "Pad",
            {"mode": "constant", "pad_width": (0, 0, 0, 0, 1, 0, 0, 2)},
            [*X[:2], ("axis", 1, 2), ("axis", 1, 3)],
        ),
        ("Flatten", {}, [X[0], ("axis", 1, 1)]),
        ("Pooling", {"kernel": (1, 1), "global_pool": True}, [*X[:2], 1, 1]),
        ("Pooling", {"kernel": (2, 2)}, [*X[:2], ("axis", 1, 2), ("axis", 1, 3)]),
        ("Pooling", {"kernel": (2, 1), "stride": (2, 1)}, [*X[:2], ("axis", 1, 2), X[3]]),
        ("Pooling", {"kernel": (1, 1), "pooling_convention": "full"}, X),
        (
            "Pooling",
            {"kernel": (1, 1), "stride": (1, 2), "pooling_convention": "full"},
            [*X[:3], ("axis", 1, 3)],
        ),
        ("Pad", {"mode": "edge", "pad_width": (0, 0, 0, 0, 2, 1, 0, 0)}, [*X[:2], ("axis", 1, 2), X[3]]),
        ("zeros_like", {}, X),
    ],
)
def test_operators(op: str, attrs: dict[str, Any], expected: list[Any]) -> None:
    net = Net()
    assert sizes_of(net, net.op(op, net.var("x"), **attrs)) == tuple(expected)


def test_what_is_padded_is_so_much_longer() -> None:
    net = Net()
    known = net.op("Reshape", net.var("x"), shape=(0, 0, 20, 1))
    padded = net.op("Pad", known, mode="constant", pad_width=(0, 0, 0, 0, 1, 2, 0, 0))
    assert sizes_of(net, padded) == (*X[:2], 23, 1)


def test_a_reshape_may_say_all_axes_of_what_has_any_number() -> None:
    net = Net()
    image = net.op("Reshape", net.var("x"), shape=(-1, 1, 6, 4))
    wider = net.op("expand_dims", image, axis=0)
    copied = net.op("Reshape", net.var("y"), shape=(0, -1))
    known = AxisSizes(net.graph(wider, copied), {}, lambda read: None)
    assert known.of(image) == (("axis", image.node, 0), 1, 6, 4)
    assert known.of(wider) == (1, ("axis", image.node, 0), 1, 6, 4)
    assert known.of(copied) is None


def test_a_product_is_as_long_as_its_longer_factor() -> None:
    net = Net()
    x = net.var("x")
    parts = net.op("Reshape", x, shape=(0, -1, 20))
    weight = net.param("weight", 1, 6, 20)
    assert sizes_of(net, net.op("broadcast_mul", parts, weight)) == (X[0], 6, 20)


def test_what_was_put_in_is_taken_out() -> None:
    net = Net()
    wider = net.op("expand_dims", net.var("x"), axis=1)
    assert sizes_of(net, net.op("squeeze", wider, axis=1)) == tuple(X)


def test_equal_parts_are_equally_long() -> None:
    net = Net()
    split = net.op("SliceChannel", net.var("x"), outputs=2, num_outputs=2, axis=2)
    second = Entry(split.node, 1)
    assert sizes_of(net, second) == (*X[:2], ("axis", 1, 2), X[3])
    both = net.op("Concat", split, second, dim=2, num_args=2)
    assert sizes_of(net, both) == (*X[:2], ("axis", 2, 2), X[3])


def test_layers_say_how_many_they_make() -> None:
    net = Net()
    x = net.var("x")
    weight = net.param("weight", 7, 5)
    dense = net.op("FullyConnected", x, weight, num_hidden=7, flatten=False, no_bias=True)
    assert sizes_of(net, dense) == (*X[:3], 7)
    turned = net.op("batch_dot", *[net.op("Reshape", dense, shape=(-3, 0, 0))] * 2, transpose_b=True)
    assert sizes_of(net, turned) == (JOINED, X[2], X[2])
    filters = net.param("filters", 9, 6, 1, 1)
    layer = net.op("Convolution", x, filters, num_filter=9, kernel=(1, 1), no_bias=True)
    assert sizes_of(net, layer) == (X[0], 9, *X[2:])
    wide = net.param("wide", 9, 9, 3, 3)
    wide = net.op("Convolution", layer, wide, num_filter=9, kernel=(3, 3), pad=(1, 1), no_bias=True)
    assert sizes_of(net, wide) == (X[0], 9, ("axis", wide.node, 2), ("axis", wide.node, 3))


def test_what_is_broadcast_has_the_sizes_that_are_said() -> None:
    net = Net()
    states = net.op("broadcast_to", net.var("x"), shape=(2, 0, 4, 5))
    graph = net.graph(states)
    found = AxisSizes(graph, {}, lambda read: None)
    assert found.of(states) == (2, ("axis", 1, 1), 4, 5)


def test_what_is_shaped_like_another_has_its_sizes() -> None:
    net = Net()
    rows = net.op("Reshape", net.var("x"), shape="(0, -1)")
    whole = net.op("reshape_like", rows, Entry(0))
    assert sizes_of(net, whole) == tuple(X)
    places = net.op("reshape_like", rows, Entry(0), lhs_begin=1, rhs_begin=1)
    assert sizes_of(net, places) != tuple(X)


def test_a_layer_takes_as_many_axes_as_its_weight_has() -> None:
    net = Net()
    weight = net.param("w", 8, 6, 1, 3)
    attrs = {"num_filter": 8, "kernel": "(1, 3)", "pad": "(0, 1)", "no_bias": True}
    layer = net.op("Convolution", net.var("x"), weight, **attrs)
    row = net.op("squeeze", net.op("mean", layer, axis=(1, 2), keepdims=True), axis="(1, -2)")
    graph = net.graph(row)
    found = AxisSizes(graph, parameters(net.params), lambda read: None)
    batch, rows = [("axis", graph.variables["x"], 0, axis) for axis in (0, 2)]
    assert found.of(layer) == (batch, 8, rows, ("axis", layer.node, 3))
    assert found.of(row) == (batch, ("axis", layer.node, 3))


def test_windows_over_so_many_places_make_so_many() -> None:
    net = Net()
    image = net.op("Reshape", net.var("x"), shape=(-1, 6, 10, 1))
    batch = sizes_of(net, image)[0]
    weight = net.param("weight", 4, 6, 3, 1)
    layer = net.op(
        *("Convolution", image, weight), num_filter=4, kernel=(3, 1), stride=(2, 1), pad=(1, 0), no_bias=True
    )
    assert sizes_of(net, layer) == (batch, 4, 5, 1)
    pooled = net.op("Pooling", layer, global_pool=True, kernel=(1, 1))
    gate = net.param("gate", 4, 4, 1, 1)
    gate = net.op("Convolution", pooled, gate, num_filter=4, kernel=(1, 1), no_bias=True)
    assert sizes_of(net, gate) == (batch, 4, 1, 1)


@pytest.mark.parametrize(
    ("op", "attrs", "places"),
    [
        ("Pooling", {"kernel": (3, 1), "stride": (2, 1), "pad": (1, 0)}, (5, 1)),
        ("Pooling", {"kernel": (3, 1), "stride": (2, 1), "pooling_convention": "full"}, (None, 1)),
        (
            "Pooling",
            {"kernel": (1, 2), "stride": (1, 2), "pad": (0, 1), "pooling_convention": "full"},
            (10, None),
        ),
        ("Pad", {"mode": "constant", "pad_width": (0, 0, 0, 0, 3, 1, 0, 0)}, (14, 1)),
        ("Deconvolution", {"kernel": (4, 1), "stride": (2, 1), "pad": (1, 0)}, (20, 1)),
        ("Deconvolution", {"kernel": (3, 1), "stride": (2, 2), "dilate": (2, 1), "adj": (1, 1)}, (24, 2)),
        ("Deconvolution", {"kernel": (3, 1), "stride": (2, 1), "target_shape": (20, 1)}, (None, None)),
    ],
)
def test_windows_over_numbers_of_places(
    op: str, attrs: dict[str, Any], places: tuple[int | None, ...]
) -> None:
    """What is a number is what the shape rules say, in a call of a batch of three."""
    net = Net()
    image = net.op("Reshape", net.var("x"), shape=(-1, 6, 10, 1))
    inputs = [image]
    if op == "Deconvolution":
        inputs.append(net.param("weight", 6, 4, *attrs["kernel"]))
        attrs = {**attrs, "num_filter": 4, "no_bias": True}
    made = net.op(op, *inputs, **attrs)
    expected = [("axis", made.node, axis) if size is None else size for axis, size in enumerate(places, 2)]
    assert sizes_of(net, made)[2:] == tuple(expected)
    shape = shapes_in(net.graph(made), net, (3, 6, 4, 5))[made.node][0]
    assert shape is not None
    assert [size for size in places if size is not None] == [
        size for size, known in zip(shape[2:], places) if known is not None
    ]


def test_axes_that_are_joined() -> None:
    assert joined([2, 3, 4]) == 24
    assert joined([]) == 1
    assert joined(["batch", 1]) == "batch"
    assert joined(["batch", 2]) != joined(["batch"])
    assert joined(["batch", joined(["steps", 2])]) == joined([2, "steps", "batch"])


SHAPES = [
    *((0, -1), (-3, -2), (0, -3, -2), (0, 0, -1), (0, 0, 0, -4, 1, -1), (0, 0, -4, 2, -1, -2), (-1, 20)),
    *((0, -1, 1, 5), (-4, -1, 1, -2), (0, 0, -3), (0, -4, -1, 1, -2), (0, 0, 0, 1, -1), (0, 4, -1), (-2, 1)),
    *((0, -1, 10), (0, 1, -1), (5, -1), (1, 0, -1)),
]

MOVES = st.one_of(
    st.sampled_from([("Reshape", {"shape": shape}) for shape in SHAPES]),
    st.builds(
        lambda shape: ("Reshape", {"shape": shape}), st.lists(st.integers(-4, 6), min_size=1, max_size=6)
    ),
    st.builds(lambda axes: ("transpose", {"axes": tuple(axes)}), st.permutations(range(4))),
    st.builds(lambda axes: ("transpose", {"axes": tuple(axes)}), st.permutations(range(3))),
    st.builds(
        lambda one, two: ("SwapAxis", {"dim1": one, "dim2": two}), st.integers(-3, 3), st.integers(-3, 3)
    ),
    st.builds(lambda axis: ("expand_dims", {"axis": axis}), st.integers(-4, 4)),
    st.builds(
        lambda axis, keepdims, exclude: ("sum", {"axis": axis, "keepdims": keepdims, "exclude": exclude}),
        st.one_of(st.integers(-3, 3), st.just((0, 2))),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        lambda reps: ("tile", {"reps": tuple(reps)}), st.lists(st.integers(1, 3), min_size=1, max_size=5)
    ),
    st.builds(
        lambda axis, end: ("slice_axis", {"axis": axis, "begin": 0, "end": end}),
        st.integers(0, 3),
        st.integers(1, 2),
    ),
    st.builds(
        lambda ends, steps: (
            "slice",
            {"begin": (None,) * len(ends), "end": tuple(ends), "step": tuple(steps[: len(ends)])},
        ),
        st.lists(st.sampled_from([None, 1]), min_size=1, max_size=4),
        st.lists(st.sampled_from([None, 1, 2]), min_size=4, max_size=4),
    ),
    st.builds(
        lambda widths: ("Pad", {"mode": "constant", "pad_width": (0, 0, 0, 0, *widths)}),
        st.lists(st.integers(0, 1), min_size=4, max_size=4),
    ),
    st.builds(
        lambda shape: ("broadcast_to", {"shape": tuple(shape)}), st.lists(st.integers(0, 5), max_size=5)
    ),
    st.builds(
        lambda axis, size: ("broadcast_axis", {"axis": axis, "size": size}),
        st.integers(0, 3),
        st.integers(1, 5),
    ),
    st.just(("broadcast_mul", {})),
    st.just(("broadcast_like", {})),
    st.builds(lambda dim: ("Concat", {"dim": dim, "num_args": 2}), st.integers(0, 3)),
    st.builds(lambda axis: ("squeeze", {"axis": axis}), st.integers(-2, 3)),
    st.just(("batch_dot", {"transpose_b": True})),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(MOVES, st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=8))
def test_what_is_said_holds_in_every_call(steps: list[Any]) -> None:
    net = Net()
    entries = [net.var("x"), net.param("row", 1, 6, 1, 5), net.param("table", 4, 5)]
    for (op, attrs), one, other in steps:
        binary = op in ("broadcast_mul", "broadcast_like", "Concat", "batch_dot")
        read = [entries[place % len(entries)] for place in (one, other)[: 1 + binary]]
        entries.append(net.op(op, *read, **attrs))
        try:  # what MXNet would refuse is left out
            for call in CALLS:
                shapes_in(net.graph(entries[-1]), net, call)
        except MxampError:
            del net.nodes[-1], entries[-1]
    graph = net.graph(*entries)
    calls = [shapes_in(graph, net, call) for call in CALLS]
    for known in calls:
        sizes = axis_sizes(graph, net, known)
        for shapes in calls:
            lengths: dict[Any, int] = {}
            for entry in entries:
                said, shape = sizes.of(entry), shapes[entry.node][0]
                assert said is not None
                assert shape is not None
                assert len(said) == len(shape)
                for size, length in zip(said, shape):
                    assert (size if isinstance(size, int) else lengths.setdefault(size, length)) == length
