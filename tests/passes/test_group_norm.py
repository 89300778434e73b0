"""GroupNorm becomes LayerNorm over rows where the target runs that faster, and is as exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mxamp
from mxamp.graph import Entry
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.model import Model
from mxamp.params.parameter import ArrayParameter
from mxamp.passes import RewriteGroupNorm
from mxamp.policy import Policy
from mxamp.targets import resolve_target
from tests.building import BF16, Net, parameters
from tests.passes.preparing import CPUS, operators, prepare_graph, prepared, targets_that_choose

PARTS = (
    *("flat", "rows", "places", "ones", "zeros", "normalized", "length", "shares", "rest", "rests"),
    *("lost", "middle", "around", "found", "found_middle", "apart", "std_square", "apart_square", "moments"),
    *("moment", "variance", "inverse", "gamma", "scale", "factors", "moved", "beta", "terms", "scaled"),
    "whole",
)
INSERTED = [f"n_{part}" for part in PARTS]
INSERTED_OF_SEQUENCES = [name for name in INSERTED if name != "n_flat"]


def network(groups: int = 2, *, kernel: str = "(1, 1)", channels: int = 8, **attrs: Any) -> tuple[Net, Entry]:
    """Return data of 4 channels -> Convolution to 8 -> GroupNorm."""
    net = Net()
    weight = net.param("weight", channels, 4, *([1] * kernel.count("1")))
    options = {"num_filter": channels, "kernel": kernel, "no_bias": True}
    layer = net.op("Convolution", net.var("data"), weight, name="conv", **options)
    gamma, beta = (net.param(name, groups) for name in ("gamma", "beta"))
    return net, net.op("GroupNorm", layer, gamma, beta, name="n", outputs=3, num_groups=groups, **attrs)


def test_group_norm_becomes_layer_norm_over_rows() -> None:
    net, last = network(eps="0.001")
    after, done = prepared(RewriteGroupNorm, net.graph(last), net.params, inserted=INSERTED)
    lines = {line.split(" = ")[0]: line.split(" = ")[1] for line in operators(after)}
    assert lines["n_rows"] == "Reshape(n_flat) {shape: (0, -4, 2, -1, 0)}"
    assert lines["n_normalized"] == (
        "LayerNorm(n_rows, n_ones, n_zeros) {axis: -1, eps: 1e-12, output_mean_var: True}"
    )
    assert lines["n_variance"] == "_plus_scalar(n_moment) {scalar: 0.001}"
    assert lines["n"] == "reshape_like(n_whole, conv)"
    (change,) = done.changes
    assert (change.node, change.op, change.into) == ("n", "GroupNorm", "n")


def norm_of(sides: int, channels: int = 8, groups: int = 2) -> tuple[dict[str, str], Net]:
    """Return the nodes that a norm of a layer's result becomes, by their names."""
    net, last = network(groups, kernel=str((1,) * sides), channels=channels)
    axes = {1: INSERTED_OF_SEQUENCES, 2: INSERTED, 3: [*INSERTED, "n_planes"]}
    after, _ = prepared(RewriteGroupNorm, net.graph(last), net.params, inserted=axes[sides])
    return {line.split(" = ")[0]: line.split(" = ")[1] for line in operators(after)}, net


def test_volumes_have_two_axes_as_one() -> None:
    lines, _ = norm_of(3)
    assert lines["n_planes"] == "Reshape(conv) {shape: (0, -3, 0, 0)}"
    assert lines["n_flat"] == "Reshape(n_planes) {shape: (0, -3, 0)}"
    assert lines["n_rows"] == "Reshape(n_flat) {shape: (0, -4, 2, -1, 0)}"
    assert lines["n"] == "reshape_like(n_whole, conv)"


@pytest.mark.parametrize(
    ("channels", "said"), [(8, "(0, -4, 2, -1, 0)"), (62, "(0, -4, 2, -1, 0)"), (64, "(0, 2, -1, 32)")]
)
def test_rows_of_sequences_are_as_long_as_groups_have_channels(channels: int, said: str) -> None:
    lines, _ = norm_of(1, channels)
    assert lines["n_rows"] == f"Reshape(conv) {{shape: {said}}}"
    assert lines["n"] == "reshape_like(n_whole, conv)"


@pytest.mark.parametrize("sides", [(32, 40), (3200,), (8, 10, 12)], ids=str)
def test_shapes_are_handed_on(sides: tuple[int, ...]) -> None:
    net, last = network(kernel=str((1,) * len(sides)))
    graph, shapes = net.graph(last), {"data": (2, 4, *sides)}
    stored = {name: values.shape for name, values in net.params.items()}
    done = prepare_graph(
        graph,
        parameters(net.params),
        Policy.default(BF16),
        ["group_norm"],
        target=resolve_target("cpu-bf16-amx", BF16),
        shapes=infer_entry_shapes(graph, shapes, stored).entries,
    )
    assert done.shapes is not None
    known = {name: value.shape for name, value in done.params.items()}
    expected = infer_entry_shapes(done.graph, shapes, known).entries
    for node, ours, theirs in zip(done.graph.nodes, done.shapes, expected):
        assert ours == theirs, node


