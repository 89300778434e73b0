"""Adaptive average pooling to one value becomes global Pooling."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.passes import RewriteGlobalPooling
from mxamp.policy import Policy
from tests.building import BF16, Net, named
from tests.passes.preparing import operators, prepare_graph, prepared

ADAPTIVE = "_contrib_AdaptiveAvgPooling2D"


def network(dtype: str = "float32", **attrs: str) -> Graph:
    net = Net()
    data = net.var("data")
    if dtype != "float32":
        data = net.op("Cast", data, dtype=dtype)
    return net.graph(net.op(ADAPTIVE, data, name="mean", **attrs))


@pytest.mark.parametrize("size", [None, "1", "(1,)", "(1, 1)", "[1, 1]", "()"])
def test_the_mean_of_an_image_is_global_pooling(size: str | None) -> None:
    after, done = prepared(RewriteGlobalPooling, network(**({} if size is None else {"output_size": size})))
    assert operators(after) == ["mean = Pooling(data) {global_pool: True, kernel: (1, 1), pool_type: avg}"]
    assert [(change.node, change.op, change.into) for change in done.changes] == [("mean", ADAPTIVE, "mean")]


def test_attributes_of_the_users_stay() -> None:
    after, _ = prepared(RewriteGlobalPooling, network(__mark__="here"))
    assert named(after, "mean").attrs["__mark__"] == "here"


def reduced(
    op: str, axis: str, *, image: bool = True, kernel: tuple[int, ...] = (1, 1), **attrs: object
) -> Graph:
    net = Net()
    data = net.var("data")
    if image:
        data = net.op("Activation", net.op("Pooling", data, name="pool", kernel=kernel), act_type="relu")
    return net.graph(net.op(op, data, name="reduced", axis=axis, **attrs))


@pytest.mark.parametrize(("channels", "is_pooled"), [((8, 8), False), ((16, 8), False), ((16, 24), True)])
def test_eight_channels_put_together_with_others_are_left(channels: tuple[int, ...], is_pooled: bool) -> None:
    """Pooling has no kernel for the order that oneDNN's Concat makes of them."""
    net = Net()
    data = net.var("data")
    parts = [net.op("Activation", net.conv(data, filters=filters), act_type="relu") for filters in channels]
    both = net.op("Concat", *parts, dim=1)
    graph = net.graph(net.op(ADAPTIVE, net.bn(both, "bn"), name="mean"))
    after, _ = prepared(RewriteGlobalPooling, graph, net.params)
    assert ("Pooling" in [node.op for node in after.nodes]) == is_pooled


@pytest.mark.parametrize("axis", ["(2, 3)", "[2, 3]", "(3, 2)", "(-1, -2)", "(2, -1)"])
@pytest.mark.parametrize(("op", "kind"), [("mean", "avg"), ("max", "max"), ("max_axis", "max")])
def test_what_is_reduced_over_an_image_is_global_pooling(op: str, kind: str, axis: str) -> None:
    after, done = prepared(RewriteGlobalPooling, reduced(op, axis), inserted=["reduced_pooled"])
    assert operators(after)[-2:] == [
        f"reduced_pooled = Pooling(activation2) {{global_pool: True, kernel: (1, 1), pool_type: {kind}}}",
        "reduced = Flatten(reduced_pooled)",
    ]
    assert [(change.node, change.op, change.into) for change in done.changes] == [("reduced", op, "reduced")]
    after, _ = prepared(RewriteGlobalPooling, reduced(op, axis, keepdims=True))
    assert operators(after)[-1] == (
        f"reduced = Pooling(activation2) {{global_pool: True, kernel: (1, 1), pool_type: {kind}}}"
    )


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        *((op, {}) for op in ("abs", "erf", "exp", "log", "negative", "rsqrt", "sqrt")),
        *((f"_{op}_scalar", {"scalar": 2}) for op in ("maximum", "minimum", "power", "rdiv", "rminus")),
        ("broadcast_maximum", {}),
        ("elemwise_div", {}),
    ],
)
def test_what_is_computed_value_by_value_of_an_image_is_one(op: str, attrs: dict[str, object]) -> None:
    net = Net()
    pool = net.op("Pooling", net.var("data"), name="pool", kernel=(1, 1))
    others = [pool] if op in ("broadcast_maximum", "elemwise_div") else []
    mean = net.op("mean", net.op(op, pool, *others, **attrs), name="reduced", axis="(2, 3)")
    after, _ = prepared(RewriteGlobalPooling, net.graph(mean), inserted=["reduced_pooled"])
    assert "Pooling" in [node.op for node in after.nodes if node.name != "pool"]


