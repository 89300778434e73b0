"""Estimates follow shapes, fusion and the target's costs, and placements follow the estimates."""

from __future__ import annotations

from typing import Any

import pytest

from mxamp.decisions import LowPrecision, as_low_precision
from mxamp.decisions.estimates import Estimates, estimate
from mxamp.decisions.slower import WHY_IMITATED, WHY_SLOWER
from mxamp.decisions.workload import model_work, work_of, written_layouts
from mxamp.errors import PolicyError
from mxamp.graph import Entry, Graph
from mxamp.model import Model
from mxamp.ops import FACTS
from mxamp.placement import Crossing
from mxamp.policy import Policy
from mxamp.targets import Target
from mxamp.targets.image_layout import CHANNELS_LAST, PLAIN
from tests.building import BF16, Net, capable, convert, dtypes_of
from tests.decisions.priced import shapes_of, target


def estimated(
    net: Net,
    head: Entry,
    where: Target,
    *,
    choices: set[str] | None = None,
    shape: tuple[int, ...] = (1, 4, 5, 5),
) -> dict[str, Any]:
    """Return name -> (FP32, low) of every operator, for tensors of a shape."""
    graph = net.graph(head)
    assert where.cost is not None
    operators = {n for n, node in enumerate(graph.nodes) if not node.is_variable}
    open_nodes = {n for n in operators if choices is None or graph.nodes[n].name in choices}
    found = estimate(
        graph,
        [FACTS.canonical(node.op) for node in graph.nodes],
        where,
        where.cost,
        shapes_of(graph, net, shape),
        choices=open_nodes,
    )
    assert isinstance(found, Estimates)
    return {graph.nodes[n].name: (found.float32[n], found.low.get(n)) for n in operators}


def conv_bn_relu() -> tuple[Net, Entry]:
    net = Net()
    layer = net.bn(net.conv(net.var("x"), "conv"), "bn")
    return net, net.op("Activation", layer, name="relu", act_type="relu")


def test_a_convolution_takes_two_operations_a_product() -> None:
    net = Net()
    # 4 channels in and out, 25 pixels: 400 multiply-adds against 4 * (100 + 16 + 100) bytes.
    assert estimated(net, net.conv(net.var("x"), "conv"), target()) == {"conv": (4 * 216, 2 * 216)}
    slow = target({"flops_per_us": {"float32": 0.5, "low": 1}})
    assert estimated(net, Entry(2), slow) == {"conv": (1600, 800)}


def test_a_parameter_that_two_nodes_share_is_moved_once_and_their_code_is_the_same() -> None:
    net = Net()
    first = net.conv(net.var("x"), "conv")
    weight = net.graph(first).nodes[first.node].inputs[1]
    attrs = dict(net.graph(first).nodes[first.node].attrs)
    head = net.op("Convolution", first, weight, name="again", **attrs)
    graph = net.graph(head)
    works = [work for work in model_work(graph, shapes_of(graph, net, (1, 4, 5, 5))) if work is not None]
    assert [work.elements for work in works] == [100 + 16 + 100] * 2
    assert [work.model for work in works] == [2 * 200 + 16] * 2
    assert [work.around for work in works] == [216] * 2
    assert [work.operators for work in works] == [1] * 2


def test_of_a_table_only_the_rows_that_are_asked_for_are_moved() -> None:
    """And where a layer shares it, as in tied language models, the layer moves all of it."""
    net = Net()
    table = net.param("table", 1000, 4)
    words = net.op("Embedding", net.var("words"), table, name="words_of", input_dim=1000, output_dim=4)
    head = net.op("FullyConnected", words, table, name="tied", num_hidden=1000, no_bias=True)
    graph = net.graph(head)
    shapes = {"words": (1, 7), "table": (1000, 4), "words_of": (1, 7, 4), "tied": (1, 1000)}
    works = model_work(graph, [(shapes[node.name],) * node.num_outputs for node in graph.nodes])
    by_name = {node.name: work for node, work in zip(graph.nodes, works) if work is not None}
    assert by_name["words_of"].elements == 7 + 2 * 28
    assert by_name["tied"].elements == 28 + 4000 + 1000
    assert by_name["tied"].model == by_name["words_of"].elements + by_name["tied"].elements


