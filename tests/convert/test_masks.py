"""Attention with masks converts to low precision throughout, and computes what FP32 computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.graph import Graph
from mxamp.policy import Color, Policy
from mxamp.report.model import Report
from tests.building import BF16, F16, Net, assert_sound, capable, convert, dtypes_of, reconvert

LEAST = float(np.finfo(np.float32).min)
UNITS = 4


def attention(net: Net, value: float, *, choose: bool) -> Graph:
    """Return masked dot-product attention: inputs query, memory and mask, one layer before and after."""
    query, memory = (
        net.op(
            "FullyConnected",
            net.var(name),
            net.param(f"{name}_weight", UNITS, UNITS),
            name=f"{name}_layer",
            num_hidden=UNITS,
            no_bias=True,
            flatten=False,
        )
        for name in ("query", "memory")
    )
    scores = net.op("batch_dot", query, memory, name="scores", transpose_b=True)
    mask = net.var("mask")
    if choose:
        ones = net.op("ones_like", scores, name="ones")
        least = net.op("_mul_scalar", ones, name="least", scalar=value)
        masked = net.op("where", mask, scores, least, name="masked")
    else:
        off = net.op("_equal_scalar", mask, name="off", scalar=0)
        least = net.op("_mul_scalar", off, name="least", scalar=value)
        masked = net.op("elemwise_add", scores, least, name="masked")
    weights = net.op("softmax", masked, name="weights", axis=-1)
    return net.graph(net.op("batch_dot", weights, memory, name="context"))


def report_of(model: mxamp.Model) -> Report:
    assert model.report is not None
    return model.report


MASKED = [
    pytest.param(F16, -1e18, id="float16 -1e18"),
    pytest.param(F16, LEAST, id="float16 least"),
    pytest.param(BF16, LEAST, id="bfloat16 least"),
]


@pytest.mark.parametrize("choose", [True, False], ids=["chosen", "added"])
@pytest.mark.parametrize(("dtype", "value"), MASKED)
def test_what_reads_a_mask_computes_low(dtype: Any, value: float, choose: bool) -> None:
    net = Net()
    graph = attention(net, value, choose=choose)
    policy = Policy.default(dtype).with_operators(
        Color.GREEN, ["where", "elemwise_add", "_mul_scalar", "clip"], "as low as can be"
    )
    kept = convert(graph, net.params, dtype, policy=policy, rewrite_masks=False)
    assert report_of(kept).node("masked").compute == "float32"
    assert report_of(kept).masks == ()
    model = convert(graph, net.params, dtype, policy=policy)
    assert_sound(graph, model)
    assert report_of(model).node("masked").compute == str(dtype)
    assert dtypes_of(model)["masked"] == (dtype,)
    assert not [node for node in report_of(model).nodes if node.rule in ("scalar range", "oversized region")]
    (mask,) = [mask for mask in report_of(model).masks if mask.after is not None]
    assert (mask.before, mask.after) == (value, -dtype.max_finite)


def test_a_second_conversion_changes_nothing() -> None:
    for known in (True, False):
        net = Net()
        graph = attention(net, -1e18, choose=False)
        if not known:
            position = next(n for n, node in enumerate(net.nodes) if node.name == "off")
            net.nodes[position] = net.nodes[position]._replace(op="_rminus_scalar", attrs={"scalar": "1"})
            graph = net.graph(*graph.heads)
        model = convert(graph, net.params, F16)
        assert report_of(model).masks[0].after is not None
        again = reconvert(model, F16)
        assert again.graph == model.graph
        assert report_of(again).masks == ()


def test_the_report_names_masks_and_reads_back() -> None:
    net = Net()
    report = report_of(convert(attention(net, -1e18, choose=False), net.params, F16))
    (mask,) = report.masks
    assert (mask.node, mask.op, mask.inserted) == ("least", "_mul_scalar", ("masked_bounded",))
    assert report.node("masked_bounded").op == "clip"
    assert "1 mask rewritten to fit float16: least -1e+18 -> -65504." in str(report)
    assert Report.from_json(report.to_json()) == report


def test_the_report_says_why_a_mask_stays() -> None:
    net = Net()
    report = report_of(convert(attention(net, -1e9, choose=False), net.params, F16))
    assert report.node("masked").compute == "float32"
    text = " ".join(str(report).split())
    assert "-1e+09 of least stays as it is, in float32: 'masked' (elemwise_add) adds it to scores" in text


def test_shapes_stay_with_their_nodes() -> None:
    net = Net()
    graph = attention(net, -1e18, choose=False)
    sizes = {"query": (2, 3, 4), "memory": (2, 5, 4), "mask": (2, 3, 5), "context": (2, 3, 4)}
    shapes = [(sizes.get(node.name, (2, 3, 5)),) for node in graph.nodes]
    seen = {}

    def color(node: Any) -> None:
        seen[node.name] = node.input_shapes

    policy = Policy.default(F16).with_color_function(color)
    report = report_of(convert(graph, net.params, F16, policy=policy, shapes=shapes))
    assert seen["masked_bounded"] == ((2, 3, 5),)
    assert seen["context"][0] == (2, 3, 5)
    plain = report_of(convert(graph, net.params, F16, shapes=shapes, rewrite_masks=False))
    assert [node.multiply_adds for node in report.nodes if node.op == "batch_dot"] == [
        node.multiply_adds for node in plain.nodes if node.op == "batch_dot"
    ]


def test_a_symbol_alone_has_its_masks_rewritten_too() -> None:
    net = Net()
    graph = attention(net, -1e18, choose=True)
    after = mxamp.convert_symbol(graph, "float16")
    scalars = {node.name: node.attrs.get("scalar") for node in after.nodes}
    assert scalars["least"] == "-65504.0"
    kept = mxamp.convert_symbol(graph, "float16", rewrite_masks=False)
    assert {node.name: node.attrs.get("scalar") for node in kept.nodes}["least"] == "-1e+18"


def test_pure_low_precision_keeps_its_hazards() -> None:
    net = Net()
    graph = attention(net, -1e18, choose=True)
    model = convert(graph, net.params, F16, policy=Policy.pure("float16"))
    assert report_of(model).masks == ()


@pytest.mark.parametrize("choose", [True, False], ids=["chosen", "added"])
def test_in_bfloat16_attention_runs_and_agrees(choose: bool) -> None:
    pytest.importorskip("mxnet", reason="executes the converted model")
    from mxamp.runtime.executor import run_outputs

    net = Net()
    graph = attention(net, LEAST, choose=choose)
    mask = np.ones((2, 3, 5), np.float32)
    mask[0, :, 3:] = 0
    mask[1, 1] = 0
    random = np.random.default_rng(3)
    data = {
        "query": random.normal(0, 1, (2, 3, UNITS)).astype(np.float32),
        "memory": random.normal(0, 1, (2, 5, UNITS)).astype(np.float32),
        "mask": mask,
    }
    original = mxamp.Model.of(graph, net.params, {})
    (expected,) = run_outputs(original, data)
    # What MXNet runs in bfloat16 on a CPU, with the sum and the product of the mask among it.
    green = ["FullyConnected", "elemwise_add", "_mul_scalar", "where"]
    policy = Policy.default(BF16).with_operators(Color.GREEN, green, "as low as can be")
    policy = policy.with_operators(Color.RED, ["batch_dot", "ones_like"], "MXNet has no kernel")
    model = convert(graph, net.params, BF16, policy=policy, target=capable(BF16))
    low = {node.name for node in report_of(model).nodes if node.compute == "bfloat16"}
    assert {"masked", "query_layer"} <= low
    (found,) = run_outputs(model, data)
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)
    # The row that is masked throughout attends to everything alike.
    np.testing.assert_allclose(found[1, 1], expected[1, 1], atol=0.02)


def test_an_attention_cell_of_gluon_converts_with_its_mask() -> None:
    """As GluonNLP's cells do it; -1e18 fits bfloat16, so here it is float32's own minimum."""
    mx = pytest.importorskip("mxnet", reason="traces and executes a Gluon block")

    class Cell(mx.gluon.HybridBlock):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.query = mx.gluon.nn.Dense(UNITS, flatten=False, use_bias=False)

        def hybrid_forward(self, F: Any, query: Any, memory: Any, mask: Any) -> Any:  # noqa: N803
            scores = F.batch_dot(self.query(query), memory, transpose_b=True)
            scores = F.where(mask, scores, LEAST * F.ones_like(scores))
            return F.batch_dot(F.softmax(scores, axis=-1) * mask, memory)

    mask = np.ones((2, 3, 5), np.float32)
    mask[0, :, 3:] = 0
    mask[1, 1] = 0
    random = np.random.default_rng(3)
    data = [
        mx.nd.array(random.normal(0, 1, (2, 3, UNITS))),
        mx.nd.array(random.normal(0, 1, (2, 5, UNITS))),
        mx.nd.array(mask),
    ]
    cell = Cell()
    cell.initialize()
    expected = cell(*data).asnumpy()
    low = mxamp.convert_block(cell, "bfloat16", inputs=data, saturate=True)
    assert [found.after for found in low.report.masks] == [-BF16.max_finite]
    found = low(*data).asnumpy()
    assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)
    kept = mxamp.convert_block(cell, "bfloat16", inputs=data, rewrite_masks=False)
    assert kept.report.masks == ()
