"""Layers read the parts of what was put together, and compute the same but for the order of their sums."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

import mxamp
from mxamp.graph import Entry, Graph
from mxamp.graph.output_names import output_names
from mxamp.model import Model
from tests.building import named, parameters
from tests.passes.executing import outputs
from tests.passes.parts import Parts

pytestmark = pytest.mark.filterwarnings(
    "ignore:The target cpu-bf16-avx2", "ignore:Nothing was converted", "ignore:The target cpu-bf16 is for"
)

SIDE = 56


def converted(net: Parts, graph: Graph, *, batch: int = 1, channels: int = 16, **options: Any) -> Model:
    given = {"target": "cpu-bf16-avx2", "input_shapes": {"x": (batch, channels, SIDE, SIDE)}, **options}
    return mxamp.convert_model(graph, net.params, {}, "bfloat16", **given)


def count(graph: Graph, op: str) -> int:
    return sum(node.op == op for node in graph.nodes)


def check_values(
    monkeypatch: pytest.MonkeyPatch, net: Parts, graph: Graph, model: Model, backend: str
) -> None:
    """Check that the converted model computes what the other does, but for the rounding of sums."""
    data = {"x": np.random.default_rng(5).normal(0, 1, (1, 16, SIDE, SIDE)).astype(np.float32)}
    before = outputs(monkeypatch, graph, parameters(net.params), data)
    after = outputs(monkeypatch, model.graph, {**model.arg_params, **model.aux_params}, data, backend)
    assert output_names(model.graph) == output_names(graph)
    for expected, found in zip(before, after):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())


def fire(between: Callable[[Parts, Entry], Entry] = lambda net, data: data) -> tuple[Parts, Graph]:
    """Return two layers that are put together, something between, and a layer that reads both."""
    net = Parts()
    one = net.relu(net.layer(net.var("x"), "one", 16, 64), "one_relu")
    three = net.relu(net.layer(Entry(0), "three", 16, 32, 3), "three_relu")
    last = net.layer(between(net, net.joined(one, three)), "last", 96, 24)
    return net, net.graph(net.relu(last, "out"))


def pooled(net: Parts, data: Entry) -> Entry:
    return net.op("Pooling", data, name="pool", kernel="(3, 3)", stride="(2, 2)", pool_type="max")


def normed(net: Parts, data: Entry) -> Entry:
    return net.relu(net.norm(data, "norm", 96), "norm_relu")


@pytest.mark.parametrize("backend", ["NONE", "MKLDNN"])
@pytest.mark.parametrize(
    ("between", "carriers"),
    [
        pytest.param(lambda net, data: data, 0, id="layer"),
        pytest.param(pooled, 1, id="pooling"),
        pytest.param(normed, 2, id="BatchNorm and relu"),
    ],
)
def test_a_layer_reads_the_parts(
    monkeypatch: pytest.MonkeyPatch,
    between: Callable[[Parts, Entry], Entry],
    carriers: int,
    backend: str,
) -> None:
    net, graph = fire(between)
    model = converted(net, graph)
    assert count(model.graph, "Concat") == 0
    last = named(model.graph, "last")
    assert last.op == "elemwise_add"
    parts = [model.graph.nodes[entry.node] for entry in last.inputs]
    assert [(part.name, part.attrs.get("no_bias")) for part in parts] == [
        ("last_part1", "True"),
        ("last_part0", None),
    ]
    assert model.arg_params["last_weight_part0"].shape == (24, 64, 1, 1)
    assert model.arg_params["last_weight_part1"].shape == (24, 32, 1, 1)
    assert "last_weight" not in model.arg_params
    assert model.report is not None
    gone = [node.name for node in model.report.nodes if "readers read the parts" in node.reason]
    assert len(gone) == 1 + carriers
    check_values(monkeypatch, net, graph, model, backend)


def growing(layers: int) -> tuple[Parts, Graph]:
    """Return a block as DenseNet has them: each layer reads all that the ones before made."""
    net = Parts()
    features, channels = net.layer(net.var("x"), "stem", 16, 32), 32
    for number in range(layers):
        read = net.relu(net.norm(features, f"norm{number}", channels), f"relu{number}")
        new = net.layer(read, f"layer{number}", channels, 16, no_bias=True)
        features = net.joined(features, new, name=f"joined{number}")
        channels += 16
    last = net.relu(net.norm(features, "norm", channels), "relu")
    return net, net.graph(net.layer(last, "last", channels, 24))


@pytest.mark.parametrize("backend", ["NONE", "MKLDNN"])
def test_what_grows_is_put_together_every_fourth_time(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    net, graph = growing(8)
    model = converted(net, graph)
    kept = {node.name: len(node.inputs) for node in model.graph.nodes if node.op == "Concat"}
    assert kept == {"joined3": 5, "joined7": 5}
    check_values(monkeypatch, net, graph, model, backend)


def parts_of_parts(net: Parts) -> Entry:
    ones = [net.layer(net.var("x") if not n else Entry(0), f"p{n}", 16, 32) for n in range(3)]
    inner = net.joined(ones[0], ones[1], name="inner")
    return net.layer(net.joined(inner, ones[2]), "last", 96, 24)


def test_what_is_put_together_alone_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Parts()
    graph = net.graph(parts_of_parts(net))
    model = converted(net, graph)
    assert count(model.graph, "Concat") == 0
    assert named(model.graph, "last_sum1").op == "elemwise_add"
    check_values(monkeypatch, net, graph, model, "MKLDNN")


def two_parts(*, filters: int = 32, **attrs: Any) -> tuple[Parts, Entry]:
    net = Parts()
    first = net.layer(net.var("x"), "first", 16, filters)
    second = net.layer(Entry(0), "second", 16, 32)
    return net, net.joined(first, second, **attrs)


@pytest.mark.parametrize(
    "case",
    [
        "batch",
        "head",
        "another reader",
        "groups",
        "no blocks",
        "shared weight",
        "another axis",
        "small",
        "target",
        "float64",
    ],
)
def test_refuses(case: str) -> None:
    filters = 20 if case == "no blocks" else 32
    net, joined = two_parts(filters=filters, **({"dim": 2} if case == "another axis" else {}))
    channels = filters + 32 if case != "another axis" else 32
    options: dict[str, Any] = {}
    if case == "shared weight":
        shared = net.values("shared", 24, channels, 1, 1)
        heads = [net.layer(joined, f"last{n}", channels, 24, weight=shared) for n in range(2)]
    elif case == "small":
        heads = [net.layer(joined, f"last{n}", channels, 512) for n in range(24)]
    else:
        heads = [net.layer(joined, "last", channels, 24, num_group=4 if case == "groups" else 1)]
    if case == "head":
        heads.append(joined)
    elif case == "another reader":
        heads.append(net.op("mean", joined))
    elif case == "batch":
        options = {"batch": 2}
    elif case == "target":
        options = {"target": "cpu-bf16-emulated"}
    elif case == "float64":
        net.params = {name: values.astype(np.float64) for name, values in net.params.items()}
    model = converted(net, net.graph(*heads), **options)
    assert count(model.graph, "Concat") == 1


def test_more_than_four_parts_stay() -> None:
    net = Parts()
    ones = [net.layer(net.var("x") if not n else Entry(0), f"p{n}", 16, 32) for n in range(5)]
    model = converted(net, net.graph(net.layer(net.joined(*ones), "last", 160, 24)))
    assert count(model.graph, "Concat") == 1
    net, joined = two_parts()
    model = converted(net, net.graph(net.layer(joined, "last", 64, 24)))
    assert count(model.graph, "Concat") == 0


def test_what_a_rule_of_the_users_picks_stays() -> None:
    net, joined = two_parts()
    graph = net.graph(net.layer(joined, "last", 64, 24))
    assert count(converted(net, graph, exclude=["last"]).graph, "Concat") == 1


def test_shapes_may_be_assumed() -> None:
    net = Parts()
    first = net.layer(net.var("x"), "stem", 3, 32, 3, stride="(2, 2)")
    parts = [net.layer(first, f"p{n}", 32, 32) for n in range(2)]
    last = net.layer(net.joined(*parts), "last", 64, 24)
    mean = net.op("Pooling", last, pool_type="avg", global_pool=True, kernel="(1, 1)")
    graph = net.graph(net.op("FullyConnected", mean, net.values("dense", 4, 24), no_bias=True, num_hidden=4))
    model = converted(net, graph, input_shapes=None)
    assert model.report is not None
    assert set(model.report.assumed_shapes) == {"x"}
    assert count(model.graph, "Concat") == 0


def test_what_is_not_put_together_takes_no_time_in_either_model() -> None:
    net, graph = fire()
    report = converted(net, graph).report
    joined = next(node for node in report.nodes if node.op == "Concat")
    assert (joined.float32_us, joined.mixed_us) == (0.0, 0.0)
    assert report.time is not None
    assert report.time.float32_us == report.time.mixed_us


def test_a_norm_of_mxnet_is_done_to_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """MXNet counts versions of the statistics that a BatchNorm updates in training."""
    mx = pytest.importorskip("mxnet", reason="the graph is to be MXNet's")
    data = mx.sym.var("x")
    layers = [mx.sym.Convolution(data, num_filter=32, kernel=(1, 1), name=f"part_{side}") for side in "ab"]
    norm = mx.sym.BatchNorm(mx.sym.Concat(*layers, dim=1), fix_gamma=False, name="norm")
    active = mx.sym.Activation(norm, act_type="softsign", name="active")
    symbol = mx.sym.Convolution(active, num_filter=8, kernel=(3, 3), name="last")
    rng = np.random.default_rng(2)
    shapes, _, statistics = symbol.infer_shape(x=(1, 16, SIDE, SIDE))
    args, auxs = (
        {name: mx.nd.array(rng.uniform(0.5, 1, shape)) for name, shape in zip(names, own) if name != "x"}
        for names, own in (
            (symbol.list_arguments(), shapes),
            (symbol.list_auxiliary_states(), statistics),
        )
    )
    options = {
        "target": "cpu-bf16-avx2",
        "input_shapes": {"x": (1, 16, SIDE, SIDE)},
        "fold_batch_norm": False,
    }
    model = mxamp.convert_model(symbol, args, auxs, "bfloat16", **options)
    assert count(model.graph, "Concat") == 0
    assert count(model.graph, "BatchNorm") == 2
    values = {"x": mx.nd.array(rng.normal(0, 1, (1, 16, SIDE, SIDE)))}
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
    expected = symbol.bind(mx.cpu(), {**args, **values}, aux_states=auxs).forward()[0].asnumpy()
    bound = model.sym.bind(mx.cpu(), {**model.args, **values}, aux_states=model.auxs)
    np.testing.assert_allclose(bound.forward()[0].asnumpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("grows", ["by a layer", "by itself"])
def test_however_deep_things_are_put_together(grows: str) -> None:
    """A channel is counted once: each Concat may read the one before it twice."""
    net = Parts()
    layer = found = net.layer(net.var("x"), "first", 16, 8)
    for number in range(2_000 if grows == "by a layer" else 40):
        other = layer if grows == "by a layer" else found
        found = net.op("Concat", found, other, name=f"joined{number}", dim="1", num_args="2")
    model = mxamp.convert_model(net.graph(found), net.params, {}, "bfloat16", target="cpu-bf16-avx2")
    assert count(model.graph, "Concat") == (2_000 if grows == "by a layer" else 40)