def test_what_is_fused_costs_its_inputs_and_its_last_output() -> None:
    net, head = conv_bn_relu()
    found = estimated(net, head, target())
    elements = 100 + 16 + 4 + 100  # the input, the weight, the bias that BatchNorm leaves, the result
    assert found == {"conv": (4 * elements, 2 * elements), "bn": (0, 0), "relu": (0, 0)}


@pytest.mark.parametrize("name", ["cpu-bf16", "cpu-bf16-amx", "cpu-bf16-emulated", "cpu-bf16-zen5"])
def test_a_layer_with_batch_norm_costs_what_it_takes_without(name: str) -> None:
    """Costs are of graphs that run, and none of these has the BatchNorm that a layer takes into itself."""

    def layers(*, with_norms: bool) -> dict[str, Any]:
        net = Net()
        value = net.var("x")
        for number in range(3):
            weight = net.param(f"{number}_weight", 4, 4, 1, 1)
            bias = () if with_norms else (net.param(f"{number}_bias", 4),)
            attrs = {"num_filter": 4, "kernel": "(1, 1)", "no_bias": with_norms}
            value = net.op("Convolution", value, weight, *bias, name=f"{number}", **attrs)
            if with_norms:
                value = net.bn(value, f"{number}_norm")
            value = net.op("Activation", value, name=f"{number}_relu", act_type="relu")
        found = estimated(net, value, Target.builtin(name))
        return {layer: found[layer] for layer in ("0", "1", "2")}

    assert layers(with_norms=True) == layers(with_norms=False)


@pytest.mark.parametrize("op", ["Convolution", "FullyConnected"])
@pytest.mark.parametrize("name", ["cpu-bf16", "cpu-bf16-zen5"])
def test_a_layer_that_mxnet_does_not_fuse_costs_the_same_with_what_a_conversion_folds(
    name: str, op: str
) -> None:
    """Of sequences, and of rows: in PointNet the norms were counted, and stayed float32 behind low layers."""

    def layers(*, with_norm: bool) -> dict[str, Any]:
        net, is_dense = Net(), op == "FullyConnected"
        weight = net.param("weight", 4, 4) if is_dense else net.param("weight", 4, 4, 1)
        bias = () if with_norm else (net.param("bias", 4),)
        attrs = {"num_hidden": 4} if is_dense else {"num_filter": 4, "kernel": "(1,)"}
        value = net.op(op, net.var("x"), weight, *bias, name="layer", no_bias=with_norm, **attrs)
        value = net.bn(value, "norm") if with_norm else value
        shape = (50, 4) if is_dense else (1, 4, 5)
        value = net.op("Activation", value, name="relu", act_type="relu")
        return estimated(net, value, Target.builtin(name), shape=shape)

    with_norm, without = layers(with_norm=True), layers(with_norm=False)
    assert with_norm["norm"] == (0, 0)
    assert with_norm["layer"] == without["layer"]
    assert with_norm["relu"] == without["relu"]


@pytest.mark.parametrize(
    ("behind", "activates"),
    [((), 0), (("bn",), 0), (("add",), 0), (("relu",), 1), (("bn", "add", "relu"), 1)],
)
def test_costs_may_ask_whether_an_activation_is_fused(behind: tuple[str, ...], activates: int) -> None:
    """A sum with one behind it is slow where a convolution is a matrix product (oneDNN 2.4)."""
    net = Net()
    value = net.conv(net.var("x"), "conv")
    for part in behind:
        if part == "bn":
            value = net.bn(value, part)
        elif part == "add":
            value = net.op("elemwise_add", value, net.var("y"), name=part)
        else:
            value = net.op("Activation", value, name=part, act_type="relu")
    rates = {"trait": "activates", "below": 0.5, "then": {"one": 7}, "else": {"one": 70}}
    fused = [{"operators": [op], "optional": True} for op in ("BatchNorm", "elemwise_add", "Activation")]
    priced = target(
        {"kernels": {"Convolution of few channels": {"float32": rates, "low": rates}}},
        rounds_once=[[{"operators": ["Convolution"]}, *fused]],
    )
    assert estimated(net, value, priced)["conv"] == ((7, 70)[activates],) * 2


