"""Products and sums of images with numbers become a BatchNorm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.graph import Entry, Graph
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.passes import RewriteScaleAndShift
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, named, parameters
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import CPUS, Done, prepared, targets_that_choose

CHANNELS = 16
SHAPE = (2, CHANNELS, 6, 5)
ALONG = (1, CHANNELS, 1, 1)


class Images(Net):
    """A product of what two layers write, between those and a layer that reads it."""

    def __init__(self, channels: int = CHANNELS, kernel: str = "(1, 1)") -> None:
        super().__init__()
        self.channels, self.kernel = channels, kernel
        x = self.var("x")
        one, other = (self.layer(x, name) for name in ("one", "other"))
        self.image = self.op("elemwise_mul", one, other, name="product")

    def layer(self, data: Entry, name: str) -> Entry:
        sizes = [1] * (1 if self.kernel == "(1,)" else 2)
        weight = self.param(f"{name}_weight", self.channels, self.channels, *sizes)
        return self.op(
            "Convolution", data, weight, name=name, num_filter=self.channels, kernel=self.kernel, no_bias=True
        )

    def number(self, op: str, data: Entry, name: str, scalar: float) -> Entry:
        return self.op(op, data, name=name, scalar=scalar)

    def array(self, op: str, data: Entry, name: str, *shape: int, turned: bool = False) -> Entry:
        values = self.param(f"{name}_values", *shape)
        return self.op(op, *((values, data) if turned else (data, values)), name=name)

    def read(self, data: Entry) -> Graph:
        return self.graph(self.layer(data, "last"))


def run(
    net: Images, graph: Graph, shape: tuple[int, ...] | None = SHAPE, **options: Any
) -> tuple[Graph, Done]:
    sizes = {name: value.shape for name, value in net.params.items()}
    shapes = None if shape is None else infer_entry_shapes(graph, {"x": shape}, sizes).entries
    inserted = [
        f"{node.name}_{what}"
        for node in graph.nodes
        for what in ("gamma", "beta", "moving_mean", "moving_var")
    ]
    return prepared(RewriteScaleAndShift, graph, net.params, inserted=inserted, shapes=shapes, **options)


def norm_of(after: Graph, done: Done, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return scale and shift of a BatchNorm, which must do nothing else."""
    node = named(after, name)
    assert node.op == "BatchNorm"
    names = [after.nodes[entry.node].name for entry in node.inputs[1:]]
    gamma, beta, mean, variance = (done.params[each].values() for each in names)
    epsilon = np.float32(node.attrs["eps"])
    assert not mean.any()
    assert np.all(np.sqrt(variance + epsilon) == 1.0)
    assert (node.attrs["fix_gamma"], node.attrs["use_global_stats"]) == ("False", "True")
    return gamma, beta


STEPS: dict[str, Any] = {
    "_mul_scalar": lambda net, x: net.number("_mul_scalar", x, "step", 1.4),
    "_div_scalar": lambda net, x: net.number("_div_scalar", x, "step", 0.7),
    "_plus_scalar": lambda net, x: net.number("_plus_scalar", x, "step", 0.3),
    "_minus_scalar": lambda net, x: net.number("_minus_scalar", x, "step", 0.3),
    "_rminus_scalar": lambda net, x: net.number("_rminus_scalar", x, "step", 0.3),
    "_PlusScalar": lambda net, x: net.number("_PlusScalar", x, "step", 0.3),
    "broadcast_mul": lambda net, x: net.array("broadcast_mul", x, "step", *ALONG),
    "broadcast_mul, turned": lambda net, x: net.array("broadcast_mul", x, "step", *ALONG[1:], turned=True),
    "broadcast_add": lambda net, x: net.array("broadcast_add", x, "step", *ALONG),
    "broadcast_add of one": lambda net, x: net.array("broadcast_add", x, "step", 1),
    "broadcast_sub": lambda net, x: net.array("broadcast_sub", x, "step", *ALONG),
    "broadcast_sub, turned": lambda net, x: net.array("broadcast_sub", x, "step", *ALONG, turned=True),
}


