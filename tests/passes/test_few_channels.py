"""Layers read a few channels for themselves that others were joined with, and compute the same."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.graph.output_names import output_names
from mxamp.passes import PreparedNode, SeparateFewChannels
from mxamp.passes.state import State
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, named, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import prepare_graph, prepared

NARROW = "cpu-bf16-avx2"
SIDE = 48
STEP = SeparateFewChannels.step


class Joined(Net):
    """Images that layers made and others, joined, and layers that read all."""

    def __init__(self) -> None:
        super().__init__()
        self.x = self.var("x")

    def image(self, name: str, channels: int) -> Entry:
        weight = self.param(f"{name}_weight", channels, 4, 1, 1)
        attrs = {"num_filter": channels, "kernel": "(1, 1)", "no_bias": True}
        return self.op("Convolution", self.x, weight, name=name, **attrs)

    def join(self, *parts: Entry, name: str = "joined", **attrs: Any) -> Entry:
        return self.op("Concat", *parts, name=name, num_args=len(parts), **{"dim": 1, **attrs})

    def layer(
        self, data: Entry, channels: int, name: str = "layer", filters: int = 24, **attrs: Any
    ) -> Entry:
        kernel = attrs.pop("window", 3)
        weight = self.param(
            f"{name}_weight", filters, channels // int(attrs.get("num_group", 1)), kernel, kernel
        )
        inputs = [weight] if attrs.get("no_bias") else [weight, self.param(f"{name}_bias", filters)]
        given = {
            "num_filter": filters,
            "kernel": f"({kernel}, {kernel})",
            "pad": f"({kernel // 2}, {kernel // 2})",
        }
        return self.op("Convolution", data, *inputs, name=name, **{**given, **attrs})


def shapes(net: Net, graph: Graph, batch: int = 1) -> list[Any]:
    """Return the shapes of all outputs, for x of four channels, and z of three."""
    from mxamp.graph.shapes import infer_entry_shapes

    known = {
        name: shape
        for name, shape in {"x": (batch, 4, SIDE, SIDE), "z": (batch, 3, SIDE, SIDE)}.items()
        if name in graph.variables
    }
    params = {name: value.shape for name, value in net.params.items()}
    return list(infer_entry_shapes(graph, known, params).entries)


def separated(
    net: Net, graph: Graph, target: str = NARROW, batch: int = 1, policy: Policy | None = None
) -> State:
    policy = policy or Policy.default(BF16)
    known = shapes(net, graph, batch)
    chosen = Target.builtin(target)
    return prepare_graph(graph, parameters(net.params), policy, [STEP], target=chosen, shapes=known)


CASES: dict[str, tuple[tuple[str, ...], int]] = {
    "behind": (("one", "z"), 35),
    "in front": (("z", "one"), 35),
    "between": (("one", "z", "other"), 51),
    "of several": (("one", "other", "z"), 51),
    "an array": (("one", "places"), 34),
    "several few": (("one", "z", "places"), 37),
}


def parts_of(case: str, net: Joined) -> tuple[list[Entry], int]:
    """Return what is joined, and how many channels that are."""
    made: dict[str, Callable[[], Entry]] = {
        "one": lambda: net.image("one", 32),
        "other": lambda: net.image("other", 16),
        "z": lambda: net.var("z"),
        "places": lambda: net.param("places", 1, 2, SIDE, SIDE),
    }
    names, channels = CASES[case]
    return [made[name]() for name in names], channels


@pytest.mark.parametrize("no_bias", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_groups_are_read_apart(monkeypatch: pytest.MonkeyPatch, case: str, no_bias: bool) -> None:
    net = Joined()
    parts, channels = parts_of(case, net)
    joined = net.join(*parts)
    layers = [net.layer(joined, channels, name, no_bias=no_bias) for name in ("first", "second")]
    graph = net.graph(*[net.op("Activation", layer, act_type="relu") for layer in layers])
    done = separated(net, graph)
    after = done.graph
    assert {change.node for change in done.record(PreparedNode)} == {"first", "second", "joined"}
    assert named(after, "first").op == named(after, "second").op == "elemwise_add"
    groups = [node for node in after.nodes if node.name.startswith("first_group")]
    assert [node.attrs["no_bias"] for node in groups] == [str(no_bias), *["True"] * (len(groups) - 1)]
    assert "joined" not in [node.name for node in after.nodes]
    assert sum(node.op == "Concat" for node in after.nodes) == (case in ("of several", "several few"))
    assert not {"first_weight", "second_weight"} & set(after.variables)
    data = {name: np.random.default_rng(3).normal(size=(1, size, SIDE, SIDE)).astype(np.float32)
            for name, size in (("x", 4), ("z", 3)) if name in graph.variables}  # fmt: skip
    expected = outputs(monkeypatch, graph, parameters(net.params), data)
    found = outputs(monkeypatch, after, done.params, data, "MKLDNN")
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_a_layer_that_is_an_output_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Joined()
    joined = net.join(net.image("one", 32), net.var("z"))
    graph = net.graph(net.layer(joined, 35, name="y"), net.op("exp", joined, name="all"))
    done = separated(net, graph)
    assert output_names(done.graph) == output_names(graph)
    assert named(done.graph, "y").op == "elemwise_add"
    assert named(done.graph, "joined").op == "Concat"  # another reads it


def test_layers_that_share_a_weight_share_its_parts() -> None:
    net = Joined()
    one, z = net.image("one", 32), net.var("z")
    first = net.layer(net.join(one, z, name="j0"), 35, "first", no_bias=True)
    weight = next(i for i, node in enumerate(net.graph(first).nodes) if node.name == "first_weight")
    attrs = {"num_filter": 24, "kernel": "(3, 3)", "pad": "(1, 1)", "no_bias": True}
    again = net.op(
        "Convolution", net.join(net.op("exp", one), z, name="j1"), Entry(weight), name="again", **attrs
    )
    done = separated(net, net.graph(first, again))
    variables = [name for name in done.graph.variables if name.startswith("first_weight")]
    assert sorted(variables) == ["first_weight_from0", "first_weight_from32"]


def refused(case: str) -> tuple[Joined, Graph]:
    """Return a network that is left alone."""
    net = Joined()
    one = net.image("one", 32)
    if case == "whole blocks":
        return net, net.graph(net.layer(net.join(one, net.image("other", 16)), 48))
    if case == "more than a block":
        return net, net.graph(net.layer(net.join(one, net.image("other", 12)), 44))
    if case == "few alone":
        return net, net.graph(net.layer(net.join(net.image("few", 3), net.image("other", 2)), 5, filters=256))
    if case == "groups":
        return net, net.graph(net.layer(net.join(one, net.image("few", 4)), 36, num_group=4))
    if case == "too many":
        parts = [one, net.var("z"), net.image("other", 16), net.image("few", 2)]
        return net, net.graph(net.layer(net.join(*parts), 53))
    if case == "wide windows":
        return net, net.graph(net.layer(net.join(one, net.var("z")), 35, window=9))
    if case == "few products":
        return net, net.graph(net.layer(net.join(one, net.var("z")), 35, filters=8, window=1))
    if case == "along rows":
        return net, net.graph(net.layer(net.join(one, net.image("other", 32), dim=2), 32))
    return net, net.graph(net.layer(net.join(one, net.var("z")), 35))


@pytest.mark.parametrize(
    "case",
    [
        *("whole blocks", "more than a block", "few alone", "groups", "too many", "wide windows"),
        *("few products", "along rows", "rule"),
    ],
)
def test_refuses(case: str) -> None:
    net, graph = refused(case)
    policy = Policy.default(BF16).excluding(names=["layer"]) if case == "rule" else None
    assert separated(net, graph, policy=policy).graph is graph


def test_a_second_run_changes_nothing() -> None:
    net = Joined()
    graph = net.graph(net.layer(net.join(net.image("one", 32), net.var("z")), 35))
    inserted = ["layer_group0", "layer_group1", "layer_weight_from0", "layer_weight_from32"]
    after, _ = prepared(
        SeparateFewChannels, graph, net.params, target=Target.builtin(NARROW), inserted=inserted,
        shapes=shapes(net, graph),
    )  # fmt: skip
    assert after is not graph


@pytest.mark.parametrize(("name", "pays"), [(NARROW, True), ("cpu-bf16", False), ("cpu-bf16-amx", False)])
@pytest.mark.parametrize("batch", [1, 3])
def test_targets_choose(name: str, batch: int, pays: bool) -> None:
    net = Joined()
    graph = net.graph(net.layer(net.join(net.image("one", 32), net.var("z")), 35))
    assert bool(separated(net, graph, name, batch).record(PreparedNode)) is pays