def test_a_fused_curve_costs_what_it_takes_beyond_a_comparison() -> None:
    """Fusing spares an activation's memory, and not the exp of tanh: 0.45 ns a value behind a convolution."""
    factors = {"float32": 5, "low": 7}
    where = target(
        {"operators": {"Activation": [{"attribute": "act_type=tanh", **factors}, {"float32": 1, "low": 1}]}}
    )
    found = {}
    for kind in ("relu", "tanh"):
        net = Net()
        head = net.op("Activation", net.conv(net.var("x"), "conv"), name="activation", act_type=kind)
        found[kind] = estimated(net, head, where)
        assert found[kind]["activation"] == (0, 0)
    relu, tanh = found["relu"]["conv"], found["tanh"]["conv"]
    assert tanh == pytest.approx((relu[0] + (5 - 1) * 4 * 200, relu[1] + (7 - 1) * 2 * 200))


def test_a_tail_that_must_be_fp32_is_paid_when_its_head_is_low() -> None:
    net, head = conv_bn_relu()
    found = estimated(net, head, target(), choices={"conv", "bn"})
    assert found["relu"] == (0, None)
    alone = 4 * 200
    together = estimated(net, head, target())["conv"]
    assert found["conv"] == (together[0], together[1] + alone)


def test_a_tail_behind_a_head_that_must_be_fp32_gains_nothing() -> None:
    net, head = conv_bn_relu()
    found = estimated(net, head, target(), choices={"relu"})
    assert found["relu"] == (0, 2 * 200)


def test_work_without_a_shape_is_not_known() -> None:
    net = Net()
    graph = net.graph(net.conv(net.var("x"), "conv"))
    shapes: list[Any] = [((1, 4, 5, 5),), (None,), ((1, 4, 5, 5),)]
    assert work_of(graph, 2, shapes, written_layouts(graph, shapes)) is None


def test_depthwise_convolutions_and_biases_are_seen() -> None:
    net = Net()
    weight, bias = net.param("w", 8, 1, 3, 3), net.param("b", 8)
    layer = net.op("Convolution", net.var("x"), weight, bias, num_filter=8, num_group=8, kernel="(3, 3)")
    graph = net.graph(layer)
    shapes = shapes_of(graph, net, (1, 8, 5, 5))
    work = work_of(graph, layer.node, shapes, written_layouts(graph, shapes))
    assert work is not None
    assert (work.channels, work.is_depthwise, work.has_bias, work.rank) == (8, True, True, 4)


@pytest.mark.parametrize(
    ("op", "attrs", "made"),
    [("_contrib_arange_like", {"axis": -1}, (8,)), ("shape_array", {}, (3,)), ("size_array", {}, (1,))],
)
def test_what_asks_for_a_shape_moves_nothing_that_it_reads(
    op: str, attrs: dict[str, int], made: tuple[int, ...]
) -> None:
    net = Net()
    terms = net.op(op, net.var("x"), **attrs)
    graph = net.graph(terms)
    shapes: list[Any] = [((300, 200, 8),), (made,)]
    work = work_of(graph, terms.node, shapes, written_layouts(graph, shapes))
    assert work is not None
    assert work.elements == made[0]