@pytest.mark.parametrize("step", STEPS)
def test_each_step_is_a_norm(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    net = Images()
    graph = net.read(STEPS[step](net, net.image))
    after, done = run(net, graph)
    norm_of(after, done, "step")
    assert [change.into for change in done.changes] == ["step"]
    data = {"x": np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)}
    (expected,) = outputs(monkeypatch, graph, parameters(net.params), data)
    (found,) = outputs(monkeypatch, after, done.params, data)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_steps_become_one_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Images()
    scaled = net.number("_mul_scalar", net.image, "scaled", 1.4)
    shifted = net.number("_plus_scalar", scaled, "shifted", 0.3)
    along = net.array("broadcast_mul", shifted, "along", *ALONG)
    graph = net.read(net.number("_rminus_scalar", along, "turned", 2.0))
    after, done = run(net, graph)
    values = net.params["along_values"].reshape(-1).astype(np.float64)
    scale, shift = norm_of(after, done, "turned")
    np.testing.assert_array_equal(scale, (-1.4 * values).astype(np.float32))
    np.testing.assert_allclose(shift, 2.0 - 0.3 * values, rtol=1e-7)
    assert [(change.node, change.into) for change in done.changes] == [
        (name, "turned") for name in ("scaled", "shifted", "along", "turned")
    ]
    assert not {"scaled", "shifted", "along"} & {node.name for node in after.nodes}
    for batch in (1, 3):  # shapes are those of one call
        data = {"x": np.random.default_rng(batch).normal(size=(batch, *SHAPE[1:])).astype(np.float32)}
        (expected,) = outputs(monkeypatch, graph, parameters(net.params), data)
        (found,) = outputs(monkeypatch, after, done.params, data)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_norms_of_as_many_channels_share_their_statistics() -> None:
    net = Images()
    first = net.number("_mul_scalar", net.image, "first", 1.4)
    second = net.number("_plus_scalar", net.op("Activation", first, act_type="relu"), "second", 0.3)
    after, done = run(net, net.read(second))
    assert named(after, "first").inputs[3:] == named(after, "second").inputs[3:]
    assert len([name for name in done.params if "moving" in name]) == 2


def test_infinities_are_where_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Images()
    scaled = net.number("_mul_scalar", net.image, "scaled", -1.4)
    graph = net.read(net.number("_plus_scalar", scaled, "shifted", 0.3))
    after, done = run(net, graph)
    norm_of(after, done, "shifted")
    weights = {
        name: np.eye(CHANNELS, dtype=np.float32).reshape(value.shape)
        for name, value in net.params.items()
        if name.endswith("_weight")
    }
    data = on_edges(*SHAPE)
    data[:, 1:] = 0.0  # what a layer adds up with an infinity is one or NaN
    expected = outputs(monkeypatch, graph, parameters({**net.params, **weights}), {"x": data})[0]
    given = {**done.params, **parameters(weights)}
    found = outputs(monkeypatch, after, {name: given[name] for name in done.params}, {"x": data})[0]
    assert np.isinf(expected).any()
    for kind in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(kind(found), kind(expected))
    finite = np.isfinite(expected)
    np.testing.assert_allclose(found[finite], expected[finite], rtol=2e-6)


@pytest.mark.parametrize("fold", [True, False])
def test_a_layer_takes_what_is_behind_it(fold: bool) -> None:
    """Whoever reads it, for the BatchNorm is gone then."""
    net = Net()
    weight = net.param("layer_weight", CHANNELS, CHANNELS, 1, 1)
    attrs = {"num_filter": CHANNELS, "kernel": "(1, 1)", "no_bias": True}
    layer = net.op("Convolution", net.var("x"), weight, name="layer", **attrs)
    scaled = net.op("broadcast_mul", layer, net.param("values", *ALONG), name="scaled")
    shifted = net.op("_plus_scalar", scaled, name="shifted", scalar=0.3)
    model = mxamp.convert_model(
        net.graph(net.op("exp", shifted, name="plain")),
        net.params,
        {},
        "bfloat16",
        input_shapes={"x": SHAPE},
        target="cpu-bf16-avx2",
        fold_batch_norm=fold,
    )
    left = [node.op for node in model.graph.nodes if not node.is_variable]
    assert left == (["Convolution", "exp"] if fold else ["Convolution", "BatchNorm", "exp"])


