"""A convolution that takes rows of its image whole reads a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.params.parameter import ArrayParameter
from mxamp.params.rearranged import RearrangedParameter
from mxamp.passes import PreparedNode, RewriteFullWidth
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepare_graph, prepared, targets_that_choose

WORDS, SIZE, FILTERS = 20, 48, 6


class Sentences(Net):
    """Rows of an Embedding, and layers that read them."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: dict[int, Any] = {}
        found = self.shaped((2, WORDS), self.var("x"))
        table = self.shaped((30, SIZE), self.param("table", 30, SIZE))
        found = self.op("Embedding", found, table, name="words", input_dim=30, output_dim=SIZE)
        self.words = self.shaped((2, WORDS, SIZE), found)
        found = self.op("expand_dims", self.words, name="image", axis=1)
        self.image = self.shaped((2, 1, WORDS, SIZE), found)

    def shaped(self, shape: tuple[int, ...], entry: Entry, *others: tuple[int, ...]) -> Entry:
        self.shapes[entry.node] = (shape, *others)
        return entry

    def transposed(self) -> Entry:
        """Return the image with rows as columns."""
        found = self.op("SwapAxis", self.image, name="columns", dim1=2, dim2=3)
        return self.shaped((2, 1, SIZE, WORDS), found)

    def layer(self, image: Entry, height: int, width: int, name: str = "y", **attrs: Any) -> Entry:
        weight = self.param(f"{name}_weight", FILTERS, 1, height, width)
        self.shaped((FILTERS, 1, height, width), weight)
        bias = self.shaped((FILTERS,), self.param(f"{name}_bias", FILTERS))
        given = {"kernel": f"({height}, {width})", "num_filter": FILTERS, **attrs}
        found = self.op("Convolution", image, weight, bias, name=name, **given)
        tall = self.shapes[image.node][0][2]
        stride, pad, dilate = (
            int(given.get(key, f"({default}, 1)").strip("(").split(",")[0])
            for key, default in (("stride", 1), ("pad", 0), ("dilate", 1))
        )
        out = (tall + 2 * pad - (height - 1) * dilate - 1) // stride + 1
        wide = self.shapes[image.node][0][3]
        return self.shaped((2, FILTERS, out, wide - width + 1), found)

    def same(self, op: str, entry: Entry, **attrs: Any) -> Entry:
        return self.shaped(self.shapes[entry.node][0], self.op(op, entry, **attrs))

    def known(self) -> list[Any]:
        return [self.shapes[position] for position in range(len(self.nodes))]

    def largest(self, entry: Entry, **attrs: Any) -> Entry:
        batch, filters, *_ = self.shapes[entry.node][0]
        given = {"kernel": "(1, 1)", "pool_type": "max", "global_pool": True, **attrs}
        return self.shaped((batch, filters, 1, 1), self.op("Pooling", entry, name="largest", **given))


def test_rows_become_a_sequence_up_to_what_reads_an_image() -> None:
    net = Sentences()
    y = net.layer(net.image, 3, SIZE, stride="(2, 1)")
    relu = net.same("Activation", y, name="relu", act_type="relu")
    largest = net.largest(relu, kernel=f"({(WORDS - 3) // 2 + 1}, 1)", global_pool=False)
    end = net.same("Flatten", largest, name="end")
    inserted = ["y_rows", "y_sequence", "largest_image"]
    after, done = prepared(
        RewriteFullWidth, net.graph(end), net.params, inserted=inserted, shapes=net.known()
    )
    assert operators(after)[2:] == [
        "y_rows = Reshape(image) {shape: (0, -3, 0)}",
        "y_sequence = transpose(y_rows) {axes: (0, 2, 1)}",
        "y = Convolution(y_sequence, y_weight, y_bias) {kernel: (3,), num_filter: 6, stride: (2,)}",
        "relu = Activation(y) {act_type: relu}",
        "largest = Pooling(relu) {global_pool: False, kernel: (9,), pool_type: max}",
        "largest_image = expand_dims(largest) {axis: 3}",
        "end = Flatten(largest_image)",
    ]
    assert [(change.node, change.into) for change in done.changes] == [("y", "y")]
    weight = net.params["y_weight"]
    np.testing.assert_array_equal(done.params["y_weight"].values(), weight[:, 0].transpose(0, 2, 1))


