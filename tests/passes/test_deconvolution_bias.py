"""A depthwise Convolution adds a Deconvolution's bias, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import mxamp
from mxamp.graph import Entry
from mxamp.model import Model
from mxamp.passes import PreparedNode, SeparateDeconvolutionBias
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import CPUS, operators, prepare_graph, prepared, targets_that_choose

STEP = SeparateDeconvolutionBias.step
ADDED = ["up_unbiased", "up_ones"]


def network(filters: int = 16, *, bias: bool = True, kernel: tuple[int, ...] = (2, 2)) -> tuple[Net, Entry]:
    """Return a Deconvolution."""
    net = Net()
    data = net.var("data")
    given = [net.param("up_weight", 16, filters, *kernel)]
    if bias:
        given.append(net.param("up_bias", filters))
    attrs = {"kernel": kernel, "stride": kernel, "num_filter": filters, "no_bias": not bias}
    return net, net.op("Deconvolution", data, *given, name="up", **attrs)


def test_a_convolution_adds_the_bias() -> None:
    net, up = network()
    after, done = prepared(SeparateDeconvolutionBias, net.graph(up), net.params, inserted=ADDED)
    assert operators(after)[-2:] == [
        "up_unbiased = Deconvolution(data, up_weight) {kernel: (2, 2), no_bias: True, num_filter: 16, "
        "stride: (2, 2)}",
        "up = Convolution(up_unbiased, up_ones, up_bias) {kernel: (1, 1), no_bias: False, num_filter: 16, "
        "num_group: 16}",
    ]
    np.testing.assert_array_equal(done.params["up_ones"].values(), np.ones((16, 1, 1, 1), np.float32))
    assert [(change.node, change.into) for change in done.changes] == [("up", "up")]


@pytest.mark.parametrize("case", ["no bias", "15 filters", "a volume", "bias is an input", "rule"])
def test_refuses(case: str) -> None:
    kernel = (2, 2, 2) if case == "a volume" else (2, 2)
    net, up = network(15 if case == "15 filters" else 16, bias=case != "no bias", kernel=kernel)
    if case == "bias is an input":
        del net.params["up_bias"]
    policy = Policy.default(BF16).excluding(names=["up"]) if case == "rule" else None
    graph = net.graph(up)
    assert prepared(SeparateDeconvolutionBias, graph, net.params, policy)[0] is graph


@pytest.mark.parametrize("filters", [16, 21, 48])
@pytest.mark.parametrize("size", [1, 7])
def test_mxnet_computes_the_same_values(monkeypatch: pytest.MonkeyPatch, filters: int, size: int) -> None:
    net, up = network(filters)
    graph, given = net.graph(up), parameters(net.params)
    done = prepare_graph(graph, given, Policy.default(BF16), [STEP], target=Target.builtin("cpu-bf16"))
    assert {change.step for change in done.record(PreparedNode)} == {STEP}
    data = {"data": on_edges(2, 16, size, size + 1)}
    (expected,) = outputs(monkeypatch, graph, given, data)
    for backend in ("NONE", "MKLDNN"):
        (found,) = outputs(monkeypatch, done.graph, done.params, data, backend)
        np.testing.assert_array_equal(found, expected)


def test_targets_choose() -> None:
    net, up = network()
    assert targets_that_choose(STEP, net.graph(up), parameters(net.params)) == CPUS


def test_it_converts_with_the_batch_norm_behind_and_the_report_says_so() -> None:
    pytest.importorskip("mxnet", reason="runs the model")
    from mxamp.runtime.executor import run_outputs

    net, up = network()
    values = {"gamma": 1.5, "beta": 0.25, "moving_mean": 0.125, "moving_var": 0.5}
    given = [net.param(f"norm_{part}", 16, value=value) for part, value in values.items()]
    norm = net.op("BatchNorm", up, *given, name="norm", outputs=3, fix_gamma=False)
    graph = net.graph(net.op("Activation", norm, name="relu", act_type="relu"))
    args = {name: value for name, value in net.params.items() if "moving" not in name}
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    converted = mxamp.convert_model(
        graph, args, auxs, "bfloat16", target="cpu-bf16", low_precision="required"
    )
    report = converted.report
    assert report is not None
    assert "1 Deconvolution whose bias a depthwise convolution adds: up." in str(report)
    assert report.node("up").compute == "bfloat16"
    layers = [node.op for node in converted.graph.nodes if not node.is_variable and "cast" not in node.op]
    assert layers == ["Deconvolution", "Convolution", "Activation"]
    data = {"data": np.random.default_rng(5).normal(0, 1, (1, 16, 9, 9)).astype(np.float32)}
    (expected,) = run_outputs(Model(graph, parameters(args), parameters(auxs)), data)
    (found,) = run_outputs(converted, data)
    assert np.linalg.norm(found - expected) <= 2**-7 * np.linalg.norm(expected)