@pytest.mark.parametrize(("channels", "is_evened"), [(3, True), (5, True), (4, False), (1, True)])
def test_a_low_layer_of_odd_channels_costs_what_it_takes_with_one_more(
    channels: int, is_evened: bool
) -> None:
    net = Net()
    weight = net.param("weight", 16, channels, 3, 3)
    layer = net.op("Convolution", net.var("x"), weight, name="layer", kernel="(3, 3)", num_filter=16)
    graph = net.graph(layer)
    found = []
    for rewrites in ([], ["even_channels"]):
        # Nothing but bytes counts.
        where = target({"flops_per_us": {"float32": 1e9, "low": 1e9}}, rewrites=rewrites)
        assert where.cost is not None
        shapes = shapes_of(graph, net, (1, channels, 6, 6))
        shapes[layer.node] = ((1, 16, 6, 6),)
        priced = estimate(graph, ["null", "null", "Convolution"], where, where.cost, shapes, choices={2})
        found.append((priced.float32[2], priced.low[2]))
    (float32, alone), (float32_too, evened) = found
    assert float32 == float32_too
    # A channel more of data and weight, two bytes each, and a cast's time for what is moved, six bytes each.
    more = 2 * (36 + 16 * 9) + 6 * (channels + 1) * 36
    assert evened == pytest.approx(alone + more * is_evened)


def test_what_is_cast_at_conversion_costs_no_forward_pass_a_cast() -> None:
    net = Net()
    layer = net.conv(net.var("x"), "conv")
    graph = net.graph(layer)
    where, names = target(), [FACTS.canonical(node.op) for node in graph.nodes]
    assert where.cost is not None
    shapes = shapes_of(graph, net, (1, 4, 5, 5))
    offline = frozenset(node.name for node in graph.nodes if node.is_variable and node.name != "x")
    assert offline
    for cast_offline in (frozenset(), offline):
        found = estimate(
            graph, names, where, where.cost, shapes, choices={layer.node}, cast_offline=cast_offline
        )
        for position, node in enumerate(graph.nodes):
            is_free = node.name in cast_offline
            assert (found.cast(Entry(position), down=True) == 0) == is_free
            assert (found.cast(Entry(position), down=False) == 0) == is_free


@pytest.mark.parametrize("behind", ["layer", "clip", "input", "two layers"])
def test_what_reads_plain_order_beside_a_layer_is_paid_by_the_layer(behind: str) -> None:
    """Behind a cast it finds plain order: low, the layer saves its readers the reorder."""
    by_layout = {"trait": "layout", "below": 1, "then": {"one": 10.0}, "else": {"one": 70.0}}
    where = target({"kernels": {"softmax": {"float32": by_layout}, "elemwise_mul": {"float32": by_layout}}})
    assert where.cost is not None
    net = Net()
    net.param("weight", 16, 16, 1, 1)
    data = net.var("x")
    layers = [
        net.op("Convolution", data, Entry(0), kernel="(1, 1)", num_filter=16, no_bias=True) for _ in range(2)
    ]
    read = data if behind == "input" else layers[0]
    if behind == "clip":
        read = net.op("clip", read, a_min=0, a_max=6)
    both = (layers[0], layers[1])
    reader = net.op("elemwise_mul", *both) if behind == "two layers" else net.op("softmax", read)
    graph = net.graph(reader)
    names = [FACTS.canonical(node.op) for node in graph.nodes]
    shapes = shapes_of(graph, net, (1, 16, 4, 4))
    choices = {n for n, name in enumerate(names) if name in ("Convolution", "clip")}
    found = estimate(graph, names, where, where.cost, shapes, choices=choices)
    assert found.float32_beside is not None
    beside = [found.float32_beside[n] - found.float32[n] for n in range(len(names))]
    expected = dict.fromkeys(range(len(names)), 0.0)
    if behind != "input":
        expected[reader.node] = -60.0
        writers = [layer.node for layer in layers] if behind == "two layers" else [read.node]
        for writer in writers:
            expected[writer] = 60.0 / len(writers)
    assert dict(enumerate(beside)) == pytest.approx(expected)


IN_BLOCKS = {"trait": "arrives_in", "below": 1, "then": {"one": 90.0}, "else": {"one": 20.0}}
"""A layer that takes 20 microseconds where it finds blocks, or channels last, and 90 in plain order."""