def test_columns_need_no_transpose() -> None:
    net = Sentences()
    y = net.layer(net.transposed(), SIZE, 3)
    end = net.same("exp", y, name="end")
    after, done = prepared(
        RewriteFullWidth, net.graph(end), net.params, inserted=["y_rows", "y_image"], shapes=net.known()
    )
    assert operators(after)[3:] == [
        "y_rows = Reshape(columns) {shape: (0, -3, 0)}",
        f"y = Convolution(y_rows, y_weight, y_bias) {{kernel: (3,), num_filter: {FILTERS}}}",
        "y_image = expand_dims(y) {axis: 2}",
        "end = exp(y_image)",
    ]
    np.testing.assert_array_equal(done.params["y_weight"].values(), net.params["y_weight"][:, 0])


def test_a_batch_norm_takes_sequences() -> None:
    net = Sentences()
    y = net.layer(net.image, 3, SIZE)
    parts = [net.shaped((FILTERS,), net.param(name, FILTERS)) for name in ("gamma", "beta", "mean", "var")]
    norm = net.op("BatchNorm", y, *parts, name="norm", outputs=3, fix_gamma=False)
    net.shaped(net.shapes[y.node][0], norm, (FILTERS,), (FILTERS,))
    end = net.same("exp", norm, name="end")
    inserted = ["y_rows", "y_sequence", "norm_image"]
    after, _ = prepared(RewriteFullWidth, net.graph(end), net.params, inserted=inserted, shapes=net.known())
    assert operators(after)[-3].startswith("norm = BatchNorm(y,")
    assert operators(after)[-2] == "norm_image = expand_dims(norm) {axis: 3}"


def test_layers_share_a_sequence() -> None:
    net = Sentences()
    ends = [net.same("exp", net.layer(net.image, height, SIZE, f"y{height}")) for height in (3, 4, 5)]
    inserted = ["y3_rows", "y3_sequence", *(f"y{height}_image" for height in (3, 4, 5))]
    after, done = prepared(
        RewriteFullWidth, net.graph(*ends), net.params, inserted=inserted, shapes=net.known()
    )
    assert sum(node.op == "transpose" for node in after.nodes) == 1
    assert [change.node for change in done.changes] == ["y3", "y4", "y5"]


REFUSED: dict[str, dict[str, Any]] = {
    "padded along rows": {"pad": "(0, 1)"},
    "dilated along rows": {"dilate": "(1, 2)"},
    "channels last": {"layout": "NHWC"},
    "grouped": {"num_group": 2},
}


@pytest.mark.parametrize(
    "case", [*REFUSED, "narrower", "input", "short rows", "output", "shared weight", "no shapes", "rule"]
)
def test_refuses(case: str) -> None:
    net = Sentences()
    image, width = net.image, SIZE
    if case == "narrower":
        width = SIZE - 1
    if case == "input":  # another call may have a wider one
        image = net.shaped((2, 1, WORDS, SIZE), net.var("photograph"))
    if case == "short rows":
        found = net.op("Reshape", net.words, name="short", shape="(0, 1, -1, 16)")
        image, width = net.shaped((2, 1, WORDS * 3, 16), found), 16
    y = net.layer(image, 3, width, **REFUSED.get(case, {}))
    heads = [net.same("exp", y, name="end")]
    if case == "output":
        heads = [y]
    if case == "shared weight":
        weight = net.nodes[y.node].inputs[1]
        heads.append(net.shaped((FILTERS, 1, 3, SIZE), net.op("exp", weight)))
    policy = Policy.default(BF16).excluding(names=["y"]) if case == "rule" else None
    shapes = None if case == "no shapes" else net.known()
    graph = net.graph(*heads)
    assert prepared(RewriteFullWidth, graph, net.params, policy, shapes=shapes)[0] is graph


def everything(*, is_high: bool) -> tuple[Sentences, Graph]:
    """Return layers with strides, dilation, padding, and all that takes sequences behind them."""
    net, heads = Sentences(), []
    options: list[dict[str, Any]] = [{}, {"stride": "(2, 1)", "pad": "(2, 0)"}, {"dilate": "(2, 1)"}]
    image = net.transposed() if is_high else net.image
    for number, attrs in enumerate(options):
        name, sizes = f"y{number}", (3, SIZE)
        if is_high:
            sizes = (SIZE, 3)
            attrs = {key: f"({value[4]}, {value[1]})" for key, value in attrs.items()}
        weight = net.param(f"{name}_weight", FILTERS, 1, *sizes)
        bias = net.param(f"{name}_bias", FILTERS)
        kernel = {"kernel": str(sizes), "num_filter": FILTERS}
        y = net.op("Convolution", image, weight, bias, name=name, **kernel, **attrs)
        y = net.op("clip", y, name=f"{name}_clip", a_min=-2, a_max=2)
        y = net.op("Activation", y, name=f"{name}_act", act_type="tanh")
        window = {"kernel": "(1, 2)" if is_high else "(2, 1)", "stride": "(1, 2)" if is_high else "(2, 1)"}
        y = net.op("Pooling", y, name=f"{name}_pool", pool_type="avg", pooling_convention="full", **window)
        heads.append(net.op("exp", y, name=f"{name}_end"))
    return net, net.graph(*heads)