@pytest.mark.parametrize(
    "case",
    [
        *("an input", "float16", "rule", "statistics", "unknown", "small", "other shapes"),
        *("uneven", "a small epsilon"),
    ],
)
def test_refuses(case: str) -> None:
    policy = shapes = None
    groups = 3 if case == "uneven" else 2
    attrs = {"eps": "1e-10"} if case == "a small epsilon" else {}
    net, last = network(groups, **attrs)
    if case == "an input":
        del net.params["gamma"]
    elif case == "float16":
        net.params = {name: values.astype(np.float16) for name, values in net.params.items()}
    elif case == "rule":
        policy = Policy.default(BF16).excluding(names=["n"])
    elif case == "unknown":
        net = Net()
        g, b = net.param("g", 2), net.param("b", 2)
        last = net.op("GroupNorm", net.var("data"), g, b, outputs=3, num_groups=2)
    elif case == "other shapes":
        net.params["beta"] = net.params["beta"][:1]
    graph = net.graph(*([last, Entry(last.node, 1)] if case == "statistics" else [last]))
    if case in ("small", "uneven"):
        shapes = [
            (net.params[node.name].shape,)
            if node.name in net.params
            else ((1, 4 if node.is_variable else 8, *((8, 8) if case == "small" else (64, 64))),) * 3
            for node in graph.nodes
        ]
    assert prepared(RewriteGroupNorm, graph, net.params, policy, shapes=shapes)[0] is graph


def test_cpus_choose_it() -> None:
    net, last = network()
    assert targets_that_choose("group_norm", net.graph(last), parameters(net.params)) == CPUS


# ---------------------------------------------------------------------- values


def reference(
    data: NDArray[Any], gamma: NDArray[Any], beta: NDArray[Any], epsilon: float
) -> NDArray[np.float64]:
    """Return the norm in float64."""
    groups = data.astype(np.float64).reshape(len(data), len(gamma), -1)
    mean, var = (getattr(groups, what)(axis=2, keepdims=True) for what in ("mean", "var"))
    scale, shift = (each.astype(np.float64).reshape(1, -1, 1) for each in (gamma, beta))
    result: NDArray[np.float64] = ((groups - mean) / np.sqrt(var + epsilon) * scale + shift).reshape(
        data.shape
    )
    return result


def computed(
    data: NDArray[Any], gamma: NDArray[Any], beta: NDArray[Any], epsilon: float
) -> list[NDArray[Any]]:
    """Return what MXNet computes, and what it computes of the form."""
    pytest.importorskip("mxnet", reason="runs the norms")
    from mxamp.runtime.executor import BoundModel

    net = Net()
    channels, kernel = data.shape[1], (1,) * (data.ndim - 2)
    # A layer, which says how many channels there are, and leaves values as they are.
    weight = net.param("ones", channels, 1, *kernel, value=1.0)
    attrs = {"num_filter": channels, "num_group": channels, "no_bias": True}
    image = net.op("Convolution", net.var("data"), weight, name="image", kernel=kernel, **attrs)
    net.params.update(gamma=gamma, beta=beta)
    inputs = image, net.var("gamma"), net.var("beta")
    last = net.op("GroupNorm", *inputs, name="n", outputs=3, eps=epsilon, num_groups=len(gamma))
    given = net.graph(last)
    inserted = {3: INSERTED_OF_SEQUENCES, 4: INSERTED, 5: [*INSERTED, "n_planes"]}[data.ndim]
    after, done = prepared(RewriteGroupNorm, given, net.params, inserted=inserted)
    assert done.changes
    args = {name: ArrayParameter(values) for name, values in net.params.items()}
    models = Model(given, args, {}), Model(after, dict(done.params), {})
    return [BoundModel(model, fusion=False).run({"data": data})[0] for model in models]


def drawn(shape: tuple[int, ...], groups: int, middle: float = 0.0) -> list[NDArray[Any]]:
    random = np.random.default_rng(0)
    channels = shape[1]
    each = (1, channels, *(1 for _ in shape[2:]))
    data = random.standard_normal(shape) * random.uniform(0.1, 9, each)
    data += random.standard_normal(each) * 5 + middle
    scale, shift = random.uniform(-2, 2, groups), random.standard_normal(groups)
    return [each.astype(np.float32) for each in (data, scale, shift)]


