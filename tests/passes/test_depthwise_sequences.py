"""Depthwise layers of sequences become those of images where the backend has a kernel for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.graph import Entry
from mxamp.graph.graph import Graph
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.model import Model
from mxamp.params.parameter import ArrayParameter
from mxamp.passes import RewriteDepthwiseSequences
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.preparing import CPUS, operators, prepare_graph, prepared, targets_that_choose

STEP = "depthwise_sequences"


def network(channels: int = 16, taps: int = 9, **attrs: Any) -> tuple[Net, Entry]:
    """Return data -> depthwise Convolution."""
    net = Net()
    groups = attrs.pop("num_group", channels)
    weight = net.param("weight", channels, channels // groups, taps)
    options = {"num_filter": channels, "num_group": groups, "kernel": f"({taps},)", "no_bias": True, **attrs}
    return net, net.op("Convolution", net.var("data"), weight, name="layer", **options)


def norm(net: Net, value: Entry, name: str, channels: int) -> Entry:
    parts = ("gamma", "beta", "moving_mean", "moving_var")
    read = [net.param(f"{name}_{part}", channels) for part in parts]
    return net.op("BatchNorm", value, *read, name=name, outputs=3, fix_gamma="False")


def test_a_layer_reads_an_image_and_what_is_behind_it_does() -> None:
    net, layer = network(pad="(4,)", stride="(2,)")
    act = net.op("Activation", norm(net, layer, "norm", 16), name="act", act_type="relu")
    graph = net.graph(net.op("square", act, name="last"))
    inserted = ["layer_image", "act_sequence"]
    after, done = prepared(RewriteDepthwiseSequences, graph, net.params, inserted=inserted)
    lines = {line.split(" = ")[0]: line.split(" = ")[1] for line in operators(after)}
    assert lines["layer_image"] == "Reshape(data) {shape: (0, 0, 1, -1)}"
    for said in ("kernel: (1, 9)", "pad: (0, 4)", "stride: (1, 2)", "num_group: 16"):
        assert said in lines["layer"]
    assert lines["norm"].startswith("BatchNorm(layer, ")
    assert lines["act_sequence"] == "Reshape(act) {shape: (0, 0, -1)}"
    assert lines["last"] == "square(act_sequence)"
    assert done.params["weight"].shape == (16, 1, 1, 9)
    (change,) = done.changes
    assert (change.node, change.op, change.into) == ("layer", "Convolution", "layer")


def test_shapes_are_handed_on() -> None:
    net, layer = network(pad="(4,)", stride="(2,)")
    graph, shapes = net.graph(net.op("square", norm(net, layer, "norm", 16))), {"data": (2, 16, 50)}
    stored = {name: values.shape for name, values in net.params.items()}
    done = prepare_graph(
        graph,
        parameters(net.params),
        Policy.default(BF16),
        [STEP],
        target=replace(Target.builtin("cpu-bf16"), rewrites=(STEP,)),
        shapes=infer_entry_shapes(graph, shapes, stored).entries,
    )
    assert done.shapes is not None
    known = {name: value.shape for name, value in done.params.items()}
    expected = infer_entry_shapes(done.graph, shapes, known).entries
    assert [ours[0] for ours in done.shapes] == [theirs[0] for theirs in expected]


REFUSED: dict[str, dict[str, Any]] = {
    "three taps": {"taps": 3},
    "holes": {"dilate": "(2,)"},
    "a large stride": {"stride": "(4,)"},
    "channels of no block": {"channels": 20},
    "groups of two": {"num_group": 8},
    "channels last": {"layout": "NWC"},
    "an output": {},
    "read twice": {},
    "an input": {},
    "rule": {},
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case: str) -> None:
    policy = Policy.default(BF16).excluding(names=["layer"]) if case == "rule" else None
    net, layer = network(**REFUSED[case])
    if case == "an input":
        del net.params["weight"]
    last = layer if case == "an output" else net.op("square", layer)
    heads = [last, Entry(net.graph(last).variables["weight"])] if case == "read twice" else [last]
    graph = net.graph(*heads)
    assert prepared(RewriteDepthwiseSequences, graph, net.params, policy)[0] is graph


@pytest.mark.parametrize(("taps", "is_chosen"), [(9, True), (11, False)])
def test_without_avx512_long_filters_have_no_kernel(taps: int, is_chosen: bool) -> None:
    net, layer = network(taps=taps)
    graph = net.graph(net.op("square", layer))
    done = prepare_graph(
        graph,
        parameters(net.params),
        Policy.default(BF16),
        [STEP],
        target=replace(Target.builtin("cpu-bf16-avx2"), rewrites=(STEP,)),
    )
    assert (done.graph is not graph) is is_chosen


def test_cpus_choose_it() -> None:
    net, layer = network()
    assert targets_that_choose(STEP, net.graph(net.op("square", layer)), parameters(net.params)) == CPUS


def conformer() -> tuple[Graph, dict[str, ArrayParameter], dict[str, ArrayParameter]]:
    """Return the convolution of a Conformer, twice."""
    net = Net()
    value, random = net.var("data"), np.random.default_rng(0)
    for number in range(2):
        wide = net.op(
            "Convolution",
            *(value, net.param(f"w{number}", 32, 32 if number else 8, 1), net.param(f"b{number}", 32)),
            name=f"wide{number}",
            num_filter=32,
            kernel="(1,)",
        )
        inputs = wide, net.param(f"k{number}", 32, 1, 15), net.param(f"c{number}", 32)
        options = {"num_filter": 32, "num_group": 32, "kernel": "(15,)", "pad": "(7,)"}
        layer = net.op("Convolution", *inputs, name=f"depth{number}", stride=f"({1 + number},)", **options)
        normal = norm(net, layer, f"norm{number}", 32)
        value = net.op("elemwise_mul", normal, net.op("Activation", normal, act_type="sigmoid"))
    params = {
        name: ArrayParameter((random.standard_normal(p.shape) / 4 + ("var" in name)).astype(np.float32))
        for name, p in net.params.items()
    }
    params = {n: ArrayParameter(np.abs(p.values())) if "var" in n else p for n, p in params.items()}
    auxs = {name: params.pop(name) for name in list(params) if "moving" in name}
    return net.graph(value), params, auxs


@pytest.mark.parametrize("length", [15, 64, 301])
@pytest.mark.parametrize("fused", [False, True])
def test_a_converted_network_runs_at_every_length(length: int, fused: bool) -> None:
    pytest.importorskip("mxnet", reason="runs the network")
    from mxamp.runtime.executor import BoundModel

    graph, args, auxs = conformer()
    shapes = {"data": (1, 8, 64)}
    converted = mxamp.convert_model(
        *(graph, args, auxs, "bfloat16"), target="cpu-bf16", input_shapes=shapes, low_precision="none"
    )
    assert {change.step for change in converted.report.preparations} >= {STEP}
    assert not any(node.op == "BatchNorm" for node in converted.graph.nodes)
    data = {"data": np.random.default_rng(1).standard_normal((2, 8, length)).astype(np.float32)}
    expected = BoundModel(Model(graph, args, auxs), fusion=False).run(data)[0]
    found = BoundModel(converted, fusion=fused).run(data)[0]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