def test_what_is_larger_by_upsampling_is_an_image() -> None:
    """Converted again it is: UpSampling has become a Deconvolution."""
    net = Net()
    large = net.op("UpSampling", net.var("data"), scale=2, sample_type="nearest", num_args=1)
    graph = net.graph(net.op("mean", large, name="mean", axis="(2, 3)", keepdims=True))
    after, _ = prepared(RewriteGlobalPooling, graph)
    assert [node.op for node in after.nodes][-1] == "Pooling"


PLACES = {"sequence": (297,), "image": (33, 9), "volume": (11, 3, 9)}


@pytest.mark.parametrize("axis", ["2", "(-1,)"])
def test_what_is_reduced_over_a_sequence_is_global_pooling(axis: str) -> None:
    after, _ = prepared(RewriteGlobalPooling, reduced("max", axis, kernel=(1,)), inserted=["reduced_pooled"])
    assert operators(after)[-2:] == [
        "reduced_pooled = Pooling(activation2) {global_pool: True, kernel: (1,), pool_type: max}",
        "reduced = Flatten(reduced_pooled)",
    ]


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("op", ["mean", "max"])
def test_reductions_are_the_same_but_for_rounding(op: str, keepdims: bool, places: str) -> None:
    pytest.importorskip("mxnet", reason="runs the model")
    from mxamp.model import Model
    from mxamp.runtime.executor import run_outputs

    sizes = PLACES[places]
    axes = tuple(range(2, 2 + len(sizes)))
    graph = reduced(op, str(axes), kernel=(1,) * len(sizes), keepdims=keepdims)
    after, _ = prepared(RewriteGlobalPooling, graph, inserted=["reduced_pooled"])
    assert after is not graph
    data = {"data": np.random.default_rng(2).uniform(-1, 1, (2, 5, *sizes)).astype(np.float32)}
    values = np.maximum(data["data"].astype(np.float64), 0)
    exact = getattr(values, op)(axis=axes, keepdims=keepdims)
    for each in (graph, after):
        (found,) = run_outputs(Model.of(each, {}, {}), data)
        assert found.shape == exact.shape
        np.testing.assert_allclose(found, exact, rtol=0, atol=2e-6 if op == "mean" else 0)


def test_shapes_go_with_a_reduction() -> None:
    shapes = [((2, 5, 7, 9),)] * 3 + [((2, 5),)]
    graph = reduced("mean", "(2, 3)")
    done = prepare_graph(graph, {}, Policy.default(BF16), [RewriteGlobalPooling.step], shapes=shapes)
    assert done.shapes is not None
    assert list(done.shapes[-2:]) == [((2, 5, 1, 1),), ((2, 5),)]


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(network(output_size="2"), id="two by two"),
        pytest.param(network(output_size="(1, 2)"), id="one by two"),
        pytest.param(network(output_size="(0, 1)"), id="one axis as it is"),
        pytest.param(network("float16"), id="float16"),
        pytest.param(network("float64"), id="float64"),
        pytest.param(reduced("mean", "(1, 2)"), id="another axis"),
        pytest.param(reduced("mean", "3"), id="rows"),
        pytest.param(reduced("mean", "1", kernel=(1,)), id="channels of a sequence"),
        pytest.param(reduced("mean", "(2, 3)", kernel=(1, 1, 1)), id="planes of a volume"),
        pytest.param(reduced("mean", "()"), id="everything"),
        pytest.param(reduced("mean", "(2, 3)", exclude=True), id="all but an image"),
        pytest.param(reduced("max", "(2, 3)", image=False), id="no image"),
        pytest.param(reduced("sum", "(2, 3)"), id="a sum"),
    ],
)
def test_refuses(graph: Graph) -> None:
    after, _ = prepared(RewriteGlobalPooling, graph)
    assert after is graph


