"""Rows and columns that become channels are two transposes of four axes, with the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import PreparedNode, RewritePixelShuffle
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import CPUS, operators, prepare_graph, prepared, targets_that_choose

STEP = RewritePixelShuffle.step
INSERTED = ["y_pairs", "y_columns", "y_lines", "y_rows", "y_parts", "y_origin", "y_channels"]
BY_ROWS = [(0, 0), (0, 1), (1, 0), (1, 1)]
BY_COLUMNS = [(0, 0), (1, 0), (0, 1), (1, 1)]


def image(net: Net, *, is_layers: bool) -> Entry:
    """Return an image, of a layer that hands its data on as it is, or of one that tells no channels."""
    weight = net.param("weight", 3, 1, 1, 1, value=1.0)
    attrs = {"num_filter": 3, "num_group": 3, "kernel": "(1, 1)", "no_bias": True}
    if is_layers:
        return net.op("Convolution", net.var("x"), weight, name="layer", **attrs)
    net.params.clear()
    net.nodes.clear()
    return net.op("Pooling", net.var("x"), name="image", kernel="(1, 1)")


def deep(block: object = 2, *, is_layers: bool = False) -> tuple[Net, Graph]:
    net = Net()
    return net, net.graph(
        net.op("space_to_depth", image(net, is_layers=is_layers), name="y", block_size=block)
    )


def sliced(
    places: list[tuple[int, int]],
    steps: tuple[int, int] = (2, 2),
    *,
    is_layers: bool = False,
    case: str = "",
    end: str = "(None, None, None, None)",
) -> tuple[Net, Graph]:
    """Return what a network begins with that looks at pixels four at a time (Focus)."""
    net = Net()
    x = net.var("x") if case == "no image" else image(net, is_layers=is_layers)
    parts = []
    for number, (row, column) in enumerate(places):
        source = net.op("relu", x) if case == "two images" and number else x
        channel = 1 if case == "some channels" else None
        attrs = {"begin": (None, channel, row, column), "end": end, "step": (None, None, *steps)}
        parts.append(net.op("slice", source, name=f"part{number}", **attrs))
    dim = 2 if case == "another axis" else 1
    last = net.op("Concat", *parts, name="y", dim=dim, num_args=len(parts))
    return net, net.graph(last, *(parts[:1] if case == "read between" else []))


def test_space_to_depth_is_two_transposes() -> None:
    net, graph = deep()
    after, done = prepared(RewritePixelShuffle, graph, net.params, inserted=INSERTED)
    assert operators(after)[1:] == [
        "y_pairs = Reshape(image) {shape: (0, -3, -4, -1, 2)}",
        "y_columns = transpose(y_pairs) {axes: (0, 1, 3, 2)}",
        "y_lines = Reshape(y_columns) {shape: (0, -1, 4, 0)}",
        "y_rows = transpose(y_lines) {axes: (0, 2, 1, 3)}",
        "y_origin = Reshape(image) {shape: (0, 0, -4, -1, 2, 0)}",
        "y_channels = reshape_like(y_rows, y_origin) {lhs_begin: 2, lhs_end: 3, rhs_begin: 1, rhs_end: 3}",
        "y = Reshape(y_channels) {shape: (0, -3, 0, 0)}",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("y", "y")]


def test_a_layer_tells_the_channels() -> None:
    net, graph = deep(is_layers=True)
    after, _ = prepared(RewritePixelShuffle, graph, net.params, inserted=INSERTED)
    assert operators(after)[-1] == "y = Reshape(y_rows) {shape: (0, 12, -1, 0)}"


def test_slices_by_columns_are_two_transposes() -> None:
    net, graph = sliced(BY_COLUMNS, is_layers=True)
    after, done = prepared(RewritePixelShuffle, graph, net.params, inserted=INSERTED)
    assert operators(after)[1:] == [
        "y_pairs = Reshape(layer) {shape: (0, -3, -4, -1, 2)}",
        "y_columns = transpose(y_pairs) {axes: (0, 3, 1, 2)}",
        "y_lines = Reshape(y_columns) {shape: (-3, -4, -1, 2, 0)}",
        "y_rows = transpose(y_lines) {axes: (0, 2, 1, 3)}",
        "y_parts = Reshape(y_rows) {shape: (-1, 4, 0, 0)}",
        "y = Reshape(y_parts) {shape: (0, 12, -1, 0)}",
    ]
    assert {(change.node, change.into) for change in done.changes} == {
        ("y", "y"),
        *((f"part{number}", "y") for number in range(4)),
    }


@pytest.mark.parametrize(
    "case", ["no image", "two images", "some channels", "another axis", "read between", "rule"]
)
def test_refuses_slices(case: str) -> None:
    net, graph = sliced(BY_ROWS, case=case)
    policy = Policy.default(BF16).excluding(names=["part2"]) if case == "rule" else None
    assert prepared(RewritePixelShuffle, graph, net.params, policy)[0] is graph


@pytest.mark.parametrize(
    ("places", "given"),
    [
        pytest.param([(0, 0), (1, 1), (0, 1), (1, 0)], {}, id="another order"),
        pytest.param([(0, 0), (0, 0), (1, 0), (1, 1)], {}, id="one twice"),
        pytest.param(BY_ROWS[:3], {}, id="not all"),
        pytest.param(BY_ROWS, {"steps": (3, 3)}, id="not all of nine"),
        pytest.param(BY_ROWS, {"end": "(None, None, 8, None)"}, id="not to the end"),
        pytest.param([(-2, 0), (-2, 1), (-1, 0), (-1, 1)], {}, id="from the end"),
        pytest.param([(0, 0), (0, 1), (0, 2), (0, 3)], {"steps": (1, 4)}, id="columns alone"),
    ],
)
def test_refuses_slices_that_are_not_all(places: list[tuple[int, int]], given: dict[str, Any]) -> None:
    net, graph = sliced(places, **given)
    assert prepared(RewritePixelShuffle, graph, net.params)[0] is graph


@pytest.mark.parametrize("block", ["None", 0, 1])
def test_refuses_other_blocks(block: object) -> None:
    net, graph = deep(block)
    assert prepared(RewritePixelShuffle, graph, net.params)[0] is graph


def written(kind: str, *, is_layers: bool) -> tuple[Net, Graph]:
    if kind.startswith("deep"):
        return deep(int(kind[4:]), is_layers=is_layers)
    if kind == "2x4":
        places = [(row, column) for column in range(4) for row in range(2)]
        return sliced(places, (2, 4), is_layers=is_layers)
    return sliced(BY_ROWS if kind == "rows" else BY_COLUMNS, is_layers=is_layers)


KINDS = ["deep2", "deep3", "rows", "columns", "2x4"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_layers", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_mxnet_moves_the_same_values(
    monkeypatch: pytest.MonkeyPatch, kind: str, is_layers: bool, batch: int
) -> None:
    net, graph = written(kind, is_layers=is_layers)
    given = parameters(net.params)
    done = prepare_graph(graph, given, Policy.default(BF16), [STEP], target=Target.builtin("cpu-bf16"))
    assert {change.step for change in done.record(PreparedNode)} == {STEP}
    for channels in [3] if is_layers else [3, 1, 5]:
        data = {"x": on_edges(batch, channels, 12, 24)}
        (expected,) = outputs(monkeypatch, graph, given, data)
        (found,) = outputs(monkeypatch, done.graph, done.params, data)
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_layers", [False, True])
@pytest.mark.parametrize(("side", "is_rewritten"), [(12, False), (36, True)])
def test_few_values_stay_and_shapes_go_with_many(
    kind: str, is_layers: bool, side: int, is_rewritten: bool
) -> None:
    pytest.importorskip("mxnet", reason="MXNet says what the shapes are")
    from mxamp.runtime.shapes import infer_shapes

    net, graph = written(kind, is_layers=is_layers)
    known = {name: value.shape for name, value in net.params.items()}
    known["x"] = (2, 3, side, side + 12)
    shapes = infer_shapes(graph, known, {})
    target, given = Target.builtin("cpu-bf16"), parameters(net.params)
    done = prepare_graph(graph, given, Policy.default(BF16), [STEP], target=target, shapes=shapes)
    assert bool(done.record(PreparedNode)) is is_rewritten
    assert list(done.shapes or ()) == list(infer_shapes(done.graph, known, {}))


def test_an_input_is_an_image_where_a_call_says_so() -> None:
    net, graph = sliced(BY_ROWS, case="no image")
    part = ((1, 3, 20, 20),)
    shapes = [((1, 3, 40, 40),), *[part] * 4, ((1, 12, 20, 20),)]
    after, _ = prepared(RewritePixelShuffle, graph, net.params, inserted=INSERTED, shapes=shapes)
    assert after is not graph


def test_targets_choose() -> None:
    net, graph = deep()
    assert targets_that_choose(STEP, graph, parameters(net.params)) == CPUS
