"""InstanceNorm becomes LayerNorm where the target runs that faster, and is as exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mxamp
from mxamp.graph import Entry
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.model import Model
from mxamp.params.parameter import ArrayParameter
from mxamp.passes import RewriteInstanceNorm
from mxamp.policy import Policy
from mxamp.targets import Target, resolve_target
from tests.building import BF16, F16, Net, parameters
from tests.passes.preparing import operators, prepare_graph, prepared

PARTS = ["rows", "first_row", "row", "ones", "zeros", "normalized", "image", "moving_mean", "moving_var"]
INSERTED = [f"n_{part}" for part in PARTS]


def network(channels: int = 4, *, kernel: str = "(1, 1)", **attrs: Any) -> tuple[Net, Entry]:
    """Return data of 4 channels -> Convolution -> InstanceNorm."""
    net = Net()
    layer = net.op(
        "Convolution",
        net.var("data"),
        net.param("weight", channels, 4, *([1] * kernel.count("1"))),
        name="conv",
        num_filter=channels,
        kernel=kernel,
        no_bias=True,
    )
    gamma, beta = (net.param(name, channels) for name in ("gamma", "beta"))
    return net, net.op("InstanceNorm", layer, gamma, beta, name="n", outputs=3, **attrs)


@pytest.mark.parametrize(
    ("attrs", "epsilon"), [({}, "0.001"), ({"eps": "1e-05"}, "1e-05"), ({"eps": "0.1"}, "0.1")]
)
def test_instance_norm_becomes_layer_norm_over_rows(attrs: dict[str, str], epsilon: str) -> None:
    net, last = network(**attrs)
    after, done = prepared(RewriteInstanceNorm, net.graph(last), net.params, inserted=INSERTED)
    assert operators(after)[1:] == [
        "n_rows = Reshape(conv) {shape: (-3, -1)}",
        "n_first_row = slice_axis(n_rows) {axis: 0, begin: 0, end: 1}",
        "n_row = Reshape(n_first_row) {shape: (-1,)}",
        "n_ones = ones_like(n_row)",
        "n_zeros = zeros_like(n_row)",
        f"n_normalized = LayerNorm(n_rows, n_ones, n_zeros) {{axis: -1, eps: {epsilon}}}",
        "n_image = reshape_like(n_normalized, conv)",
        "n = BatchNorm(n_image, gamma, beta, n_moving_mean, n_moving_var) "
        "{eps: 0.0009765625, fix_gamma: False, use_global_stats: True}",
    ]
    variance = done.params["n_moving_var"].values()
    assert variance.dtype == np.float32
    assert (variance + np.float32(0.0009765625) == 1).all()
    (change,) = done.changes
    assert (change.node, change.op, change.into) == ("n", "InstanceNorm", "n")


@pytest.mark.parametrize("kernel", ["(1,)", "(1, 1, 1)", None], ids=["sequence", "volume", "unknown"])
def test_places_of_any_number_of_axes_become_one(kernel: str | None) -> None:
    net, last = network(kernel=kernel or "(1, 1)")
    if kernel is None:
        net = Net()
        norms = (net.var("conv"), net.param("gamma", 4), net.param("beta", 4))
        last = net.op("InstanceNorm", *norms, name="n", outputs=3)
    inserted = [*INSERTED, "n_places", "n_scaled"]
    after, _ = prepared(RewriteInstanceNorm, net.graph(last), net.params, inserted=inserted)
    lines = [line for line in operators(after) if line.startswith("n")]
    assert lines[:2] == [
        "n_places = Reshape(conv) {shape: (0, 0, -1, 1)}",
        "n_rows = Reshape(n_places) {shape: (-3, -1)}",
    ]
    assert lines[-3:] == [
        "n_image = reshape_like(n_normalized, n_places)",
        "n_scaled = BatchNorm(n_image, gamma, beta, n_moving_mean, n_moving_var) "
        "{eps: 0.0009765625, fix_gamma: False, use_global_stats: True}",
        "n = reshape_like(n_scaled, conv)",
    ]


def test_norms_of_as_many_channels_share_their_statistics() -> None:
    net, first = network()
    gamma, beta = net.param("g", 4), net.param("b", 4)
    second = net.op("InstanceNorm", net.conv(first), gamma, beta, name="m", outputs=3)
    inserted = [*INSERTED, *(f"m_{part}" for part in PARTS)]
    after, done = prepared(RewriteInstanceNorm, net.graph(second), net.params, inserted=inserted)
    assert len(done.changes) == 2
    assert "m_moving_var" not in done.params
    assert len(after.uses[after.variables["n_moving_var"]][0]) == 2


@pytest.mark.parametrize("sides", [(32, 40), (320,), (8, 10, 12)], ids=str)
def test_shapes_are_handed_on(sides: tuple[int, ...]) -> None:
    net, last = network(kernel=str((1,) * len(sides)))
    graph = net.graph(last)
    shapes = {"data": (2, 4, *sides)}
    stored = {name: values.shape for name, values in net.params.items()}
    done = prepare_graph(
        graph,
        parameters(net.params),
        Policy.default(BF16),
        ["instance_norm"],
        target=resolve_target("cpu-bf16-amx", BF16),
        shapes=infer_entry_shapes(graph, shapes, stored).entries,
    )
    assert done.shapes is not None
    known = {name: value.shape for name, value in done.params.items()}
    expected = infer_entry_shapes(done.graph, shapes, known).entries
    for node, ours, theirs in zip(done.graph.nodes, done.shapes, expected):
        assert ours[0] == theirs[0], node


@pytest.mark.parametrize(
    "case", ["an input", "float16", "rule", "statistics", "numpy shapes", "small", "two shapes"]
)
def test_refuses(case: str) -> None:
    policy = shapes = None
    net, last = network()
    if case == "an input":
        del net.params["gamma"]
    elif case == "float16":
        net.params = {name: values.astype(np.float16) for name, values in net.params.items()}
    elif case == "rule":
        policy = Policy.default(BF16).excluding(names=["n"])
    elif case == "numpy shapes":  # where a size of 0 is one
        net = Net()
        last = net.op("InstanceNorm", net.var("data"), net.param("g", 2), net.param("b", 2), outputs=3)
    elif case == "two shapes":
        net.params["beta"] = net.params["beta"][:1]
    heads = [last, Entry(last.node, 1)] if case == "statistics" else [last]
    graph = net.graph(*heads)
    if case == "numpy shapes":
        graph = replace(graph, attrs={**graph.attrs, "is_np_shape": ["int", 1]})
    if case == "small":
        stored = {name: values.shape for name, values in net.params.items()}
        shapes = infer_entry_shapes(graph, {"data": (1, 4, 8, 8)}, stored).entries
    assert prepared(RewriteInstanceNorm, graph, net.params, policy, shapes=shapes)[0] is graph


def test_other_targets_keep_it() -> None:
    net, last = network()
    graph = net.graph(last)
    target = Target.for_dtype(F16)
    given = parameters(net.params)
    assert prepare_graph(graph, given, Policy.default(F16), target=target).graph is graph


# ---------------------------------------------------------------------- values


def reference(
    data: NDArray[Any], gamma: NDArray[Any], beta: NDArray[Any], epsilon: float
) -> NDArray[np.float64]:
    """Return the norm in float64."""
    images, places = data.astype(np.float64), tuple(range(2, data.ndim))
    mean, var = (getattr(images, what)(axis=places, keepdims=True) for what in ("mean", "var"))
    scale, shift = (each.astype(np.float64).reshape(1, -1, *(1 for _ in places)) for each in (gamma, beta))
    result: NDArray[np.float64] = (images - mean) / np.sqrt(var + epsilon) * scale + shift
    return result


def computed(
    data: NDArray[Any], gamma: NDArray[Any], beta: NDArray[Any], epsilon: float
) -> list[NDArray[Any]]:
    """Return what MXNet computes, and what it computes of the form."""
    pytest.importorskip("mxnet", reason="runs the norms")
    from mxamp.runtime.executor import BoundModel

    net = Net()
    kernel = str((1,) * (data.ndim - 2))
    image = net.op("Pooling", net.var("data"), name="image", kernel=kernel, pool_type="avg")
    net.params.update(gamma=gamma, beta=beta)
    last = net.op("InstanceNorm", image, net.var("gamma"), net.var("beta"), name="n", outputs=3, eps=epsilon)
    given = net.graph(last)
    inserted = INSERTED if data.ndim == 4 else [*INSERTED, "n_places", "n_scaled"]
    after, done = prepared(RewriteInstanceNorm, given, net.params, inserted=inserted)
    assert done.changes
    states = {name: value for name, value in done.params.items() if "moving" in name}
    form = Model(after, {name: value for name, value in done.params.items() if name not in states}, states)
    before = Model(given, {name: ArrayParameter(values) for name, values in net.params.items()}, {})
    return [BoundModel(model, fusion=False).run({"data": data})[0] for model in (before, form)]


def drawn(shape: tuple[int, ...], seed: int = 0) -> list[NDArray[Any]]:
    random = np.random.default_rng(seed)
    channels = shape[1]
    each = (1, channels, *(1 for _ in shape[2:]))
    data = random.standard_normal(shape) * random.uniform(0.1, 9, each)
    data += random.standard_normal(each) * 5
    scale, shift = random.uniform(-2, 2, channels), random.standard_normal(channels)
    return [each.astype(np.float32) for each in (data, scale, shift)]


@pytest.mark.parametrize("epsilon", [1e-5, 1e-3])
@pytest.mark.parametrize(
    "shape",
    [
        *((1, 8, 128, 128), (2, 3, 33, 47), (3, 6, 7, 5), (1, 16, 64, 64)),
        *((2, 8, 4000), (3, 5, 77), (1, 4, 24, 32, 32), (2, 3, 5, 7, 9)),
    ],
    ids=str,
)
def test_errors_are_those_of_mxnets_own_norm(shape: Any, epsilon: float) -> None:
    """Neither larger nor biased, against float64; at the size at which a first sketch was less exact, too."""
    data, gamma, beta = drawn(shape)
    exact = reference(data, gamma, beta, epsilon)
    theirs, ours = (result - exact for result in computed(data, gamma, beta, epsilon))
    assert np.abs(ours).max() <= 1.25 * np.abs(theirs).max()
    assert np.sqrt((ours**2).mean()) <= 1.05 * np.sqrt((theirs**2).mean())
    assert abs(ours.mean()) <= abs(theirs.mean()) + 1e-7


def test_constant_planes_become_beta() -> None:
    """As nearly as in MXNet, where the mean of a constant is rounded, and eps is all that divides."""
    values = np.array([0.0, 1.0, -3.7, 1e-30], np.float32).reshape(1, 4, 1, 1)
    data = np.ascontiguousarray(np.broadcast_to(values, (2, 4, 16, 16)))
    gamma, beta = np.full(4, 1.5, np.float32), np.arange(4, dtype=np.float32)
    theirs, ours = (
        np.abs(result - beta.reshape(1, 4, 1, 1)).max(axis=(0, 2, 3))
        for result in computed(data, gamma, beta, 1e-5)
    )
    assert (ours[[0, 1, 3]] == 0).all()
    assert ours[2] <= theirs[2]


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_infinities_and_nan_fill_their_plane_and_no_other(special: float) -> None:
    data, gamma, beta = drawn((1, 4, 16, 16))
    data[0, 1, 3, 5] = special
    theirs, ours = computed(data, gamma, beta, 1e-5)
    assert np.isnan(ours[0, 1]).all()
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
    assert np.isfinite(ours[0, [0, 2, 3]]).all()


def test_planes_whose_squares_overflow_become_beta_as_in_mxnet() -> None:
    data, gamma, beta = drawn((1, 4, 16, 16))
    data[0, 2] *= np.float32(1e25)
    theirs, ours = computed(data, gamma, beta, 1e-5)
    np.testing.assert_array_equal(ours[0, 2], theirs[0, 2])


@pytest.mark.parametrize("sides", [(12, 12), (33, 33), (12,), (330,), (6, 7, 8), (20, 15, 18)], ids=str)
def test_a_converted_style_network_runs_at_every_size(sides: tuple[int, ...]) -> None:
    """A padded convolution, norm and relu, twice; converted for sides of 24."""
    pytest.importorskip("mxnet", reason="runs the network")
    from mxamp.runtime.executor import BoundModel

    net = Net()
    x = net.var("data")
    for number in range(2):
        kernel, pad = (3,) * len(sides), (1,) * len(sides)
        attrs = {"num_filter": 32, "kernel": kernel, "pad": pad, "no_bias": True}
        weight = net.param(f"w{number}", 32, 32 if number else 3, *kernel)
        x = net.op("Convolution", x, weight, name=f"conv{number}", **attrs)
        gamma, beta = net.param(f"gamma{number}", 32, value=1.2), net.param(f"beta{number}", 32)
        x = net.op("InstanceNorm", x, gamma, beta, name=f"n{number}", outputs=3, eps="1e-05")
        x = net.op("Activation", x, act_type="relu")
    graph = net.graph(x)
    args = {name: ArrayParameter(values) for name, values in net.params.items()}
    shapes = {"data": (1, 3, *(512 if len(sides) == 1 else 24 for _ in sides))}
    converted = mxamp.convert_model(graph, args, {}, "bfloat16", target="cpu-bf16-amx", input_shapes=shapes)
    assert {change.step for change in converted.report.preparations} >= {"instance_norm"}
    assert set(converted.aux_params) == {"n0_moving_mean", "n0_moving_var"}
    image = np.random.default_rng(0).standard_normal((2, 3, *sides)).astype(np.float32)
    expected, found = (
        BoundModel(each).run({"data": image})[0] for each in (Model(graph, args, {}), converted)
    )
    assert np.linalg.norm(found - expected) < 2e-2 * np.linalg.norm(expected)
