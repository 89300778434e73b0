"""Sequences in plain order are brought into blocks of channels before they are pooled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.graph import Entry
from mxamp.graph.graph import Graph
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.model import Model
from mxamp.params.parameter import ArrayParameter
from mxamp.passes import RewriteSequencePooling
from mxamp.policy import Policy
from mxamp.targets import resolve_target
from tests.building import BF16, Net, parameters
from tests.passes.preparing import operators, prepare_graph, prepared

STEP = "sequence_pooling"
INSERTED = ["pool_image", "pool_ones", "pool_blocks", "pool_pooled"]
WINDOW = {"kernel": "(3,)", "stride": "(2,)", "pad": "(1,)", "pool_type": "max"}
LENGTH = 300


def layer(net: Net, value: Entry, name: str, filters: int = 16, read: int = 8, **attrs: Any) -> Entry:
    weight = net.param(f"{name}_weight", filters, read // int(attrs.get("num_group", 1)), 1)
    options = {"num_filter": filters, "kernel": "(1,)", "no_bias": True, **attrs}
    return net.op("Convolution", value, weight, name=name, **options)


def norm(net: Net, value: Entry, name: str, channels: int) -> Entry:
    parts = ("gamma", "beta", "moving_mean", "moving_var")
    read = [net.param(f"{name}_{part}", channels) for part in parts]
    return net.op("BatchNorm", value, *read, name=name, outputs=3, fix_gamma="False")


def plain(net: Net, filters: int = 16, data: Entry | None = None) -> Entry:
    """Return what two layers wrote, put together and normalized: in plain order."""
    data = net.var("data") if data is None else data
    parts = [layer(net, data, name, filters // 2) for name in ("first", "second")]
    both = net.op("Concat", *parts, dim=1, num_args=2)
    return norm(net, both, "norm", filters)


def shapes_of(graph: Graph, net: Net) -> list[Any]:
    stored = {name: values.shape for name, values in net.params.items()}
    return list(infer_entry_shapes(graph, {"data": (2, 8, LENGTH)}, stored).entries)


@pytest.mark.parametrize("op", ["Pooling", "_npx_pooling"])
def test_a_depthwise_layer_of_ones_writes_blocks(op: str) -> None:
    net = Net()
    pooled = net.op(op, plain(net), name="pool", **WINDOW)
    graph = net.graph(net.op("square", pooled, name="last"))
    shapes = shapes_of(graph, net)
    after, done = prepared(RewriteSequencePooling, graph, net.params, inserted=INSERTED, shapes=shapes)
    lines = {line.split(" = ")[0]: line.split(" = ")[1] for line in operators(after)}
    assert lines["pool_image"] == "Reshape(norm) {shape: (0, 0, 1, -1)}"
    assert lines["pool_blocks"].startswith("Convolution(pool_image, pool_ones)")
    assert lines["pool_pooled"].startswith(f"{op}(pool_blocks)")
    for said in ("kernel: (1, 3)", "stride: (1, 2)", "pad: (0, 1)"):
        assert said in lines["pool_pooled"]
    assert lines["pool"] == "Reshape(pool_pooled) {shape: (0, 0, -1)}"
    assert (done.params["pool_ones"].values() == 1).all()


def test_shapes_are_handed_on() -> None:
    net = Net()
    graph = net.graph(net.op("square", net.op("Pooling", plain(net), name="pool", **WINDOW)))
    done = prepare_graph(
        graph,
        parameters(net.params),
        Policy.default(BF16),
        [STEP],
        target=resolve_target("cpu-bf16", BF16),
        shapes=shapes_of(graph, net),
    )
    assert done.shapes is not None
    known = {name: value.shape for name, value in done.params.items()}
    expected = infer_entry_shapes(done.graph, {"data": (2, 8, LENGTH)}, known).entries
    assert [ours[0] for ours in done.shapes] == [theirs[0] for theirs in expected]


CASES = {
    "a layer's": False,
    "a layer's, normalized": False,
    "a layer's, whose norm is behind an activation": True,
    "a depthwise layer's": True,
    "a gate's": False,
    "sums of both": False,
}


@pytest.mark.parametrize("case", CASES)
def test_what_lies_in_blocks_is_left_alone(case: str) -> None:
    net = Net()
    data = net.var("data")
    value = layer(net, data, "a")
    if case == "a layer's, normalized":
        value = net.op("Activation", norm(net, value, "norm", 16), act_type="relu")
    elif case == "a layer's, whose norm is behind an activation":
        value = norm(net, net.op("Activation", value, act_type="relu"), "norm", 16)
    elif case == "a depthwise layer's":
        value = layer(net, value, "d", read=16, num_group=16)
    elif case == "a gate's":
        value = net.op("elemwise_mul", value, net.op("Activation", value, act_type="sigmoid"))
    elif case == "sums of both":
        value = net.op("elemwise_add", value, plain(net, data=data))
    graph = net.graph(net.op("square", net.op("Pooling", value, name="pool", **WINDOW)))
    after, _ = prepared(
        RewriteSequencePooling, graph, net.params, inserted=INSERTED, shapes=shapes_of(graph, net)
    )
    assert (after is not graph) is CASES[case]


@pytest.mark.parametrize(
    "case", ["an output", "global", "channels of no block", "few values", "powers", "rule", "no shapes"]
)
def test_refuses(case: str) -> None:
    net, window = Net(), dict(WINDOW)
    if case == "global":
        window = {"kernel": "(1,)", "global_pool": True, "pool_type": "max"}
    elif case == "powers":
        window.update(pool_type="lp", p_value="2")
    elif case == "few values":
        window["stride"] = "(50,)"
    pooled = net.op(
        "Pooling", plain(net, 20 if case == "channels of no block" else 16), name="pool", **window
    )
    graph = net.graph(pooled if case == "an output" else net.op("square", pooled))
    policy = Policy.default(BF16).excluding(names=["pool"]) if case == "rule" else None
    shapes = None if case == "no shapes" else shapes_of(graph, net)
    assert prepared(RewriteSequencePooling, graph, net.params, policy, shapes=shapes)[0] is graph


@pytest.mark.parametrize("name", ["cpu-bf16", "cpu-bf16-amx", "cpu-bf16-avx2", "cpu-bf16-intel"])
def test_cpus_choose_it(name: str) -> None:
    net = Net()
    graph = net.graph(net.op("square", net.op("Pooling", plain(net), name="pool", **WINDOW)))
    target = resolve_target(name, BF16)
    given = parameters(net.params)
    done = prepare_graph(
        graph, given, Policy.default(BF16), [STEP], target=target, shapes=shapes_of(graph, net)
    )
    assert done.graph is not graph


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("length", [7, 300, 511])
@pytest.mark.parametrize("fused", [False, True])
def test_the_same_bits_come_out_at_every_length(kind: str, length: int, fused: bool) -> None:
    pytest.importorskip("mxnet", reason="runs the network")
    from mxamp.runtime.executor import BoundModel

    net = Net()
    attrs = {**WINDOW, "pool_type": kind, "pooling_convention": "full", "count_include_pad": False}
    pooled = net.op("Pooling", plain(net, 32), name="pool", **attrs)
    graph = net.graph(net.op("square", pooled, name="last"))
    random = np.random.default_rng(0)
    params = {
        name: ArrayParameter(random.uniform(0.5, 1.5, values.shape).astype(np.float32))
        for name, values in net.params.items()
    }
    auxs = {name: params.pop(name) for name in list(params) if "moving" in name}
    model = mxamp.convert_model(
        *(graph, params, auxs, "bfloat16"),
        target="cpu-bf16",
        input_shapes={"data": (1, 8, LENGTH)},
        low_precision="none",
    )
    assert {change.step for change in model.report.preparations} >= {STEP}
    data = {"data": random.standard_normal((2, 8, length)).astype(np.float32)}
    expected = BoundModel(Model(graph, params, auxs), fusion=False).run(data)[0]
    found = BoundModel(model, fusion=fused).run(data)[0]
    np.testing.assert_array_equal(found, expected)
