"""How many axes an entry has in every call is what operators say, and what follows before and behind them."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from mxamp.conversion.certain_ranks import certain_ranks
from mxamp.graph import Entry
from tests.building import Net, named

Network = Callable[[Net, Entry], Entry]


def rank_of(network: Network, name: str = "x") -> int | None:
    net = Net()
    graph = net.graph(network(net, net.var("x")))
    ranks = certain_ranks(graph, {key: value.shape for key, value in net.params.items()})
    return ranks.get(Entry(graph.nodes.index(named(graph, name))))


def layer(net: Net, data: Entry, kernel: str = "(3, 3)", **attrs: Any) -> Entry:
    sizes = [3] * (kernel.count(",") + (not kernel.endswith(",)")))
    weight = net.param("weight", 4, 4, *sizes)
    return net.op(
        "Convolution", data, weight, name="layer", num_filter=4, kernel=kernel, no_bias=True, **attrs
    )


BEFORE: dict[str, tuple[Network, int]] = {
    "images": (layer, 4),
    "sequences": (lambda net, x: layer(net, x, "(3,)"), 3),
    "behind what keeps axes": (lambda net, x: layer(net, net.op("softmax", net.op("relu", x))), 4),
    "one more": (lambda net, x: layer(net, net.op("expand_dims", x, axis=1)), 3),
    "one less": (lambda net, x: layer(net, net.op("squeeze", x, axis=2)), 5),
    "two less": (lambda net, x: layer(net, net.op("squeeze", x, axis="(2, 3)")), 6),
    "steps": (lambda net, x: layer(net, net.op("SliceChannel", x, num_outputs=2, squeeze_axis=True)), 5),
    "broadcast to what is made of it": (
        lambda net, x: layer(net, net.op("broadcast_add", net.op("relu", x), net.op("exp", x))),
        4,
    ),
    "parts": (lambda net, x: layer(net, net.op("SliceChannel", x, num_outputs=2)), 4),
    "words": (
        lambda net, x: layer(net, net.op("Embedding", x, net.param("table", 9, 4), output_dim=4), "(3,)"),
        2,
    ),
    "a mean": (lambda net, x: layer(net, net.op("mean", x, axis=1)), 5),
    "a mean that keeps its axis": (lambda net, x: layer(net, net.op("mean", x, axis=1, keepdims=True)), 4),
    "turned": (lambda net, x: net.op("transpose", x, axes="(0, 2, 1)"), 3),
    "padded": (lambda net, x: net.op("Pad", x, mode="edge", pad_width="(0, 0, 0, 0, 1, 1, 1, 1)"), 4),
    "added to a layer": (lambda net, x: net.op("elemwise_add", x, net.fc(net.var("y"))), 2),
    "put together with a layer": (lambda net, x: net.op("Concat", layer(net, net.var("y")), x, dim=1), 4),
    "rows of a dense layer": (
        lambda net, x: layer(
            net,
            net.op("FullyConnected", x, net.param("dense", 4, 4), num_hidden=4, flatten=False, no_bias=True),
            "(3,)",
        ),
        3,
    ),
    "rows of a product": (lambda net, x: layer(net, net.op("dot", x, net.param("dense", 4, 4)), "(3,)"), 3),
    "means as a product with shares": (
        lambda net, x: layer(
            net,
            net.op(
                "broadcast_div",
                x,
                net.op("dot", x, net.op("expand_dims", net.op("_contrib_arange_like", x, axis=-1), axis=-1)),
            ),
        ),
        4,
    ),
    "added to axes that a Reshape joins": (
        lambda net, x: net.op("elemwise_add", x, net.op("Reshape", net.var("y"), shape="(0, 0, -3)")), 3
    ),
    "added to axes that a Reshape cuts": (
        lambda net, x: net.op("elemwise_add", x, net.op("Reshape", net.var("y"), shape="(-4, -1, 4, 0)")), 3
    ),
    "steps of a recurrent layer": (
        lambda net, x: net.op("RNN", x, net.param("all", 99), net.var("state"), mode="gru", state_size=3), 3
    ),
}  # fmt: skip

UNCERTAIN: dict[str, Network] = {
    "flattened": lambda net, x: net.fc(x),
    "broadcast": lambda net, x: layer(net, net.op("broadcast_add", x, net.var("y"))),
    "broadcast to a mean of it": lambda net, x: layer(
        net, net.op("broadcast_sub", x, net.op("mean", x, axis=1))
    ),
    "added to the axes that a Reshape leaves": lambda net, x: net.op(
        "elemwise_add", x, net.op("Reshape", net.var("y"), shape="(-3, -2)")
    ),
    "reshaped": lambda net, x: layer(net, net.op("Reshape", x, shape="(0, 4, 6, 6)")),
    "squeezed of whatever is one": lambda net, x: layer(net, net.op("squeeze", x)),
    "perhaps a mean of all": lambda net, x: net.op("FullyConnected", net.op("mean", x, axis=0), net.var("w")),
    "of all axes but one": lambda net, x: layer(net, net.op("mean", x, axis=0, exclude=True)),
    "times a vector": lambda net, x: net.op("dot", x, net.param("vector", 4)),
}


@pytest.mark.parametrize("case", BEFORE)
def test_what_comes_behind_tells_what_was_read(case: str) -> None:
    network, rank = BEFORE[case]
    assert rank_of(network) == rank


@pytest.mark.parametrize("case", UNCERTAIN)
def test_what_is_not_certain(case: str) -> None:
    assert rank_of(UNCERTAIN[case]) is None


def test_a_mean_over_the_only_axis_is_one_value() -> None:
    """So that one axis of a result says nothing of how many were read: one or two."""

    def network(net: Net, x: Entry) -> Entry:
        summed = net.op("sum", x, axis=0)
        return net.op("elemwise_add", summed, net.param("vector", 1))

    assert rank_of(network) is None


def test_what_is_known_is_known_behind_it() -> None:
    def network(net: Net, x: Entry) -> Entry:
        return net.op("mean", net.op("expand_dims", layer(net, x), axis=0), axis="(1, 2)", name="last")

    assert rank_of(network, "last") == 3