@pytest.mark.parametrize("middle", [0.0, 100.0])
@pytest.mark.parametrize(
    ("shape", "groups"),
    [
        ((1, 8, 128, 128), 1),
        ((2, 12, 33, 47), 3),
        ((1, 64, 14, 14), 32),
        ((3, 6, 7, 1), 2),
        ((2, 4, 1, 90), 4),
        ((2, 80, 3000), 2),
        ((1, 64, 900), 1),
        ((1, 8, 12, 20, 24), 4),
        ((2, 6, 5, 7, 9), 3),
    ],
)
def test_errors_are_those_of_mxnets_own_norm(shape: Any, groups: int, middle: float) -> None:
    """About as large and without a bias, against float64; far less where a group lies far from zero."""
    data, gamma, beta = drawn(shape, groups, middle)
    exact = reference(data, gamma, beta, 1e-5)
    theirs, ours = (result - exact for result in computed(data, gamma, beta, 1e-5))
    unit = 2.0**-24 * np.abs(exact).max()
    assert np.abs(ours).max() <= 2 * np.abs(theirs).max() + unit
    assert np.sqrt((ours**2).mean()) <= 2 * np.sqrt((theirs**2).mean())
    assert abs(ours.mean()) <= abs(theirs.mean()) + 2e-8


def test_groups_of_equal_values_become_beta() -> None:
    values = np.array([0.0, 1.0, -3.0, 1e-30], np.float32).reshape(1, 4, 1, 1)
    data = np.ascontiguousarray(np.broadcast_to(values, (2, 4, 16, 16)))
    gamma, beta = np.full(4, 1.5, np.float32), np.arange(4, dtype=np.float32)
    _, ours = computed(data, gamma, beta, 1e-5)
    assert (ours == beta.reshape(1, 4, 1, 1)).all()


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_infinities_and_nan_fill_their_group_and_no_other(special: float) -> None:
    data, gamma, beta = drawn((1, 8, 16, 16), 4)
    data[0, 2, 3, 5] = special
    theirs, ours = computed(data, gamma, beta, 1e-5)
    assert np.isnan(ours[0, 2:4]).all()
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
    assert np.isfinite(ours[0, [0, 1, 4, 5, 6, 7]]).all()


def test_groups_whose_squares_overflow_are_nan_as_in_mxnet() -> None:
    data, gamma, beta = drawn((1, 8, 16, 16), 4)
    data[0, 5] *= np.float32(1e25)
    theirs, ours = computed(data, gamma, beta, 1e-5)
    assert np.isnan(ours[0, 4:6]).all()
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))


def test_converting_again_changes_nothing_for_what_is_made_of_parameters_is_one() -> None:
    net, last = network()
    first = mxamp.convert_model(net.graph(last), parameters(net.params), {}, "bfloat16", target="cpu-bf16")
    assert "n_normalized" in {node.name for node in first.graph.nodes}
    assert first.arg_params["n_gamma"].shape == first.arg_params["n_beta"].shape == (1, 2, 1, 1)
    given = {name: parameter.numpy() for name, parameter in first.arg_params.items()}
    again = mxamp.convert_model(first.graph, parameters(given), {}, "bfloat16", target="cpu-bf16")
    assert operators(again.graph) == operators(first.graph)


@pytest.mark.parametrize("sides", [(12, 12), (33, 33), (12,), (330,), (6, 7, 8), (20, 15, 18)], ids=str)
def test_a_converted_network_runs_at_every_size(sides: tuple[int, ...]) -> None:
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
        gamma, beta = net.param(f"gamma{number}", 8, value=1.2), net.param(f"beta{number}", 8)
        x = net.op("GroupNorm", x, gamma, beta, name=f"n{number}", outputs=3, eps="1e-05", num_groups=8)
        x = net.op("Activation", x, act_type="relu")
    graph = net.graph(x)
    args = {name: ArrayParameter(values) for name, values in net.params.items()}
    shapes = {"data": (1, 3, *(512 if len(sides) == 1 else 24 for _ in sides))}
    converted = mxamp.convert_model(
        graph, args, {}, "bfloat16", target="cpu-bf16-amx", input_shapes=shapes, low_precision="required"
    )
    assert {change.step for change in converted.report.preparations} >= {"group_norm"}
    low = {node.name for node in converted.report.nodes if node.compute == "bfloat16"}
    assert {"conv0", "conv1"} <= low
    moved = {f"n{number}_{part}" for number in range(2) for part in ("flat", "rows")}
    assert {name for name in low if name.startswith(("n0_", "n1_"))} <= moved
    image = np.random.default_rng(0).standard_normal((2, 3, *sides)).astype(np.float32)
    expected, found = (
        BoundModel(each).run({"data": image})[0] for each in (Model(graph, args, {}), converted)
    )
    assert np.linalg.norm(found - expected) < 2e-2 * np.linalg.norm(expected)
