"""Bilinear upsampling is a depthwise Deconvolution, up to the order of summation."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.graph import Entry
from mxamp.passes import PreparedNode, RewriteBilinearUpsampling
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import CPUS, operators, prepare_graph, prepared, targets_that_choose


def network(channels: int = 5, scale: int = 2, **attrs: object) -> tuple[Net, Entry]:
    net = Net()
    side = 2 * scale - scale % 2
    weight = net.param("weight", channels, 1, side, side)
    given = {"scale": scale, "sample_type": "bilinear", "num_filter": channels, "num_args": 2, **attrs}
    return net, net.op("UpSampling", net.var("data"), weight, name="up", **given)


@pytest.mark.parametrize(("scale", "kernel", "pad"), [(2, 4, 1), (3, 5, 1), (4, 8, 2), (1, 1, 0)])
def test_it_becomes_a_deconvolution(scale: int, kernel: int, pad: int) -> None:
    net, up = network(scale=scale)
    after, done = prepared(RewriteBilinearUpsampling, net.graph(up), net.params)
    assert operators(after) == [
        f"up = Deconvolution(data, weight) {{kernel: ({kernel}, {kernel}), no_bias: True, num_filter: 5, "
        f"num_group: 5, pad: ({pad}, {pad}), stride: ({scale}, {scale})}}"
    ]
    assert [(change.node, change.into) for change in done.changes] == [("up", "up")]


@pytest.mark.parametrize("case", ["nearest", "no filters", "float16", "rule"])
def test_refuses(case: str) -> None:
    changed = {
        "nearest": {"sample_type": "nearest"},
        "no filters": {"num_filter": 0},
    }
    net, up = network(**changed.get(case, {}))
    if case == "float16":
        net.params["weight"] = net.params["weight"].astype(np.float16)
    policy = Policy.default(BF16).excluding(names=["up"]) if case == "rule" else None
    graph = net.graph(up)
    assert prepared(RewriteBilinearUpsampling, graph, net.params, policy)[0] is graph


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("channels", [5, 16])
@pytest.mark.parametrize("size", [1, 6])
def test_mxnet_computes_the_same_values(
    monkeypatch: pytest.MonkeyPatch, channels: int, scale: int, size: int
) -> None:
    net, up = network(channels, scale)
    graph, given = net.graph(up), parameters(net.params)
    step = RewriteBilinearUpsampling.step
    done = prepare_graph(graph, given, Policy.default(BF16), [step], target=Target.builtin("cpu-bf16"))
    assert {change.step for change in done.record(PreparedNode)} == {step}
    data = {"data": np.random.default_rng(2).normal(size=(2, channels, size, size + 1)).astype(np.float32)}
    (expected,) = outputs(monkeypatch, graph, given, data)
    for backend in ("NONE", "MKLDNN"):
        (found,) = outputs(monkeypatch, done.graph, done.params, data, backend)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


def test_targets_choose() -> None:
    net, up = network()
    step = RewriteBilinearUpsampling.step
    assert targets_that_choose(step, net.graph(up), parameters(net.params)) == CPUS