def _two_layers(between: str = "") -> tuple[Net, Graph, list[int], Target]:
    """Return two layers of 16 channels, perhaps with an operator in between, and what they cost."""
    net = Net()
    weights = [net.param(f"weight{n}", 16, 16, 1, 1) for n in range(2)]
    attributes = {"kernel": "(1, 1)", "num_filter": 16, "no_bias": True}
    first = net.op("Convolution", net.var("x"), weights[0], **attributes)
    read = net.op(between, first) if between else first
    second = net.op("Convolution", read, weights[1], **attributes)
    kernels = {
        "Convolution 1x1": {"float32": IN_BLOCKS, "low": {**IN_BLOCKS, "then": {"one": 50.0}}},
        "cast down": {
            "float32": {"trait": "arrives_in", "below": 1, "then": {"one": 3.0}, "else": {"one": 13.0}},
            "low": {"one": 0.0},
        },
    }
    return net, net.graph(second), [first.node, read.node, second.node], target({"kernels": kernels})


def test_a_layer_that_reads_what_a_cast_wrote_brings_it_into_blocks() -> None:
    net, graph, (first, _, second), where = _two_layers()
    names = [FACTS.canonical(node.op) for node in graph.nodes]
    assert where.cost is not None
    shapes = shapes_of(graph, net, (1, 16, 4, 4))
    found = estimate(graph, names, where, where.cost, shapes, choices={first, second})
    assert found.mixed(set())[second] == found.mixed({first, second})[second] == 20
    assert found.mixed({first})[second] == 90
    assert found.mixed({second})[second] == 50
    assert found.for_placement().crossings == [Crossing(first, second, 70_000, 30_000)]
    # The second must be FP32: low, the first makes it slower.
    found = estimate(graph, names, where, where.cost, shapes, choices={first})
    assert found.for_placement().crossings == [Crossing(first, second, 70_000, 0)]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_low_layer_that_will_read_an_even_number_writes_its_best_order(channels: int) -> None:
    net = Net()
    weight = net.param("weight", 32, channels, 3, 3)
    layer = net.op("Convolution", net.var("x"), weight, kernel="(3, 3)", pad="(1, 1)", num_filter=32)
    graph, shape = net.graph(layer), (1, channels, 20, 20)
    shapes = [*shapes_of(graph, net, shape)[:-1], ((1, 32, 20, 20),)]
    for evens in (False, True):
        layout = written_layouts(graph, shapes, evens=evens)[layer.node]
        assert layout is not None
        assert layout.float32 == CHANNELS_LAST
        assert layout.low == (CHANNELS_LAST if evens or channels % 2 == 0 else PLAIN)


def test_what_is_written_over_a_cast_is_plain_and_cast_down_from_that() -> None:
    net, graph, (first, between, second), where = _two_layers("softmax")
    names = [FACTS.canonical(node.op) for node in graph.nodes]
    assert where.cost is not None
    shapes = shapes_of(graph, net, (1, 16, 4, 4))
    found = estimate(graph, names, where, where.cost, shapes, choices={first, second})
    assert found.mixed(set())[second] == 20
    assert found.mixed({first})[second] == 90  # the softmax found plain order, and left it so
    assert found.mixed({first, second})[second] == 50  # behind a cast, as it would be behind an FP32 first
    assert found.cast(Entry(between), down=True) == 3
    assert found.mixed({second})[second] == 50 + (13 - 3)  # that cast reads the first's blocks


# ---------------------------------------------------------------------- what is decided by them