def test_a_layer_takes_what_is_behind_its_norm() -> None:
    net = Net()
    weight = net.param("layer_weight", CHANNELS, CHANNELS, 1, 1)
    attrs = {"num_filter": CHANNELS, "kernel": "(1, 1)", "no_bias": True}
    layer = net.op("Convolution", net.var("x"), weight, name="layer", **attrs)
    statistics = [net.param(f"norm_{what}", CHANNELS) for what in ("gamma", "beta", "mean", "var")]
    norm = net.op("BatchNorm", layer, *statistics, name="norm", fix_gamma=False)
    shifted = net.op("_plus_scalar", norm, name="shifted", scalar=0.3)
    params = {name: np.abs(value) for name, value in net.params.items()}
    auxs = {name: params.pop(name) for name in ("norm_mean", "norm_var")}
    graph = net.graph(net.op("exp", shifted, name="plain"))
    given = {"input_shapes": {"x": SHAPE}, "target": "cpu-bf16-avx2"}
    model = mxamp.convert_model(graph, params, auxs, "bfloat16", **given)
    assert [node.op for node in model.graph.nodes if not node.is_variable] == ["Convolution", "exp"]
    scale = params["norm_gamma"] / np.sqrt(auxs["norm_var"] + 1e-3)
    bias = params["norm_beta"] - auxs["norm_mean"] * scale + 0.3
    (name,) = (node.name for node in model.graph.nodes if node.name.endswith("bias"))
    np.testing.assert_allclose(model.arg_params[name].numpy(), bias, rtol=1e-5)


def refused(case: str) -> tuple[Images, Graph, tuple[int, ...] | None]:
    """Return a network in which nothing is to be done, and the shape of what it reads."""
    net = Images(
        channels={"no whole blocks": 12}.get(case, CHANNELS),
        kernel="(1,)" if case == "a sequence" else "(1, 1)",
    )
    shape: tuple[int, ...] | None = (2, net.channels, *(SHAPE[2:] if case != "a sequence" else (9,)))
    if case == "one place":
        shape = (2, net.channels, 1, 1)
    if case == "no shapes":
        shape = None
    arrays = {"of rows": (1, 1, 6, 1), "of images": (2, 1, 1, 1)}
    numbers = {"nothing": 0.0, "much": 2.0**21, "little": 2.0**-21, "infinity": float("inf")}
    if case in arrays:
        return net, net.read(net.array("broadcast_mul", net.image, "step", *arrays[case])), shape
    step = net.number("_mul_scalar", net.image, "step", numbers.get(case, 1.4))
    if case == "a mask":
        step = net.number("_plus_scalar", net.image, "masked", -1e9)
    if case == "divided by nothing":
        step = net.number("_div_scalar", net.image, "divided", 0.0)
    if case == "a reader of plain tensors":
        return net, net.graph(net.layer(step, "last"), net.op("exp", step, name="plain")), shape
    if case == "a graph output":
        return net, net.graph(step), shape
    if case == "channels that nobody tells":
        step = net.number("_mul_scalar", net.op("Concat", net.image, dim=1, num_args=1), "joined", 1.4)
    return net, net.read(step), shape


@pytest.mark.parametrize(
    "case",
    [
        "no whole blocks", "a sequence", "one place", "no shapes", "of rows", "of images", "nothing", "much",
        "little", "infinity", "a mask", "divided by nothing", "a reader of plain tensors", "a graph output",
        "channels that nobody tells",
    ],
)  # fmt: skip
def test_refuses(case: str) -> None:
    net, graph, shape = refused(case)
    after, _ = run(net, graph, shape)
    assert after is graph


def test_what_a_rule_picks_stays() -> None:
    net = Images()
    graph = net.read(net.number("_mul_scalar", net.image, "step", 1.4))
    policy = Policy.default(BF16).excluding(names=["step"])
    after, _ = run(net, graph, policy=policy)
    assert after is graph


def test_blocks_of_eight() -> None:
    net = Images(channels=24)
    graph = net.read(net.number("_mul_scalar", net.image, "step", 1.4))
    shape = (1, 24, 6, 6)
    narrow = replace(Target.builtin("cpu-bf16-avx2"), rewrites=(RewriteScaleAndShift.step,))
    after, done = run(net, graph, shape, target=narrow)
    norm_of(after, done, "step")


def test_which_targets_choose_it() -> None:
    net = Images()
    graph = net.read(net.number("_mul_scalar", net.image, "step", 1.4))
    sizes = {name: value.shape for name, value in net.params.items()}
    shapes = infer_entry_shapes(graph, {"x": SHAPE}, sizes).entries
    assert targets_that_choose("scale_and_shift", graph, parameters(net.params), shapes) == CPUS