@pytest.mark.parametrize("is_high", [False, True])
@pytest.mark.parametrize("words", [(2, WORDS), (1, 11), (3, 57)])
def test_mxnet_computes_the_same_in_any_call(
    monkeypatch: pytest.MonkeyPatch, words: tuple[int, int], is_high: bool
) -> None:
    pytest.importorskip("mxnet", reason="graphs are executed")
    from mxamp.runtime.shapes import infer_shapes

    net, graph = everything(is_high=is_high)
    target, params = Target.builtin("cpu-bf16"), parameters(net.params)
    shapes = infer_shapes(graph, {"x": (2, WORDS)}, params)
    done = prepare_graph(graph, params, Policy.default(BF16), ["full_width"], target=target, shapes=shapes)
    assert [change.node for change in done.record(PreparedNode)] == ["y0", "y1", "y2"]
    x = np.random.default_rng(0).integers(0, 30, words).astype(np.float32)
    expected = outputs(monkeypatch, graph, params, {"x": x}, "MKLDNN")
    found = outputs(monkeypatch, done.graph, dict(done.params), {"x": x}, "MKLDNN")
    for own, other in zip(found, expected):
        np.testing.assert_allclose(own, other, rtol=2e-5)
    after = infer_shapes(done.graph, {"x": (2, WORDS)}, done.params)
    assert done.shapes is not None
    assert [own[0] for own in done.shapes] == [own[0] for own in after]


def test_a_rearranged_parameter_is_cast_as_any_other() -> None:
    values = np.random.default_rng(0).normal(size=(4, 1, 3, 5)).astype(np.float32)
    moved = RearrangedParameter(ArrayParameter(values), (0, 1, 3, 2), (4, 5, 3))
    expected = values[:, 0].transpose(0, 2, 1)
    assert (moved.shape, moved.dtype) == ((4, 5, 3), ArrayParameter(values).dtype)
    np.testing.assert_array_equal(moved.values(), expected)
    np.testing.assert_array_equal(
        moved.cast(BF16).values(), ArrayParameter(np.ascontiguousarray(expected)).cast(BF16).values()
    )


def test_targets_of_cpus_name_it() -> None:
    net = Sentences()
    graph = net.graph(net.same("exp", net.layer(net.image, 3, SIZE), name="end"))
    found = targets_that_choose("full_width", graph, parameters(net.params), net.known())
    assert found == ["cpu-bf16", "cpu-bf16-amx", "cpu-bf16-intel"]


@pytest.mark.parametrize(
    ("words", "size", "filters", "height", "samples", "pays"),
    [
        (56, 300, 100, 3, 1, True),
        (20, 64, 16, 3, 64, True),
        (5, 50, 50, 3, 64, True),
        (5, 50, 16, 3, 64, False),
        (5, 64, 32, 1, 64, False),
        (3, 50, 16, 3, 512, False),
    ],
)
def test_where_all_is_float32_costs_decide(
    words: int, size: int, filters: int, height: int, samples: int, pays: bool
) -> None:
    """Short sequences are faster as images: 0.3 to 0.9 of it was measured where it does not pay."""
    net = Net()
    rows = net.op("Embedding", net.var("x"), net.param("table", 30, size), input_dim=30, output_dim=size)
    image = net.op("expand_dims", rows, axis=1)
    weight = net.param("weight", filters, 1, height, size)
    attrs = {"kernel": (height, size), "num_filter": filters, "no_bias": True}
    layer = net.op("Activation", net.op("Convolution", image, weight, **attrs), act_type="relu")
    kernel = (words - height + 1, 1)
    largest = net.op("Pooling", layer, kernel=kernel, pool_type="max")
    out = (samples, filters, words - height + 1, 1)
    known = [
        *((samples, words), (30, size), (samples, words, size), (samples, 1, words, size)),
        *((filters, 1, height, size), out, out, (samples, filters, 1, 1)),
    ]
    graph, target = net.graph(largest), Target.builtin("cpu-bf16-avx2")
    done = prepare_graph(
        graph,
        parameters(net.params),
        Policy.default(BF16),
        [RewriteFullWidth.step],
        target=target,
        shapes=[(shape,) for shape in known],
    )
    assert bool(done.record(PreparedNode)) == pays