@pytest.mark.parametrize(
    ("channels", "attrs", "reads", "is_convolved"),
    [
        (32, {}, "Pooling", True),
        (24, {}, "Pooling", False),
        (32, {"axis": "2"}, "Pooling", False),
        (32, {}, "broadcast_mul", False),
        (32, {}, "Concat", True),
    ],
    ids=["blocks", "no whole blocks", "another axis", "plain order", "behind many others"],
)
def test_a_batch_norm_costs_what_it_becomes(
    channels: int, attrs: dict[str, str], reads: str, is_convolved: bool
) -> None:
    net = Net()
    parts = [net.param(f"bn_{part}", channels) for part in ("gamma", "beta", "moving_mean", "moving_var")]
    weight = net.param("conv_weight", channels, channels, 1, 1)
    layer = net.op("Convolution", net.var("data"), weight, kernel="(1, 1)", num_filter=channels, no_bias=True)
    if reads == "Concat":  # as in DenseNet: each reads the one before
        read = layer
        for _ in range(20):
            read = net.op("Concat", read, layer, dim=2, num_args=2)
    else:
        second = [net.param("scale", 1, channels, 1, 1)] if reads == "broadcast_mul" else []
        read = net.op(reads, layer, *second, **({} if second else {"kernel": "(1, 1)"}))
    graph = net.graph(net.op("BatchNorm", read, *parts, name="bn", outputs=3, **attrs))
    costs = {
        "operators": {
            "BatchNorm": [{"float32": 1, "low": 50}],
            "Convolution": [{"depthwise": True, "float32": 1, "low": 2}, {"float32": 1, "low": 7}],
        }
    }
    names = [FACTS.canonical(node.op) for node in graph.nodes]
    shape = (1, channels, channels, 6)
    found = {}
    for convolves in (False, True):
        where = target(costs, convolves_batch_norm=convolves)
        assert where.cost is not None
        position = len(graph.nodes) - 1
        shapes = shapes_of(graph, net, shape)
        found[convolves] = estimate(graph, names, where, where.cost, shapes, choices={position}).low[position]
    assert found[True] == pytest.approx(found[False] * (2 / 50 if is_convolved else 1), rel=0.01)


def converted(net: Net, head: Entry, where: Target, **options: Any) -> Model:
    graph = net.graph(head)
    options.setdefault("shapes", shapes_of(graph, net, (1, 4, 5, 5)))
    return convert(graph, net.params, target=where, policy=Policy.default(BF16), **options)


def low(model: Model) -> set[str]:
    assert model.report is not None
    return {node.name for node in model.report.nodes if node.compute == "bfloat16"}


def test_green_is_a_permission_where_costs_are_known() -> None:
    net, head = conv_bn_relu()
    model = converted(net, head, target())
    assert low(model) == set()  # two casts at 600 us each, for 332 us saved
    assert model.report is not None
    assert model.report.time is not None
    assert model.report.time.float32_us == model.report.time.mixed_us
    assert model.report.time.casts_us == 0
    assert "takes the least time here, as estimated" in model.report.node("conv").reason


def test_what_pays_is_low_and_the_report_says_what_it_takes() -> None:
    net, head = conv_bn_relu()
    model = converted(net, head, target({"cast": {"bytes_per_us": 100, "overhead_us": 1}}))
    assert low(model) == {"conv", "bn", "relu"}
    report = model.report
    assert report is not None
    assert report.time is not None
    assert [cast.us for cast in report.casts] == [1 + 600 / 100] * 2
    assert report.time.casts_us == 14
    assert report.time.mixed_us == sum(node.mixed_us or 0 for node in report.nodes) + 14
    assert report.time.float32_us == report.node("conv").float32_us
    assert report.node("relu").cast_us == 7  # the cast of the output
    assert "of which casts 14 us (by costs of a test; computed, not measured)" in " ".join(
        str(report).split()
    )


def test_calling_takes_as_long_in_either_dtype_and_decides_nothing() -> None:
    net, head = conv_bn_relu()
    cast = {"bytes_per_us": 100, "overhead_us": 1}
    without, called = (converted(net, head, target({"cast": cast, "call_us": us})) for us in (0, 1e4))
    assert low(without) == low(called)
    assert without.report is not None
    assert called.report is not None
    before, after = without.report.time, called.report.time
    assert before is not None
    assert after is not None
    assert after.float32_us == pytest.approx(before.float32_us + 1e4)
    assert after.mixed_us == pytest.approx(before.mixed_us + 1e4)
    assert after.casts_us == before.casts_us


