"""A FullyConnected behind one pixel of a Convolution runs more than once, for it reads plain data."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

import mxamp
from mxamp.graph import Entry, Graph
from mxamp.passes import SeparateDenseInput
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import Net, parameters, reads
from tests.passes.preparing import prepare_graph, prepared

CHANNELS = 32


def layer(net: Net, data: Entry, *, kernel: int = 5, channels: int = CHANNELS, **attrs: Any) -> Entry:
    weight = net.param("conv_weight", channels, channels // int(attrs.get("num_group", 1)), kernel, kernel)
    given = {"num_filter": channels, "kernel": (kernel, kernel), "no_bias": True, **attrs}
    return net.op("Convolution", data, weight, name="conv", **given)


def dense(net: Net, data: Entry, units: int = CHANNELS, **attrs: Any) -> Entry:
    weight = net.param("fc_weight", 10, units)
    return net.op("FullyConnected", data, weight, name="fc", num_hidden=10, no_bias=True, **attrs)


def network(between: Callable[[Net, Entry], Entry] = lambda _, data: data, **attrs: Any) -> tuple[Net, Graph]:
    net = Net()
    data = net.var("data", __shape__=f"(1, {CHANNELS}, 5, 5)")
    return net, net.graph(dense(net, between(net, layer(net, data, **attrs))))


def norm(net: Net, data: Entry) -> Entry:
    values = [
        net.param(f"norm_{name}", CHANNELS, value=0.5)
        for name in ("gamma", "beta", "moving_mean", "moving_var")
    ]
    return net.op("BatchNorm", data, *values, name="norm", outputs=3, fix_gamma=False)


def operator(op: str, **attrs: Any) -> Callable[[Net, Entry], Entry]:
    return lambda net, data: net.op(op, data, name="between", **attrs)


def gated(net: Net, data: Entry) -> Entry:
    gate = net.op("sigmoid", data, name="gate")
    return net.op("broadcast_mul", data, gate, name="between")


FAULTY: dict[str, tuple[Net, Graph]] = {
    "nothing between": network(),
    "depthwise": network(num_group=CHANNELS),
    "BatchNorm": network(norm),
    "Activation": network(operator("Activation", act_type="relu")),
    "elu": network(operator("LeakyReLU", act_type="elu")),
    "Dropout": network(operator("Dropout")),
    "exp": network(operator("exp")),
    "Cast": network(operator("Cast", dtype="float32")),
    "gate": network(gated),
}


def depthwise(channels: int) -> tuple[Net, Graph]:
    """Return a network whose depthwise layer has whole blocks of eight channels, not of sixteen."""
    net = Net()
    data = net.var("data", __shape__=f"(1, {CHANNELS}, 5, 5)")
    narrowed = net.param("narrow_weight", channels, CHANNELS, 1, 1)
    data = net.op(
        "Convolution", data, narrowed, name="narrow", num_filter=channels, kernel=(1, 1), no_bias=True
    )
    return net, net.graph(dense(net, layer(net, data, channels=channels, num_group=channels), channels))


FAULTY.update({"8 channels": depthwise(8), "24 channels": depthwise(24)})


def run_twice(graph: Graph, arrays: dict[str, Any]) -> np.ndarray:
    """Return what one executor computes of data, after it ran on other data."""
    mx = pytest.importorskip("mxnet", reason="what fails is MXNet")
    from mxamp.runtime.symbol import symbol_from_graph

    symbol = symbol_from_graph(graph)
    rng = np.random.default_rng(3)
    data = [mx.nd.array(rng.normal(0, 1, (1, CHANNELS, 5, 5))) for _ in range(2)]
    copies = {
        name: mx.nd.array(value) if isinstance(value, np.ndarray) else value for name, value in arrays.items()
    }
    named = {**copies, "data": data[0]}
    executor = symbol.bind(
        mx.cpu(),
        {name: named[name].copy() for name in symbol.list_arguments()},
        grad_req="null",
        aux_states={name: named[name].copy() for name in symbol.list_auxiliary_states()},
    )
    executor.forward(is_train=False)[0].wait_to_read()
    data[1].copyto(executor.arg_dict["data"])
    found: np.ndarray = executor.forward(is_train=False)[0].asnumpy()
    return found


@pytest.mark.parametrize("case", FAULTY.values(), ids=FAULTY)
def test_it_reads_a_reshape_and_runs_twice(case: tuple[Net, Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    net, graph = case
    after, done = prepared(SeparateDenseInput, graph, net.params, inserted=["fc_data"])
    assert reads(after, "fc")[0] == "fc_data"
    assert [(change.node, change.op, change.into) for change in done.changes] == [
        ("fc", "FullyConnected", "fc")
    ]
    found = run_twice(after, net.params)
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
    np.testing.assert_allclose(found, run_twice(graph, net.params), rtol=1e-4, atol=1e-5)


def test_one_that_does_not_flatten_is_separated_too() -> None:
    net = Net()
    data = net.var("data", __shape__=f"(1, {CHANNELS}, 5, 5)")
    graph = net.graph(dense(net, layer(net, data), 1, flatten=False))
    after, _ = prepared(SeparateDenseInput, graph, net.params, inserted=["fc_data"])
    assert run_twice(after, net.params).shape == (1, CHANNELS, 1, 10)


@pytest.mark.filterwarnings("ignore:Nothing was converted")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_converted_model_runs_twice(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mxnet", reason="the models are executed")
    net, graph = FAULTY["BatchNorm"]
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    args = {name: value for name, value in net.params.items() if name not in auxs}
    # Required, since the last layer before an FP32 output may stay FP32.
    options: dict[str, Any] = {"low_precision": "required"}
    if dtype != "bfloat16":
        options = {"excluded_sym_names": ["conv", "norm", "fc"]}
    model = mxamp.convert_model(graph, args, auxs, "bfloat16", **options)
    assert model.report is not None
    assert model.report.node("fc").compute == dtype
    found = run_twice(model.graph, {**model.args, **model.auxs})
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
    exact = run_twice(graph, net.params)
    assert np.linalg.norm(found - exact) < 2e-2 * np.linalg.norm(exact)


def test_a_second_conversion_finds_nothing_to_do() -> None:
    net, graph = network()
    model = mxamp.convert_model(graph, net.params, {}, "bfloat16")
    again = mxamp.convert_model(model.graph, {**model.arg_params}, {}, "bfloat16")
    assert again.graph == model.graph


def larger() -> tuple[Net, Graph]:
    net = Net()
    return net, net.graph(dense(net, layer(net, net.var("data"), kernel=4), CHANNELS * 4))


def narrow() -> tuple[Net, Graph]:
    net = Net()
    return net, net.graph(dense(net, layer(net, net.var("data"), channels=24), 24))


REFUSED: dict[str, Callable[[], tuple[Net, Graph]]] = {
    "Flatten": lambda: network(operator("Flatten")),
    "Reshape": lambda: network(operator("Reshape", shape=(0, -1))),
    "Pooling": lambda: network(operator("Pooling", kernel=(1, 1), global_pool=True)),
    "more than one pixel": larger,
    "channels that are no whole blocks": narrow,
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_what_runs_twice_is_left_alone(make: Callable[[], tuple[Net, Graph]]) -> None:
    net, graph = make()
    after, _ = prepared(SeparateDenseInput, graph, net.params)
    assert after is graph


def test_gpus_do_not_need_it() -> None:
    net, graph = network()
    policy = Policy.default("float16")
    target = Target.builtin("cuda-fp16")
    done = prepare_graph(graph, parameters(net.params), policy, ["dense_input"], target=target)
    assert done.graph is graph
