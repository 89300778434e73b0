"""A choice whose condition is known is what it takes."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import DropKnownChoices
from mxamp.policy import Policy
from tests.building import BF16, Net, reads
from tests.passes.executing import on_edges, outputs
from tests.passes.preparing import prepared


def choice(net: Net, condition: Entry, name: str = "choice") -> Entry:
    return net.op("where", condition, net.op("exp", net.x), net.op("negative", net.x), name=name)


def network(op: str = "ones_like") -> tuple[Net, Graph]:
    net = Net()
    net.x = net.op("Flatten", net.var("x"))
    attrs = {"shape": "(2, 3)"} if op in ("_ones", "_zeros") else {}
    condition = net.op(op, *(() if attrs else (net.x,)), **attrs)
    return net, net.graph(net.op("abs", choice(net, condition), name="y"))


@pytest.mark.parametrize(
    ("op", "taken"),
    [("ones_like", "exp"), ("_ones", "exp"), ("zeros_like", "negative"), ("_zeros", "negative")],
)
def test_what_is_taken_is_read(monkeypatch: pytest.MonkeyPatch, op: str, taken: str) -> None:
    _, graph = network(op)
    after, done = prepared(DropKnownChoices, graph)
    (read,) = reads(after, "y")
    assert read.startswith(taken)
    assert (done.changes[0].node, done.changes[0].into) == ("choice", read)
    # The condition and what is not taken go with it, and the others stay.
    gone = {change.node for change in done.changes[1:]}
    assert len(gone) == 2
    assert {node.name for node in graph.nodes} - {node.name for node in after.nodes} == {"choice", *gone}
    assert all(after.visits[position] >= 0 for position in range(len(after.nodes)))
    data = {"x": on_edges(2, 3)}
    for one, other in zip(outputs(monkeypatch, graph, {}, data), outputs(monkeypatch, after, {}, data)):
        np.testing.assert_array_equal(one, other)


def test_choices_of_choices_go_too() -> None:
    net = Net()
    net.x = net.op("Flatten", net.var("x"))
    ones = net.op("ones_like", net.x)
    inner = choice(net, ones, "inner")
    graph = net.graph(net.op("abs", net.op("where", ones, inner, net.x, name="outer"), name="y"))
    after, done = prepared(DropKnownChoices, graph)
    assert reads(after, "y") == ["exp3"]
    assert {(change.node, change.into) for change in done.changes} == {
        (name, "exp3") for name in ("inner", "outer", "negative4", "ones_like2")
    }


def test_what_others_read_too_stays() -> None:
    net = Net()
    net.x = net.op("Flatten", net.var("x"))
    ones = net.op("ones_like", net.x, name="ones")
    other = net.op("negative", net.op("exp", net.x, name="read"), name="other")
    taken = net.op("where", ones, net.x, other, name="choice")
    graph = net.graph(net.op("elemwise_add", taken, net.op("abs", ones, name="reader"), name="y"))
    after, done = prepared(DropKnownChoices, graph)
    assert {change.node for change in done.changes} == {"choice", "other", "read"}
    assert reads(after, "reader") == ["ones"]
    graph = net.graph(net.op("abs", taken, name="end"), other)
    after, done = prepared(DropKnownChoices, graph)
    assert {change.node for change in done.changes} >= {"choice"}
    assert {"other", "read", "ones"} <= {node.name for node in after.nodes}


@pytest.mark.parametrize("op", ["ones_like", "zeros_like"])
@pytest.mark.parametrize("case", ["zeros", "a layer of zeros", "an input"])
def test_what_is_not_taken_may_be_told_its_shape_as_well(op: str, case: str) -> None:
    net = Net()
    new = net.op("exp", net.var("x"))
    old = net.var("state") if case == "an input" else net.op("_zeros", shape="(0, 4)")
    if case == "a layer of zeros":
        old = net.fc(old)
    ends = [net.op("where", net.op(op, new), *((new, old) if op == "ones_like" else (old, new)))]
    graph = net.graph(net.op("exp", *ends), net.op("exp", net.fc(old)))
    assert prepared(DropKnownChoices, graph, net.params)[0] is graph


@pytest.mark.parametrize("case", ["zeros without a size", "an input beside another", "an input read no more"])
def test_what_the_choice_tells_a_shape_stays(case: str) -> None:
    net = Net()
    net.x = net.var("x")
    other = net.op("exp", net.var("state"))
    if case == "zeros without a size":
        other = net.op("_copy", net.op("_zeros", shape="(0, 8)"))
    if case == "an input read no more":
        net.x = net.op("FullyConnected", net.x, net.param("weight", 3, 3), num_hidden=3, no_bias=True)
        choice = net.op("where", net.op("ones_like", net.x), net.x, other)
    else:
        choice = net.op("where", net.op("zeros_like", net.x), net.x, other)
    graph = net.graph(net.op("exp", choice, name="y"))
    assert prepared(DropKnownChoices, graph, net.params)[0] is graph


def test_refuses() -> None:
    net = Net()
    net.x = net.var("x")
    graph = net.graph(net.op("abs", choice(net, net.op("relu", net.x))))
    assert prepared(DropKnownChoices, graph)[0] is graph
    graph = net.graph(choice(net, net.op("ones_like", net.x), "output"))
    assert prepared(DropKnownChoices, graph)[0] is graph
    net, graph = network()
    policy = Policy.default(BF16).excluding(names=["choice"])
    assert prepared(DropKnownChoices, graph, policy=policy)[0] is graph