def test_required_is_an_order() -> None:
    net, head = conv_bn_relu()
    model = converted(net, head, target(), low_precision=LowPrecision.REQUIRED)
    assert low(model) == {"conv", "bn", "relu"}
    assert model.report is not None
    assert model.report.time is not None
    assert model.report.time.mixed_us > model.report.time.float32_us


@pytest.mark.parametrize("low_precision", [None, LowPrecision.REQUIRED])
def test_without_shapes_nothing_changes(low_precision: LowPrecision | None) -> None:
    net, head = conv_bn_relu()
    plain = converted(net, head, capable(BF16), shapes=None)
    priced = converted(net, head, target(), shapes=None, low_precision=low_precision)
    assert dtypes_of(priced) == dtypes_of(plain)
    assert priced.report is not None
    assert priced.report.time is None


def test_where_a_batch_size_is_not_known_casts_are_counted_instead() -> None:
    net, head = conv_bn_relu()
    graph = net.graph(head)
    shapes = [(None,) * node.num_outputs for node in graph.nodes]
    model = converted(net, head, target(), shapes=shapes)
    assert low(model) == {"conv", "bn", "relu"}


@pytest.mark.parametrize(
    ("shapes", "where", "message"),
    [
        pytest.param(None, target(), "no input_shapes were given", id="no shapes"),
        pytest.param("known", capable(BF16), "says nothing of costs", id="no costs"),
        pytest.param("unknown", target(), "shapes at node 'conv' are not known", id="a shape is missing"),
    ],
)
def test_profitable_without_what_it_takes_is_refused(shapes: Any, where: Target, message: str) -> None:
    net, head = conv_bn_relu()
    graph = net.graph(head)
    known: Any = None
    if shapes is not None:
        known = shapes_of(graph, net, (1, 4, 5, 5))
        if shapes == "unknown":
            known[0] = (None,)
    with pytest.raises(PolicyError, match=message):
        converted(net, head, where, shapes=known, low_precision=LowPrecision.PROFITABLE)


@pytest.mark.parametrize("options", [{}, {"shapes": None}], ids=["shapes", "no shapes"])
def test_on_hardware_that_only_emulates_nothing_is_low_and_the_user_is_told(options: Any) -> None:
    net, head = conv_bn_relu()
    with pytest.warns(UserWarning, match=r"cpu-bf16-emulated: .*no bfloat16 instructions"):
        model = converted(net, head, Target.builtin("cpu-bf16-emulated"), **options)
    assert low(model) == set()
    assert model.report is not None
    assert WHY_IMITATED in str(model.report.nothing_low)


def test_where_low_products_are_slower_nothing_is_low_by_no_shapes() -> None:
    net, head = conv_bn_relu()
    slower = target({"flops_per_us": {"float32": 2, "low": 1}})
    with pytest.warns(UserWarning, match=WHY_SLOWER):
        assert low(converted(net, head, slower, shapes=None)) == set()
    assert "conv" in low(converted(net, head, slower, shapes=None, low_precision=LowPrecision.REQUIRED))
    assert "conv" in low(converted(net, head, target(), shapes=None))


@pytest.mark.filterwarnings("ignore:The target cpu-bf16-emulated")
def test_on_hardware_that_only_emulates_low_precision_is_had_for_the_asking() -> None:
    net, head = conv_bn_relu()
    for required in ({"low_precision": LowPrecision.REQUIRED}, {"policy": Policy.pure(BF16)}):
        options = {"policy": Policy.default(BF16), **required}
        model = convert(net.graph(head), net.params, target=Target.builtin("cpu-bf16-emulated"), **options)
        assert "conv" in low(model)


@pytest.mark.parametrize("given", ["required", "profitable", None, *LowPrecision], ids=str)
def test_low_precision_is_named_or_left_open(given: Any) -> None:
    found = as_low_precision(given)
    assert found is None if given is None else found is LowPrecision(given)


@pytest.mark.parametrize("given", ["always", True, 1, []], ids=str)
def test_another_low_precision_is_refused(given: Any) -> None:
    with pytest.raises(PolicyError, match="must be 'required', 'profitable', 'none' or None"):
        as_low_precision(given)
