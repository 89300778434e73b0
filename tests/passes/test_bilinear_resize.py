"""A bilinear resize is two products with matrices of weights, made of positions, and stays float32."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from mxamp.graph import Entry, Graph
from mxamp.params.parameter import Parameter
from mxamp.passes import PreparedNode, RewriteBilinearResize, State
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, named, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import CPUS, prepare_graph, prepared, targets_that_choose

STEP = RewriteBilinearResize.step

LARGE, SHAPE = (96, 128), (1, 16, 12, 20)


def network(size: tuple[int, int] = LARGE, **attrs: Any) -> tuple[Net, Entry]:
    net = Net()
    given = {"height": size[0], "width": size[1], **attrs}
    return net, net.op("_contrib_BilinearResize2D", net.var("data", __dtype__="0"), name="resized", **given)


def shapes(graph: Graph, data: tuple[int, ...] = SHAPE, size: tuple[int, int] = LARGE) -> list[Any]:
    return [(data if node.is_variable else (*data[:2], *size),) for node in graph.nodes]


def test_it_becomes_two_products() -> None:
    net, resized = network()
    graph = net.graph(resized)
    inserted = [f"resized_{part}" for part in ("turned", "tall", "back")]
    inserted += [
        f"resized_{way}_{part}"
        for way in ("row", "column")
        for part in (
            *("places", "last", "step", "results", "far", "near", "lines", "line", "apart", "distance"),
            *("nearness", "weights"),
        )
    ]
    after, done = prepared(RewriteBilinearResize, graph, net.params, inserted=inserted, shapes=shapes(graph))
    assert [(change.node, change.into) for change in done.changes] == [("resized", "resized")]
    last = named(after, "resized")
    assert last.op == "FullyConnected"
    assert last.attrs == {"num_hidden": "128", "no_bias": "True", "flatten": "False"}
    assert named(after, "resized_tall").attrs["num_hidden"] == "96"


def rewritten(
    graph: Graph,
    given: Mapping[str, Parameter],
    data: tuple[int, ...] = SHAPE,
    size: tuple[int, int] = LARGE,
) -> State:
    """Return what the pass alone makes of a graph on a CPU."""
    known, target = shapes(graph, data, size), Target.builtin("cpu-bf16")
    return prepare_graph(graph, given, Policy.default(BF16), [STEP], target=target, shapes=known)


REFUSED: dict[str, dict[str, Any]] = {
    "a scale that is not whole": {"scale_height": 8.5, "scale_width": 8.0},
    "no second scale": {"scale_height": 8.0},
    "a scale of one": {"scale_height": 1.0, "scale_width": 90.0},
    "odd scale": {"mode": "odd_scale"},
    "one row": {"height": 1},
    "no size": {"width": "(3, 4)"},
}


@pytest.mark.parametrize(
    "case", [*REFUSED, "like", "rule", "no shape", "few values", "many products", "an input of any dtype"]
)
def test_refuses(case: str) -> None:
    net, resized = network(**REFUSED.get(case, {}))
    if case == "like":
        net = Net()
        resized = net.op(
            "_contrib_BilinearResize2D", net.var("data"), net.var("other"), name="resized", mode="like"
        )
    if case == "an input of any dtype":
        net = Net()
        size = {"height": LARGE[0], "width": LARGE[1]}
        resized = net.op("_contrib_BilinearResize2D", net.var("data"), name="resized", **size)
    policy = Policy.default(BF16).excluding(names=["resized"]) if case == "rule" else None
    graph = net.graph(resized)
    data = {"few values": (1, 8, 12, 20), "many products": (1, 16, 12, 200)}.get(case, SHAPE)
    known = None if case == "no shape" else shapes(graph, data)
    assert prepared(RewriteBilinearResize, graph, net.params, policy, shapes=known)[0] is graph


@pytest.mark.parametrize(
    ("target", "data", "times", "by_scale", "pays"),
    [
        # An image of no multiple of 4,096 bytes, where MXNet's loop takes 1.75 ns a result.
        ("cpu-bf16-avx2", (1, 64, 40, 40), 2, False, False),
        ("cpu-bf16-avx2", (1, 128, 20, 20), 2, False, True),
        ("cpu-bf16-avx2", (1, 128, 20, 20), 2, True, False),
        ("cpu-bf16-avx2", (1, 128, 12, 12), 4, True, True),
        ("cpu-bf16", (1, 64, 40, 40), 2, False, True),
        ("cpu-bf16", (1, 64, 40, 40), 2, True, False),
        ("cpu-bf16", (1, 16, 100, 100), 2, False, False),
        # A multiple, where it takes up to 7.6, by its channels.
        ("cpu-bf16-avx2", (1, 12, 80, 80), 2, False, False),
        ("cpu-bf16-avx2", (1, 64, 64, 64), 2, False, True),
        ("cpu-bf16-avx2", (1, 64, 64, 64), 2, True, True),
        ("cpu-bf16-avx2", (1, 24, 96, 96), 2, True, False),
        ("cpu-bf16-avx2", (1, 32, 128, 128), 2, False, True),
        ("cpu-bf16-avx2", (1, 16, 128, 128), 2, False, False),
        ("cpu-bf16", (1, 32, 128, 128), 2, False, False),
        ("cpu-bf16", (1, 24, 96, 96), 2, True, True),
    ],
)
def test_what_takes_longer_than_the_loop_is_refused(
    target: str, data: tuple[int, ...], times: int, by_scale: bool, pays: bool
) -> None:
    size = (times * data[2], times * data[3])
    if by_scale:
        net, graph = scaled(times, times)
    else:
        net, resized = network(size)
        graph = net.graph(resized)
    known = shapes(graph, data, size)
    chosen = Target.builtin(target)
    done = prepare_graph(
        graph, parameters(net.params), Policy.default(BF16), [STEP], target=chosen, shapes=known
    )
    assert bool(done.record(PreparedNode)) == pays


def scaled(height: float | str, width: float | str, **attrs: Any) -> tuple[Net, Graph]:
    net = Net()
    given = {"scale_height": height, "scale_width": width, **attrs}
    return net, net.graph(
        net.op("_contrib_BilinearResize2D", net.var("data", __dtype__="0"), name="resized", **given)
    )


@pytest.mark.parametrize("scales", [(8, 8.0), ("8.0", 3)])
@pytest.mark.parametrize("align_corners", [True, False])
def test_sizes_may_be_so_many_times_those_of_the_image(
    monkeypatch: pytest.MonkeyPatch, scales: tuple[float, float], align_corners: bool
) -> None:
    """BiSeNet resizes what it says of each pixel so; the form is right for images of every size."""
    net, graph = scaled(*scales, align_corners=align_corners)
    rows, columns = (int(float(scale)) for scale in scales)
    data = (2, 32, 17, 23)
    done = rewritten(graph, parameters(net.params), data, (17 * rows, 23 * columns))
    assert {change.step for change in done.record(PreparedNode)} == {STEP}
    assert named(done.graph, "resized").op == "dot"
    assert done.shapes is not None
    known = {node.name: shape for node, shape in zip(done.graph.nodes, done.shapes)}
    assert known["resized_row_weights"] == ((17 * rows, 17),)
    assert known["resized_tall"] == ((2, 32, 23, 17 * rows),)
    for shape in (data, (1, 3, 5, 9), (1, 2, 1, 4)):
        values = {"data": np.random.default_rng(4).normal(size=shape).astype(np.float32)}
        (expected,) = outputs(monkeypatch, graph, {}, values)
        (found,) = outputs(monkeypatch, done.graph, {}, values, "MKLDNN")
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 if align_corners else 8e-6)


@pytest.mark.parametrize(
    ("data", "size"),
    [(SHAPE, LARGE), ((2, 64, 1, 5), (33, 65)), ((1, 48, 47, 31), (61, 61)), ((1, 19, 30, 30), (97, 97))],
)
@pytest.mark.parametrize("align_corners", [True, False])
def test_mxnet_computes_the_same_values(
    monkeypatch: pytest.MonkeyPatch, data: tuple[int, ...], size: tuple[int, int], align_corners: bool
) -> None:
    """Each value is a mean of four, whose weights are rounded once or twice."""
    net, resized = network(size, align_corners=align_corners)
    graph, given = net.graph(resized), parameters(net.params)
    done = rewritten(graph, given, data, size)
    assert {change.step for change in done.record(PreparedNode)} == {STEP}
    values = {"data": np.random.default_rng(2).normal(size=data).astype(np.float32)}
    (expected,) = outputs(monkeypatch, graph, given, values)
    for backend in ("NONE", "MKLDNN"):
        (found,) = outputs(monkeypatch, done.graph, done.params, values, backend)
        off = found - expected
        assert np.abs(off).max() < (2e-6 if align_corners else 8e-6)
        assert abs(off.mean()) < 1e-8


def resized_exactly(
    image: NDArray[np.float32], height: int, width: int, *, align_corners: bool
) -> NDArray[np.float64]:
    """Return an image resized in float64: the corners of both lie upon each other, or edges."""
    found = image.astype(np.float64)
    for axis, size in ((2, height), (3, width)):
        places = found.shape[axis]
        at = np.arange(size) * (places - 1) / (size - 1)
        if not align_corners:
            at = np.clip((np.arange(size) + 0.5) * places / size - 0.5, 0, places - 1)
        below = np.minimum(np.floor(at).astype(int), places - 1)
        above = np.minimum(below + 1, places - 1)
        share = (at - below).reshape([-1 if other == axis else 1 for other in range(4)])
        found = np.take(found, below, axis) * (1 - share) + np.take(found, above, axis) * share
    return found


@pytest.mark.parametrize(("data", "size"), [((1, 8, 90, 90), (480, 480)), ((1, 24, 37, 29), (111, 87))])
@pytest.mark.parametrize("align_corners", [True, False])
def test_it_is_as_exact_as_mxnet(
    monkeypatch: pytest.MonkeyPatch, data: tuple[int, ...], size: tuple[int, int], align_corners: bool
) -> None:
    """Both round where a value lies, which is most of what either is off; neither has a bias."""
    net, resized = network(size, align_corners=align_corners)
    graph, given = net.graph(resized), parameters(net.params)
    done = rewritten(graph, given, data, size)
    values = np.random.default_rng(5).normal(size=data).astype(np.float32)
    exact = resized_exactly(values, *size, align_corners=align_corners)
    own, found = (
        outputs(monkeypatch, one, params, {"data": values})[0] - exact
        for one, params in ((graph, given), (done.graph, done.params))
    )
    assert np.abs(found).max() < 1.5 * np.abs(own).max()
    assert (found**2).mean() < 1.1 * (own**2).mean()
    assert abs(found.mean()) < 0.01 * found.std()


def test_the_last_place_is_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """95 / 767 * 767 is more than 95 in float32."""
    net, resized = network((768, 768))
    graph, given = net.graph(resized), parameters(net.params)
    done = rewritten(graph, given, (1, 1, 96, 96), (768, 768))
    values = {"data": np.full((1, 1, 96, 96), 3.0, np.float32)}
    (found,) = outputs(monkeypatch, done.graph, done.params, values)
    assert np.all(found[..., -1, -1] == 3.0)
    assert np.abs(found - 3.0).max() < 1e-6


def test_images_of_other_sizes_are_resized_too(monkeypatch: pytest.MonkeyPatch) -> None:
    net, resized = network()
    graph, given = net.graph(resized), parameters(net.params)
    done = rewritten(graph, given)
    values = {"data": np.random.default_rng(3).normal(size=(2, 3, 7, 9)).astype(np.float32)}
    (expected,) = outputs(monkeypatch, graph, given, values)
    (found,) = outputs(monkeypatch, done.graph, done.params, values)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


def test_the_products_stay_float32() -> None:
    import mxamp

    net = Net()
    layer = net.conv(net.var("data"), "layer", filters=16)
    resized = net.op("_contrib_BilinearResize2D", layer, name="resized", height=96, width=128)
    graph = net.graph(net.op("exp", resized, name="y"))
    model = mxamp.convert_model(
        graph, net.params, {}, "bfloat16", input_shapes={"data": (1, 4, 12, 20)},
        low_precision="required",
    )  # fmt: skip
    found = {node.name: (node.compute, node.reason) for node in model.report.nodes}
    assert found["layer"][0] == "bfloat16"
    for name in ("resized_tall", "resized"):
        assert found[name][0] == "float32"
        assert "is made of positions alone" in found[name][1]


def test_targets_choose() -> None:
    net, resized = network()
    graph = net.graph(resized)
    assert targets_that_choose(STEP, graph, parameters(net.params), shapes(graph)) == CPUS
