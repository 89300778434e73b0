"""Layers over images that are one place wide read rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.passes import PreparedNode, RewriteColumns, State
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, F32, Net, capable, convert, named, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepare_graph, prepared, targets_that_choose

CHANNELS, STEPS = 64, 96
NARROW = Target.builtin("cpu-bf16-avx2")


class Sequences(Net):
    """Sequences as Keras has them, and layers over images that are one place wide."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = self.op("transpose", self.var("x"), name="turned", axes="(0, 2, 1)")
        self.image = self.op("Reshape", self.steps, name="image", shape=(0, 0, -1, 1))

    def layer(
        self, data: Entry, name: str, channels: int = CHANNELS, filters: int = CHANNELS, **attrs: Any
    ) -> Entry:
        op = attrs.pop("op", "Convolution")
        window = attrs.pop("window", 3)
        kernel = attrs.get("kernel", (window, 1))
        given = {"kernel": kernel, "pad": (window // 2, 0), "num_filter": filters, **attrs}
        groups = given.get("num_group", 1)
        rows = (filters, channels // groups) if op == "Convolution" else (channels, filters // groups)
        weight = self.param(f"{name}_weight", *rows, *kernel)
        return self.op(
            op, data, weight, self.param(f"{name}_bias", filters), name=name, no_bias=False, **given
        )

    def norm(self, data: Entry, name: str, channels: int = CHANNELS) -> Entry:
        parts = [
            self.param(f"{name}_{part}", channels, value=value)
            for part, value in (("gamma", 2.0), ("beta", 0.5), ("moving_mean", 0.25), ("moving_var", 4.0))
        ]
        return self.op("BatchNorm", data, *parts, name=name, outputs=3, fix_gamma=False)

    def known(self, graph: Graph, **shapes: tuple[int, ...]) -> Any:
        sizes = {name: value.shape for name, value in self.params.items()}
        return infer_entry_shapes(graph, {"x": (1, STEPS, CHANNELS), **shapes}, sizes).entries

    def done(self, *heads: Entry, inserted: tuple[str, ...] = (), **options: Any) -> Any:
        graph = self.graph(*heads)
        given = {"shapes": self.known(graph), **options}
        return prepared(RewriteColumns, graph, self.params, inserted=inserted, **given)


def relu(net: Net, data: Entry, name: str = "relu") -> Entry:
    return net.op("Activation", data, name=name, act_type="relu")


def test_layers_and_what_stands_between_read_rows() -> None:
    net = Sequences()
    first = relu(net, net.layer(net.image, "first", stride=(2, 1)))
    padded = net.op("Pad", first, name="padded", mode="constant", pad_width=(0, 0, 0, 0, 2, 0, 0, 0))
    second = net.layer(padded, "second", dilate=(2, 1), pad=(0, 0))
    pooled = net.op("Pooling", second, name="pooled", kernel=(2, 1), stride=(2, 1), pool_type="max")
    after, done = net.done(net.op("exp", pooled, name="end"), inserted=("image_row", "pooled_column"))
    assert operators(after)[2:] == [
        "image_row = Reshape(image) {shape: (0, 0, 1, -1)}",
        "first = Convolution(image_row, first_weight, first_bias) "
        "{kernel: (1, 3), no_bias: False, num_filter: 64, pad: (0, 1), stride: (1, 2)}",
        "relu = Activation(first) {act_type: relu}",
        "padded = Pad(relu) {mode: constant, pad_width: (0, 0, 0, 0, 0, 0, 2, 0)}",
        "second = Convolution(padded, second_weight, second_bias) "
        "{dilate: (1, 2), kernel: (1, 3), no_bias: False, num_filter: 64, pad: (0, 0)}",
        "pooled = Pooling(second) {kernel: (1, 2), pool_type: max, stride: (1, 2)}",
        "pooled_column = Reshape(pooled) {shape: (0, 0, -1, 1)}",
        "end = exp(pooled_column)",
    ]
    assert [(change.node, change.into) for change in done.changes] == [
        ("first", "first"),
        ("second", "second"),
    ]
    weight = net.params["first_weight"]
    np.testing.assert_array_equal(done.params["first_weight"].values(), weight.transpose(0, 1, 3, 2))


@pytest.mark.parametrize("axis", [3, -1])
def test_sequences_become_rows_by_another_axis(axis: int) -> None:
    net = Sequences()
    image = net.op("expand_dims", net.steps, name="rows", axis=axis)
    layer = relu(net, net.layer(image, "layer"))
    heads = [
        net.op("squeeze", layer, name="squeezed", axis=axis),
        net.op("exp", net.op("Reshape", layer, name="reshaped", shape=(0, 0, -1))),
        net.op("exp", net.op("Reshape", layer, name="whole", shape=(-1, 8))),
    ]
    after, _ = net.done(*heads)
    assert [(node.name, node.attrs["axis"]) for node in after.nodes if "axis" in node.attrs] == [
        *(("rows", "2"), ("squeezed", "2"))
    ]
    assert len(after.nodes) == len(net.nodes)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("squeeze", {}),
        ("Reshape", {"shape": (0, 0, 0)}),
        ("Reshape", {"shape": (0, 0, 0, -1)}),
        ("Reshape", {"shape": (0, -2)}),
        ("Reshape", {"shape": (-1, 0), "reverse": True}),
        ("expand_dims", {"axis": 3}),
    ],
)
def test_others_read_a_column(op: str, attrs: dict[str, Any]) -> None:
    net = Sequences()
    layer = net.layer(net.image, "layer")
    graph = net.graph(net.op("exp", net.op(op, layer, name="reader", **attrs)))
    inserted = ("image_row", "layer_column")
    image = (1, CHANNELS, STEPS, 1)
    known: Any = [
        (net.params[node.name].shape if node.name in net.params else image,) for node in graph.nodes
    ]
    after, _ = prepared(RewriteColumns, graph, net.params, inserted=inserted, shapes=known)
    reader = named(after, "reader")
    assert after.nodes[reader.inputs[0].node].name == "layer_column"
    assert reader.attrs == {key: str(value) for key, value in attrs.items()}


def test_a_column_that_others_read_too_stays() -> None:
    net = Sequences()
    image = net.op("expand_dims", net.steps, name="columns", axis=3)
    heads = [net.op("exp", net.layer(image, "layer")), net.op("exp", image)]
    after, _ = net.done(*heads, inserted=("columns_row", "layer_column"))
    assert named(after, "columns").attrs["axis"] == "3"


@pytest.mark.parametrize("flattens", ["Flatten", "FullyConnected", "global Pooling"])
def test_what_reads_no_order_needs_no_column(flattens: str) -> None:
    net = Sequences()
    layer = net.layer(net.image, "layer")
    if flattens == "Flatten":
        end = net.op("exp", net.op("Flatten", layer))
    elif flattens == "FullyConnected":
        end = net.op(
            "FullyConnected", layer, net.param("dense", 4, CHANNELS * STEPS), num_hidden=4, no_bias=True
        )
    else:
        end = net.op("exp", net.op("Pooling", layer, global_pool=True, kernel=(1, 1), pool_type="avg"))
    after, _ = net.done(end, inserted=("image_row",))
    assert [node.name for node in after.nodes if node.op == "Reshape"][1:] == ["image_row"]


def test_gates_of_one_place_are_rows_as_they_are() -> None:
    net = Sequences()
    layer = net.layer(net.image, "layer")
    pooled = net.op("Pooling", layer, name="pooled", global_pool=True, kernel=(1, 1), pool_type="avg")
    gate = net.op("Activation", net.layer(pooled, "gate", window=1), name="gates", act_type="sigmoid")
    gated = net.op("broadcast_mul", layer, gate, name="gated")
    after, _ = net.done(net.op("exp", gated), inserted=("image_row", "gated_column"))
    assert [node.name for node in after.nodes if node.op == "Reshape"][1:] == ["image_row", "gated_column"]


def test_regions_share_a_row() -> None:
    """The first region reads it at last, behind the second."""
    net = Sequences()
    first = net.layer(net.op("exp", net.image, name="other"), "first")
    second = net.op("exp", net.layer(net.image, "second"), name="end")
    both = net.op("exp", net.op("elemwise_add", first, net.image, name="both"))
    inserted = ("other_row", "image_row", "second_column", "both_column")
    after, _ = net.done(both, second, inserted=inserted)
    assert [node.name for node in after.nodes if node.op == "Reshape"][1:] == [
        *("image_row", "other_row", "second_column", "both_column")
    ]


def test_what_stands_in_front_of_the_first_layer_stays() -> None:
    """It may be a part of a layer that reads no rows."""
    net = Sequences()
    wide = net.op("Reshape", net.var("y"), shape=(-1, 1, STEPS, 40))
    made = relu(net, net.layer(wide, "wide", 1, kernel=(1, 40), pad=(0, 0)))
    graph = net.graph(net.op("exp", net.layer(made, "layer")))
    known = net.known(graph, y=(1, STEPS * 40))
    inserted = ("relu_row", "layer_column")
    after, _ = prepared(RewriteColumns, graph, net.params, inserted=inserted, shapes=known)
    assert named(after, "wide").attrs["kernel"] == "(1, 40)"
    row = named(after, "relu_row")
    assert after.nodes[row.inputs[0].node].name == "relu"


REFUSED: dict[str, dict[str, Any]] = {
    "wider": {"kernel": (3, 3), "pad": (1, 1)},
    "padded along rows": {"pad": (1, 1)},
    "channels last": {"layout": "NHWC"},
    "no window along the column": {"window": 1},
    "little to gain": {"channels": 4, "filters": 4},
    "more padding than rows may have": {"channels": 32, "filters": 32, "window": 9},
}


OTHERS = ["an input", "an output", "shared weight", "no shapes", "a rule", "one place"]


@pytest.mark.parametrize("case", [*REFUSED, *OTHERS, "nothing"])
def test_refused(case: str) -> None:
    net = Sequences()
    image = net.image
    if case == "an input":  # another call may have a wider one
        image = net.op("exp", net.var("photograph"))
    if "channels" in REFUSED.get(case, {}):
        image = net.op("slice_axis", image, axis=1, begin=0, end=REFUSED[case]["channels"])
    if case == "one place":
        image = net.op("slice_axis", image, axis=2, begin=0, end=1)
    layer = net.layer(image, "layer", **REFUSED.get(case, {}))
    heads = [layer if case == "an output" else net.op("exp", layer, name="end")]
    if case == "shared weight":
        heads.append(net.op("exp", net.nodes[layer.node].inputs[1]))
    graph = net.graph(*heads)
    shapes = {"photograph": (1, CHANNELS, STEPS, 1), "x": (1, STEPS, CHANNELS)}
    known: Any = None
    if case == "channels last":
        known = [((1, CHANNELS, STEPS, 1),) for _ in graph.nodes]
    elif case != "no shapes":
        known = net.known(graph, **{name: shapes[name] for name in shapes if name in graph.variables})
    policy = Policy.default(BF16).excluding(names=["layer"]) if case == "a rule" else None
    inserted = (f"{net.nodes[image.node].name}_row", "layer_column")
    target = replace(NARROW, rewrites=("columns",))
    after, _ = prepared(RewriteColumns, graph, net.params, policy, inserted, target=target, shapes=known)
    assert (after is graph) == (case != "nothing")


@dataclass(frozen=True)
class Case:
    """A network, and how many of its layers read rows."""

    build: Callable[[Sequences], Entry]
    layers: int


def residual(net: Sequences) -> Entry:
    found = relu(net, net.layer(net.image, "first"))
    for number, term in enumerate(("elemwise_add", "broadcast_add")):
        made = net.norm(net.layer(found, f"inner{number}", dilate=(2, 1), pad=(2, 0)), f"norm{number}")
        made = relu(net, made, f"relu{number}")
        found = net.op(term, net.layer(made, f"outer{number}", stride=(1, 1)), found)
        found = net.op("Pooling", found, kernel=(3, 1), stride=(2, 1), pad=(1, 0), pool_type="avg")
    return found


def gated(net: Sequences) -> Entry:
    """Return WaveNet's: halves of a layer that pads one end."""
    padded = net.op("Pad", net.image, mode="edge", pad_width=(0, 0, 0, 0, 4, 0, 0, 0))
    both = net.layer(padded, "both", filters=2 * CHANNELS, dilate=(2, 1), pad=(0, 0))
    halves = [
        net.op("slice_axis", both, axis=1, begin=begin, end=begin + CHANNELS) for begin in (0, CHANNELS)
    ]
    parts = [net.op("Activation", half, act_type=kind) for half, kind in zip(halves, ("tanh", "sigmoid"))]
    return net.op("elemwise_add", net.layer(net.op("elemwise_mul", *parts), "out", window=1), net.image)


def hourglass(net: Sequences) -> Entry:
    """Return a U-Net's: what a layer made is read again behind a deeper one."""
    down = net.op("LeakyReLU", net.layer(net.image, "down"), net.param("slope", CHANNELS), act_type="prelu")
    pooled = net.op("Pooling", down, kernel=(2, 1), stride=(2, 1), pool_type="max")
    deep = net.layer(net.layer(pooled, "depthwise", num_group=CHANNELS), "deep")
    up = net.layer(deep, "up", op="Deconvolution", kernel=(4, 1), window=4, stride=(2, 1), pad=(1, 0))
    joined = net.op("Concat", down, up, dim=1, num_args=2)
    return net.layer(joined, "last", 2 * CHANNELS)


def squeezed(net: Sequences) -> Entry:
    layer = net.layer(net.image, "layer", window=5)
    pooled = net.op("Pooling", layer, global_pool=True, kernel=(1, 1), pool_type="avg")
    gate = net.op("Activation", net.layer(pooled, "gate", window=1), act_type="sigmoid")
    return net.op("Flatten", net.op("broadcast_mul", layer, gate))


def by_sequences(net: Sequences) -> Entry:
    """Return layers between sequences, whose activations and sums have three axes."""
    found = net.steps
    for number in range(3):
        image = net.op("expand_dims", found, axis=(3, -1)[number % 2])
        made = net.op("squeeze", net.layer(image, f"layer{number}"), axis=(3, -1)[number % 2])
        found = net.op("elemwise_add", found, net.op("Activation", made, act_type="relu"))
    return found


CASES = {
    "by sequences": Case(by_sequences, 3),
    "residual": Case(residual, 5),
    "gated": Case(gated, 2),
    "hourglass": Case(hourglass, 5),
    "squeezed": Case(squeezed, 2),
}


def run(
    net: Net, graph: Graph, known: Any, target: Target = NARROW, steps: tuple[str, ...] = ("columns",)
) -> State:
    return prepare_graph(
        graph, parameters(net.params), Policy.default(BF16), steps, target=target, shapes=known
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [(1, STEPS, CHANNELS), (3, 48, CHANNELS)])
def test_mxnet_computes_the_same_in_any_call(
    monkeypatch: pytest.MonkeyPatch, name: str, shape: tuple[int, ...]
) -> None:
    pytest.importorskip("mxnet", reason="graphs are executed")
    from mxamp.runtime.shapes import infer_shapes

    net, draw = Sequences(), np.random.default_rng(0)
    graph = net.graph(net.op("exp", CASES[name].build(net), name="end"))
    for key, value in net.params.items():
        size = (
            np.abs(draw.normal(0, 1, value.shape))
            if key.endswith("_var")
            else draw.normal(0, 0.05, value.shape)
        )
        net.params[key] = size.astype(np.float32)
    params = parameters(net.params)
    done = run(net, graph, infer_shapes(graph, {"x": (1, STEPS, CHANNELS)}, params))
    assert len(done.record(PreparedNode)) == CASES[name].layers
    x = draw.normal(0, 1, shape).astype(np.float32)
    for backend in ("NONE", "MKLDNN"):
        (expected,) = outputs(monkeypatch, graph, params, {"x": x}, backend)
        (found,) = outputs(monkeypatch, done.graph, dict(done.params), {"x": x}, backend)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
    after = infer_shapes(done.graph, {"x": (1, STEPS, CHANNELS)}, done.params)
    assert done.shapes is not None
    assert [own[0] for own in done.shapes] == [own[0] for own in after]


def test_targets_that_were_measured_name_it() -> None:
    net = Sequences()
    graph = net.graph(net.op("exp", net.layer(net.image, "layer")))
    chosen = targets_that_choose("columns", graph, parameters(net.params), net.known(graph))
    assert chosen == ["cpu-bf16", "cpu-bf16-intel"]
    assert run(net, graph, net.known(graph)).record(PreparedNode)


@pytest.mark.parametrize(("name", "is_turned"), [("cpu-bf16-avx2", True), ("cpu-bf16-intel", False)])
def test_a_depthwise_layer_alone_gains_without_avx512(name: str, is_turned: bool) -> None:
    net = Sequences()
    graph = net.graph(net.op("exp", net.layer(net.image, "layer", num_group=CHANNELS)))
    target = replace(Target.builtin(name), rewrites=("columns",))
    known = net.known(graph, x=(16, STEPS, CHANNELS))
    assert bool(run(net, graph, known, target).record(PreparedNode)) is is_turned


def test_with_avx512_it_is_turned_with_others_and_kernels_pad_what_they_are_told() -> None:
    net = Sequences()
    first = net.layer(net.image, "first", window=11)  # five places, which no kernel without AVX-512 adds
    graph = net.graph(net.op("exp", net.layer(first, "second", num_group=CHANNELS)))
    known = infer_entry_shapes(
        graph, {"x": (1, 32, CHANNELS)}, {name: value.shape for name, value in net.params.items()}
    ).entries
    wide = replace(Target.builtin("cpu-bf16-intel"), rewrites=("columns",))
    assert {one.node for one in run(net, graph, known, wide).record(PreparedNode)} == {"first", "second"}


def test_layers_run_low_as_before() -> None:
    net = Sequences()
    first = relu(net, net.layer(net.image, "first"))
    graph = net.graph(net.op("Flatten", net.layer(first, "second"), name="end"))
    target = replace(capable(BF16), rewrites=("columns",))
    found = [
        convert(graph, net.params, target=target, prepare=steps, shapes=net.known(graph))
        for steps in ((), ("columns",))
    ]
    report = found[1].report
    assert report is not None
    assert [change.node for change in report.preparations] == ["first", "second"]
    for model in found:
        assert model.arg_params["first_weight"].dtype is BF16
    before, after = [model.arg_params["second_weight"].cast(F32).values() for model in found]
    np.testing.assert_array_equal(after, before.transpose(0, 1, 3, 2))
    casts = [sum(node.op == "amp_cast" for node in model.graph.nodes) for model in found]
    assert casts[0] == casts[1]
