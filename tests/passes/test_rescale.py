"""Powers of two move from layer to layer: float32 keeps every bit, and what overflowed fits."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple

import numpy as np
import pytest

from mxamp.dtypes import DType
from mxamp.graph import Entry, Graph
from mxamp.model import Model
from mxamp.passes import PreparedNode, RescaledEntries, State, run_passes
from mxamp.passes.rescale import RescaleOverflows
from mxamp.policy import Policy
from tests.building import F16, Net, capable, parameters

mx = pytest.importorskip("mxnet")

from mxamp.runtime.entries import run_entries

Build = Callable[[Net, Entry], Entry]


def activation(net: Net, x: Entry, name: str, **attrs: Any) -> Entry:
    return net.op("Activation", x, name=name, **{"act_type": "relu", **attrs})


def plain(net: Net, x: Entry) -> Entry:
    return activation(net, x, "relu0")


def leaky(net: Net, x: Entry) -> Entry:
    x = net.op("LeakyReLU", x, name="leaky0", act_type="leaky", slope=0.3)
    return net.op("LeakyReLU", x, net.param("gamma", 4), name="prelu0", act_type="prelu")


def pooled(net: Net, x: Entry) -> Entry:
    x = net.op("Pooling", x, name="pool0", kernel="(2, 2)", stride="(1, 1)", pool_type="max")
    x = net.op("Pooling", x, name="pool1", kernel="(2, 2)", stride="(1, 1)", pool_type="avg")
    return net.op("UpSampling", x, name="up0", scale=2, sample_type="nearest", num_args=1)


def norm(net: Net, x: Entry) -> Entry:
    return activation(net, net.bn(x, "bn0"), "relu0")


def residual(net: Net, x: Entry) -> Entry:
    return net.op("elemwise_add", net.conv(activation(net, x, "relu0"), "side"), x, name="sum0")


def joined(net: Net, x: Entry) -> Entry:
    other = net.conv(activation(net, x, "relu0"), "side")
    both = net.op("Concat", x, other, name="both", num_args=2, dim=1)
    return net.op("slice_axis", both, name="part", axis=1, begin=2, end=6)


def added(net: Net, x: Entry) -> Entry:
    return net.op("broadcast_add", x, net.param("shift", 1, 4, 1, 1, value=3000.0), name="shifted")


def gated(net: Net, x: Entry) -> Entry:
    gate = net.op("sigmoid", net.conv(x, "gate"), name="gate0")
    net.params["gate_weight"] *= 1e-5
    return net.op("elemwise_mul", x, net.op("_plus_scalar", gate, name="more", scalar=1), name="gated")


CHAINS: dict[str, Build] = {
    build.__name__: build for build in (plain, leaky, pooled, norm, residual, joined, added, gated)
}


def overflowing(build: Build) -> tuple[Model, dict[str, Any]]:
    """Return a network whose values between the layers reach some hundred thousand, and data."""
    net = Net()
    first = net.conv(net.var("data"), "first")
    net.params["first_weight"] *= 1e5
    last = net.conv(build(net, first), "last")
    net.params["last_weight"] *= 1e-5
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    args = {name: value for name, value in net.params.items() if name not in auxs}
    if "bn0_moving_var" in auxs:
        auxs["bn0_moving_var"] += np.float32(0.25)
    random = np.random.default_rng(3)
    data = {"data": random.standard_normal((2, 4, 6, 6)).astype(np.float32)}
    return Model(net.graph(last), parameters(args), parameters(auxs)), data


def values(model: Model, data: dict[str, Any]) -> dict[Entry, Any]:
    entries = [Entry(position) for position, node in enumerate(model.graph.nodes) if not node.is_variable]
    return dict(run_entries(model, data, entries))


class Rescaled(NamedTuple):
    """What the pass says of its work."""

    exponents: Mapping[Entry, int]
    changes: tuple[PreparedNode, ...]


def rescaled(model: Model, largest: dict[Entry, float], headroom: float = 2.0) -> tuple[Model, Rescaled]:
    params = {**model.arg_params, **model.aux_params}
    policy = Policy.default(DType.FLOAT16)
    start = State.of(model.graph, params, policy, capable(F16), auxiliary=frozenset(model.aux_params))
    done = run_passes([RescaleOverflows(lambda state: largest, headroom)], start)
    exponents = [record.exponents for record in done.record(RescaledEntries)]
    found = Rescaled(exponents[0] if exponents else {}, done.record(PreparedNode))
    return Model(done.graph, done.arg_params, done.aux_params), found


def large(found: dict[Entry, Any]) -> dict[Entry, float]:
    return {entry: float(np.abs(value).max()) for entry, value in found.items()}


@pytest.mark.parametrize("chain", CHAINS)
def test_float32_keeps_every_bit_and_nothing_overflows(chain: str) -> None:
    model, data = overflowing(CHAINS[chain])
    before = values(model, data)
    assert max(large(before).values()) > 65504.0
    after, step = rescaled(model, large(before))
    found = values(after, data)
    assert step.exponents
    for entry, value in before.items():
        name = model.graph.describe(entry)
        expected = np.ldexp(value, -step.exponents.get(entry, 0))
        np.testing.assert_array_equal(expected.view(np.uint32), found[entry].view(np.uint32), err_msg=name)
        assert np.abs(found[entry]).max() * 2.0 <= 65504.0, name
    assert {change.step for change in step.changes} == {"rescale"}


def test_what_fits_is_left_alone() -> None:
    model, data = overflowing(plain)
    largest = dict.fromkeys(values(model, data), 30000.0)
    after, step = rescaled(model, largest)
    assert after.graph is model.graph
    assert not step.exponents
    assert all(after.arg_params[name] is value for name, value in model.arg_params.items())
    assert rescaled(model, largest, headroom=4.0)[1].exponents


def softmaxed(net: Net, x: Entry) -> Entry:
    return net.op("softmax", x, name="softmax0")


def shifted(net: Net, x: Entry) -> Entry:
    return net.op("_plus_scalar", x, name="plus0", scalar=1)


def squared(net: Net, x: Entry) -> Entry:
    return net.op("elemwise_mul", x, x, name="squared")


def power_pooled(net: Net, x: Entry) -> Entry:
    return net.op("Pooling", x, name="pool0", kernel="(2, 2)", pool_type="lp", p_value=2)


def padded_with_ones(net: Net, x: Entry) -> Entry:
    pads = "(0, 0, 0, 0, 1, 1, 1, 1)"
    return net.op("Pad", x, name="pad0", mode="constant", constant_value=1, pad_width=pads)


def with_slopes_of_its_own(net: Net, x: Entry) -> Entry:
    slopes = net.op("mean", x, name="mean0", axis="(0, 2, 3)")
    return net.op("LeakyReLU", x, slopes, name="prelu0", act_type="prelu")


def summed_with_the_input(net: Net, x: Entry) -> Entry:
    return net.op("elemwise_add", x, Entry(0), name="sum0")


def weight_read_twice(net: Net, x: Entry) -> Entry:
    attrs = {"num_filter": 4, "kernel": "(1, 1)", "no_bias": True}
    other = net.op("Convolution", Entry(0), Entry(1), name="other", **attrs)
    return net.op("Concat", x, net.op("sigmoid", other, name="sigmoid0"), name="both", num_args=2, dim=1)


REFUSED: dict[str, Build] = {
    build.__name__: build
    for build in (
        softmaxed,
        shifted,
        squared,
        power_pooled,
        padded_with_ones,
        with_slopes_of_its_own,
        summed_with_the_input,
        weight_read_twice,
    )
}


@pytest.mark.parametrize("chain", REFUSED)
def test_what_is_not_homogeneous_keeps_its_scale(chain: str) -> None:
    net = Net()
    first = net.conv(net.var("data"), "first")
    end = REFUSED[chain](net, first)
    channels = net.param("last_weight", 4, 8 if chain == "weight_read_twice" else 4, 1, 1)
    last = net.op("Convolution", end, channels, name="last", num_filter=4, kernel="(1, 1)", no_bias=True)
    model = Model(net.graph(last), parameters(net.params), parameters({}))
    after, step = rescaled(model, {first: 1e6})
    assert not step.exponents
    assert after.graph is model.graph


def test_an_output_keeps_its_scale() -> None:
    net = Net()
    first = net.conv(net.var("data"), "first")
    graph = net.graph(activation(net, first, "relu0"), net.conv(first, "last"))
    model = Model(graph, parameters(net.params), parameters({}))
    assert not rescaled(model, {first: 1e6})[1].exponents


def test_parameters_that_would_lose_bits_stay() -> None:
    model, data = overflowing(plain)
    args = {name: value.numpy().copy() for name, value in model.arg_params.items()}
    args["first_weight"][0, 0] = 1.5e-45
    tiny = Model(model.graph, parameters(args), parameters({}))
    assert not rescaled(tiny, large(values(tiny, data)))[1].exponents
    huge = Model(model.graph, parameters({**args, "first_weight": args["last_weight"]}), parameters({}))
    huge.arg_params["last_weight"].values()[0, 0] = 3e38
    assert not rescaled(huge, {Entry(2): 1e6})[1].exponents


def test_a_fixed_gamma_is_scaled_all_the_same() -> None:
    model, data = overflowing(norm)
    nodes = [
        node._replace(attrs={**node.attrs, "fix_gamma": "True"}) if node.op == "BatchNorm" else node
        for node in model.graph.nodes
    ]
    args = {**model.arg_params, **parameters({"bn0_gamma": np.full(4, 7.0, np.float32)})}
    fixed = Model(Graph(tuple(nodes), model.graph.heads, model.graph.attrs), args, model.aux_params)
    before = values(fixed, data)
    after, step = rescaled(fixed, large(before))
    found = values(after, data)
    for entry, value in before.items():
        np.testing.assert_array_equal(np.ldexp(value, -step.exponents.get(entry, 0)), found[entry])
