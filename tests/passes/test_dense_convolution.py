"""A FullyConnected of few rows and many weights becomes a 1x1 convolution."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.params.parameter import Parameter
from mxamp.passes import PreparedNode, RewriteDenseConvolution, State
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, named, parameters
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepare_graph, prepared, targets_that_choose

ROWS, UNITS = 8, 512

_MATRIX = 2


class Layers(Net):
    """Layers of many weights, and the shapes of all that they write."""

    def __init__(self, *data: int) -> None:
        super().__init__()
        self.shape = data or (ROWS, UNITS)
        x = self.var("x")
        self.x = self.op("Flatten", x, name="flat") if len(self.shape) == _MATRIX else x

    def layer(
        self, data: Entry, name: str = "y", units: int = UNITS, width: int = UNITS, **attrs: Any
    ) -> Entry:
        parts = [self.param(f"{name}_weight", units, width)]
        if not attrs.get("no_bias"):
            parts.append(self.param(f"{name}_bias", units))
        return self.op("FullyConnected", data, *parts, name=name, num_hidden=units, **attrs)

    def norm(self, data: Entry, name: str = "norm", **attrs: Any) -> Entry:
        parts = [self.param(f"{name}_{part}", UNITS, value=1.0) for part in ("gamma", "beta", "mean", "var")]
        return self.op("BatchNorm", data, *parts, name=name, outputs=3, fix_gamma=False, **attrs)

    def shapes(self, graph: Graph) -> list[Any]:
        pytest.importorskip("mxnet", reason="MXNet infers the shapes")
        from mxamp.runtime.shapes import infer_shapes

        return list(infer_shapes(graph, {"x": self.shape}, parameters(self.params)))

    def prepared(self, *heads: Entry, inserted: tuple[str, ...] = ()) -> Any:
        graph = self.graph(*heads)
        return prepared(
            RewriteDenseConvolution, graph, self.params, inserted=inserted, shapes=self.shapes(graph)
        )


def test_rows_are_the_places_of_an_image() -> None:
    net = Layers()
    y = net.layer(net.x)
    end = net.op("softmax", net.op("Activation", y, name="relu", act_type="relu"), name="end")
    inserted = ("y_turned", "y_data", "relu_columns", "relu_rows")
    after, done = net.prepared(end, inserted=inserted)
    assert operators(after) == [
        "flat = Flatten(x)",
        "y_turned = transpose(flat) {axes: (1, 0)}",
        "y_data = Reshape(y_turned) {shape: (1, 512, -1, 1)}",
        "y = Convolution(y_data, y_weight, y_bias) {kernel: (1, 1), num_filter: 512}",
        "relu = Activation(y) {act_type: relu}",
        "relu_columns = Reshape(relu) {shape: (512, -1)}",
        "relu_rows = transpose(relu_columns) {axes: (1, 0)}",
        "end = softmax(relu_rows)",
    ]
    np.testing.assert_array_equal(done.params["y_weight"].values()[..., 0, 0], net.params["y_weight"])
    assert [(change.node, change.into) for change in done.changes] == [("y", "y")]


def test_an_output_keeps_its_name() -> None:
    net = Layers()
    y = net.layer(net.x, no_bias=True)
    after, _ = net.prepared(y, inserted=("y_turned", "y_data", "y_image", "y_columns"))
    assert operators(after)[3:] == [
        "y_image = Convolution(y_data, y_weight) {kernel: (1, 1), no_bias: True, num_filter: 512}",
        "y_columns = Reshape(y_image) {shape: (512, -1)}",
        "y = transpose(y_columns) {axes: (1, 0)}",
    ]


def test_channels_and_units_fill_blocks() -> None:
    net = Layers(ROWS, 300)
    y = net.layer(net.x, units=6001, width=300)
    added = ("y_turned", "y_plane", "y_channels", "y_data", "y_image", "y_columns", "y_units")
    after, done = net.prepared(net.op("Activation", y, name="end", act_type="relu"), inserted=added)
    assert operators(after) == [
        "flat = Flatten(x)",
        "y_turned = transpose(flat) {axes: (1, 0)}",
        "y_plane = Reshape(y_turned) {shape: (1, 1, 300, -1)}",
        "y_channels = Pad(y_plane) {constant_value: 0, mode: constant, pad_width: (0, 0, 0, 0, 0, 4, 0, 0)}",
        "y_data = Reshape(y_channels) {shape: (1, 304, -1, 1)}",
        "y_image = Convolution(y_data, y_weight, y_bias) {kernel: (1, 1), num_filter: 6016}",
        "y_columns = Reshape(y_image) {shape: (6016, -1)}",
        "y_units = slice_axis(y_columns) {axis: 0, begin: 0, end: 6001}",
        "y = transpose(y_units) {axes: (1, 0)}",
        "end = Activation(y) {act_type: relu}",
    ]
    weight, bias = done.params["y_weight"].values(), done.params["y_bias"].values()
    np.testing.assert_array_equal(weight[:6001, :300, 0, 0], net.params["y_weight"])
    assert not weight[6001:].any()
    assert not weight[:, 300:].any()
    assert not bias[6001:].any()


def test_a_layer_behind_reads_the_image() -> None:
    net = Layers()
    relu = net.op("Activation", net.norm(net.layer(net.x)), name="relu", act_type="relu")
    end = net.op("softmax", net.layer(relu, "z"), name="end")
    after, _ = net.prepared(end, inserted=("y_turned", "y_data", "z_columns", "z_rows"))
    assert [node.op for node in after.nodes if not node.is_variable] == [
        *("Flatten", "transpose", "Reshape", "Convolution", "BatchNorm", "Activation", "Convolution"),
        *("Reshape", "transpose", "softmax"),
    ]


def test_what_others_read_as_well_is_rows_again() -> None:
    net = Layers()
    y = net.layer(net.x)
    heads = [net.op("softmax", net.layer(y, "z"), name="first"), net.op("softmax", y, name="second")]
    inserted = ["y_columns", "y_rows", "z_columns", "z_rows"]
    after, _ = net.prepared(*heads, inserted=(*inserted, "y_turned", "y_data", "z_turned", "z_data"))
    rows = Entry(after.nodes.index(named(after, "y_rows")))
    assert named(after, "second").inputs == named(after, "z_turned").inputs == (rows,)


def test_layers_share_an_image() -> None:
    net = Layers()
    heads = [net.op("softmax", net.layer(net.x, name), name=f"{name}_end") for name in ("y", "z")]
    inserted = ("y_turned", "y_data", "y_columns", "y_rows", "z_columns", "z_rows")
    after, _ = net.prepared(*heads, inserted=inserted)
    assert named(after, "y").inputs[0] == named(after, "z").inputs[0]


def words(flatten: bool) -> tuple[Layers, Graph]:
    """Return layers whose units fill no blocks, and of rows their channels likewise."""
    width = 1000 if flatten else UNITS
    net = Layers(*((2, 4, UNITS) if not flatten else (ROWS, width // 4, 4, 1)))
    y = net.layer(net.x, width=width, units=3130, flatten=flatten)
    y = net.op("LeakyReLU", y, name="leaky", act_type="leaky", slope=0.1)
    z = net.layer(y, "z", 777, 3130) if flatten else net.layer(net.x, "z", 3133, flatten=False)
    heads = [z, net.op("softmax", y, name="end"), net.layer(net.x, "head", 4001, width, flatten=flatten)]
    return net, net.graph(*heads)


def everything(flatten: bool) -> tuple[Layers, Graph]:
    """Return layers of rows, of images whose values are rows, or of sequences of rows."""
    net = Layers(*((2, 4, UNITS) if not flatten else (ROWS, UNITS // 8, 4, 2)))
    y = net.layer(net.x, flatten=flatten)
    y = net.op("LeakyReLU", net.op("clip", y, a_min=-3, a_max=3), act_type="leaky", slope=0.1)
    y = net.layer(net.norm(y) if flatten else y, "z", 1024, flatten=flatten)
    heads = [net.op("softmax", y, name="end"), net.layer(net.x, "head", no_bias=True, flatten=flatten)]
    return net, net.graph(*heads)


def chosen(graph: Graph, params: Mapping[str, Parameter], shapes: Sequence[Any]) -> State:
    """Run the pass as a conversion for a CPU does."""
    policy, target = Policy.default(BF16), Target.builtin("cpu-bf16")
    return prepare_graph(graph, params, policy, ["dense_convolution"], target=target, shapes=shapes)


@pytest.mark.parametrize("layers", [everything, words])
@pytest.mark.parametrize("flatten", [True, False])
@pytest.mark.parametrize("rows", [1, 2, ROWS, 70])
def test_mxnet_computes_the_same_for_any_number_of_rows(
    monkeypatch: pytest.MonkeyPatch, rows: int, flatten: bool, layers: Callable[[bool], tuple[Layers, Graph]]
) -> None:
    pytest.importorskip("mxnet", reason="graphs are executed")
    from mxamp.runtime.shapes import infer_shapes

    net, graph = layers(flatten)
    params = parameters(net.params)
    done = chosen(graph, params, net.shapes(graph))
    assert [change.node for change in done.record(PreparedNode)] == ["y", "z", "head"]
    x = np.random.default_rng(0).normal(size=(rows, *net.shape[1:])).astype(np.float32)
    expected = outputs(monkeypatch, graph, params, {"x": x}, "MKLDNN")
    found = outputs(monkeypatch, done.graph, dict(done.params), {"x": x}, "MKLDNN")
    for own, other in zip(found, expected):
        np.testing.assert_allclose(own, other, rtol=2e-5, atol=max(2e-5, 1e-6 * np.abs(other).max()))
    after = infer_shapes(done.graph, {"x": net.shape}, done.params)
    assert done.shapes is not None
    assert [own[0] for own in done.shapes] == [own[0] for own in after]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -0.0])
def test_a_row_keeps_its_own_edges(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    """What is infinite or no number in one row stays in it."""
    net = Layers()
    graph = net.graph(net.layer(net.x))
    after, done = prepared(
        RewriteDenseConvolution,
        graph,
        net.params,
        inserted=("y_turned", "y_data", "y_image", "y_columns"),
        shapes=net.shapes(graph),
    )
    x = np.random.default_rng(0).normal(size=net.shape).astype(np.float32)
    x[3, 5] = value
    (expected,) = outputs(monkeypatch, graph, parameters(net.params), {"x": x})
    (found,) = outputs(monkeypatch, after, dict(done.params), {"x": x})
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_numpys_shape_semantics() -> None:
    """A batch may be empty there; then a layer of a matrix raises, as a convolution does, and no other."""
    mx = pytest.importorskip("mxnet", reason="graphs are executed")
    from mxamp.runtime.symbol import symbol_from_graph

    for flatten in (True, False):
        net, graph = everything(flatten)
        graph = Graph(graph.nodes, graph.heads, {**graph.attrs, "is_np_shape": ["int", 1]})
        params = parameters(net.params)
        done = chosen(graph, params, net.shapes(graph))
        assert [change.node for change in done.record(PreparedNode)] == ["z"] * flatten
        x = np.random.default_rng(0).normal(size=net.shape).astype(np.float32)
        found = []
        with mx.util.np_shape(True):
            for one, values in ((graph, params), (done.graph, done.params)):
                symbol = symbol_from_graph(one)
                arrays = {name: mx.nd.array(value.values()) for name, value in values.items()}
                auxs = {name: arrays.pop(name) for name in symbol.list_auxiliary_states()}
                bound = symbol.bind(mx.cpu(), {**arrays, "x": mx.nd.array(x)}, aux_states=auxs)
                found.append([output.asnumpy() for output in bound.forward()])
        for own, other in zip(*found):
            np.testing.assert_allclose(own, other, rtol=2e-5, atol=2e-5)


REFUSED: dict[str, dict[str, Any]] = {
    "few weights": {"units": 256},
    "few channels": {"width": 180, "units": 16000},
    "few weights for units in no blocks": {"units": 1001},
}


@pytest.mark.parametrize(
    "case",
    [
        *REFUSED,
        "volume",
        "many rows",
        "one row",
        "shared weight",
        "shared bias",
        "half",
        "no shapes",
        "rule",
        "four axes",
        "sequences in no blocks",
    ],
)
def test_refuses(case: str) -> None:
    sizes = {
        "many rows": (65, UNITS),
        "one row": (1, UNITS),
        "four axes": (2, 2, 2, UNITS),
        "sequences in no blocks": (2, 4, 520),
    }
    width = REFUSED.get(case, {}).get("width", UNITS)
    net = Layers(*sizes.get(case, (ROWS, width)))
    if case == "volume":
        volume = net.op("Pooling", net.op("Reshape", net.x, shape="(-1, 8, 4, 4, 4)"), kernel="(1, 1, 1)")
        net.x = net.op("tanh", net.op("Flatten", volume))
    attrs: dict[str, Any] = dict(REFUSED.get(case, {}))
    if case in ("four axes", "sequences in no blocks"):
        attrs = {"flatten": False, "width": net.shape[-1], "units": 8192}
    elif case == "shared bias":
        attrs = {"units": 8190}
    heads = [net.op("softmax", net.layer(net.x, **attrs), name="end")]
    if case.startswith("shared"):
        heads.append(net.op("exp", net.nodes[-2].inputs[1 if case == "shared weight" else 2]))
    graph = net.graph(*heads)
    params: dict[str, Any] = dict(net.params)
    if case == "half":
        params = {name: values.astype(np.float16) for name, values in params.items()}
    policy = Policy.default(BF16).excluding(names=["y"]) if case == "rule" else None
    shapes = None if case == "no shapes" else net.shapes(graph)
    assert prepared(RewriteDenseConvolution, graph, params, policy, shapes=shapes)[0] is graph


def test_targets_that_were_measured_name_it() -> None:
    net = Layers()
    graph = net.graph(net.op("softmax", net.layer(net.x), name="end"))
    assert targets_that_choose("dense_convolution", graph, parameters(net.params), net.shapes(graph)) == [
        "cpu-bf16",
        "cpu-bf16-intel",
    ]