def test_what_a_rule_of_the_users_picks_stays() -> None:
    graph = network()
    policy = Policy.default(BF16).excluding(operators=[ADAPTIVE])
    assert prepared(RewriteGlobalPooling, graph, policy=policy)[0] is graph


@pytest.mark.parametrize("shape", [(2, 5, 7, 9), (1, 16, 56, 56), (3, 1, 1, 1)], ids=str)
def test_mxnet_computes_the_same_but_for_rounding(shape: tuple[int, ...]) -> None:
    pytest.importorskip("mxnet", reason="runs the model")
    from mxamp.model import Model
    from mxamp.runtime.executor import run_outputs

    graph = network()
    after, _ = prepared(RewriteGlobalPooling, graph)
    data = {"data": np.random.default_rng(2).uniform(-1, 1, shape).astype(np.float32)}
    exact = data["data"].astype(np.float64).mean(axis=(2, 3), keepdims=True)
    for each in (graph, after):
        (found,) = run_outputs(Model.of(each, {}, {}), data)
        np.testing.assert_allclose(found, exact, rtol=0, atol=2e-6)


def whole(window: tuple[int, ...] = (3, 3), **attrs: object) -> Graph:
    """Return a layer and a Pooling of all that it makes, as symbols written by hand have it."""
    net = Net()
    data = net.op("Pooling", net.var("data"), name="layer", kernel=window)
    return net.graph(net.op("Pooling", data, name="pool", global_pool=True, **attrs))


@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize("kernel", [(3,), (3, 3), (3, 3, 3)])
def test_a_global_pooling_gets_a_kernel(kernel: tuple[int, ...], kind: str) -> None:
    after, done = prepared(RewriteGlobalPooling, whole(kernel, pool_type=kind))
    ones = str((1,) * len(kernel))
    assert (
        operators(after)[-1]
        == f"pool = Pooling(layer) {{global_pool: True, kernel: {ones}, pool_type: {kind}}}"
    )
    assert [(change.node, change.into) for change in done.changes] == [("pool", "pool")]


def test_other_poolings_keep_theirs() -> None:
    for graph in (
        whole(pool_type="avg", kernel="(7, 7)"),
        reduced("Pooling", "", image=False, global_pool=True),  # of how many axes is not known
    ):
        assert prepared(RewriteGlobalPooling, graph)[0] is graph


@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize("prepare", [[RewriteGlobalPooling.step], []], ids=["with a kernel", "as it was"])
def test_a_network_with_a_pooling_without_a_kernel_runs_low(kind: str, prepare: list[str]) -> None:
    mx = pytest.importorskip("mxnet", reason="the network is executed")
    import mxamp

    data = mx.sym.var("data")
    layer = mx.sym.Convolution(data, num_filter=16, kernel=(3, 3), name="layer")
    pooled = mx.sym.Pooling(layer, global_pool=True, pool_type=kind, name="pool")
    symbol = mx.sym.Convolution(pooled, num_filter=16, kernel=(1, 1), name="squeezed")
    shapes, _, _ = symbol.infer_shape(data=(1, 16, 9, 9))
    draw = np.random.default_rng(0)
    args = {
        name: mx.nd.array(draw.normal(0, 0.2, shape)) for name, shape in zip(symbol.list_arguments(), shapes)
    }
    weights = {name: value for name, value in args.items() if name != "data"}
    model = mxamp.convert_model(symbol, weights, {}, "bfloat16", target="generic-bf16", prepare=prepare)
    computes = {node.name: node.compute for node in model.report.nodes}
    assert computes["layer"] == "bfloat16"
    assert computes["pool"] == ("bfloat16" if prepare else "float32")
    expected = symbol.bind(mx.cpu(), args, grad_req="null").forward()[0].asnumpy()
    inputs = {**model.args, "data": args["data"]}
    found = model.sym.bind(mx.cpu(), inputs, grad_req="null").forward()[0].asnumpy()
    np.testing.assert_allclose(found, expected, atol=2e-2 * np.abs(expected).max())
